"""The state of running queries as Prometheus metrics. Requires the extra ``prometheus``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import REGISTRY, Collector, CollectorRegistry

from pyspark_rocketmq.spark.monitor.lag import QueueLag
from pyspark_rocketmq.spark.monitor.listener import QueryStatus, RocketMQQueryListener

__all__ = ["RocketMQCollector", "export_metrics"]


@dataclass(frozen=True, slots=True)
class _Gauge:
    name: str
    doc: str
    value: Callable[[QueryStatus], float | None]


@dataclass(frozen=True, slots=True)
class _QueueGauge:
    name: str
    doc: str
    value: Callable[[QueueLag], float | None]


_QUERY: Final = (
    _Gauge("lag_messages", "Messages stored and not read.", lambda s: s.lag.messages),
    _Gauge("lag_seconds", "How long the oldest message to read has been stored.", lambda s: s.lag.seconds),
    _Gauge("lag_bytes", "Bytes to read, estimated by samples.", lambda s: s.lag.bytes),
    _Gauge("batch_id", "The last finished micro-batch.", lambda s: s.batch_id),
    _Gauge("batch_rows", "Rows of the last micro-batch.", lambda s: s.rows),
    _Gauge("batch_skipped_offsets", "Offsets of the last micro-batch without a row.", lambda s: s.skipped),
    _Gauge("rows_per_second", "Rows a second while processing.", lambda s: s.rows_per_second),
    _Gauge("input_rows_per_second", "Rows a second that arrive.", lambda s: s.input_rows_per_second),
)
_QUEUE: Final = (
    _QueueGauge("queue_position", "The next offset to read.", lambda q: q.position),
    _QueueGauge("queue_lag_messages", "Messages stored and not read.", lambda q: q.messages),
    _QueueGauge("queue_lag_seconds", "How long the next message has been stored.", lambda q: q.seconds),
)
_QUERY_LABELS: Final = ("query", "group")
_QUEUE_LABELS: Final = (*_QUERY_LABELS, "topic", "broker", "queue_id")


class RocketMQCollector(Collector):
    """Exports a listener's queries to Prometheus. The lag is measured at each scrape.

    So the lag of a query that hangs grows in the dashboard. Unknown values are omitted, never zero.

    Parameters
    ----------
    listener : RocketMQQueryListener
    """

    def __init__(self, listener: RocketMQQueryListener) -> None:
        self._listener = listener

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Return the metrics without values: registration must not send requests to brokers."""
        for gauge in _QUERY:
            yield GaugeMetricFamily(f"rocketmq_{gauge.name}", gauge.doc, labels=_QUERY_LABELS)
        for gauge_of_queue in _QUEUE:
            yield GaugeMetricFamily(
                f"rocketmq_{gauge_of_queue.name}", gauge_of_queue.doc, labels=_QUEUE_LABELS
            )

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Return the current metrics."""
        statuses = self._listener.measure()
        labels = [(status.label, status.offset.source.group or "") for status in statuses]
        for gauge in _QUERY:
            family = GaugeMetricFamily(f"rocketmq_{gauge.name}", gauge.doc, labels=_QUERY_LABELS)
            for status, label in zip(statuses, labels, strict=True):
                _add(family, label, gauge.value(status))
            yield family
        for gauge_of_queue in _QUEUE:
            family = GaugeMetricFamily(
                f"rocketmq_{gauge_of_queue.name}", gauge_of_queue.doc, labels=_QUEUE_LABELS
            )
            for status, label in zip(statuses, labels, strict=True):
                for lag in status.lag.queues:
                    place = (lag.queue.topic, lag.queue.broker_name, str(lag.queue.queue_id))
                    _add(family, (*label, *place), gauge_of_queue.value(lag))
            yield family


def export_metrics(
    listener: RocketMQQueryListener, registry: CollectorRegistry = REGISTRY
) -> RocketMQCollector:
    """Add a listener's metrics to a registry. Serve them with ``prometheus_client.start_http_server``.

    Raises
    ------
    ValueError
        The registry already has a listener's metrics.

    Examples
    --------
    >>> export_metrics(listener)  # doctest: +SKIP
    >>> prometheus_client.start_http_server(9400, addr="127.0.0.1")  # doctest: +SKIP
    """
    collector = RocketMQCollector(listener)
    registry.register(collector)
    return collector


def _add(family: GaugeMetricFamily, labels: tuple[str, ...], value: float | None) -> None:
    if value is not None:
        family.add_metric(labels, value)
