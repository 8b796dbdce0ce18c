"""JVMs of tests and their Python processes start fast: little compilation, classes from an archive.

A JVM with other jars than those of the archive (`class_archive`), or without it, loads its classes as usual.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Final

LEAN: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""What is compiled thoroughly pays only in a JVM that runs longer than a suite."""

_CODE: Final = ("-XX:ReservedCodeCacheSize=256m", "-XX:MetaspaceSize=400m")
"""With one compiler, a JVM has 48 MiB for its code. The many queries of a suite fill them: a tenth of its
time went into looking for code to discard. Each time that its classes have outgrown a limit, which begins at
20 MiB, it collects its whole heap."""

ARCHIVE: Final = Path(sys.prefix) / "spark-classes.jsa"
LOCAL_FILES: Final = Path(sys.prefix) / "local-files.jar"
COMPILED: Final = Path(__file__).with_name("compiled_pyspark")
_PATIENT: Final = ("-Dspark.python.authenticate.socketTimeout=120s",)
"""For Python to fetch the rows of a ``collect()``: by default 15 s, of which a busy machine may need some."""
_FRUGAL: Final = ("-Djdk.lang.Process.launchMechanism=VFORK", "-Dspark.sql.streaming.pollingDelay=50ms")
"""Processes start without a helper in between. A query that waits for messages asks for them every 50 ms,
not every 10."""
_INTERPRETED: Final = ("-Dspark.sql.codegen.wholeStage=false", "-Dspark.sql.codegen.factoryMode=NO_CODEGEN")
"""Spark interprets expressions: to compile them does not pay for a few rows."""
_IN_PROCESS: Final = (
    "-Dspark.hadoop.fs.file.impl=InProcessFiles$Older",
    "-Dspark.hadoop.fs.AbstractFileSystem.file.impl=InProcessFiles",
)
"""Files of checkpoints without processes, see `local_files`: half of the time of a small micro-batch."""
QUIET: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""An archive that does not fit is not worth a word: what a program prints is compared."""


def lean_spark(environ: MutableMapping[str, str]) -> None:
    """Have Spark's launcher start every driver of this process and its children with lean JVMs.

    With ``TEST_COMPILED``, as in `make test-all`, Spark compiles expressions and has Hadoop's own files.
    """
    archive = [f"-XX:SharedArchiveFile={ARCHIVE}", *QUIET] if ARCHIVE.exists() else []
    lighter = list[str]()
    if not environ.get("TEST_COMPILED"):
        lighter += _INTERPRETED
        if LOCAL_FILES.exists():
            lighter += _IN_PROCESS
            environ["SPARK_DIST_CLASSPATH"] = str(LOCAL_FILES)
    environ["SPARK_SUBMIT_OPTS"] = " ".join([*LEAN, *_CODE, *_PATIENT, *_FRUGAL, *lighter, *archive])
    environ["SPARK_LAUNCHER_OPTS"] = " ".join(LEAN)


def lean_workers(environ: MutableMapping[str, str]) -> None:
    """Have Spark's Python processes import a compiled PySpark, see `compiled_pyspark/sitecustomize.py`."""
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(COMPILED), users_pythonpath(environ)]))


def users_pythonpath(environ: Mapping[str, str]) -> str:
    """Return ``PYTHONPATH`` without what `lean_workers` adds, for a process whose memory is measured."""
    entries = environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if entry not in ("", str(COMPILED)))
