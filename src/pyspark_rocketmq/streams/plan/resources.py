"""Settings for running in about a gigabyte on one core: those of a session's start, and those of a query."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from pyspark_rocketmq.spark.session_settings import temporary_settings

__all__ = ["HARD_LIMIT", "LOW_MEMORY", "Footprint"]

_ARENAS: Final = "MALLOC_ARENA_MAX"
_ARENAS_WANTED: Final = "2"
_FLAGS: Final = (
    "-XX:+UseSerialGC",
    "-XX:MinHeapFreeRatio=10",
    "-XX:MaxHeapFreeRatio=30",
    "-XX:-ShrinkHeapInSteps",
    "-XX:SoftRefLRUPolicyMSPerMB=0",
    "-XX:TieredStopAtLevel=1",  # C1 only
    "-XX:ReservedCodeCacheSize=64m",
    "-XX:MaxMetaspaceSize=192m",
)
_OLD_AT_FIRST_MIB: Final = 32
_OPTIONS: Final = "spark.driver.extraJavaOptions"
_HEAP: Final = "spark.driver.memory"
_REUSE: Final = "spark.python.worker.reuse"
_OF_THE_JVM: Final = frozenset({_OPTIONS, _HEAP})

_COLLECT: Final[Mapping[str, str]] = {"spark.cleaner.periodicGC.interval": "30s"}
"""A heap grows to its limit regardless of its need. Each full collection returns the unused part."""

_HISTORY: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "20",
}
"""The history that Spark keeps. With Spark's defaults it grows for hours."""

_QUERY: Final[Mapping[str, str]] = {
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": "64",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
}


@dataclass(frozen=True, slots=True)
class Footprint:
    """The memory limits of a job's processes.

    Parameters
    ----------
    name : str
        The name of the user's setting.
    heap_mib, young_mib : int
        The JVM's heap, and its young generation.
    more : Mapping
        Additional settings of a session's start.
    """

    name: str
    heap_mib: int
    young_mib: int
    more: Mapping[str, str]

    def start_settings(self) -> dict[str, str]:
        """Return the settings that only the start of a session can set."""
        return {
            "spark.master": "local[1]",
            _HEAP: f"{self.heap_mib}m",
            _OPTIONS: " ".join(self._flags()),
            **_COLLECT,
            **_HISTORY,
            **self.more,
        }

    def query_settings(self, spark: SparkSession) -> dict[str, str]:
        """Return the settings for a query in any session: one shuffle partition per core, and more."""
        return {"spark.sql.shuffle.partitions": str(spark.sparkContext.defaultParallelism), **_QUERY}

    @contextlib.contextmanager
    def apply_settings(self, spark: SparkSession) -> Iterator[None]:
        """Apply the settings while a query starts."""
        conf = spark.sparkContext._jsc.sc().conf()  # noqa: SLF001
        before = conf.get(_REUSE, "true")
        # Otherwise Python planning processes are kept for an idle minute.
        conf.set(_REUSE, "false")
        try:
            with temporary_settings(spark, self.query_settings(spark)):
                yield
        finally:
            conf.set(_REUSE, before)

    def new_session(self, builder: SparkSession.Builder) -> SparkSession:
        """Return the builder's session, in a JVM of this size if this process has none yet."""
        os.environ.setdefault(_ARENAS, _ARENAS_WANTED)  # of the JVM, and of the workers, which inherit it
        for name, value in self.start_settings().items():
            builder = builder.config(name, value)
        return builder.getOrCreate()

    def check(self, spark: SparkSession) -> None:
        """Warn about settings of the session's start that can no longer change."""
        found = self.differences(spark)
        if found:
            warnings.warn(
                f"{self.name} cannot change a session that is already running: {'; '.join(found)}. "
                "Let start() create the session, or start yours with these settings",
                UserWarning,
                stacklevel=2,
            )

    def differences(self, spark: SparkSession) -> list[str]:
        """Return one text per setting of the session's start that uses more memory."""
        context, found = spark.sparkContext, []
        conf = context.getConf()
        for name, wanted in self.start_settings().items():
            if name not in _OF_THE_JVM and (value := conf.get(name, "unset")) != wanted:
                found.append(f"{name} is {value}, not {wanted}")
        jvm = context._jvm  # noqa: SLF001 - the one way to ask the JVM about itself
        assert jvm is not None
        # The context's settings may differ from those of a JVM that was started before the context.
        heap_mib = int(jvm.java.lang.Runtime.getRuntime().maxMemory()) >> 20
        if heap_mib > self.heap_mib:
            found.append(f"the heap is {heap_mib}m, not {self.heap_mib}m")
        launched = " ".join([jvm.java.lang.System.getProperty("sun.java.command"), *_flags_of_every_jvm()])
        missing = [flag for flag in self._flags() if flag not in launched]
        if missing:
            found.append(f"the JVM runs without {' '.join(missing)}")
        if jvm.java.lang.System.getenv(_ARENAS) is None:
            found.append(f"the environment has no {_ARENAS}={_ARENAS_WANTED}")
        return found

    def _flags(self) -> tuple[str, ...]:
        # By default the initial heap is a 64th of the machine's memory, regardless of the need.
        return (*_FLAGS, f"-Xmn{self.young_mib}m", f"-Xms{self.young_mib + _OLD_AT_FIRST_MIB}m")


def _flags_of_every_jvm() -> list[str]:
    names = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
    return [os.environ[name] for name in names if name in os.environ]


LOW_MEMORY: Final = Footprint("WindowStrategy.lowMemory()", 512, 64, {})
HARD_LIMIT: Final = Footprint(
    "WindowStrategy.lowMemory(hardLimit=True)",
    256,
    32,
    {
        "spark.python.use.daemon": "false",
        "spark.sql.codegen.wholeStage": "false",
        # Spark rejects a heap below 450 MiB unless less of it is reserved. The setting is for Spark's tests.
        "spark.testing.reservedMemory": str(100 << 20),
    },
)
