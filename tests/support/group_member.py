"""A member of a consumer group that keeps what it gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark_rocketmq.client import (
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageQueue,
    PushConsumer,
    PushOptions,
)
from pyspark_rocketmq.devcluster import DevCluster


class Member:
    """A push consumer and what it got."""

    def __init__(self, cluster: DevCluster, group: str, options: PushOptions | None = None) -> None:
        self.consumer = PushConsumer(
            group, cluster.name_server, options or PushOptions(start=ConsumeFromWhere.FIRST_OFFSET)
        )
        self.got: list[Message] = []
        self.answer: Callable[[Sequence[Message]], ConsumeResult | None] = lambda _: None

    def start(self, topic: str, expression: str = "*") -> Member:
        self.consumer.subscribe(topic, expression)
        self.consumer.start(self._take)
        return self

    def _take(self, messages: Sequence[Message]) -> ConsumeResult | None:
        self.got += messages
        return self.answer(messages)

    @property
    def bodies(self) -> list[str]:
        return [message.body.decode() for message in self.got]

    def queues(self, topic: str) -> set[MessageQueue]:
        return {queue for queue in self.consumer.queues if queue.topic == topic}
