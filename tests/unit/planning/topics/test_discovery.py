from __future__ import annotations

import re

import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.options import ClientOptions, SourceOptions
from pyspark_rocketmq.planning.topics.discovery import (
    Discovery,
    check_checkpoint,
    discover,
    match_topics,
    plan_ranges,
    targets,
)

A0, A1, A2 = (MessageQueue("orders", "broker-a", index) for index in range(3))
B0 = MessageQueue("orders", "broker-b", 0)
P0 = MessageQueue("payments", "broker-a", 0)
CLIENT = ClientOptions(name_servers=("127.0.0.1:9876",))


@pytest.mark.parametrize(
    ("known", "seen", "expected"),
    [
        ((A0,), (A0,), Discovery(new=(), grown=(), absent=())),
        ((), (A0, A1), Discovery(new=(A0, A1), grown=(), absent=())),
        ((A0,), (A0, A2, A1), Discovery(new=(A1, A2), grown=(A1, A2), absent=())),
        # A broker that was away at the start, and a new topic of a pattern, may hold older messages.
        ((A0,), (A0, B0, P0), Discovery(new=(B0, P0), grown=(), absent=())),
        ((A0, A1), (A0,), Discovery(new=(), grown=(), absent=(A1,))),
        ((A0, B0), (A0,), Discovery(new=(), grown=(), absent=(B0,))),
        # Queue 0 was not readable at the start: it is not newer than the query.
        ((A1,), (A0, A1), Discovery(new=(A0,), grown=(), absent=())),
    ],
)
def test_queues_come_and_go(
    known: tuple[MessageQueue, ...], seen: tuple[MessageQueue, ...], expected: Discovery
) -> None:
    assert discover(known, seen) == expected
    assert discover(known, seen, closed=True) == Discovery(new=(), grown=(), absent=expected.absent)


def test_a_topic_of_a_broker_that_was_there_is_newer_than_the_query() -> None:
    found = discover((A0,), (A0, A1, B0, P0), brokers={"broker-a"})
    assert (found.grown, found.created) == ((A1,), (P0,))


@pytest.mark.parametrize("whole", [True, False])
def test_queues_of_a_static_topic_that_did_not_answer_at_the_start_are_not_new(whole: bool) -> None:
    """All have the same name of a broker: whether one of their owners was away, their numbers do not say."""
    name = "__syslo__global__"
    known, later, other = MessageQueue("s", name, 0), MessageQueue("s", name, 1), MessageQueue("t", name, 0)
    found = discover((known,), (known, later, other), brokers={"broker-a", *([name] if whole else ())})
    assert (found.new, found.grown, found.created) == ((later, other), (later,) if whole else (), ())


@pytest.mark.parametrize(
    ("max_offsets", "frozen", "expected"),
    [
        ({A0: 50, A1: 60}, None, {A0: 50, A1: 60}),
        ({A0: 50}, None, {A0: 50, A1: 20}),  # absent: stays
        ({A0: 3, A1: 60}, None, {A0: 10, A1: 60}),  # never before the position
        ({A0: 50, A1: 60}, {A0: 30, A1: 60}, {A0: 30, A1: 60}),
        ({A0: 50}, {A0: 30, A1: 60}, {A0: 30, A1: 20}),  # deleted in an AvailableNow run
        ({A0: 50, A1: 60}, {A0: 30}, {A0: 30, A1: 20}),  # appeared in an AvailableNow run
        ({A0: 25, A1: 60}, {A0: 30, A1: 60}, {A0: 25, A1: 60}),
    ],
)
def test_how_far_a_queue_can_be_read(
    max_offsets: dict[MessageQueue, int],
    frozen: dict[MessageQueue, int] | None,
    expected: dict[MessageQueue, int],
) -> None:
    assert targets({A0: 10, A1: 20}, max_offsets, frozen=frozen) == expected


def test_ranges_lie_between_two_offsets() -> None:
    found = plan_ranges({A0: 10, A1: 20, B0: 5}, {B0: 5, A1: 25, A0: 11})
    assert found == (OffsetRange(A0, 10, 11), OffsetRange(A1, 20, 25))


def test_the_begin_of_a_queue_stands_in_the_end_offset_and_goes_first() -> None:
    assert plan_ranges({A0: 10}, {A0: 12, A1: 9}, {A1: 4}) == (OffsetRange(A0, 10, 12), OffsetRange(A1, 4, 9))
    # A moving start that was asked for twice: the one in the log counts.
    assert plan_ranges({A0: 11}, {A0: 12}, {A0: 8}) == (OffsetRange(A0, 8, 12),)


def test_a_position_that_was_moved_back_is_nothing_to_read() -> None:
    assert plan_ranges({A0: 90}, {A0: 60}) == ()


def test_an_end_without_a_begin_is_no_checkpoint_of_ours() -> None:
    with pytest.raises(OptionError, match=r"orders@broker-a:1"):
        plan_ranges({A0: 1}, {A0: 1, A1: 4})


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("orders-.*", ("orders-de", "orders-fr")),
        ("orders", ()),
        (".*", ("orders-de", "orders-fr", "payments")),
        ("%RETRY%.*", ("%RETRY%billing",)),
        ("%DLQ%billing", ("%DLQ%billing",)),
        ("(?i)ORDERS-DE", ("orders-de",)),
        ("RMQ_SYS_.*|TBW102|SCHEDULE_TOPIC_XXXX", ()),
    ],
)
def test_a_pattern_matches_whole_names_and_no_system_topic(pattern: str, expected: tuple[str, ...]) -> None:
    topics = (
        "payments",
        "orders-fr",
        "orders-de",
        "%RETRY%billing",
        "%DLQ%billing",
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "rmq_sys_REVIVE_LOG_DefaultCluster",
    )
    assert match_topics(re.compile(pattern), topics) == expected


@pytest.mark.parametrize(
    "options",
    [
        SourceOptions(client=CLIENT, topics=("orders", "payments")),
        SourceOptions(client=CLIENT, topic_pattern=re.compile("ord.*")),
        SourceOptions(client=CLIENT, assign=(A0, A1)),
    ],
)
def test_a_checkpoint_of_the_same_query_is_taken(options: SourceOptions) -> None:
    check_checkpoint([A0, A1], options)
    check_checkpoint([], options)


@pytest.mark.parametrize(
    ("options", "stranger"),
    [
        (SourceOptions(client=CLIENT, topics=("payments",)), "orders"),
        (SourceOptions(client=CLIENT, topic_pattern=re.compile("pay.*")), "orders"),
        (SourceOptions(client=CLIENT, assign=(A0,)), "orders@broker-a:1"),
    ],
)
def test_a_checkpoint_of_another_query_is_refused(options: SourceOptions, stranger: str) -> None:
    with pytest.raises(OptionError, match=f"written for {stranger}, .*checkpointLocation"):
        check_checkpoint([A0, A1], options)
