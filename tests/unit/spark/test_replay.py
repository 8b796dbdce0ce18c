"""The replay contract: every order of calls that Spark makes, each step killed once.

`Query` makes the calls of Spark's MicroBatchExecution in its order and keeps what Spark keeps: the offset
log and the commit log. Killing it throws the reader away; the next `Query` has nothing but the logs.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.support.clocks import FakeClock, WrongClock
from tests.unit.spark.fake_rocketmq import FakeRocketMQ

from pyspark_rocketmq.client.net.host import SYSTEM_HOST, Host
from pyspark_rocketmq.client.read.settled_ends import MOVED_BACK_PATIENCE_MS
from pyspark_rocketmq.errors import BrokerNotFoundError, DataLossError, OptionError, TopicNotFoundError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.offsets.planning_client import Ends
from pyspark_rocketmq.offsets.stream_offset import SourceOffset
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.spark.features import ReadAllAvailable
from pyspark_rocketmq.spark.read.schema import read_schema
from pyspark_rocketmq.spark.read.stream import RocketMQStreamReader

A0, A1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
B0 = MessageQueue("orders", "broker-b", 0)

STARTS: dict[str, dict[str, str]] = {
    "latest": {},
    "earliest": {"startingOffsets": "earliest"},
    "a moment ago": {"startingTimestamp": "-2s"},
    "last messages": {"startingOffsets": "last:2"},
    "group": {"startingOffsets": "group", "groupOffsetReset": "latest", "consumerGroup": "g"},
    "offsets": {"startingOffsets": '{"orders": {"broker-a": {"0": 1, "1": -1}, "broker-b": {"0": -2}}}'},
}


class KilledError(Exception):
    """The process is gone."""


@dataclass
class Checkpoint:
    """What survives a crash: Spark's two logs, and a sink that takes each batch once."""

    ends: list[dict[str, Any]] = field(default_factory=list)
    begin: dict[MessageQueue, int] = field(default_factory=dict)
    """Where the query must begin, worked out by `first_offsets` when its first batch was planned."""
    finished: int = 0
    sink: dict[int, dict[MessageQueue, list[str]]] = field(default_factory=dict)


class Threads:
    """The machine's threads, of which a test can await the end."""

    connect = SYSTEM_HOST.connect
    condition = SYSTEM_HOST.condition

    def __init__(self) -> None:
        self._started: list[threading.Thread] = []

    def start(self, work: Callable[[], None], *, name: str) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        self._started.append(thread)
        thread.start()

    def join(self) -> None:
        for thread in self._started:
            thread.join(60)


class Query:
    """One run of a query, from its start to its end or its death."""

    def __init__(
        self, mq: FakeRocketMQ, kept: Checkpoint, options: dict[str, str], on_step: Callable[[str], None]
    ) -> None:
        self.mq, self.kept, self.on_step, self.options = mq, kept, on_step, options
        self.threads = Threads()
        self.reader = reader(mq, options, self.threads)
        self.commits_ahead: list[object] = []
        mq.on_commit = self._check_commit
        self.begin: dict[MessageQueue, int] | None = None
        self.frozen: dict[MessageQueue, int] | None = None
        self.limit = self.reader.getDefaultReadLimit()

    def run(self, triggers: int, *, available_now: bool = False) -> None:
        try:
            self._run(triggers, available_now=available_now)
        finally:
            self.threads.join()  # a process that is gone commits nothing later

    def _run(self, triggers: int, *, available_now: bool) -> None:
        if available_now:
            self._call("prepare", self.reader.prepareForTriggerAvailableNow)
            self.frozen = sizes(self.mq)
        if len(self.kept.ends) > self.kept.finished:
            self._run_batch()
        while available_now or triggers > 0:
            triggers -= 1
            start = self._start()
            self.on_step("latest")
            if self.begin is None:
                self.begin = first_offsets(self.mq, self.options, self.frozen or sizes(self.mq))
            end = as_spark_keeps_it(self.reader.latestOffset(start, self.limit))
            if end == (self.kept.ends[-1] if self.kept.ends else None):
                if available_now:
                    return
                continue
            if self.kept.ends:
                self._call("commit", lambda: self.reader.commit(self.kept.ends[-1]))
            else:
                self.kept.begin = self.begin
            self.kept.ends.append(end)
            assert len(self.kept.ends) < 50, "the query does not end"
            self.on_step("logged")
            self._run_batch()

    def _start(self) -> dict[str, Any]:
        if self.kept.ends:
            return self.kept.ends[self.kept.finished - 1]
        return as_spark_keeps_it(self._call("initial", self.reader.initialOffset))

    def _run_batch(self) -> None:
        batch = self.kept.finished
        end = self.kept.ends[batch]
        start = (
            self.kept.ends[batch - 1]
            if batch
            else as_spark_keeps_it(self._call("initial again", self.reader.initialOffset))
        )
        partitions = self._call("partitions", lambda: self.reader.partitions(start, end))
        rows: dict[MessageQueue, list[str]] = {}
        for partition in partitions:
            for offsets in partition.value:
                rows.setdefault(offsets.queue, []).extend(
                    self.mq.bodies(offsets.queue, offsets.from_offset, offsets.until_offset)
                )
        self.on_step("read")
        assert self.kept.sink.setdefault(batch, rows) == rows, "a replayed batch has other rows"
        self.on_step("written")
        self.kept.finished = batch + 1
        self.on_step("finished")

    def _check_commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        done = (
            SourceOffset.from_dict(self.kept.ends[self.kept.finished - 1]).offsets
            if self.kept.finished
            else {}
        )
        self.commits_ahead += [(q, offset) for q, offset in offsets.items() if offset > done.get(q, -1)]

    def _call(self, step: str, call: Callable[[], Any]) -> Any:
        self.on_step(step)
        return call()


