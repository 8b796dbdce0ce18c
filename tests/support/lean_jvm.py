"""JVMs of tests and their Python processes start fast: little compilation, classes from an archive.

A JVM with other jars than those of the archive (`class_archive`), or without it, loads its classes as usual.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

LEAN: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""What is compiled thoroughly pays only in a JVM that runs longer than a suite."""

_CODE: Final = ("-XX:ReservedCodeCacheSize=256m",)
"""With one compiler, a JVM has 48 MiB for its code. The many queries of a suite fill them: a tenth of its
time went into looking for code to discard."""

ARCHIVE: Final = Path(sys.prefix) / "spark-classes.jsa"
COMPILED: Final = Path(__file__).with_name("compiled_pyspark")
_PATIENT: Final = ("-Dspark.python.authenticate.socketTimeout=120s",)
"""For Python to fetch the rows of a ``collect()``: by default 15 s, of which a busy machine may need some."""
_FRUGAL: Final = ("-Djdk.lang.Process.launchMechanism=VFORK", "-Dspark.sql.streaming.pollingDelay=50ms")
"""Hadoop runs chmod for each file of a checkpoint: without a helper process in between. A query that waits
for messages asks for them every 50 ms, not every 10."""
_INTERPRETED: Final = ("-Dspark.sql.codegen.wholeStage=false", "-Dspark.sql.codegen.factoryMode=NO_CODEGEN")
"""Spark interprets expressions: to compile them does not pay for a few rows. `make test-all` compiles."""
QUIET: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""An archive that does not fit is not worth a word: what a program prints is compared."""


def lean_spark(environ: MutableMapping[str, str]) -> None:
    """Have Spark's launcher start every driver of this process and its children with lean JVMs."""
    archive = [f"-XX:SharedArchiveFile={ARCHIVE}", *QUIET] if ARCHIVE.exists() else []
    interpreted = [] if environ.get("TEST_COMPILED") else _INTERPRETED
    environ["SPARK_SUBMIT_OPTS"] = " ".join([*LEAN, *_CODE, *_PATIENT, *_FRUGAL, *interpreted, *archive])
    environ["SPARK_LAUNCHER_OPTS"] = " ".join(LEAN)


def lean_workers(environ: MutableMapping[str, str]) -> None:
    """Have Spark's Python processes import a compiled PySpark, see `compiled_pyspark/sitecustomize.py`."""
    others = [entry for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry != str(COMPILED)]
    environ["PYTHONPATH"] = os.pathsep.join([str(COMPILED), *filter(None, others)])
