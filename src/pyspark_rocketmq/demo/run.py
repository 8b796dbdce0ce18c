"""One run of the demo: start everything, stream, check the result, remove everything."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_rocketmq.client import Admin, Client
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock, Deadline
from pyspark_rocketmq.demo.feed import Feed
from pyspark_rocketmq.demo.job import read_orders, revenue
from pyspark_rocketmq.demo.orders import SPAN_MS, Totals, Window, orders
from pyspark_rocketmq.demo.session import local_spark
from pyspark_rocketmq.demo.stream import RevenueStream
from pyspark_rocketmq.demo.timeline import Timeline
from pyspark_rocketmq.devcluster import DevCluster, JvmOptions
from pyspark_rocketmq.devcluster.detached import find_detached, start_detached, stop_detached
from pyspark_rocketmq.devcluster.jars import DEFAULT_VERSION, rocketmq_jars
from pyspark_rocketmq.devcluster.java import find_java
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.spark.causes import find_cause

__all__ = ["DemoRun", "DemoSettings"]

QUEUES: Final = 4

_BROKER: Final = JvmOptions(heap="512m", jvm_args=("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"))
"""The broker runs for seconds only, so thorough compilation would not pay."""

_NOBODY: Final = "127.0.0.1:9876"
"""The name server of a job that does not run."""

_MAX_CORES: Final = 4
_BATCHES: Final = 5
_MIN_BATCH: Final = 10_000
_LOOK_S: Final = 0.1
_PATIENCE_MS: Final = 300_000
"""The run fails if no batch ends for this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """The settings of a run.

    Parameters
    ----------
    messages : int
        Number of orders.
    rate : int
        Maximum orders per second; 0 for no limit.
    name_server : str, optional
        A RocketMQ to use. Default: one is started.
    keep : bool
        Keep the topic, and the RocketMQ that was started.
    """

    messages: int = 100_000
    rate: int = 20_000
    name_server: str | None = None
    keep: bool = False


