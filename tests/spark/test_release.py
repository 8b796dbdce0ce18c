"""The Spark that `make smoke` and `make test-matrix` mean to test runs, also in Spark's Python processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import version

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_rocketmq.spark.features import FEATURES
from pyspark_rocketmq.testing import MockCluster

SINCE_4_2 = {
    "maxOffsetsPerTrigger": "1000",
    "maxBytesPerTrigger": "1m",
    "maxRatePerQueue": "5",
    "minOffsetsPerTrigger": "5",
    "maxTriggerDelay": "1m",
}

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


def test_driver_jvm_and_workers_are_of_the_release_under_test(spark: SparkSession) -> None:
    def of_worker(_: int) -> str:
        import pyspark  # noqa: PLC0415 - the worker's

        return pyspark.__version__

    named = os.environ.get("TEST_SPARK", version("pyspark"))
    worker = spark.sparkContext.parallelize([0], 1).map(of_worker).first()
    running = [version("pyspark"), spark.version, worker]
    assert [found.split(".")[:2] for found in running] == [named.split(".")[:2]] * 3
    assert FEATURES.version == version("pyspark")


def test_an_option_that_the_release_under_test_lacks_is_an_error_that_names_one_that_has_it(
    spark: SparkSession,
) -> None:
    with MockCluster({"orders": 1}) as mq:
        source = {"nameServer": mq.name_server, "topic": "orders"}

        def stream(**options: str) -> None:
            rows = spark.readStream.format("rocketmq").options(**source, **options).load()
            query = rows.writeStream.format("noop").trigger(availableNow=True).start()
            try:
                assert query.awaitTermination(300)
            finally:
                query.stop()

        def read(**options: str) -> None:
            assert spark.read.format("rocketmq").options(**source, **options).load().collect() == []

        def check(since: str, use: Callable[..., None], option: str, value: str) -> None:
            if FEATURES.has(since):
                use(**{option: value})
                return
            message = f"the option {option} needs Spark {since} or later, but this is {FEATURES.version}"
            with pytest.raises(PySparkException, match=message):
                use(**{option: value})

        stream()
        read()
        for option, value in SINCE_4_2.items():
            check("4.2", stream, option, value)
        spark.conf.set(PUSH_DOWN, "true")
        try:
            check("4.1", read, "pushDownFilters", "true")
        finally:
            spark.conf.unset(PUSH_DOWN)