def sizes(mq: FakeRocketMQ) -> dict[MessageQueue, int]:
    return {queue: len(log) for queue, log in mq.logs.items()}


def first_offsets(
    mq: FakeRocketMQ, options: dict[str, str], ends: dict[MessageQueue, int]
) -> dict[MessageQueue, int]:
    """Return where a query begins that is planned now, from the options of `STARTS` and the logs alone."""
    if options.get("startingTimestamp"):
        since = mq.clock.now_ms() + 1000 * int(options["startingTimestamp"].removesuffix("s"))
        old = {queue: sum(stored < since for stored, _ in log) for queue, log in mq.logs.items()}
        return {queue: min(old[queue], end) for queue, end in ends.items()}
    match options.get("startingOffsets", "latest"):
        case "latest":
            return ends
        case "earliest":
            return dict.fromkeys(ends, 0)
        case "last:2":
            return {queue: max(0, end - 2) for queue, end in ends.items()}
        case "group":
            return {queue: mq.committed.get(queue, end) for queue, end in ends.items()}
        case text:
            brokers = json.loads(text)["orders"]
            only = next(iter(brokers.values()))  # a static topic's queues may be named after any broker
            given = {queue: brokers.get(queue.broker_name, only)[str(queue.queue_id)] for queue in ends}
            words = {"earliest": 0, "latest": math.inf, -2: 0, -1: math.inf}
            return {queue: min(words.get(at, at), ends[queue]) for queue, at in given.items()}


def as_spark_keeps_it(offset: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(offset))


def reader(mq: FakeRocketMQ, options: dict[str, str], host: Host = SYSTEM_HOST) -> RocketMQStreamReader:
    topic = {} if {"subscribePattern", "assign"} & set(options) else {"topic": "orders"}
    given = {"nameServer": "127.0.0.1:9876"} | topic | options
    parsed = parse_options(SourceOptions, given, where="readStream", environ={})
    return RocketMQStreamReader(parsed, read_schema(None), connect=lambda _: mq, clock=mq.clock, host=host)


def world() -> FakeRocketMQ:
    mq = FakeRocketMQ(FakeClock(), [A0, A1, B0])
    for _ in range(3):
        mq.send()
        mq.clock.now_s += 1
    mq.send(A0)
    mq.committed = {A0: 2, B0: 1}
    return mq


def written(kept: Checkpoint) -> dict[MessageQueue, list[str]]:
    rows: dict[MessageQueue, list[str]] = {}
    for batch in sorted(kept.sink):
        for queue, bodies in kept.sink[batch].items():
            rows.setdefault(queue, []).extend(bodies)
    return rows


def check_nothing_lost_nothing_twice(mq: FakeRocketMQ, kept: Checkpoint) -> None:
    assert SourceOffset.from_dict(kept.ends[0]).begin == kept.begin
    expected = {queue: mq.bodies(queue, kept.begin[queue], len(log)) for queue, log in mq.logs.items()}
    assert {queue: written(kept).get(queue, []) for queue in mq.logs} == expected


def check_every_batch_replans_alike(mq: FakeRocketMQ, kept: Checkpoint, options: dict[str, str]) -> None:
    """Partitions come from the two offsets and the options alone: other readers plan the same."""
    starts = [reader(mq, options).initialOffset(), *kept.ends]
    asked = len(mq.calls)
    for batch, end in enumerate(kept.ends):
        planned = [reader(mq, options).partitions(starts[batch], end) for _ in range(2)]
        assert planned[0] == planned[1]
        rows = {}
        for partition in planned[0]:
            for r in partition.value:
                rows.setdefault(r.queue, []).extend(mq.bodies(r.queue, r.from_offset, r.until_offset))
        assert rows == kept.sink[batch]
    assert len(mq.calls) == asked, "partitions asked a broker"


def steps_of_a_run(options: dict[str, str], *, available_now: bool) -> list[str]:
    seen: list[str] = []
    mq = world()

    def note(step: str) -> None:
        seen.append(step)
        if len(seen) < 30:
            mq.send()

    Query(mq, Checkpoint(), options, note).run(3, available_now=available_now)
    return seen


