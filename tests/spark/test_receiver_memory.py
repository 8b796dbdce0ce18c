"""What Spark's memory does not hold of received blocks is on disk, as their storage level promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.lean_jvm import COMPILED
from tests.support.scratch import scratch_env
from tests.support.wait import BUSY

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.needs("programs"), pytest.mark.timeout(300)]


def blocks_in_memory(serializer: str, blocks: int, folder: Path) -> int:
    """Store blocks of 8 MiB in a driver with Spark's default heap; return how many are in memory."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("block_store_job.py")), serializer, str(blocks)],
        env={
            **os.environ,
            **scratch_env(folder),
            **dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable),
            "PYTHONPATH": os.pathsep.join(map(str, (COMPILED, ROOT, ROOT / "src"))),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=280 * BUSY,
        check=False,
    )
    answers = [line[1:] for line in done.stdout.splitlines() if line.startswith("|")]
    assert answers, done.stderr[-6_000:]
    return int(answers[0])


def test_blocks_that_do_not_fit_into_the_default_heap_go_to_disk(tmp_path: Path) -> None:
    """560 MiB, of which Spark keeps 434 MiB in a heap of 1 GiB."""
    assert 35 < blocks_in_memory("JavaSerializer", 70, tmp_path) < 70


def test_blocks_are_read_with_another_serializer_of_sparks_too(tmp_path: Path) -> None:
    assert blocks_in_memory("KryoSerializer", 3, tmp_path) == 3
