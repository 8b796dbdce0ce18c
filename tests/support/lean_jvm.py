"""JVMs of tests and their Python processes start fast: little compilation, classes from an archive.

``python -m tests.support.lean_jvm`` creates the archive of Spark's classes, which `make setup` does. A JVM
with other jars, or without the archive, loads its classes as usual.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

LEAN: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""What is compiled thoroughly pays only in a JVM that runs longer than a suite."""

ARCHIVE: Final = Path(sys.prefix) / "spark-classes.jsa"
COMPILED: Final = Path(__file__).with_name("compiled_pyspark")
_PATIENT: Final = ("-Dspark.python.authenticate.socketTimeout=120s",)
"""For Python to fetch the rows of a ``collect()``: by default 15 s, of which a busy machine may need some."""
_FRUGAL: Final = ("-Djdk.lang.Process.launchMechanism=VFORK", "-Dspark.sql.streaming.pollingDelay=50ms")
"""Hadoop runs chmod for each file of a checkpoint: without a helper process in between. A query that waits
for messages asks for them every 50 ms, not every 10."""
_QUIET: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""An archive that does not fit is not worth a word: what a program prints is compared."""


def lean_spark(environ: MutableMapping[str, str]) -> None:
    """Have Spark's launcher start every driver of this process and its children with lean JVMs."""
    archive = [f"-XX:SharedArchiveFile={ARCHIVE}", *_QUIET] if ARCHIVE.exists() else []
    environ["SPARK_SUBMIT_OPTS"] = " ".join([*LEAN, *_PATIENT, *_FRUGAL, *archive])
    environ["SPARK_LAUNCHER_OPTS"] = " ".join(LEAN)


def lean_workers(environ: MutableMapping[str, str]) -> None:
    """Have Spark's Python processes import a compiled PySpark, see `compiled_pyspark/sitecustomize.py`."""
    others = [entry for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry != str(COMPILED)]
    environ["PYTHONPATH"] = os.pathsep.join([str(COMPILED), *filter(None, others)])


def create_archive() -> None:
    """Run a short job of every kind of query, and keep the classes that its JVM has loaded."""
    draft = ARCHIVE.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join([*LEAN, f"-XX:ArchiveClassesAtExit={draft}", *_QUIET])
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    settings = {"spark.ui.port": "0", "spark.sql.shuffle.partitions": "1", "spark.log.level": "ERROR"}
    spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    rows = spark.range(100).selectExpr("id % 7 AS key", "timestamp_seconds(id) AS at")
    rows.groupBy("key").count().collect()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "rows.txt").write_text("one row")
        query = (
            spark.readStream.text(folder)
            .selectExpr("value", "current_timestamp() AS at")
            .withWatermark("at", "1 second")
            .groupBy("value")
            .count()
            .writeStream.outputMode("update")
            .foreachBatch(lambda batch, _: batch.collect())
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    gateway = spark.sparkContext._gateway
    spark.stop()
    assert gateway is not None
    gateway.proc.stdin.close()  # at the end of its input the JVM ends, and writes the archive
    code = gateway.proc.wait(timeout=600)
    assert code == 0, f"the JVM ended with {code}: an archive that is cut off would crash every other JVM"
    draft.rename(ARCHIVE)


if __name__ == "__main__":
    create_archive()