def test_the_group_is_committed_behind_finished_batches_and_never_ahead():
    """Killed at every step: brokers know at most what is finished, and all of it after AvailableNow."""
    options = {"startingOffsets": "earliest", "consumerGroup": "g", "maxOffsetsPerTrigger": "4"}
    options |= {"commitIntervalMs": "0"}
    for fatal in range(len(steps_of_a_run(options, available_now=False))):
        mq, kept = world(), Checkpoint()
        mq.committed = {}
        count = 0

        def kill_once(step: str, mq: FakeRocketMQ = mq, fatal: int = fatal) -> None:
            nonlocal count
            mq.send()
            count += 1
            if count == fatal + 1:
                raise KilledError

        first = Query(mq, kept, options, kill_once)
        with pytest.raises(KilledError):
            first.run(3)
        last = Query(mq, kept, options, lambda _: None)
        last.run(0, available_now=True)
        assert first.commits_ahead == last.commits_ahead == []
        assert (
            mq.committed
            == SourceOffset.from_dict(kept.ends[-1]).offsets
            == {q: len(log) for q, log in mq.logs.items()}
        )


@pytest.mark.parametrize("options", [{}, {"consumerGroup": "g", "commitOffsets": "false"}])
def test_nothing_is_committed_without_a_group_or_when_told_so(options: dict[str, str]):
    mq, kept = world(), Checkpoint()
    Query(mq, kept, STARTS["earliest"] | options, lambda _: None).run(0, available_now=True)
    assert "commit_offsets" not in mq.calls


@pytest.mark.parametrize("available_now", [False, True], ids=["triggers", "available-now"])
@pytest.mark.parametrize("limit", [None, "4"], ids=["all", "limited"])
@pytest.mark.parametrize("start", STARTS)
def test_killed_at_every_step_nothing_is_lost_and_nothing_comes_twice(
    start: str, limit: str | None, available_now: bool
):
    options = STARTS[start] | ({"maxOffsetsPerTrigger": limit} if limit else {})
    steps = steps_of_a_run(options, available_now=available_now)
    assert {"initial", "latest", "logged", "initial again", "partitions", "read", "finished"} <= set(steps)
    for fatal in range(len(steps)):
        mq, kept = world(), Checkpoint()
        count = 0

        def kill_once(step: str, mq: FakeRocketMQ = mq, fatal: int = fatal) -> None:
            nonlocal count
            mq.send()  # messages come between any two calls: whatever moves with time would move
            count += 1
            if count == fatal + 1:
                raise KilledError

        with pytest.raises(KilledError):
            Query(mq, kept, options, kill_once).run(3, available_now=available_now)
        mq.send()
        Query(mq, kept, options, lambda _: None).run(0, available_now=True)
        mq.send()
        Query(mq, kept, options, lambda _: None).run(0, available_now=True)
        check_nothing_lost_nothing_twice(mq, kept)
        check_every_batch_replans_alike(mq, kept, options)


def test_a_failed_first_batch_keeps_the_start_it_was_planned_with():
    mq, kept = world(), Checkpoint()

    def fail_in_the_task(step: str) -> None:
        if step == "read":
            raise KilledError

    ends_at_the_start = {queue: len(log) for queue, log in mq.logs.items()}
    query = Query(mq, kept, {}, fail_in_the_task)
    with pytest.raises(KilledError):
        query.run(1)
    for _ in range(3):
        mq.send()
        with pytest.raises(KilledError):
            Query(mq, kept, {}, fail_in_the_task).run(1)
    Query(mq, kept, {}, lambda _: None).run(2)
    assert SourceOffset.from_dict(kept.ends[0]).begin == ends_at_the_start
    check_nothing_lost_nothing_twice(mq, kept)


def test_initial_offset_is_the_same_however_often_and_asks_nobody():
    mq = world()
    one, other = reader(mq, {}), reader(mq, {})
    first = one.initialOffset()
    one.latestOffset(first, ReadAllAvailable())
    mq.send()
    assert json.dumps(one.initialOffset()) == json.dumps(other.initialOffset()) == json.dumps(first)
    assert first["unresolved"] is True


def test_idle_queries_return_their_start_untouched():
    mq, kept = world(), Checkpoint()
    query = Query(mq, kept, {}, lambda _: None)
    query.run(3)
    assert len(kept.ends) == 1
    assert query.reader.latestOffset(kept.ends[0], ReadAllAvailable()) is kept.ends[0]


def test_an_idle_look_costs_one_round_of_max_offsets():
    mq, kept = world(), Checkpoint()
    query = Query(mq, kept, {}, lambda _: None)
    query.run(1)
    mq.calls.clear()
    query.run(1)
    assert mq.calls == ["read_queues", "max_offsets"]


