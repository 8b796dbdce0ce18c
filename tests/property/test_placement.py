"""`PreferConsistent`: even for every small number of queues and executors, and as stable as that allows."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.dstream import LocationStrategies
from pyspark_rocketmq.dstream.strategies import deal
from pyspark_rocketmq.model import MessageQueue


def queues_of(count: int, brokers: int = 1) -> list[MessageQueue]:
    return [MessageQueue("orders", f"broker-{n % brokers}", n // brokers) for n in range(count)]


def executors_of(count: int) -> list[str]:
    return [f"executor_host-{number}_{number}" for number in range(count)]


def is_even(placed: dict[MessageQueue, str], executors: list[str]) -> bool:
    loads = Counter(placed.values())
    return max(loads[e] for e in executors) - min(loads[e] for e in executors) <= 1


@pytest.mark.parametrize("brokers", [1, 2, 3])
def test_every_small_number_of_queues_is_even_over_every_small_number_of_executors(brokers):
    for count, executors in itertools.product(range(25), map(executors_of, range(1, 13))):
        queues = queues_of(count, brokers)
        placed = LocationStrategies.PreferConsistent.locations(queues, executors)
        assert placed.keys() == set(queues)
        assert is_even(placed, executors), (count, executors)


def test_only_the_queues_of_an_executor_that_goes_move():
    for count, number in itertools.product(range(25), range(2, 9)):
        executors, queues = executors_of(number), set(queues_of(count))
        before = deal(queues, executors, {})
        for gone in executors:
            rest = [e for e in executors if e != gone]
            placed = deal(queues, rest, before)
            assert is_even(placed, rest)
            assert all(placed[q] == before[q] for q in queues if before[q] != gone)


def test_only_its_share_moves_to_an_executor_that_comes_wherever_it_is_listed():
    for count, number, at in itertools.product(range(25), range(1, 9), (0, 1, -1)):
        executors, queues = executors_of(number), set(queues_of(count))
        before = deal(queues, executors, {})
        more = [*executors]
        more.insert(at, "executor_new_99")
        placed = deal(queues, more, before)
        assert is_even(placed, more)
        assert {placed[q] for q in queues if placed[q] != before[q]} <= {"executor_new_99"}


@given(
    st.sets(st.integers(0, 30)),
    st.sets(st.integers(0, 8), min_size=1),
    st.dictionaries(*[st.integers(0, 30)] * 2),
)
def test_any_former_deal_ends_in_an_even_one_that_stays(numbers, there, former):
    queues = {MessageQueue("orders", "broker-a", number) for number in numbers}
    executors = [f"executor_h_{number}" for number in sorted(there)]
    before = {MessageQueue("orders", "broker-a", q): f"executor_h_{e}" for q, e in former.items()}
    placed = deal(queues, executors, before)
    assert placed.keys() == queues
    assert is_even(placed, executors)
    assert deal(queues, executors, placed) == placed
