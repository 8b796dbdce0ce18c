"""A direct stream without Spark: its real start and plan, and the readers of its tasks."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable
from typing import Final

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.dstream import ConsumerStrategy, rdd
from pyspark_rocketmq.dstream.direct.batch_plan import DirectPlan
from pyspark_rocketmq.dstream.direct.committed_rows import (
    CommittedRows,
    first_positions,
    require_commit_queues,
)
from pyspark_rocketmq.dstream.pace import pace_of
from pyspark_rocketmq.dstream.ranges import OffsetRanges
from pyspark_rocketmq.dstream.strategies import Strategy, start_policy
from pyspark_rocketmq.model import Message
from pyspark_rocketmq.offsets.offset_lookup import PlanningClient, fetch_start_ends, resolve_offsets
from pyspark_rocketmq.options import parse_direct_options
from pyspark_rocketmq.testing import MockCluster

__all__ = ["GROUP", "DirectStream"]

GROUP: Final = "reader"


class DirectStream:
    """A direct stream as ``createMQPullStream`` starts it, and Spark runs it."""

    def __init__(
        self,
        mq: MockCluster,
        strategy: Strategy = ConsumerStrategy.earliest,
        *,
        force: bool = False,
        **given: str,
    ) -> None:
        settings = {"nameServer": mq.name_server, "isolation": "read_committed", "routeRefreshMs": "200"}
        self._options = parse_direct_options(settings | given)
        self._by = self._options.commit_topics(("orders",))
        self.source = self._options.source_of_stream(("orders",), GROUP)
        self.messages: list[list[Message]] = []
        """The elements of each batch."""
        self.planned: list[OffsetRanges] = []
        self._open()
        try:
            self.plan = self._start(strategy, force=force)
        except BaseException:
            self.stop()
            raise

    def _start(self, strategy: Strategy, *, force: bool) -> DirectPlan:
        client, source, now_ms = self.client, self.source, SYSTEM_CLOCK.now_ms()
        require_commit_queues(client, self._by)
        queues = [queue for topic in source.topics for queue in client.read_queues(topic)]
        ends = fetch_start_ends(client, queues)
        stored = client.committed_offsets(GROUP, ends)
        policy = start_policy(strategy, stored, force_special=force)
        positions = resolve_offsets(client, policy, ends, source, start_time_ms=now_ms, ends=ends)
        positions, floor = first_positions(client, policy, positions, self._by, GROUP)
        settings = {"spark.streaming.backpressure.enabled": "false"}
        return DirectPlan(policy, positions, now_ms, pace_of(settings.get, 1000), floor=floor)

    def _open(self) -> None:
        self.client = PlanningClient(self.source.client)
        self.committed_rows = CommittedRows(self.client, self._by)

    def trigger(self) -> list[str]:
        """Plan a batch and read it."""
        ranges = self._ranges(len(self.planned))
        self.planned.append(ranges)
        self.messages.append(self.elements(ranges))
        return _bodies(self.messages[-1])

    @property
    def batches(self) -> list[list[str]]:
        """The bodies of each batch."""
        return [_bodies(batch) for batch in self.messages]

    def elements(self, ranges: OffsetRanges) -> list[Message]:
        """Read a batch in its partitions."""
        split = pickle.loads(pickle.dumps(self.committed_rows.split(ranges, self.plan.floor)))
        found: list[Message] = []
        for each in ranges:
            if each.queue in split.parts:
                reader = rdd._MessageReader(self.source, None, split.committed, split.parts)
                messages = [*reader(0, [each])]
                assert {message.queue_id for message in messages} <= {each.queue_id}
                offsets = [message.queue_offset for message in messages]
                assert offsets == sorted(set(offsets)), "a partition is in the order of its queue"
                found += messages
        return found

    def recover(self) -> None:
        """Continue from the checkpoint in a new process; a batch that is computed again is the same."""
        self.stop()
        self.plan = pickle.loads(pickle.dumps(self.plan))
        self._open()
        for number in range(len(self.planned))[-3:]:
            again = self._ranges(number)
            assert again == self.planned[number]
            assert self.elements(again) == self.messages[number]

    def _ranges(self, number: int) -> OffsetRanges:
        time_ms = 1000 * (number + 1)
        return self.plan.ranges(
            time_ms, self.client, self.source, remember_ms=10**9, rows=self.committed_rows
        )

    def commit(self) -> None:
        """Commit the group's offsets, as `commitAsync` with the ranges of the last batch."""
        self.client.commit_offsets(GROUP, {each.queue: each.until_offset for each in self.planned[-1]})

    def drain(self) -> Counter[str]:
        """Read until two batches are empty; return everything."""
        empty = 0
        while empty < 2:
            empty = 0 if self.trigger() else empty + 1
        return self.rows()

    def rows(self) -> Counter[str]:
        return Counter(body for batch in self.batches for body in batch)

    def stop(self) -> None:
        self.client.close()


def _bodies(messages: Iterable[Message]) -> list[str]:
    return [message.body.decode() for message in messages]
