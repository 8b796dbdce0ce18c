"""What a user of Spark sees after the commonest mistakes: one line that says it, and no trace of ours.

``tests/golden/mistakes_in_spark.txt`` has these texts to read.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession
from tests.support.spark_mistakes import MISTAKES, World, make, mistaken_cluster

from pyspark_rocketmq.testing import MockCluster

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "mistakes_in_spark.txt"
GOLDEN_SPARK = "4.3."
"""The golden texts have this version's words around ours."""

MOST_LINES = 4
CONNECT_PATIENCE_S = 1_400
WRAPPED_TWICE = "foreachBatch: a row that cannot be sent"
"""Spark Connect puts a task's error into that of a function for foreachBatch, each with a line of its own."""


@pytest.fixture(scope="module")
def mock() -> Iterator[MockCluster]:
    with mistaken_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def unused() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def check(seen: dict[str, str]) -> None:
    """Assert that every text has its message first, and nothing of Python's or Java's traces."""
    for name, text in seen.items():
        lines = text.splitlines()
        assert len(lines) <= MOST_LINES, f"{name}: {len(lines)} lines\n{text}"
        assert "pyspark_rocketmq.errors." in " ".join(lines[:2]), f"{name}: the message is not first\n{text}"
        for trace in ("Traceback", 'File "', "\tat ", "py4j"):
            assert trace not in text, f"{name}\n{text}"


@pytest.mark.timeout(900)
@pytest.mark.since_spark("4.2")
def test_a_mistake_is_told_in_its_first_line(
    spark: SparkSession, mock: MockCluster, unused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    seen = {}
    for number, name in enumerate(MISTAKES):
        folder = tmp_path / str(number)
        seen[name] = make(name, World(spark, mock.name_server, folder, unused))
    found = tmp_path / GOLDEN.name
    found.write_text(
        "\n".join(f"== {name} ({len(text.splitlines())} lines)\n{text}\n" for name, text in seen.items())
    )
    check(seen)
    assert len(seen) >= 30
    if pyspark.__version__.startswith(GOLDEN_SPARK):
        assert found.read_text() == GOLDEN.read_text(), f"if this is better: cp {found} {GOLDEN}"


@pytest.mark.needs("programs")
@pytest.mark.timeout(1_500)
def test_under_connect_too(mock: MockCluster, unused: str, tmp_path: Path) -> None:
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    for name in ("SPARK_REMOTE", "NAMESRV_ADDR"):
        env.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.connect_mistakes", mock.name_server, unused, str(tmp_path)],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=CONNECT_PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    wrapped = seen.pop(WRAPPED_TWICE).splitlines()
    assert len(wrapped) <= MOST_LINES + 1
    assert "pyspark_rocketmq.errors.OptionError: a row cannot be sent" in wrapped[2]
    assert len(seen) >= 30
    check(seen)
