"""Captures checkpoints of stream jobs, which later releases must open.

Run it by hand for a release, with the oldest supported Spark, for all jobs or some:
``python -m tests.golden.capture_streams 0.1.0 windows``.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from tests.golden.stream_jobs import BEFORE, CHECKPOINTS, JOBS, keep, run

SETTINGS = {"spark.sql.shuffle.partitions": "1", "spark.sql.session.timeZone": "UTC"}


def main(release: str, *jobs: str) -> None:
    """Capture a checkpoint of each job."""
    builder = SparkSession.builder.master("local[1]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    with tempfile.TemporaryDirectory() as work:
        os.environ["PYSPARK_ROCKETMQ_STREAMS_HOME"] = f"{work}/home"
        for job in jobs or JOBS:
            checkpoint = Path(work) / job
            rows = run(spark, job, BEFORE, checkpoint)
            keep(checkpoint, CHECKPOINTS / release / "streams" / f"{job}.zip")
            print(job, rows)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
