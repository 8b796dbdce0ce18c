"""What `drop_repeats` promises, over any interleaving of queues, triggers, restarts and outages.

The real reader plans over a RocketMQ of lists; Spark's operator is the model below, which
``tests/spark/test_drop_repeats.py`` compares with the real one.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from hypothesis import event, example, given
from hypothesis import strategies as st
from pyspark.sql.types import StructType
from tests.support.clocks import FakeClock
from tests.support.deduplication import Deduplication
from tests.support.examples import examples
from tests.unit.spark.fake_rocketmq import FakeRocketMQ

from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.spark.read.aligned_column import AlignedColumn, AlignedPartition
from pyspark_rocketmq.spark.read.schema import read_schema
from pyspark_rocketmq.spark.read.stream import RocketMQStreamReader

QUEUES = (
    MessageQueue("orders", "broker-a", 0),
    MessageQueue("orders", "broker-a", 1),
    MessageQueue("orders", "broker-b", 0),
)
WITHIN_MS = 60_000

bounded = examples(200)


@dataclass(frozen=True)
class Send:
    """Rows of one write id, each in a queue, some time after another."""

    queue: int
    row: int
    pause_ms: int


@dataclass(frozen=True)
class Read:
    """A trigger with a limit."""

    limit: int


@dataclass(frozen=True)
class ReadAll:
    """A run with AvailableNow, in a new process."""

    limit: int


@dataclass(frozen=True)
class Restart:
    """The query's process stops, and starts again later."""

    pause_ms: int


@dataclass(frozen=True)
class Outage:
    """A broker goes away, or comes back."""

    broker: str


PAUSES = st.one_of(st.just(0), st.integers(0, 2_000), st.integers(0, 3 * WITHIN_MS), st.just(7_200_000))
LIMITS = st.sampled_from([1, 2, 5, 1_000])
SENDS = st.builds(Send, st.integers(0, 2), st.integers(0, 4), PAUSES)
CALM = st.one_of(
    SENDS, SENDS, st.builds(Read, LIMITS), st.builds(ReadAll, LIMITS), st.builds(Restart, PAUSES)
)
STORMY = st.one_of(CALM, CALM, st.builds(Outage, st.sampled_from(["broker-a", "broker-b"])))
SKEWS = st.tuples(*[st.integers(-WITHIN_MS // 3, WITHIN_MS // 3)] * 2)


@dataclass
class World:
    """The queues, the query's checkpoint, and what came through."""

    skews_ms: dict[str, int]
    operator: Deduplication
    mq: FakeRocketMQ = field(default_factory=lambda: FakeRocketMQ(FakeClock(), QUEUES))
    end: dict[str, Any] | None = None
    passed: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    reader: RocketMQStreamReader | None = None

    def send(self, send: Send) -> None:
        queue = QUEUES[send.queue]
        if queue.broker_name in self.mq.dead:
            return
        self.mq.clock.now_s += 0.001 + send.pause_ms / 1000
        stored_at = self.mq.clock.now_ms() + self.skews_ms[queue.broker_name]
        self.mq.logs[queue].append((stored_at, str(send.row)))

    def read(self, limit: int, *, to_the_end: bool = False) -> None:
        if self.mq.dead >= {queue.broker_name for queue in QUEUES}:
            return
        if self.reader is None or to_the_end:
            self.reader = reader(self.mq, limit)
        if to_the_end:
            self.reader.prepareForTriggerAvailableNow()
        while True:
            start = self.end or self.reader.initialOffset()
            end = json.loads(json.dumps(self.reader.latestOffset(start, self.reader.getDefaultReadLimit())))
            self.mq.clock.now_s += 0.25
            if end == start:
                break
            self._batch(self.reader, start, end)
            self.end = end
            if not to_the_end:
                break
        if to_the_end:
            self.reader = None

    def _batch(self, reader: RocketMQStreamReader, start: dict[str, Any], end: dict[str, Any]) -> None:
        rows: list[tuple[str, int]] = []
        stored: list[int] = []
        for partition in reader.partitions(start, end):
            assert isinstance(partition, AlignedPartition)
            inner, aligned_ms = partition.value
            for offsets in inner.value:
                assert isinstance(offsets, OffsetRange)
                for time_ms, body in self.mq.logs[offsets.queue][offsets.from_offset : offsets.until_offset]:
                    rows.append((body, aligned_ms))
                    stored.append(time_ms)
        for place in self.operator.batch(rows):
            self.passed[int(rows[place][0])].append(stored[place])


def reader(mq: FakeRocketMQ, limit: int) -> RocketMQStreamReader:
    options = parse_options(
        SourceOptions,
        {
            "nameServer": "127.0.0.1:9876",
            "topic": "orders",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(limit),
            "eventTimeAlignment": "store",
            "includeAlignedTimestamp": "true",
        },
        where="readStream",
        environ={},
    )
    schema: StructType = AlignedColumn.add_to(read_schema(None))
    return RocketMQStreamReader(options, schema, connect=lambda _: mq, clock=mq.clock)


def play(steps: list[object], skews_ms: tuple[int, int] = (0, 0), *, at_once: bool = True) -> World:
    operator = Deduplication(WITHIN_MS, at_once=at_once)
    world = World(dict(zip(("broker-a", "broker-b"), skews_ms, strict=True)), operator)
    for step in steps:
        match step:
            case Send():
                world.send(step)
            case Read(limit):
                world.read(limit)
            case ReadAll(limit):
                world.read(limit, to_the_end=True)
            case Restart(pause_ms):
                world.reader = None
                world.mq.clock.now_s += pause_ms / 1000
            case Outage(broker):
                world.mq.dead ^= {broker}
    world.mq.dead.clear()
    world.read(1_000, to_the_end=True)
    return world


def rows_sent(world: World) -> set[int]:
    return {int(body) for log in world.mq.logs.values() for _, body in log}


@bounded
@given(st.lists(CALM, max_size=40), SKEWS, st.booleans())
def test_copies_that_are_stored_within_are_dropped_and_nothing_else(
    steps: list[object], skews_ms: tuple[int, int], at_once: bool
) -> None:
    world = play(steps, skews_ms, at_once=at_once)
    assert world.passed.keys() == rows_sent(world), "a row that is no repeat was dropped"
    for times in world.passed.values():
        times.sort()
        apart = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert all(gap > WITHIN_MS for gap in apart), f"a repeat came through: {times}"
        if apart:
            event("a repeat came through that was stored later than within")


OLD_MESSAGES_COME_BACK = [
    Send(2, 0, 0),
    Outage("broker-b"),
    *[step for row in (1, 2) for step in (Send(0, row, 7_200_000), Read(1_000))],
]


@bounded
@example(OLD_MESSAGES_COME_BACK, (0, 0))
@given(st.lists(STORMY, max_size=40), SKEWS)
def test_brokers_that_are_away_make_no_row_late(steps: list[object], skews_ms: tuple[int, int]) -> None:
    world = play(steps, skews_ms)
    assert world.passed.keys() == rows_sent(world)


@bounded
@given(st.lists(CALM, max_size=40))
def test_write_ids_are_forgotten(steps: list[object]) -> None:
    world = play(steps)
    for _ in range(2):  # one row that moves the watermark, one after it
        world.send(Send(0, 9, 2 * WITHIN_MS + 1_000))
        world.read(1_000, to_the_end=True)
    assert world.operator.remembered.keys() <= {"9"}
