"""A Spark session sized for tests."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Final

from pyspark.sql import SparkSession

__all__ = ["local_session"]

_SETTINGS: Final = {
    "spark.ui.port": "0",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    # How long Python and the JVM wait for each other; 15 s are short on a machine that runs many tests.
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.sql.session.timeZone": "UTC",
    # Thorough compilation does not pay for many short queries, and would take one of the two cores.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


@contextlib.contextmanager
def local_session(app_name: str = "tests") -> Iterator[SparkSession]:
    """Run a local Spark session with two cores and two shuffle partitions, over the loopback interface only.

    Its workers run this interpreter, whatever ``PYSPARK_PYTHON`` is: it has the packages under test.
    """
    environ = {"SPARK_LOCAL_IP": "127.0.0.1"}
    environ |= dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
    with _environment(environ):
        builder = SparkSession.builder.master("local[2]").appName(app_name)
        for name, value in _SETTINGS.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        try:
            yield session
        finally:
            session.stop()


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