def test_a_limit_of_the_trigger_overrules_the_option():
    mq = world()
    one = reader(mq, STARTS["earliest"] | {"maxOffsetsPerTrigger": "2"})
    limited = one.latestOffset(one.initialOffset(), one.getDefaultReadLimit())
    assert sum(SourceOffset.from_dict(limited).offsets.values()) == 2
    everything = one.latestOffset(limited, ReadAllAvailable())
    assert sum(SourceOffset.from_dict(everything).offsets.values()) == 10


def test_progress_shows_the_newest_offsets():
    mq = world()
    one = reader(mq, STARTS["earliest"] | {"maxOffsetsPerTrigger": "2"})
    assert one.reportLatestOffset() is None
    one.latestOffset(one.initialOffset(), one.getDefaultReadLimit())
    assert SourceOffset.from_dict(one.reportLatestOffset()).offsets == {A0: 4, A1: 3, B0: 3}


def test_available_now_ends_at_what_was_there_at_its_start():
    mq, kept = world(), Checkpoint()
    options = STARTS["earliest"] | {"maxOffsetsPerTrigger": "3"}
    there = {queue: len(log) for queue, log in mq.logs.items()}
    Query(mq, kept, options, lambda step: mq.send() if step != "prepare" else None).run(0, available_now=True)
    assert SourceOffset.from_dict(kept.ends[-1]).offsets == there


def test_queues_that_appear_during_an_available_now_run_wait_for_the_next_one():
    mq, kept = world(), Checkpoint()
    new = MessageQueue("orders", "broker-a", 2)

    def appear(step: str) -> None:
        if step == "latest" and new not in mq.logs:
            mq.logs[new] = []
            mq.send(new)

    Query(mq, kept, STARTS["earliest"], appear).run(0, available_now=True)
    assert new not in SourceOffset.from_dict(kept.ends[-1]).offsets
    Query(mq, kept, STARTS["earliest"], lambda _: None).run(0, available_now=True)
    assert written(kept)[new] == mq.bodies(new, 0, 1)


@pytest.mark.parametrize("how", ["dead", "hidden"])
@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_a_broker_that_comes_and_goes_loses_nothing(start: str, how: str):
    mq, kept = world(), Checkpoint()
    run = Query(mq, kept, STARTS[start], lambda _: None)
    run.run(1)
    away: set[str] = getattr(mq, how)
    for _ in range(3):
        mq.send()
        away.add("broker-b")
        run.run(2)
        Query(mq, kept, STARTS[start], lambda _: None).run(1)  # a restart meanwhile
        mq.send(A0)
        away.clear()
        run = Query(mq, kept, STARTS[start], lambda _: None)
        run.run(2)
    check_nothing_lost_nothing_twice(mq, kept)


@pytest.mark.parametrize("how", ["dead", "hidden"])
def test_an_outage_of_everything_is_waited_through(how: str):
    mq, kept = world(), Checkpoint()
    run = Query(mq, kept, {}, lambda _: None)
    run.run(1)
    mq.send()
    away: set[str] = getattr(mq, how)
    away |= {"broker-a", "broker-b"}
    mq.clock.on_sleep = away.clear
    run.run(1)
    check_nothing_lost_nothing_twice(mq, kept)


@pytest.mark.parametrize(("start", "first"), [("latest", "m11"), ("earliest", "m2")])
def test_a_broker_that_was_away_at_the_start_is_read_from_the_start_moment(start: str, first: str):
    mq, kept = world(), Checkpoint()
    mq.dead.add("broker-b")
    run = Query(mq, kept, STARTS[start], lambda _: None)
    mq.send(A0)
    run.run(1)
    mq.clock.now_s += 1
    mq.send(B0)
    mq.dead.clear()
    run.run(1)
    assert written(kept)[B0][0] == first


def test_a_new_queue_is_read_from_its_first_message():
    mq, kept = world(), Checkpoint()
    run = Query(mq, kept, {}, lambda _: None)
    run.run(1)
    new = MessageQueue("orders", "broker-c", 0)
    mq.clock.now_s += 1
    mq.logs[new] = []
    run.run(2)
    assert len(kept.ends) == 1, "an empty new queue is no reason for a batch"
    mq.send(new)
    run.run(2)
    assert written(kept) == {new: mq.bodies(new, 0, 1)}


def test_a_pattern_finds_topics_that_are_created_later():
    mq, kept = world(), Checkpoint()
    options = {"subscribePattern": "ord.*"}
    run = Query(mq, kept, options, lambda _: None)
    run.run(1)
    new = MessageQueue("orderlines", "broker-a", 0)
    mq.logs |= {new: [], MessageQueue("payments", "broker-a", 0): []}
    mq.clock.now_s += 1
    mq.send()
    run.run(1)
    Query(mq, kept, options, lambda _: None).run(1)
    assert written(kept) == {
        queue: [log[-1][1]] for queue, log in mq.logs.items() if queue.topic != "payments"
    }


