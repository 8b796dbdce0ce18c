"""Starts the pipelines of a script of ``streams run``: announces Spark, counts rows, ends without traces."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_rocketmq.cli.job_commands.quiet_spark import announce_spark, print_counts
from pyspark_rocketmq.spark.monitor.input_counts import InputCounts
from pyspark_rocketmq.spark.query_end import stop_query
from pyspark_rocketmq.streams.plan.nodes import Plan
from pyspark_rocketmq.streams.run.runner import start

__all__ = ["ScriptLauncher"]


class ScriptLauncher:
    """Launches plans as `runner.start` does.

    Attributes
    ----------
    launched : int
        The number of plans that were started.
    """

    def __init__(self) -> None:
        self.launched = 0
        self._counts = InputCounts()
        self._queries: list[StreamingQuery] = []

    def __call__(
        self,
        spark: SparkSession | None,
        plan: Plan,
        *,
        trigger: Mapping[str, Any] | None = None,
        standby: bool = False,
        elastic: int = 0,
    ) -> StreamingQuery | None:
        """Start a plan."""
        self.launched += 1
        if (spark or SparkSession.getActiveSession()) is None:
            announce_spark()
        with _kept_interrupt():
            query = start(spark, plan, trigger=trigger, standby=standby, elastic=elastic)
        if query is not None:
            self._queries.append(query)
            session = spark or SparkSession.getActiveSession()
            if session is not None:
                self._counts.follow(session, query)
        return query

    def finish(self) -> None:
        """Stop the queries that still run, because the script has ended, and print what was read."""
        for query in self._queries:
            with contextlib.suppress(PySparkException, Py4JError):
                stop_query(query)
        print_counts(self._counts)


@contextlib.contextmanager
def _kept_interrupt() -> Iterator[None]:
    """Keep the handler of Ctrl-C. PySpark's cancels all jobs: queries fail instead of being stopped."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
