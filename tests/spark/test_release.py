"""The Spark that `make smoke` and `make test-matrix` mean to test runs, also in Spark's Python processes."""

from __future__ import annotations

import os
from importlib.metadata import version

from pyspark.sql import SparkSession

from pyspark_rocketmq.spark.features import FEATURES


def test_driver_jvm_and_workers_are_of_the_release_under_test(spark: SparkSession) -> None:
    def of_worker(_: int) -> str:
        import pyspark  # noqa: PLC0415 - the worker's

        return pyspark.__version__

    named = os.environ.get("TEST_SPARK", version("pyspark"))
    worker = spark.sparkContext.parallelize([0], 1).map(of_worker).first()
    running = [version("pyspark"), spark.version, worker]
    assert [found.split(".")[:2] for found in running] == [named.split(".")[:2]] * 3
    assert FEATURES.version == version("pyspark")