class DemoRun:
    """Runs the demo. Other threads can read its progress.

    Parameters
    ----------
    settings : DemoSettings
    clock : Clock
    """

    def __init__(self, settings: DemoSettings, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.settings = settings
        self.timeline = Timeline(clock)
        self.topic = f"orders-{secrets.token_hex(3)}"
        self.name_server = settings.name_server or ""
        self.feed: Feed | None = None
        self.stream: RevenueStream | None = None
        self.differences: tuple[Window, ...] = ()
        self._clock = clock
        self._kept = False

    @property
    def sent(self) -> int:
        """Orders sent so far."""
        return self.feed.sent if self.feed is not None else 0

    @property
    def read(self) -> int:
        """Orders in batches that Spark has finished."""
        return self.stream.read if self.stream is not None else 0

    @property
    def expected(self) -> Totals:
        """The totals of the orders sent so far."""
        return self.feed.expected if self.feed is not None else {}

    @property
    def totals(self) -> Totals:
        """Spark's totals so far."""
        return self.stream.totals if self.stream is not None else {}

    def fetch(self) -> None:
        """Fetch RocketMQ's jars. Only the first run on a machine downloads them, with a progress bar.

        Raises
        ------
        DevClusterError
        """
        if self.settings.name_server is None:
            with self.timeline.phase("fetch RocketMQ"):
                rocketmq_jars()

    def run(self) -> None:
        """Start the servers, stream until every order is counted, and stop what was started.

        Raises
        ------
        RocketMQError
            A start failed, or the stream failed or stalled. What was started is stopped.
        """
        with ExitStack() as resources:
            home = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="pyspark-rocketmq-demo-")))
            spark = resources.enter_context(self._spark(home))
            self.name_server = resources.enter_context(self._rocketmq())
            with self.timeline.phase("create the topic"):
                client = resources.enter_context(Client(self.name_server))
                resources.enter_context(self._topic(client))
            try:
                self._count_revenue(spark(), client, home)
            except PySparkException as error:
                raise RocketMQError(f"the streaming query failed: {find_cause(str(error))}") from error
            with self.timeline.phase("verify"):
                self.differences = _differences(self.expected, self.totals)
            self._kept = self.settings.keep
            with self.timeline.phase("clean up"):
                resources.close()

    @contextlib.contextmanager
    def _spark(self, home: Path) -> Iterator[Callable[[], SparkSession]]:
        """Start Spark concurrently with RocketMQ. The returned value waits for it.

        Spark then knows the source: looking it up takes Spark seconds, which pass while RocketMQ starts.
        """
        cores = min(_MAX_CORES, os.cpu_count() or 1)
        java_home = find_java().executable.resolve().parent.parent
        os.environ.setdefault("JAVA_HOME", str(java_home))
        session = ExitStack()

        def start() -> SparkSession:
            with self.timeline.phase("start Spark") as phase:
                spark = session.enter_context(
                    local_spark("pyspark-rocketmq demo", cores=cores, log_file=home / "spark.log")
                )
                revenue(read_orders(spark, _NOBODY, self.topic, most=_MIN_BATCH))
                phase.note = f"{spark.version}, local[{cores}]"
                return spark

        with session, ThreadPoolExecutor(1, thread_name_prefix="start-spark") as starter:
            yield starter.submit(start).result

    @contextlib.contextmanager
    def _rocketmq(self) -> Iterator[str]:
        """Return the given name server, that of a RocketMQ to keep, or that of one for this run only."""
        if self.settings.name_server is not None:
            yield self.settings.name_server
            return
        with ExitStack() as started:
            with self.timeline.phase("start RocketMQ") as phase:
                phase.note = DEFAULT_VERSION
                name_server = self._start(started)
            yield name_server

    def _start(self, started: ExitStack) -> str:
        if not self.settings.keep:
            return started.enter_context(DevCluster(broker_options=_BROKER, clock=self._clock)).name_server
        running = find_detached()
        if running is not None and running.is_running:
            return running.name_server
        cluster = start_detached(clock=self._clock)
        started.callback(lambda: None if self._kept else stop_detached())
        return cluster.name_server

    @contextlib.contextmanager
    def _topic(self, client: Client) -> Iterator[None]:
        admin = Admin(client)
        admin.create_topic(self.topic, queues=QUEUES)
        yield
        if self.settings.name_server is not None and not self._kept:
            admin.delete_topic(self.topic)

    def _count_revenue(self, spark: SparkSession, client: Client, home: Path) -> None:
        """Stream until Spark has finished the batch with the last order."""
        settings = self.settings
        start_ms = (self._clock.now_ms() // SPAN_MS - 1) * SPAN_MS
        shop = orders(settings.messages, start_ms=start_ms)
        self.feed = feed = Feed(client, self.topic, shop, rate=settings.rate)
        with ExitStack() as running:
            with self.timeline.phase("first rows"):
                running.enter_context(feed)
                most = max(_MIN_BATCH, settings.messages // _BATCHES)
                frame = revenue(read_orders(spark, self.name_server, self.topic, most=most))
                self.stream = stream = running.enter_context(RevenueStream(frame, home / "checkpoint"))
                self._await(lambda: bool(stream.totals))
            with self.timeline.phase("stream the rest"):
                self._await(lambda: feed.done and stream.read >= feed.sent)

    def _await(self, reached: Callable[[], bool]) -> None:
        """Poll the feed and the stream until a condition holds.

        Raises
        ------
        RequestTimeoutError
            No batch has ended for a long time.
        """
        assert self.feed is not None
        assert self.stream is not None
        deadline, batches = Deadline(self._clock, _PATIENCE_MS), self.stream.batches
        while not reached():
            deadline.check("the streaming query", topic=self.topic)
            self._clock.sleep(_LOOK_S)
            self.feed.check()
            self.stream.look()
            if self.stream.batches != batches:
                deadline, batches = Deadline(self._clock, _PATIENCE_MS), self.stream.batches


def _differences(expected: Totals, totals: Totals) -> tuple[Window, ...]:
    """Return the windows and products for which Spark's totals differ from what was sent."""
    windows = expected.keys() | totals.keys()
    return tuple(sorted(window for window in windows if expected.get(window) != totals.get(window)))
