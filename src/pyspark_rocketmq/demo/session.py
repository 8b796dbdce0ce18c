"""A local Spark session that logs to a file and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from pyspark_rocketmq.errors import RocketMQError

__all__ = ["local_spark"]

_END_TIMEOUT_S: Final = 30
_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a run of seconds thorough compilation does not pay: this halves its CPU time."""

_TAIL_CHARACTERS: Final = 2_000


@contextlib.contextmanager
def local_spark(app_name: str, *, cores: int, log_file: Path) -> Iterator[SparkSession]:
    """Run a Spark session on this machine, over the loopback interface only.

    The JVM has its own process session: Ctrl-C reaches only this process, which then ends the JVM.

    Parameters
    ----------
    cores : int
        Concurrent tasks, and partitions of shuffles.
    log_file : Path
        Receives all output of Spark and its workers.

    Raises
    ------
    RocketMQError
        The JVM does not start. The message has its output.
    """
    # Spark's workers, including the one that looks up data sources, must run this interpreter.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    conf = (
        SparkConf()
        .setMaster(f"local[{cores}]")
        .setAppName(app_name)
        .set("spark.driver.extraJavaOptions", _JVM)
        .set("spark.sql.codegen.wholeStage", "false")  # does not pay in a run of seconds
        .set("spark.ui.enabled", "false")
        .set("spark.driver.bindAddress", "127.0.0.1")
        .set("spark.driver.host", "127.0.0.1")
        .set("spark.local.dir", str(log_file.parent))
        .set("spark.sql.shuffle.partitions", str(cores))
        .set("spark.sql.session.timeZone", "UTC")
        .set("spark.sql.warehouse.dir", str(log_file.parent / "warehouse"))
        .set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    )
    with log_file.open("ab") as log:
        streams = {"stdout": log, "stderr": subprocess.STDOUT, "start_new_session": True}
        try:
            gateway = launch_gateway(conf, streams)  # type: ignore[no-untyped-call]
        except PySparkException as error:
            tail = log_file.read_text(errors="replace")[-_TAIL_CHARACTERS:]
            raise RocketMQError(f"Spark did not start; it said:\n{tail}") from error
    try:
        spark = SparkSession(SparkContext(conf=conf, gateway=gateway))
        try:
            yield spark
        finally:
            spark.stop()
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM ends with its standard input
        try:
            gateway.proc.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            gateway.proc.kill()
            gateway.proc.wait()
