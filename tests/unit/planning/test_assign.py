"""The expected deals were printed by the strategies of rocketmq-client 5.4.0 (Java)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.planning.assign import AllocateStrategy, allocate

AVERAGELY = AllocateStrategy.AVERAGELY
CIRCLE = AllocateStrategy.AVERAGELY_BY_CIRCLE
HASH = AllocateStrategy.CONSISTENT_HASH


def queues(brokers: int, count: int) -> list[MessageQueue]:
    return [
        MessageQueue("orders", f"broker-{'abc'[b]}", index) for b in range(brokers) for index in range(count)
    ]


def members(count: int) -> list[str]:
    return [f"10.0.0.{index}@{100 + index}" for index in range(count)]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (AVERAGELY, ["a0 a1 a2", "a3 b0 b1", "b2 b3"]),
        (CIRCLE, ["a0 a3 b2", "a1 b0 b3", "a2 b1"]),
        (HASH, ["a3 b3", "a0 a1 a2", "b0 b1 b2"]),
    ],
)
def test_two_brokers_with_four_queues_among_three_members(
    strategy: AllocateStrategy, expected: list[str]
) -> None:
    group = members(3)
    found = [allocate(strategy, queues(2, 4), group, member) for member in group]
    assert [" ".join(f"{q.broker_name[-1]}{q.queue_id}" for q in part) for part in found] == expected


def test_the_ring_is_that_of_the_java_client() -> None:
    group = members(5)
    found = [allocate(HASH, queues(3, 8), group, member) for member in group]
    assert [" ".join(f"{q.broker_name[-1]}{q.queue_id}" for q in part) for part in found] == [
        "a4 b3 c2 c4 c6",
        "a2 a5 b5",
        "b0 b1 b2 b4 b7 c7",
        "a1 a3 a7 b6 c0 c1 c3 c5",
        "a0 a6",
    ]


@pytest.mark.parametrize("strategy", AllocateStrategy)
def test_a_stranger_gets_nothing(strategy: AllocateStrategy) -> None:
    assert allocate(strategy, queues(1, 4), members(2), "somebody") == ()


@examples(60)
@given(
    st.sampled_from(AllocateStrategy),
    st.integers(0, 3),
    st.integers(0, 12),
    st.sets(st.text("abc@.", min_size=1, max_size=5), min_size=1, max_size=9),
    st.randoms(),
)
def test_every_queue_has_exactly_one_reader(
    strategy: AllocateStrategy, brokers: int, count: int, group: set[str], random: object
) -> None:
    deck = queues(brokers, count)
    shuffled = list(deck)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    dealt = [queue for member in group for queue in allocate(strategy, shuffled, list(group), member)]
    assert sorted(dealt) == deck
    if strategy is not HASH:
        sizes = [len(allocate(strategy, deck, group, member)) for member in group]
        assert max(sizes) - min(sizes) <= 1