def moved_back() -> tuple[FakeRocketMQ, Checkpoint, list[tuple[int, str]]]:
    """A queue of the checkpoint now ends before its position; the last of it is what it was."""
    mq, kept = world(), Checkpoint()
    mq.logs = {A0: mq.logs[A0]}
    Query(mq, kept, STARTS["earliest"], lambda _: None).run(1)
    whole, mq.logs[A0] = mq.logs[A0], mq.logs[A0][:2]
    return mq, kept, whole


def test_an_empty_new_queue_has_no_start_that_is_too_late():
    """``startingOffsetsByTimestampStrategy=error`` is about the query's start."""
    mq, kept = world(), Checkpoint()
    options = {"startingTimestamp": "-2s", "startingOffsetsByTimestampStrategy": "error"}
    mq.send()
    run = Query(mq, kept, {**options, "subscribePattern": "orders.*"}, lambda _: None)
    run.run(1)
    new = MessageQueue("orders-late", "broker-a", 0), MessageQueue("orders", "broker-c", 0)
    mq.logs |= {queue: [] for queue in new}
    run.run(1)
    mq.clock.now_s += 1
    mq.send(*new)
    run.run(1)
    assert [written(kept)[queue] for queue in new] == [mq.bodies(queue, 0, 1) for queue in new]


def test_a_queue_that_went_back_ends_the_query():
    mq, kept, _ = moved_back()
    with pytest.raises(DataLossError, match=r"now holds \[0, 2\), but everything up to 4 was read") as raised:
        Query(mq, kept, {}, lambda _: None).run(1)
    assert raised.value.condition == "OFFSET_WENT_BACK"


def test_a_queue_that_went_back_is_read_on_from_its_end_when_told_so():
    mq, kept, _ = moved_back()
    options = {"failOnDataLoss": "false"}
    before = len(written(kept)[A0])
    run = Query(mq, kept, options, lambda _: None)
    run.run(1)
    mq.send(A0)
    run.run(1)
    Query(mq, kept, options, lambda _: None).run(1)
    assert written(kept)[A0][before:] == mq.bodies(A0, 2, 3)


def test_a_broker_that_builds_its_index_anew_is_given_time():
    mq, kept, whole = moved_back()
    mq.clock.on_sleep = lambda: mq.logs.update({A0: [*whole, (mq.clock.now_ms(), "again")]})
    Query(mq, kept, {}, lambda _: None).run(1)
    assert written(kept)[A0][-1] == "again"


def test_an_end_that_was_told_before_its_time_was_up_decides_nothing():
    """Another broker was waited for, while this one has rebuilt its index."""
    mq, kept, whole = moved_back()

    def be_slow() -> None:
        mq.clock.now_s += MOVED_BACK_PATIENCE_MS / 1000
        mq.logs[A0] = [*whole, (mq.clock.now_ms(), "again")]

    mq.clock.on_sleep = lambda: setattr(mq, "after_ends", be_slow)
    Query(mq, kept, {}, lambda _: None).run(1)
    assert written(kept)[A0][-1] == "again"


def test_new_queues_wait_while_their_begin_cannot_be_asked_for():
    mq, kept = world(), Checkpoint()
    run = Query(mq, kept, {}, lambda _: None)
    run.run(1)
    new = MessageQueue("orders", "broker-c", 0)
    mq.logs[new] = []
    mq.clock.now_s += 1
    mq.send(new)
    asked = mq.max_offsets

    def die_after(queues: object) -> dict[MessageQueue, int]:
        found = asked(queues)
        mq.dead.add("broker-c")
        return found

    mq.max_offsets = die_after
    run.run(1)
    assert written(kept) == {}
    mq.max_offsets = asked
    mq.dead.clear()
    run.run(1)
    assert written(kept) == {new: mq.bodies(new, 0, 1)}


def test_an_outage_that_does_not_end_ends_the_query():
    mq, kept = world(), Checkpoint()
    run = Query(mq, kept, {}, lambda _: None)
    run.run(1)
    mq.dead |= {"broker-a", "broker-b"}
    begin = mq.clock.monotonic()
    with pytest.raises(BrokerNotFoundError):
        run.run(1)
    assert 55 < mq.clock.monotonic() - begin < 70


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topic": "payments"}, "the checkpoint was written for orders"),
        ({"topic": "orders;payments"}, None),
        ({"subscribePattern": "pay.*"}, "the checkpoint was written for orders"),
        ({"assign": '{"orders": {"broker-a": [0]}}'}, "orders@broker-a:1"),
    ],
)
def test_a_checkpoint_belongs_to_its_topics(options: dict[str, str], text: str | None):
    mq, kept = world(), Checkpoint()
    Query(mq, kept, STARTS["earliest"], lambda _: None).run(1)
    other = reader(mq, options)
    if text is None:
        other.latestOffset(kept.ends[0], ReadAllAvailable())
        return
    for call in (
        lambda: other.latestOffset(kept.ends[0], ReadAllAvailable()),
        lambda: other.partitions(other.initialOffset(), kept.ends[0]),
    ):
        with pytest.raises(OptionError, match=text):
            call()


