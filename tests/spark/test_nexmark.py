"""Nexmark's queries as jobs on a real broker, each compared with plain Python."""

from __future__ import annotations

import subprocess
import sys

import pytest

QUERIES = "q4,q5,q7,q8,q9,q11,q12,q13,q14,q16,q19,q21,q23"
"""One of each kind; ``make nexmark`` runs all."""


@pytest.mark.needs("programs")
@pytest.mark.timeout(5_400)
def test_queries_give_what_plain_python_gives() -> None:
    command = [sys.executable, "-m", "benchmarks.nexmark", "--events", "3000", "--queries", QUERIES]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=5_000)
    assert run.returncode == 0, run.stdout[-6_000:] + run.stderr[-2_000:]
