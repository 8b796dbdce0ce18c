"""Running queries as reported by Spark's UI, for a driver that writes no query log."""

# Facts (MetricsReporter, MetricsServlet of Spark 4.3): with spark.sql.streaming.metricsEnabled each running
# query has gauges at <UI>/metrics/json/: <application>.driver.spark.streaming.<name or id>. and
# inputRate-total, processingRate-total, latency (ms of the last batch), eventTime-watermark (ms),
# states-rowsTotal or states-usedBytes. They disappear with the query.

from __future__ import annotations

import json
import re
import threading
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Final
from urllib.parse import urlsplit

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock
from pyspark_rocketmq.dashboard.history import BatchPoint, QueryHistory
from pyspark_rocketmq.errors import OptionError

__all__ = ["SparkMetrics"]

_GAUGE: Final = re.compile(
    r"\.driver\.spark\.streaming\.(.+)\."
    r"(inputRate-total|processingRate-total|latency|eventTime-watermark|states-rowsTotal|states-usedBytes)\Z"
)
_TIMEOUT_S: Final = 3.0
_MOST_BYTES: Final = 16 << 20
_ENDED: Final = 50
"""How many queries that have ended are shown, the last ones: as with a query log."""

_SILENT: Final = "Spark's UI does not answer with its metrics"


class SparkMetrics:
    """Polls the UI of a driver. Each poll with changed figures is a point in the charts.

    The UI has no batch numbers, no parts of a batch's duration and no lag per queue. The query log has them.

    Parameters
    ----------
    url : str
        The UI's address, such as ``http://driver:4040``.
    clock : Clock

    Raises
    ------
    OptionError
        The URL is malformed.
    """

    nothing = "Spark tells of no query: spark.sql.streaming.metricsEnabled must be true before it starts"

    def __init__(self, url: str, *, clock: Clock = SYSTEM_CLOCK) -> None:
        if not _is_address(url):
            raise OptionError("Spark's UI has an address such as http://driver:4040", spark=url)
        self._url = f"{url.rstrip('/')}/metrics/json/"
        self._clock = clock
        self._runs: dict[str, QueryHistory] = {}
        self._figures: Mapping[str, Mapping[str, float]] = {}
        self._lock = threading.Lock()

    def look(self) -> tuple[QueryHistory, ...]:
        """Return the queries, running ones first.

        Raises
        ------
        OptionError
            No Spark UI answers at the address.
        """
        with self._lock:
            found = _by_query(self._gauges())
            now = self._clock.now_ms()
            for name, figures in found.items():
                run = self._runs.setdefault(name, QueryHistory(name, name=name, started_ms=now))
                run.ended = False
                if self._figures.get(name) != figures:
                    run.seen_ms = now
                    run.batches.append(_point(figures, now))
            for name in self._runs.keys() - found.keys():
                self._runs[name].ended = True
            ended = sorted((run for run in self._runs.values() if run.ended), key=lambda run: run.seen_ms)
            for run in ended[:-_ENDED]:
                del self._runs[run.run_id]
            self._figures = found
            return tuple(sorted(self._runs.values(), key=lambda run: (run.ended, run.run_id)))

    def _gauges(self) -> Mapping[str, Mapping[str, object]]:
        try:
            with urllib.request.urlopen(self._url, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - checked above
                gauges = json.loads(answer.read(_MOST_BYTES))["gauges"]
        except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
            reason = getattr(error, "reason", None) or error
            raise OptionError(f"{_SILENT}: {reason}", url=self._url) from error
        if not isinstance(gauges, dict):
            raise OptionError(_SILENT, url=self._url)
        return gauges


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a bracket is open, or the port is no number
        return False


def _by_query(gauges: Mapping[str, Mapping[str, object]]) -> Mapping[str, Mapping[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for key, gauge in gauges.items():
        match = _GAUGE.search(key)
        value = gauge.get("value") if isinstance(gauge, dict) else None
        if match is not None and isinstance(value, int | float):
            found.setdefault(match[1], {})[match[2]] = value
    return found


def _point(figures: Mapping[str, float], now_ms: int) -> BatchPoint:
    return BatchPoint(
        batch_id=None,
        at_ms=now_ms,
        rows=None,
        input_rate=figures.get("inputRate-total", 0.0),
        processed_rate=figures.get("processingRate-total", 0.0),
        duration_ms={"batch": int(figures.get("latency", 0))},
        state_rows=int(figures.get("states-rowsTotal", 0)),
        state_bytes=int(figures.get("states-usedBytes", 0)),
        watermark_ms=int(figures.get("eventTime-watermark", 0)) or None,
        lag={},
    )
