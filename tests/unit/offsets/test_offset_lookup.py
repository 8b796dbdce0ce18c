"""What planning asks of brokers: an answer, a reason to wait, or the end of the query."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from tests.support.clocks import FakeClock
from tests.unit.spark.fake_rocketmq import FakeRocketMQ

from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.errors import (
    BrokerNotFoundError,
    DataLossError,
    FlowControlError,
    OptionError,
    PermissionDeniedError,
    RocketMQError,
    TopicNotFoundError,
)
from pyspark_rocketmq.model import AtTimestamp, Earliest, GroupOffsets, Latest, MessageQueue, StartPolicy
from pyspark_rocketmq.offsets.hidden_queues import HiddenQueues
from pyspark_rocketmq.offsets.offset_lookup import (
    check_filter,
    fetch_available_ends,
    fetch_running_ends,
    fetch_start_ends,
    find_late_begins,
    find_moved_back,
    resolve_batch,
    resolve_offsets,
    wait_for_ends,
    whole_topics,
)
from pyspark_rocketmq.offsets.planning_client import Ends
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.planning.data_loss import find_shortened

A0, A1 = (MessageQueue("orders", "broker-a", index) for index in range(2))
B0 = MessageQueue("orders", "broker-b", 0)
OTHER = MessageQueue("other", "broker-a", 0)
DENIED = PermissionDeniedError("the topic is forbidden", code=16)
BUSY = FlowControlError("too many requests", code=2)


def options(**given: str) -> SourceOptions:
    base = {"nameServer": "127.0.0.1:9876"} | ({} if "assign" in given else {"topic": "orders"})
    return parse_options(SourceOptions, base | given, where="readStream", environ={})


@pytest.fixture
def mq() -> FakeRocketMQ:
    """Two brokers; three messages in each queue."""
    mq = FakeRocketMQ(FakeClock(), [A0, A1, B0])
    for _ in range(3):
        mq.send()
    return mq


def stored(times: dict[MessageQueue, list[int]]) -> FakeRocketMQ:
    """Return a RocketMQ with messages of these times, in ms."""
    mq = FakeRocketMQ(FakeClock(9.0), times)
    mq.logs = {queue: [(time, "x") for time in of] for queue, of in times.items()}
    return mq


def refuse(mq: FakeRocketMQ, *queues: MessageQueue, error: RocketMQError) -> None:
    """Let the look-up of ends fail for some queues."""
    ask = mq.ends

    def ends(asked, **how: object) -> Ends:
        found = ask(asked, **how)
        masters = {queue: end for queue, end in found.masters.items() if queue not in queues}
        return replace(found, masters=masters, failed=dict.fromkeys(queues, error))

    mq.ends = ends  # type: ignore[method-assign]


def raises(error: RocketMQError) -> Callable[..., object]:
    def call(*_: object) -> object:
        raise error

    return call


@pytest.mark.parametrize("look_up", ["start", "running"])
def test_one_broker_that_is_busy_is_left_out_and_one_that_denies_ends_the_query(mq, look_up: str) -> None:
    def ask() -> dict[MessageQueue, int]:
        if look_up == "start":
            return fetch_available_ends(mq, [A0, A1, B0])
        return dict(fetch_running_ends(mq, options()).masters)

    assert ask() == {A0: 3, A1: 3, B0: 3}
    refuse(mq, B0, error=BUSY)
    assert ask() == {A0: 3, A1: 3}
    refuse(mq, B0, error=DENIED)
    with pytest.raises(PermissionDeniedError):
        ask()


def test_an_assigned_queue_that_the_topic_does_not_have_is_told(mq, caplog) -> None:
    """Its broker says that it is empty, and a stream waited for its rows without a word."""
    a2 = MessageQueue("orders", "broker-a", 2)
    mq.logs[a2] = []
    mq.unreadable = {a2}
    given = options(assign='{"orders": {"broker-a": [1, 2]}}')
    for _ in range(3):
        assert fetch_running_ends(mq, given).masters == {A1: 3, a2: 0}
    assert caplog.text.count("assign names orders@broker-a:2, which the topic does not have") == 1
    assert "there are orders@broker-a:0, orders@broker-a:1, orders@broker-b:0" in caplog.text
    caplog.clear()
    mq.unreadable = set()
    mq.clock.now_s += 600
    fetch_running_ends(mq, given)  # the topic has got it
    mq.read_queues = raises(TopicNotFoundError("there is no route"))
    fetch_running_ends(mq, given)
    assert not caplog.text


def test_a_look_at_many_empty_queues_that_are_assigned_asks_for_each_topics_queues_once(mq) -> None:
    """It did so for each of the queues, which took seconds of each micro-batch for a thousand of them."""
    mq.logs = {MessageQueue("orders", "broker-a", index): [] for index in range(300)}
    listed, asked = mq.read_queues, []
    mq.read_queues = lambda topic: asked.append(topic) or listed(topic)
    given = options(assign=json.dumps({"orders": {"broker-a": list(range(300))}}))
    assert len(fetch_running_ends(mq, given).masters) == 300
    assert asked == ["orders"]


def test_no_answer_at_all_is_an_error(mq) -> None:
    refuse(mq, A0, A1, B0, error=BUSY)
    with pytest.raises(FlowControlError):
        fetch_available_ends(mq, [A0, A1, B0])


def test_ends_are_waited_for_while_brokers_are_away(mq) -> None:
    mq.dead = {"broker-a", "broker-b"}

    def wait(**given: float) -> Ends:
        deadline = Deadline(mq.clock, 60_000)
        return wait_for_ends(mq, options(), clock=mq.clock, deadline=deadline, **given)

    began_s = mq.clock.now_s
    with pytest.raises(BrokerNotFoundError):
        wait()
    assert 30 < mq.clock.now_s - began_s <= 60
    mq.clock.on_sleep = mq.dead.clear
    assert dict(wait(patience_ms=700).masters) == {A0: 3, A1: 3, B0: 3}
    assert mq.patience_ms == 700
    refuse(mq, B0, error=DENIED)
    pauses = len(mq.clock.sleeps)
    with pytest.raises(PermissionDeniedError):
        wait()
    assert len(mq.clock.sleeps) == pauses


def test_a_driver_that_was_frozen_within_a_look_looks_again(mq) -> None:
    """Its connections may have ended meanwhile: that no broker has answered for a minute is not known."""
    mq.dead, read_queues = {"broker-a", "broker-b"}, mq.read_queues

    def freeze(topic: str) -> tuple[MessageQueue, ...]:
        mq.clock.now_s += 600
        mq.read_queues = read_queues
        mq.clock.on_sleep = mq.dead.clear
        return read_queues(topic)

    mq.read_queues = freeze
    deadline = Deadline(mq.clock, 60_000)
    assert dict(wait_for_ends(mq, options(), clock=mq.clock, deadline=deadline).masters) == {
        A0: 3,
        A1: 3,
        B0: 3,
    }


@pytest.mark.parametrize(("aligned", "slaves"), [("off", {B0: 2}), ("store", {})])
def test_slaves_stand_in_for_masters_unless_queues_are_aligned(mq, aligned: str, slaves: object) -> None:
    mq.dead, mq.slaves = {"broker-b"}, {B0: 2}
    found = fetch_running_ends(mq, options(eventTimeAlignment=aligned), patience_ms=300)
    assert (dict(found.masters), dict(found.slaves)) == ({A0: 3, A1: 3}, slaves)
    assert mq.patience_ms == 300


@pytest.mark.parametrize(
    ("asked", "found"),
    [({"topic": "orders,payments"}, [A0, A1, B0]), ({"assign": '{"orders": {"broker-a": [1]}}'}, [A1])],
)
def test_a_topic_that_is_missing_holds_up_no_other(mq, asked, found, caplog) -> None:
    assert list(fetch_running_ends(mq, options(**asked)).masters) == found
    assert ("its queues wait" in caplog.text) is ("topic" in asked)
    assert mq.looked_up == (("orders", "payments") if "topic" in asked else ()), "all together"


def test_a_topic_that_is_missing_for_hours_is_a_line_every_five_minutes(mq, caplog) -> None:
    """A query looks for messages many times a second."""
    for _ in range(7_200):
        fetch_running_ends(mq, options(topic="orders,payments"))
        mq.clock.now_s += 1
    assert caplog.text.count("its queues wait") == 24


def test_without_any_topic_the_query_ends_with_its_name(mq) -> None:
    with pytest.raises(TopicNotFoundError) as raised:
        fetch_running_ends(mq, options(topic="payments,refunds"))
    assert raised.value.facts["topic"] == "payments"


@pytest.mark.parametrize(
    ("policy", "offsets", "calls"),
    [
        (Earliest(), {A0: 1, A1: 0}, ["min_offsets"]),
        (Latest(), {A0: 3, A1: 3}, ["max_offsets"]),
        (AtTimestamp(2_000), {A0: 1, A1: 2}, ["offsets_at"]),
        (GroupOffsets(Earliest()), {A0: 2, A1: 0}, ["committed_offsets", "min_offsets"]),
    ],
)
def test_a_start_is_asked_only_what_it_needs(policy: StartPolicy, offsets: object, calls: list[str]) -> None:
    mq = stored({A0: [1_000, 2_000, 3_000], A1: [1_000, 1_500, 3_000]})
    mq.first, mq.committed = {A0: 1}, {A0: 2}
    read = options(consumerGroup="g")
    assert resolve_offsets(mq, policy, [A0, A1], read, start_time_ms=9_000) == offsets
    assert sorted(mq.calls) == sorted(calls)


def test_ends_that_are_known_are_not_asked_for_again() -> None:
    mq = stored({A0: [1_000], A1: [1_000]})
    read = options(consumerGroup="g")
    assert resolve_offsets(mq, Latest(), [A0, A1], read, start_time_ms=9_000, ends={A0: 0, A1: 0}) == {
        A0: 0,
        A1: 0,
    }
    assert mq.calls == []
    assert resolve_offsets(mq, Latest(), [A0, A1], read, start_time_ms=9_000, ends={A0: 0}) == {A0: 0, A1: 1}


def test_the_ends_of_a_batch_are_of_a_moment_after_its_starts() -> None:
    """What is stored between the look-ups lies after the start by time, and not before the end."""
    mq = stored({A0: [1_000, 2_000]})
    read, given = options(consumerGroup="g"), {"start_time_ms": 9_000}
    ask = mq._ask

    def grows(call: str, queues: object, answer: object) -> object:
        found = ask(call, queues, answer)
        mq.logs[A0].append((9_000, "late"))
        return found

    mq._ask = grows  # type: ignore[method-assign]
    (found,) = resolve_batch(mq, AtTimestamp(5_000), Latest(), [A0], read, clock=mq.clock, **given)
    assert (found.from_offset, found.until_offset) == (2, 3)
    assert resolve_batch(mq, Latest(), Latest(), [A0], read, clock=mq.clock, **given) == ()
    (found,) = resolve_batch(mq, Earliest(), AtTimestamp(2_000), [A0], read, clock=mq.clock, **given)
    assert (found.from_offset, found.until_offset) == (0, 1)


def test_a_start_after_the_last_message_can_be_an_error_and_an_end_is_the_queue_s() -> None:
    mq = stored({A0: [1_000, 2_000]})
    after, given = AtTimestamp(5_000), {"start_time_ms": 9_000}
    strict = options(consumerGroup="g", startingOffsetsByTimestampStrategy="error")
    with pytest.raises(OptionError, match="no message at or after the start time"):
        resolve_offsets(mq, after, [A0], strict, **given)
    with pytest.raises(OptionError, match="no message at or after the start time"):
        resolve_batch(mq, after, Latest(), [A0], strict, clock=mq.clock, **given)
    (found,) = resolve_batch(mq, AtTimestamp(2_000), after, [A0], strict, clock=mq.clock, **given)
    assert (found.from_offset, found.until_offset) == (1, 2)
    assert resolve_offsets(mq, after, [A0], options(), **given) == {A0: 2}


def test_a_filter_is_checked_by_the_brokers_that_answer(mq, caplog) -> None:
    read = options(sqlFilter="amount > 1")
    check_filter(mq, [A0, B0], read)
    assert mq.checked == {"broker-a", "broker-b"}
    mq.checked.clear()
    with pytest.raises(OptionError, match="does not parse"):
        check_filter(mq, [A0], options(sqlFilter="amount >"))
    mq.checked.clear()
    mq.dead = {"broker-b"}
    check_filter(mq, [A0, B0], read)
    assert "sqlFilter is checked later, a broker does not answer" in caplog.text
    mq.check_selector_at = lambda *_, **__: raises(DENIED)()
    with pytest.raises(PermissionDeniedError):
        check_filter(mq, [A0], read)


def test_queues_of_a_topic_that_is_younger_than_the_query_begin_at_their_first_message(mq) -> None:
    """Whatever the driver's clock says: the topic did not exist at the start."""
    mq.logs[OTHER] = [(1_000, "x"), (2_000, "y")]
    assert late(mq, Latest(), started_at_ms=mq.clock.now_ms(), seen=[A0, OTHER]) == {OTHER: 0}