def test_a_topic_that_does_not_exist_is_told_at_once():
    mq = world()
    begin = mq.clock.monotonic()
    one = reader(mq, {"topic": "order"})
    with pytest.raises(TopicNotFoundError):
        one.latestOffset(one.initialOffset(), ReadAllAvailable())
    with pytest.raises(TopicNotFoundError):
        reader(mq, {"topic": "order"}).prepareForTriggerAvailableNow()
    assert mq.clock.monotonic() == begin


def test_a_queue_that_was_read_may_go_and_come_again():
    mq, kept = world(), Checkpoint()
    run = Query(mq, kept, STARTS["earliest"], lambda _: None)
    run.run(1)
    mq.unreadable.add(A1)
    mq.send(A0)
    run.run(2)
    mq.calls.clear()
    run.run(1)
    assert mq.calls == ["read_queues", "max_offsets"], "it is asked for once, not at every look"
    mq.unreadable.clear()
    mq.send(A1)
    run.run(1)
    check_nothing_lost_nothing_twice(mq, kept)


@pytest.mark.parametrize("available_now", [False, True])
def test_a_queue_that_an_old_route_lacks_is_read(available_now):
    mq, kept = world(), Checkpoint()
    Query(mq, kept, STARTS["earliest"], lambda _: None).run(1)

    def forget() -> None:
        mq.unknown.add(A1)

    mq.send(A1)
    mq.after_ends = forget  # of the ends that a run to the end begins with
    if not available_now:
        forget()
    Query(mq, kept, STARTS["earliest"], lambda _: None).run(2, available_now=available_now)
    assert SourceOffset.from_dict(kept.ends[-1]).offsets[A1] == len(mq.logs[A1])


def test_unread_messages_of_a_queue_that_went_end_the_query_until_it_is_back():
    mq, kept = world(), Checkpoint()
    run = Query(mq, kept, STARTS["earliest"], lambda _: None)
    run.run(1)
    mq.send(A1)
    mq.unreadable.add(A1)
    with pytest.raises(DataLossError, match="1 unread messages are in a queue that cannot be read") as raised:
        run.run(1)
    assert raised.value.condition == "QUEUE_LOST"
    lenient = Query(mq, kept, STARTS["earliest"] | {"failOnDataLoss": "false"}, lambda _: None)
    mq.send(A0)
    lenient.run(1)
    mq.unreadable.clear()
    Query(mq, kept, STARTS["earliest"], lambda _: None).run(1)
    check_nothing_lost_nothing_twice(mq, kept)


def test_a_broker_of_a_hidden_queue_that_dies_while_a_batch_is_planned_holds_nothing_up():
    mq, kept = world(), Checkpoint()
    run = Query(mq, kept, STARTS["earliest"], lambda _: None)
    run.run(1)
    mq.unreadable.add(A1)
    mq.send(B0)
    mq.after_ends = lambda: mq.dead.add("broker-a")
    run.run(1)
    assert written(kept)[B0] == mq.bodies(B0, 0, 4)
    mq.after_ends = lambda: None
    mq.dead.clear()
    mq.unreadable.clear()
    mq.send(A0)
    run.run(1)
    check_nothing_lost_nothing_twice(mq, kept)


def test_a_filter_is_checked_when_a_query_starts_and_when_brokers_come_later():
    mq, kept, options = world(), Checkpoint(), {"sqlFilter": "amount > 1", "startingOffsets": "earliest"}
    mq.hidden = {"broker-b"}
    query = Query(mq, kept, options, lambda _: None)
    query.run(1)
    assert mq.checked == {"broker-a"}
    mq.hidden = set()
    query.run(1)
    assert mq.checked == {"broker-a", "broker-b"}


def test_a_filter_that_does_not_parse_ends_a_query_before_its_first_batch():
    kept = Checkpoint()
    with pytest.raises(OptionError, match="does not parse"):
        Query(world(), kept, {"sqlFilter": "amount >", "startingOffsets": "earliest"}, lambda _: None).run(1)
    assert not kept.ends


def test_a_queue_that_ends_before_its_position_does_not_hold_the_others_back():
    mq, kept = world(), Checkpoint()
    run = Query(mq, kept, STARTS["earliest"], lambda _: None)
    run.run(1)
    whole, mq.logs[A0] = mq.logs[A0], mq.logs[A0][:2]
    mq.send(B0)
    begin = mq.clock.monotonic()
    run.run(1)
    assert mq.clock.monotonic() == begin, "nobody slept"
    assert written(kept)[B0] == mq.bodies(B0, 0, 4)
    mq.logs[A0] = whole  # its broker has rebuilt its index
    mq.send(A0)
    run.run(1)
    check_nothing_lost_nothing_twice(mq, kept)


