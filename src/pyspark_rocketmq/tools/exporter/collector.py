"""A cluster's state as Prometheus metrics. Requires the extra ``prometheus``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from pyspark_rocketmq.model import metrics
from pyspark_rocketmq.model.metrics import Metric
from pyspark_rocketmq.tools.exporter.measurement import ClusterMeter, ClusterState, GroupState

__all__ = ["ClusterCollector"]

_GROUP: Final = ("group",)
_GROUP_TOPIC: Final = ("group", "topic")
_GROUP_QUEUE: Final = ("group", "topic", "broker", "queue_id")
_TOPIC: Final = ("topic", "broker")

_LABELS: Final[dict[Metric, tuple[str, ...]]] = {
    metrics.UP: (),
    metrics.BROKER_UP: ("broker",),
    metrics.LAG_MESSAGES: _GROUP,
    metrics.LAG_SECONDS: _GROUP,
    metrics.TOPIC_LAG_MESSAGES: _GROUP_TOPIC,
    metrics.TOPIC_LAG_SECONDS: _GROUP_TOPIC,
    metrics.QUEUE_POSITION: _GROUP_QUEUE,
    metrics.QUEUE_LAG_MESSAGES: _GROUP_QUEUE,
    metrics.QUEUE_LAG_SECONDS: _GROUP_QUEUE,
    metrics.DEAD_LETTERS: _GROUP,
    metrics.DEAD_LETTERS_OLDEST_SECONDS: _GROUP,
    metrics.DEAD_LETTERS_NEWEST_SECONDS: _GROUP,
    metrics.TOPIC_WRITTEN: _TOPIC,
    metrics.TOPIC_STORED: _TOPIC,
}
_COUNTERS: Final = frozenset({metrics.TOPIC_WRITTEN})


class ClusterCollector(Collector):
    """Measures a cluster at each scrape. Unknown values are omitted, never zero.

    Parameters
    ----------
    meter : ClusterMeter
    """

    def __init__(self, meter: ClusterMeter) -> None:
        self._meter = meter

    def describe(self) -> Iterator[Family]:
        """Return the metrics without values: registration must not send requests to brokers."""
        yield from _families().values()

    def collect(self) -> Iterator[Family]:
        """Return the current metrics."""
        families = _families()
        for metric, labels, value in _values(self._meter.state()):
            if value is not None:
                families[metric].add_metric(labels, value)
        yield from families.values()


def _families() -> dict[Metric, GaugeMetricFamily | CounterMetricFamily]:
    return {
        metric: (CounterMetricFamily if metric in _COUNTERS else GaugeMetricFamily)(
            metric.name, metric.doc, labels=labels
        )
        for metric, labels in _LABELS.items()
    }


def _values(state: ClusterState) -> Iterator[tuple[Metric, Sequence[str], float | None]]:
    yield metrics.UP, (), state.up
    for name, up in state.brokers.items():
        yield metrics.BROKER_UP, (name,), up
    for group in state.groups:
        yield from _values_of_group(group)
    for topic in state.topics:
        place = (topic.topic, topic.broker_name)
        yield metrics.TOPIC_WRITTEN, place, topic.written
        yield metrics.TOPIC_STORED, place, topic.stored


def _values_of_group(group: GroupState) -> Iterator[tuple[Metric, Sequence[str], float | None]]:
    own = (group.group,)
    if group.queues:
        yield metrics.LAG_MESSAGES, own, group.messages
        yield metrics.LAG_SECONDS, own, group.seconds
    for topic in group.topics:
        part = group.of_topic(topic)
        yield metrics.TOPIC_LAG_MESSAGES, (*own, topic), part.messages
        yield metrics.TOPIC_LAG_SECONDS, (*own, topic), part.seconds
    for queue in group.queues:
        at = queue.at.queue
        place = (*own, at.topic, at.broker_name, str(at.queue_id))
        yield metrics.QUEUE_POSITION, place, queue.at.position
        yield metrics.QUEUE_LAG_MESSAGES, place, queue.at.lag
        yield metrics.QUEUE_LAG_SECONDS, place, queue.seconds
    if group.dead_letters is not None:
        yield metrics.DEAD_LETTERS, own, group.dead_letters.messages
        yield metrics.DEAD_LETTERS_OLDEST_SECONDS, own, group.dead_letters.oldest_s
        yield metrics.DEAD_LETTERS_NEWEST_SECONDS, own, group.dead_letters.newest_s
