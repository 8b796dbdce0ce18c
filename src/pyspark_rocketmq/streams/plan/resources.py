"""Running in about a gigabyte and one core: what a session is started with, and what a query can be given."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from pyspark_rocketmq.streams.plan.session_settings import temporary_settings

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
"""A heap grows into what it may have, whatever it needs; each whole collection gives that back."""

_HISTORY: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "20",
}
"""What Spark keeps of what it did: with its own numbers that grows for hours."""

_QUERY: Final[Mapping[str, str]] = {
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": "64",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
}


@dataclass(frozen=True, slots=True)
class Footprint:
    """How little memory a job's processes take.

    Parameters
    ----------
    name : str
        As the user asked for it.
    heap_mib, young_mib : int
        The JVM's, and the part of it in which objects begin.
    more : Mapping
        Further settings that a session is started with.
    """

    name: str
    heap_mib: int
    young_mib: int
    more: Mapping[str, str]

    def start_settings(self) -> dict[str, str]:
        """Return what only the start of a session can set."""
        return {
            "spark.master": "local[1]",
            _HEAP: f"{self.heap_mib}m",
            _OPTIONS: " ".join(self._flags()),
            **_COLLECT,
            **_HISTORY,
            **self.more,
        }

    def query_settings(self, spark: SparkSession) -> dict[str, str]:
        """Return what a query can be given in any session: one shuffle partition a core, and more."""
        return {"spark.sql.shuffle.partitions": str(spark.sparkContext.defaultParallelism), **_QUERY}

    @contextlib.contextmanager
    def apply_settings(self, spark: SparkSession) -> Iterator[None]:
        """Start a query in this while."""
        conf = spark.sparkContext._jsc.sc().conf()  # noqa: SLF001
        before = conf.get(_REUSE, "true")
        # Python processes that plan would be kept for a minute, in which nothing is planned.
        conf.set(_REUSE, "false")
        try:
            with temporary_settings(spark, self.query_settings(spark)):
                yield
        finally:
            conf.set(_REUSE, before)

    def new_session(self, builder: SparkSession.Builder) -> SparkSession:
        """Return the session that a builder makes, in a JVM of this size if this process has none yet."""
        os.environ.setdefault(_ARENAS, _ARENAS_WANTED)  # of the JVM, and of the workers, which inherit it
        for name, value in self.start_settings().items():
            builder = builder.config(name, value)
        return builder.getOrCreate()

    def check(self, spark: SparkSession) -> None:
        """Warn of what a session was started with and cannot be changed any more."""
        found = self.differences(spark)
        if found:
            warnings.warn(
                f"{self.name} came too late for a session that runs already: {'; '.join(found)}. Let "
                "start() make the session, or start yours with these settings",
                UserWarning,
                stacklevel=2,
            )

    def differences(self, spark: SparkSession) -> list[str]:
        """Return what a session was started with that takes more memory, a text each."""
        context, found = spark.sparkContext, []
        conf = context.getConf()
        for name, wanted in self.start_settings().items():
            if name not in _OF_THE_JVM and (value := conf.get(name, "unset")) != wanted:
                found.append(f"{name} is {value}, not {wanted}")
        jvm = context._jvm  # noqa: SLF001 - the one way to ask the JVM about itself
        assert jvm is not None
        # The context's settings may say what a JVM that was there before it never heard of.
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
        # By default the heap begins with a 64th of the machine's memory, whatever is needed.
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
        # Spark refuses a heap below 450 MiB unless less of it is put aside; the setting is one of its tests.
        "spark.testing.reservedMemory": str(100 << 20),
    },
)
