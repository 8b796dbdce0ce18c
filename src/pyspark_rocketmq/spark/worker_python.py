"""The interpreter of Spark's workers: checked before Spark reports its absence as something else.

Spark looks up and plans Python data sources in a worker on the driver's machine. If that interpreter lacks
this package, the query fails with DATA_SOURCE_NOT_FOUND and a long trace.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from pyspark_rocketmq.errors import RocketMQError

__all__ = ["check_worker_python", "register"]

_TIMEOUT_S: Final = 10
_PROBE: Final = "import pyspark_rocketmq"


def register(spark: SparkSession) -> None:
    """Register the source with a session, so that Spark sends ``--py-files`` to its workers.

    Only needed if the workers get this package from a zip. Spark finds an installed package by itself; what
    Spark 4.0 has found, it keeps.

    Raises
    ------
    RocketMQError
        The interpreter of the workers on this machine lacks this package.
    """
    from pyspark_rocketmq.spark.source import RocketMQCompatDataSource, RocketMQDataSource  # noqa: PLC0415

    check_worker_python(spark)
    for source in (RocketMQDataSource, RocketMQCompatDataSource):
        try:
            spark.dataSource.register(source)
        except AnalysisException as error:
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":  # of Spark 4.0, which found it installed
                raise


def check_worker_python(spark: SparkSession) -> None:
    """Raise an error if this session's workers on this machine cannot import this package.

    Starts an interpreter once per process, and only if it is not the running one. Checks nothing under Spark
    Connect, or if the session sends Python files to its workers.

    Raises
    ------
    RocketMQError
        The message names the interpreter and how to change it.
    """
    context: Any = getattr(spark, "_sc", None)  # Spark Connect has none
    if context is None or context._python_includes:  # noqa: SLF001 - what --py-files and addPyFile gave
        return
    program = _data_source_python(context._jvm)  # noqa: SLF001
    reason = _reason(program, os.environ.get("PATH", ""))
    if reason is not None:
        raise RocketMQError(
            f"Spark looks up and plans data sources with {program}, which lacks this package, so it would "
            f"report DATA_SOURCE_NOT_FOUND: {reason}. Before the session starts: "
            f"export PYSPARK_PYTHON={sys.executable} PYSPARK_DRIVER_PYTHON={sys.executable}"
        )


def _data_source_python(jvm: Any) -> str:
    """Return ``PYSPARK_DRIVER_PYTHON``, else ``PYSPARK_PYTHON``, else python3, of the JVM's environment."""
    utils = getattr(jvm.org.apache.spark.api.python, "PythonUtils$")  # a Scala object
    return str(getattr(utils, "MODULE$").defaultPythonExec())


@functools.cache
def _reason(program: str, path: str) -> str | None:
    """Return why an interpreter cannot import this package; None if it can, or gives no answer."""
    found = shutil.which(program, path=path)
    if found is None or os.path.abspath(found) == os.path.abspath(sys.executable):  # noqa: PTH100 - links stay
        return None
    try:
        done = subprocess.run(
            [found, "-c", _PROBE], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (done.stderr.strip().splitlines() or ["no reason given"])[-1] if done.returncode else None
