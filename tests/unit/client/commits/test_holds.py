"""For how long other messages wait for an open batch, whatever the brokers' clocks say."""

from __future__ import annotations

import pytest
from tests.support.clocks import FakeClock

from pyspark_rocketmq.client.commits.holds import HoldTimes
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.planning.commits.records import Begin
from pyspark_rocketmq.planning.commits.visible import HOLD_MS, Entry

LOG, OTHER = MessageQueue("orders-commits", "broker-a", 0), MessageQueue("others-commits", "broker-a", 0)
BEGIN = Begin(owner="q", number=1, ends={})


def begun(*offsets: int, at_ms: int) -> list[Entry]:
    return [Entry(offset, at_ms, BEGIN) for offset in offsets]


def offsets(entries: list[Entry]) -> list[int]:
    return [entry.offset for entry in entries]


@pytest.mark.parametrize("ahead_ms", [0, HOLD_MS * 10])
def test_a_batch_is_waited_for_as_long_as_this_process_knows_it(ahead_ms: int) -> None:
    """Also if the broker's clock is ahead, so that its record never seems old."""
    clock = FakeClock()
    times, found = HoldTimes(clock), begun(7, at_ms=clock.now_ms() + ahead_ms)
    assert offsets(times.holding(LOG, found)) == [7]
    clock.now_s += HOLD_MS / 1000 - 1
    assert offsets(times.holding(LOG, found)) == [7]
    clock.now_s += 1
    assert times.holding(LOG, found) == []


@pytest.mark.parametrize(("age_ms", "held"), [(HOLD_MS - 1, [7]), (HOLD_MS, [])])
def test_a_batch_that_is_old_when_it_is_seen_first(age_ms: int, held: list[int]) -> None:
    clock = FakeClock()
    assert offsets(HoldTimes(clock).holding(LOG, begun(7, at_ms=clock.now_ms() - age_ms))) == held


def test_each_batch_of_each_commit_topic_has_its_own_time() -> None:
    clock = FakeClock()
    times, late_ms = HoldTimes(clock), clock.now_ms() + HOLD_MS * 10
    times.holding(LOG, begun(7, at_ms=late_ms))
    clock.now_s += 40
    assert offsets(times.holding(LOG, begun(7, 8, at_ms=late_ms))) == [7, 8]
    assert offsets(times.holding(OTHER, begun(7, at_ms=late_ms))) == [7]
    clock.now_s += 40
    assert offsets(times.holding(LOG, begun(7, 8, at_ms=late_ms))) == [8]
    assert offsets(times.holding(OTHER, begun(7, at_ms=late_ms))) == [7]


def test_a_batch_that_ended_is_forgotten() -> None:
    """A topic that was created again has other records at the same offsets."""
    clock = FakeClock()
    times, late_ms = HoldTimes(clock), clock.now_ms() + HOLD_MS * 10
    times.holding(LOG, begun(7, at_ms=late_ms))
    assert times.holding(LOG, []) == []
    clock.now_s += HOLD_MS / 1000
    assert offsets(times.holding(LOG, begun(7, at_ms=late_ms))) == [7]