def late(
    mq: FakeRocketMQ,
    policy: StartPolicy,
    *,
    started_at_ms: int,
    seen: Sequence[MessageQueue] = (A0, A1, B0),
    missing: Sequence[MessageQueue] = (),
) -> dict[MessageQueue, int]:
    """Return where queues begin that come to a query that read A0 of broker-a only."""
    return find_late_begins(
        *(mq, policy, {A0: 3}, mq.max_offsets(seen), options()),
        missing=missing,
        started_at_ms=started_at_ms,
        brokers=frozenset({"broker-a"}),
        first_topics=lambda topic: topic == "other",
    )


def test_new_queues_wait_for_a_busy_broker_and_a_denied_permission_is_raised(mq) -> None:
    assert late(mq, Earliest(), started_at_ms=mq.clock.now_ms()) == {A1: 0, B0: 0}
    for error in (BUSY, DENIED):
        mq.min_offsets = raises(error)
        if error.retriable:
            assert late(mq, Earliest(), started_at_ms=mq.clock.now_ms()) == {}
        else:
            with pytest.raises(PermissionDeniedError):
                late(mq, Earliest(), started_at_ms=mq.clock.now_ms())


def test_new_queues_do_not_wait_for_a_busy_broker_of_others(mq) -> None:
    ask = mq.min_offsets

    def min_offsets(queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        if B0 in queues:
            raise BUSY
        return ask(queues)

    mq.min_offsets = min_offsets
    assert late(mq, Earliest(), started_at_ms=mq.clock.now_ms()) == {A1: 0}


def test_a_grown_queue_begins_at_its_first_message_and_an_unknown_broker_at_the_start_of_the_query(
    mq,
) -> None:
    began_ms = mq.clock.now_ms() + 1
    mq.clock.now_s += 60
    mq.send(A1, B0)
    assert late(mq, Latest(), started_at_ms=began_ms) == {A1: 0, B0: 3}


def test_queues_get_their_first_positions_together_with_the_others_of_their_broker(mq) -> None:
    """Else the others would count as created later, and be read from their first message."""
    refuse(mq, A1, error=BUSY)
    assert fetch_start_ends(mq, [A0, A1, B0]) == {B0: 3}
    logical = [MessageQueue("orders", "__syslo__global__", number) for number in range(2)]
    assert whole_topics({logical[0]: 1}, [logical[1]]) == {logical[0]: 1}, "its owners are many"
    b1, now_ms = MessageQueue("orders", "broker-b", 1), mq.clock.now_ms() + 1
    assert late(mq, Latest(), started_at_ms=now_ms, missing=[b1]) == {A1: 0}
    assert late(mq, Latest(), started_at_ms=now_ms, missing=[A0]) == {A1: 0, B0: 3}


def test_a_queue_that_ends_before_its_position_is_data_loss(mq) -> None:
    known, ends = {A0: 5, A1: 3}, {A0: 3, A1: 3}
    assert find_shortened(known, ends) == [A0]
    with pytest.raises(DataLossError) as raised:
        find_moved_back(mq.min_offsets, known, ends, fail_on_data_loss=True)
    assert raised.value.condition == "OFFSET_WENT_BACK"
    moved = find_moved_back(mq.min_offsets, known, ends, fail_on_data_loss=False)
    assert moved == {A0: 3}, "lower ones were used"
    assert find_moved_back(lambda _: {}, known, ends, fail_on_data_loss=True) == {}, "its broker is down"
    assert find_moved_back(mq.min_offsets, {A0: 3}, ends, fail_on_data_loss=True) == {}


def test_unread_messages_of_a_queue_that_its_topic_lost_are_data_loss(mq, caplog) -> None:
    mq.unreadable.add(A1)
    ends = Ends(masters={A0: 3}, failed={B0: BUSY})
    read, unread = {A0: 3, A1: 3, B0: 0}, {A0: 3, A1: 1, B0: 0}
    HiddenQueues().check(mq, read, ends, group="g", fail_on_data_loss=True)
    HiddenQueues().check(mq, unread, ends, group="g", fail_on_data_loss=False)
    assert "2 messages of orders@broker-a:1 wait" in caplog.text
    with pytest.raises(DataLossError, match="2 unread messages") as raised:
        HiddenQueues().check(mq, unread, ends, group="g", fail_on_data_loss=True)
    assert raised.value.condition == "QUEUE_LOST"
    HiddenQueues().check(
        mq, unread, Ends(), group="g", fail_on_data_loss=True
    )  # nothing is known of any broker


def test_a_queue_that_a_route_lacks_and_its_broker_serves_is_read(mq) -> None:
    """Brokers did not reach the name server that told the route: it is an old one."""
    hidden, ends = HiddenQueues(), Ends(masters={A0: 3})
    for _ in range(2):
        seen = hidden.check(mq, {A0: 3, A1: 1}, ends, group="g", fail_on_data_loss=True)
        assert seen.masters == {A0: 3, A1: 3}
    assert hidden.check(mq, {A0: 3, A1: 3}, ends, group="g", fail_on_data_loss=True) == ends


def test_a_queue_that_its_topic_lost_is_looked_at_again_because_writers_may_use_it_for_a_while(mq) -> None:
    mq.unreadable.add(A1)
    hidden, known, ends = HiddenQueues(), {A0: 3, A1: 3}, Ends(masters={A0: 3})
    hidden.check(mq, known, ends, group="g", fail_on_data_loss=True)
    mq.send(A1)
    mq.calls.clear()
    hidden.check(mq, known, ends, group="g", fail_on_data_loss=True)
    assert not mq.calls, "not at every batch"
    mq.clock.now_s += 30
    for _ in range(2):
        with pytest.raises(DataLossError, match="1 unread messages"):
            hidden.check(mq, known, ends, group="g", fail_on_data_loss=True)
    hidden.check(mq, known, Ends(masters={A0: 3, A1: 4}), group="g", fail_on_data_loss=True)
