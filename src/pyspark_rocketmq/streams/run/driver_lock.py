"""A lock of a job's JVM, which outlives a Python process that is killed.

Facts (PySpark 4.3.0, ``PythonGatewayServer``): the JVM ends after its standard input, and runs its shutdown
hooks before. Measured: 0.9 to 2.1 s, in which its query may still write a batch and commit it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from pyspark_rocketmq.client.clock import Clock, Deadline
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.spark.filesystem import local_folder

__all__ = ["driver_lock"]

_LOG: Final = logging.getLogger(__name__)
_FILE: Final = "driver.lock"
_END_MS: Final = 30_000
"""The time that the JVM of an earlier run has to end."""
_POLL_S: Final = 0.1


@contextlib.contextmanager
def driver_lock(spark: SparkSession, checkpoint: str, clock: Clock) -> Iterator[None]:
    """Hold a lock in the session's JVM, after that of an earlier run has ended: two would write one batch.

    Only on local file systems with locks. The caller holds the job's lock, which is in the same folder.

    Raises
    ------
    RocketMQError
        The JVM of an earlier run still runs.
    """
    folder = local_folder(checkpoint)
    if folder is None or is_remote():
        yield
        return
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark has no other way
    file = jvm.java.io.RandomAccessFile(str(folder / _FILE), "rw")
    try:
        _lock(file.getChannel(), checkpoint, Deadline(clock, _END_MS), clock)
        yield
    finally:
        with contextlib.suppress(Py4JError, OSError):  # the JVM is gone, and its lock with it
            file.close()


def _lock(channel: Any, checkpoint: str, deadline: Deadline, clock: Clock) -> None:
    if _try_lock(channel):
        return
    _LOG.warning("Spark's driver of an earlier run has not ended yet: waiting for it (%s)", checkpoint)
    while not _try_lock(channel):
        if deadline.expired:
            raise RocketMQError(
                f"Spark's driver of an earlier run did not end within {deadline.timeout_ms / 1000:g} s after "
                "its Python process: end its Java process, which may be frozen",
                checkpoint=checkpoint,
            )
        clock.sleep(_POLL_S)


def _try_lock(channel: Any) -> bool:
    try:
        return channel.tryLock() is not None
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() != "java.io.IOException":
            raise
        return True  # the file system has no locks
