"""The Spark session of tests."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from pyspark.sql import SparkSession


@contextlib.contextmanager
def local_session() -> Iterator[SparkSession]:
    """Run a local Spark session with two cores."""
    # Workers, among them the one that looks for data sources, must be this interpreter.
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName("pyspark-rocketmq tests")
        .config("spark.ui.port", "0")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        # Of many short queries none is worth thorough compilation, which would take a core of the two.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()