def test_a_queue_that_ends_before_its_position_again_has_the_whole_patience_again():
    mq, kept = world(), Checkpoint()
    run = Query(mq, kept, STARTS["earliest"], lambda _: None)
    run.run(1)
    for _ in range(2):
        whole, mq.logs[A0] = mq.logs[A0], mq.logs[A0][:2]
        mq.send(B0)
        run.run(1)
        mq.logs[A0] = whole
        mq.send(A0)
        run.run(1)
        mq.clock.now_s += 3_600
    check_nothing_lost_nothing_twice(mq, kept)


def test_a_queue_that_stays_before_its_position_ends_the_query_though_others_have_messages():
    mq, kept = world(), Checkpoint()
    run = Query(mq, kept, STARTS["earliest"], lambda _: None)
    run.run(1)
    mq.logs[A0] = mq.logs[A0][:2]
    mq.send(B0)
    run.run(1)
    mq.clock.now_s += 11
    mq.send(B0)
    with pytest.raises(DataLossError, match=r"now holds \[0, 2\), but everything up to 4 was read"):
        run.run(1)


def test_a_queue_has_the_whole_patience_although_others_ended_before_their_positions_earlier():
    """Brokers restart one after the other, and each rebuilds its index for some seconds."""
    mq, kept = world(), Checkpoint()
    run = Query(mq, kept, STARTS["earliest"], lambda _: None)
    run.run(1)
    whole = {queue: list(log) for queue, log in mq.logs.items()}
    for queue, before in ((A0, B0), (B0, A0), (A0, B0)):
        mq.logs[queue], mq.logs[before] = mq.logs[queue][:2], whole[before]
        for _ in range(2):
            mq.send(A1)
            run.run(1)
            mq.clock.now_s += 0.8 * MOVED_BACK_PATIENCE_MS / 2000
    mq.logs |= {queue: whole[queue] for queue in (A0, B0)}
    mq.send(A0, B0)
    run.run(1)
    check_nothing_lost_nothing_twice(mq, kept)


def test_what_a_slave_has_is_read_and_what_it_lacks_is_no_loss():
    mq, kept = world(), Checkpoint()
    run = Query(mq, kept, STARTS["earliest"], lambda _: None)
    run.run(1)
    mq.send(B0, B0)
    mq.dead.add("broker-b")
    mq.slaves = {B0: 4}
    run.run(1)
    assert written(kept)[B0] == mq.bodies(B0, 0, 4)
    mq.slaves = {B0: 1}
    mq.clock.now_s += 100
    run.run(2)
    mq.dead.clear()
    run.run(1)
    check_nothing_lost_nothing_twice(mq, kept)


P0 = MessageQueue("payments", "broker-b", 0)
BOTH_TOPICS = STARTS["earliest"] | {"topic": "orders;payments"}


def deleted_topic() -> tuple[FakeRocketMQ, Checkpoint]:
    """A query has read two topics; one of them is no more."""
    mq, kept = world(), Checkpoint()
    mq.logs[P0] = []
    mq.send(P0)
    Query(mq, kept, BOTH_TOPICS, lambda _: None).run(1)
    del mq.logs[P0]
    mq.send()
    return mq, kept


@pytest.mark.parametrize("forget", ["payments", "payments@broker-b", "payments@broker-b:0"])
def test_a_query_goes_on_without_a_deleted_topic_when_told_to_forget_it(forget: str):
    mq, kept = deleted_topic()
    with pytest.raises(OptionError, match="forgetQueues"):
        Query(mq, kept, STARTS["earliest"], lambda _: None).run(1)
    Query(mq, kept, STARTS["earliest"] | {"forgetQueues": forget}, lambda _: None).run(1)
    assert P0 not in SourceOffset.from_dict(kept.ends[-1]).offsets
    mq.send()
    Query(mq, kept, STARTS["earliest"], lambda _: None).run(1)
    assert written(kept)[A0] == mq.bodies(A0, 0, len(mq.logs[A0])), "from here on nothing is to be said"


def test_a_batch_that_cannot_be_read_any_more_is_finished_without_what_is_forgotten():
    mq, kept = deleted_topic()
    kept.finished, kept.sink = 0, {}
    with pytest.raises(KeyError):
        Query(mq, kept, BOTH_TOPICS, lambda _: None).run(0)
    Query(mq, kept, BOTH_TOPICS | {"forgetQueues": "payments"}, lambda _: None).run(1)
    assert written(kept) == {queue: mq.bodies(queue, 0, len(log)) for queue, log in mq.logs.items()}


def test_a_forgotten_broker_is_not_read_though_it_is_back():
    mq, kept = world(), Checkpoint()
    Query(mq, kept, STARTS["earliest"], lambda _: None).run(1)
    mq.send()
    options = STARTS["earliest"] | {"forgetQueues": "@broker-b"}
    Query(mq, kept, options, lambda _: None).run(2)
    assert set(SourceOffset.from_dict(kept.ends[-1]).offsets) == {A0, A1}
    assert written(kept)[B0] == mq.bodies(B0, 0, 3)


