from __future__ import annotations

import pytest
from tests.support.clocks import FakeClock

from pyspark_rocketmq.errors import ConnectError
from pyspark_rocketmq.offsets.reachable import GRACE_MS, BrokerHealth

A, B = "broker-a", "broker-b"
BOTH = frozenset({A, B})
DOWN = ConnectError("cannot connect", addr="10.0.0.2:10911")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def health(clock: FakeClock) -> BrokerHealth:
    health = BrokerHealth(clock)
    assert health.due(BOTH) == BOTH
    health.record_answer(A, 5)
    health.record_failure(B, DOWN)
    return health


def test_a_broker_that_failed_is_asked_again_after_a_pause_that_doubles(
    clock: FakeClock, health: BrokerHealth
):
    begin, asked = clock.monotonic(), []
    while clock.monotonic() - begin < 60:
        clock.now_s += 0.25
        if B in health.due(BOTH):
            asked.append(clock.monotonic() - begin)
            health.record_failure(B, DOWN)
        health.record_answer(A, 5)
    pauses = [later - sooner for sooner, later in zip([0.0, *asked], asked, strict=False)]
    assert pauses == [0.5, 1, 2, 4, 8, 10, 10, 10, 10]


def test_one_answer_makes_up_for_all_failures(clock: FakeClock, health: BrokerHealth):
    clock.now_s += 1
    assert B in health.due(BOTH)
    assert health.is_away(B)
    health.record_answer(B, 5)
    assert not health.is_away(B)
    assert B in health.due(BOTH)


def test_a_broker_is_not_asked_twice_at_once(health: BrokerHealth):
    assert health.due(frozenset({A})) == {A}
    assert A not in health.due(frozenset({A}))
    assert "has not answered an earlier request" in str(health.why_away(A))


def test_while_nobody_answers_everybody_is_asked(health: BrokerHealth):
    assert health.due(frozenset({A})) == {A}
    health.record_failure(A, DOWN)
    assert health.due(BOTH) == BOTH


def test_the_error_of_a_broker_that_is_not_asked_says_why_and_may_be_tried_again(health: BrokerHealth):
    error = health.why_away(B)
    assert error.retriable
    assert "cannot connect" in str(error)
    assert error.facts["broker_name"] == B
    assert error.facts["addr"] == "10.0.0.2:10911"


def test_a_slow_broker_gets_more_time_within_bounds(health: BrokerHealth):
    for after_ms, grace_ms in ((5, GRACE_MS), (900, 1_800), (9_000, 5_000), (5, GRACE_MS)):
        health.record_answer(A, after_ms)
        assert health.grace_ms(A) == grace_ms
