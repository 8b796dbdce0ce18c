"""``fromKafka`` and ``toKafka`` on a real Kafka; among the long tests because of what it fetches once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.needs("kafka", "programs")
@pytest.mark.timeout(900)
def test_a_pipeline_from_kafka_to_kafka_has_the_right_sums_after_a_restart() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.streams_kafka", "--rows", "2000"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4_000:]}"
    assert "10 sums, right" in done.stdout
