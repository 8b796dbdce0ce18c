"""A RocketMQ of lists: what the stream reader's planning asks, with brokers that come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tests.support.clocks import FakeClock

from pyspark_rocketmq.client.paced_warnings import PacedWarnings
from pyspark_rocketmq.client.read.samples import MessageTimes
from pyspark_rocketmq.errors import BrokerNotFoundError, OptionError, RocketMQError, TopicNotFoundError
from pyspark_rocketmq.model import MessageQueue, MessageSelector
from pyspark_rocketmq.offsets.planning_client import Ends


class FakeRocketMQ:
    """Logs of (store time, body) by queue."""

    def __init__(self, clock: FakeClock, queues: Iterable[MessageQueue]) -> None:
        self.clock = clock
        self.warnings = PacedWarnings(clock)
        self.logs: dict[MessageQueue, list[tuple[int, str]]] = {queue: [] for queue in queues}
        self.first: dict[MessageQueue, int] = {}
        self.committed: dict[MessageQueue, int] = {}
        self.sizes: dict[MessageQueue, int] = {}
        self.on_commit: Callable[[Mapping[MessageQueue, int]], None] = lambda _: None
        self.checked: set[str] = set()
        self.dead: set[str] = set()
        self.hidden: set[str] = set()
        self.slaves: dict[MessageQueue, int] = {}
        self.patience_ms: float | None = None
        self.unreadable: set[MessageQueue] = set()
        self.unknown: set[MessageQueue] = set()
        """Queues that brokers serve, but that a route lacks."""
        self.calls: list[str] = []
        self.whole = False
        self.looked_up: tuple[str, ...] = ()
        self.after_ends: Callable[[], None] = lambda: None
        self._sent = 0

    def send(self, *queues: MessageQueue) -> None:
        """Append one message to each queue (every queue when none is named)."""
        for queue in queues or tuple(self.logs):
            self.clock.now_s += 0.001
            self.logs[queue].append((self.clock.now_ms(), f"m{self._sent}"))
            self._sent += 1

    def bodies(self, queue: MessageQueue, from_offset: int, until_offset: int) -> list[str]:
        assert until_offset <= len(self.logs[queue]), f"{queue} has no {until_offset}"
        return [body for _, body in self.logs[queue][from_offset:until_offset]]

    # --- the planning client ---

    def topics(self) -> tuple[str, ...]:
        return ("TBW102", *{queue.topic for queue in self.logs if queue.broker_name not in self.hidden})

    def invalidate(self, topic: str) -> None:
        """Nothing is cached."""

    def invalidate_all(self) -> None:
        """Nothing is cached."""

    def broker_names(self) -> frozenset[str]:
        return frozenset(q.broker_name for q in self.logs if q.broker_name not in self.hidden)

    def look_up(self, topics: Iterable[str], *, whole: bool = False) -> None:
        self.looked_up = tuple(topics)
        self.whole = whole

    def read_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        self.calls.append("read_queues")
        there = set(self.logs) - self.unreadable - self.unknown
        queues = tuple(sorted(q for q in there if q.topic == topic and q.broker_name not in self.hidden))
        if not queues:
            raise TopicNotFoundError("no route", topic=topic)
        return queues

    def read_queues_again(self, topic: str) -> tuple[MessageQueue, ...]:
        return self.read_queues(topic)

    def min_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        return self._ask("min_offsets", queues, lambda queue: self.first.get(queue, 0))

    def begins(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        return self.min_offsets([q for q in queues if q.broker_name not in self.dead | self.hidden])

    def max_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        return self._ask("max_offsets", queues, lambda queue: len(self.logs[queue]))

    def ends(
        self,
        queues: Iterable[MessageQueue],
        *,
        patience_ms: float | None = None,
        slave_group: str | None = None,
    ) -> Ends:
        self.patience_ms = patience_ms
        queues = tuple(queues)
        gone = self.dead | self.hidden
        failed = {q: self._down(q) for q in queues if q.broker_name in gone}
        found = Ends(
            masters=self.max_offsets([q for q in queues if q.broker_name not in gone]),
            slaves={q: self.slaves[q] for q in queues if q in self.slaves and q in failed}
            if slave_group is not None
            else {},
            failed=failed,
        )
        self.after_ends()
        return found

    def offsets_at(self, timestamps: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        def first_at(queue: MessageQueue) -> int:
            times = [time for time, _ in self.logs[queue]]
            return next((i for i, time in enumerate(times) if time >= timestamps[queue]), len(times))

        return self._ask("offsets_at", timestamps, first_at)

    def committed_offsets(self, group: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int | None]:
        assert group == "g"
        return self._ask("committed_offsets", queues, self.committed.get)

    def commit_offsets(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        assert group == "g"
        self.on_commit(offsets)
        self.committed |= self._ask("commit_offsets", offsets, lambda queue: offsets[queue])

    def try_commit_offsets(
        self, group: str, offsets: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, RocketMQError]:
        self.commit_offsets(group, offsets)
        return {}

    def message_times(
        self, offsets: Mapping[MessageQueue, int], group: str
    ) -> dict[MessageQueue, MessageTimes]:
        assert group

        def times(queue: MessageQueue) -> MessageTimes:
            stored = self.logs[queue][offsets[queue]][0]
            return MessageTimes(stored - 5, stored)

        return self._ask("message_times", offsets, times)

    def stored_at(
        self, offsets: Mapping[MessageQueue, int], group: str
    ) -> tuple[dict[MessageQueue, int], dict[MessageQueue, RocketMQError]]:
        assert group
        there = {q: at for q, at in offsets.items() if self.first.get(q, 0) <= at < len(self.logs[q])}
        return self._ask("stored_at", there, lambda queue: self.logs[queue][offsets[queue]][0]), {}

    def served(self, offsets: Mapping[MessageQueue, int], group: str) -> frozenset[MessageQueue]:
        assert group
        return frozenset(self._ask("served", offsets, bool) if offsets else ()) - self.unreadable

    def message_sizes(
        self, offsets: Mapping[MessageQueue, int], group: str, selector: MessageSelector
    ) -> dict[MessageQueue, int]:
        assert group
        assert selector.takes_all
        return self._ask("message_sizes", offsets, lambda queue: self.sizes.get(queue, 100))

    def check_selector_at(
        self, queues: Iterable[MessageQueue], selector: MessageSelector, *, group: str
    ) -> None:
        assert group
        if selector.expression_type == "TAG":
            return
        asked = {queue for queue in queues if queue.broker_name not in self.checked}
        self._ask("check_selector_at", asked, lambda queue: self.checked.add(queue.broker_name))
        if selector.expression.endswith(">"):
            raise OptionError("the filter expression does not parse")

    def close(self) -> None:
        self.calls.append("close")

    def _ask(self, call, queues, answer):
        self.calls.append(call)
        queues = tuple(queues)
        for queue in queues:
            if queue.broker_name in self.dead | self.hidden:
                raise self._down(queue)
        return {queue: answer(queue) for queue in queues}

    def _down(self, queue: MessageQueue) -> BrokerNotFoundError:
        return BrokerNotFoundError("it is down", broker_name=queue.broker_name)
