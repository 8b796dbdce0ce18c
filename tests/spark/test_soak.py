"""The twin of ``python -m benchmarks.soak``: for seconds, where only a leak by the batch shows."""

from __future__ import annotations

from pathlib import Path

from benchmarks.soak import LIMITS, Limit, soak
from pyspark.sql import SparkSession

from pyspark_rocketmq.devcluster import DevCluster

SECONDS, BATCHES = 16, 8


def test_a_steady_stream_leaks_no_files_and_no_threads(
    spark: SparkSession, mq: DevCluster, tmp_path: Path
) -> None:
    found = soak(spark, mq.name_server, tmp_path, seconds=SECONDS, rate=2_000, batches=BATCHES)
    assert found.read == found.written > 2_000
    # A leak of one file or thread a batch shows from the second quarter to the last. The JVM is not our own,
    # and takes longer to settle.
    names = ("driver files", "driver threads", "workers files", "workers threads")
    limits = {name: LIMITS[name] for name in names} | {
        "driver MiB": Limit(share=0, more=32),
        "workers MiB": Limit(share=0, more=64),
    }
    grown = found.grown(limits)
    assert not grown, f"second quarter, last quarter: {grown}"
