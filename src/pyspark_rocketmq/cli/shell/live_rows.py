"""The rows of a stream as a table that changes while the query runs."""

from __future__ import annotations

import collections
import threading
import time
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from pyspark_rocketmq.cli.printing import table
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.options import OutputMode
from pyspark_rocketmq.spark.body_formats import quote
from pyspark_rocketmq.spark.query_end import ends_within, stop_query
from pyspark_rocketmq.spark.session_settings import temporary_settings
from pyspark_rocketmq.sql.error_positions import reason_of
from pyspark_rocketmq.sql.flinksql.relations import CHANGE
from pyspark_rocketmq.sql.plan.query_settings import query_settings

__all__ = ["LiveRows"]

_SHOWN: Final = 20
_POLL_S: Final = 0.25


class LiveRows:
    """Shows the newest rows of a stream until it ends, or until Ctrl-C.

    Parameters
    ----------
    rows : DataFrame
    mode : OutputMode
    trigger_ms : int, optional
        The time between micro-batches; None reads what is available, and ends.
    """

    def __init__(self, rows: DataFrame, mode: OutputMode, trigger_ms: int | None) -> None:
        self._settings = query_settings(keeps_state=CHANGE in rows.columns)
        if CHANGE in rows.columns:
            others = [quote(name) for name in rows.columns if name != CHANGE]
            rows = rows.select(F.col(f"{CHANGE}.op").alias("op"), *others)
        self._rows = rows
        self._mode = mode
        self._trigger: dict[str, Any] = {"availableNow": True}
        if trigger_ms is not None:
            self._trigger = {"processingTime": f"{trigger_ms} milliseconds"}
        self._lock = threading.Lock()  # the batches come in a thread of py4j
        self._newest: collections.deque[tuple[Any, ...]] = collections.deque(maxlen=_SHOWN)
        self._count = 0

    def watch(self, console: Console) -> None:
        """Run the query, and show its rows.

        Raises
        ------
        RocketMQError
            The query failed.
        """
        writer = self._rows.writeStream.outputMode(self._mode.value).trigger(**self._trigger)
        with temporary_settings(self._rows.sparkSession, self._settings):
            query = writer.foreachBatch(self._add).start()
        try:
            with Live(self._view(), console=console, auto_refresh=False, transient=False) as live:
                while query.isActive:
                    self._wait(query)
                    live.update(self._view(), refresh=True)
                live.update(self._view(), refresh=True)
        except KeyboardInterrupt:
            console.print("stopped")
        finally:
            stop_query(query)
        failure = query.exception()
        if failure is not None:
            raise RocketMQError(f"the query failed: {reason_of(failure)}") from failure

    def _wait(self, query: Any) -> None:
        try:
            if not ends_within(query, _POLL_S):
                return
        except PySparkException:
            time.sleep(0)  # it has failed: isActive is false, and the exception is read after the loop

    def _add(self, batch: DataFrame, _: int) -> None:
        complete = self._mode is OutputMode.COMPLETE
        found = [tuple(row) for row in batch.collect()]
        with self._lock:
            if complete:
                self._newest.clear()
                self._count = 0
            self._newest.extend(found)
            self._count += len(found)

    def _view(self) -> Group:
        with self._lock:
            newest, count = list(self._newest), self._count
        shown = f"the newest {len(newest)} of {count:,} rows" if count > len(newest) else f"{count:,} rows"
        return Group(table(self._rows.columns, newest), Text(f"{shown}; Ctrl-C stops the query", style="dim"))
