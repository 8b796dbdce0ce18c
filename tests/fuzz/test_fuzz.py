"""The kept corpus on every target, and a bounded search for more."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fuzz.seeds import SEEDS
from tests.fuzz.targets import TARGETS, call

ROOT = Path(__file__).parents[2]
CORPUS = Path(__file__).parent / "corpus"
RUNS = 1_000
"""Of a target: the same ones for the same seed, on any machine. `make fuzz` searches for minutes."""
SEED = os.environ.get("TEST_SEED", "1")


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus(target: str) -> None:
    kept = sorted((CORPUS / target).iterdir())
    assert kept, f"no corpus of {target}"
    for path in kept:
        call(target, path.read_bytes())


@pytest.mark.parametrize("target", [target for target in TARGETS if target != "header"])
def test_well_formed_inputs_are_taken(target: str) -> None:
    run, _ = TARGETS[target]
    for seed in SEEDS[target]:
        run(seed)


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="no atheris for this platform")
@pytest.mark.parametrize("target", TARGETS)
def test_a_search_finds_nothing_new(target: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz.run", target, "--runs", str(RUNS), "--seed", SEED]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
