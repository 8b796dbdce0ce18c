"""The state of running queries as Prometheus metrics. Requires the extra ``prometheus``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import REGISTRY, Collector, CollectorRegistry

from pyspark_rocketmq.model import metrics
from pyspark_rocketmq.model.metrics import Metric
from pyspark_rocketmq.spark.monitor.lag import QueueLag
from pyspark_rocketmq.spark.monitor.listener import QueryStatus, RocketMQQueryListener

__all__ = ["RocketMQCollector", "export_metrics"]


_QUERY: Final[Mapping[Metric, Callable[[QueryStatus], float | None]]] = {
    metrics.LAG_MESSAGES: lambda status: status.lag.messages,
    metrics.LAG_SECONDS: lambda status: status.lag.seconds,
    metrics.LAG_BYTES: lambda status: status.lag.bytes,
    metrics.BATCH_ID: lambda status: status.batch_id,
    metrics.BATCH_ROWS: lambda status: status.rows,
    metrics.BATCH_SKIPPED_OFFSETS: lambda status: status.skipped,
    metrics.ROWS_PER_SECOND: lambda status: status.rows_per_second,
    metrics.INPUT_ROWS_PER_SECOND: lambda status: status.input_rows_per_second,
}
_QUEUE: Final[Mapping[Metric, Callable[[QueueLag], float | None]]] = {
    metrics.QUEUE_POSITION: lambda queue: queue.position,
    metrics.QUEUE_LAG_MESSAGES: lambda queue: queue.messages,
    metrics.QUEUE_LAG_SECONDS: lambda queue: queue.seconds,
}
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
        for metric in _QUERY:
            yield GaugeMetricFamily(metric.name, metric.doc, labels=_QUERY_LABELS)
        for metric in _QUEUE:
            yield GaugeMetricFamily(metric.name, metric.doc, labels=_QUEUE_LABELS)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Return the current metrics."""
        statuses = self._listener.measure()
        labels = [(status.label, status.offset.source.group or "") for status in statuses]
        for metric, value in _QUERY.items():
            family = GaugeMetricFamily(metric.name, metric.doc, labels=_QUERY_LABELS)
            for status, label in zip(statuses, labels, strict=True):
                _add(family, label, value(status))
            yield family
        for metric, value_of_queue in _QUEUE.items():
            family = GaugeMetricFamily(metric.name, metric.doc, labels=_QUEUE_LABELS)
            for status, label in zip(statuses, labels, strict=True):
                for lag in status.lag.queues:
                    place = (lag.queue.topic, lag.queue.broker_name, str(lag.queue.queue_id))
                    _add(family, (*label, *place), value_of_queue(lag))
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