def test_nothing_changes_while_nothing_new_comes_to_a_query_that_forgets():
    mq, kept = world(), Checkpoint()
    Query(mq, kept, STARTS["earliest"], lambda _: None).run(1)
    run = Query(mq, kept, STARTS["earliest"] | {"forgetQueues": "@broker-b"}, lambda _: None)
    run.run(2)
    assert len(kept.ends) == 1


@pytest.mark.parametrize("start", ["latest", "earliest", "a moment ago", "group"])
@pytest.mark.parametrize("ahead_s", [60, -60])
def test_a_topic_created_after_the_start_is_read_whole_though_the_drivers_clock_is_wrong(
    start: str, ahead_s: float
):
    mq, kept = world(), Checkpoint()
    options = STARTS[start] | {"subscribePattern": ".*"}
    run = Query(mq, kept, options, lambda _: None)
    run.reader._clock = WrongClock(ahead_s, base=mq.clock)
    run.run(1)
    mq.logs[P0] = []
    mq.send(P0, A0)
    mq.send(P0, A0)
    Query(mq, kept, options, lambda _: None).run(1)  # also when it is found by a later run
    assert written(kept)[P0] == mq.bodies(P0, 0, 2)


def test_a_topic_that_the_query_is_told_to_read_later_is_not_taken_for_a_new_one():
    mq, kept = world(), Checkpoint()
    mq.logs[P0] = []
    mq.send(P0)
    mq.clock.now_s += 1
    Query(mq, kept, {}, lambda _: None).run(1)
    mq.clock.now_s += 1
    mq.send()
    Query(mq, kept, {"topic": "orders;payments"}, lambda _: None).run(1)
    assert written(kept)[P0] == mq.bodies(P0, 1, 2), "from the query's start on"


def test_a_broker_that_was_away_at_the_start_has_no_new_topics():
    mq, kept = world(), Checkpoint()
    mq.logs[P0] = []
    mq.send(P0)
    mq.clock.now_s += 1
    mq.hidden.add("broker-b")
    options = {"subscribePattern": ".*"}
    Query(mq, kept, options, lambda _: None).run(1)
    mq.hidden.clear()
    mq.clock.now_s += 1
    mq.send()
    Query(mq, kept, options, lambda _: None).run(1)
    assert written(kept)[P0] == mq.bodies(P0, 1, 2)


def test_a_broker_that_leaves_during_the_start_has_no_new_queues(monkeypatch: pytest.MonkeyPatch):
    mq, kept = world(), Checkpoint()
    mq.send()
    seen = len(mq.logs[B0])
    mq.clock.now_s += 1
    with monkeypatch.context() as leaving:
        leaving.setattr(mq, "look_up", lambda *_, **__: mq.hidden.add("broker-b"))
        Query(mq, kept, {}, lambda _: None).run(1)
    mq.hidden.clear()
    mq.clock.now_s += 1
    mq.send()
    Query(mq, kept, {}, lambda _: None).run(1)
    assert written(kept)[B0] == mq.bodies(B0, seen, len(mq.logs[B0]))


def test_a_broker_that_comes_during_the_start_of_a_run_to_the_end_has_no_new_queues():
    mq, kept = world(), Checkpoint()
    mq.send()
    seen = len(mq.logs[B0])
    mq.clock.now_s += 1
    mq.hidden.add("broker-b")
    run = Query(mq, kept, {}, lambda step: mq.hidden.clear() if step == "latest" else None)
    run.run(1, available_now=True)
    mq.clock.now_s += 1
    mq.send()
    Query(mq, kept, {}, lambda _: None).run(1)
    assert written(kept)[B0] == mq.bodies(B0, seen, len(mq.logs[B0]))


def test_a_broker_that_answered_for_some_queues_before_it_left_has_no_new_ones(
    monkeypatch: pytest.MonkeyPatch,
):
    mq, kept = world(), Checkpoint()
    mq.send()
    seen = {queue: len(mq.logs[queue]) for queue in (A0, A1)}
    mq.clock.now_s += 1
    ask = mq.ends

    def of_some(*asked: Any, **how: Any) -> Ends:
        found = ask(*asked, **how)
        masters = {queue: end for queue, end in found.masters.items() if queue != A1}
        return replace(found, masters=masters, failed={A1: BrokerNotFoundError("away")})

    def leave(step: str) -> None:
        if step == "latest":
            monkeypatch.undo()
            mq.hidden.add("broker-a")

    monkeypatch.setattr(mq, "ends", of_some)
    Query(mq, kept, {}, leave).run(1, available_now=True)
    mq.hidden.clear()
    mq.clock.now_s += 1
    mq.send()
    Query(mq, kept, {}, lambda _: None).run(1)
    for queue in (A0, A1):
        assert written(kept)[queue] == mq.bodies(queue, seen[queue], len(mq.logs[queue]))
