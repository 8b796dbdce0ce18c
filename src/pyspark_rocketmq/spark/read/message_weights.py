"""Message sizes, estimated from cached samples of a few queues at a time."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.model import MessageQueue, MessageSelector
from pyspark_rocketmq.offsets.planning_client import PlanningClient

__all__ = ["MessageWeights"]

_LOG: Final = logging.getLogger(__name__)


class MessageWeights:
    """Estimates message sizes of many queues. A sample reads up to 256 KiB of each sampled queue.

    Parameters
    ----------
    sampled_queues : int
        Queues to sample each time: those never sampled first, then those sampled longest ago. The others use
        their last estimate, or that of their topic.
    """

    def __init__(self, sampled_queues: int) -> None:
        self._sampled_queues = sampled_queues
        self._sizes: dict[MessageQueue, int] = {}

    def weigh(
        self,
        client: PlanningClient,
        offsets: Mapping[MessageQueue, int],
        *,
        group: str,
        selector: MessageSelector,
    ) -> dict[MessageQueue, int]:
        """Return the estimated bytes per offset of each queue that was sampled, or whose topic was.

        Raises
        ------
        RocketMQError
            A broker rejects the request. If a broker does not answer, the last estimate is kept.
        """
        by_age = [queue for queue in offsets if queue not in self._sizes]
        by_age += [queue for queue in self._sizes if queue in offsets]
        sampled = {queue: offsets[queue] for queue in by_age[: self._sampled_queues]}
        try:
            found = client.message_sizes(sampled, group, selector)
        except RocketMQError as error:
            if not error.retriable:
                raise
            _LOG.warning("messages cannot be sampled now, earlier samples are used: %s", error)
            found = {}
        for queue, size in found.items():
            former = self._sizes.pop(queue, size)
            self._sizes[queue] = (former + size) // 2  # now the one that was weighed last
        by_topic: dict[str, list[int]] = {}
        for queue, size in self._sizes.items():
            by_topic.setdefault(queue.topic, []).append(size)
        means = {topic: sum(sizes) // len(sizes) for topic, sizes in by_topic.items()}
        others = {queue: means[queue.topic] for queue in offsets if queue.topic in means}
        return others | self._sizes
