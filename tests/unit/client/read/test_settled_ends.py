"""Queues that end before their position for a moment, and for longer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from tests.support.clocks import FakeClock

from pyspark_rocketmq.client.read.settled_ends import MOVED_BACK_PATIENCE_MS, settle_ends
from pyspark_rocketmq.model import MessageQueue

A, B = MessageQueue("orders", "a", 0), MessageQueue("orders", "b", 0)
KNOWN = {A: 5, B: 5}
PATIENCE_S = MOVED_BACK_PATIENCE_MS / 1000


def settle(
    ends_at: Callable[[float], Mapping[MessageQueue, int]],
) -> tuple[Mapping[MessageQueue, int], float]:
    """Return the ends, and the seconds that it took, of queues whose ends follow from the time."""
    clock = FakeClock()
    begin_s = clock.now_s

    def ask() -> Mapping[MessageQueue, int]:
        return ends_at(clock.now_s - begin_s)

    return settle_ends(ask(), KNOWN, ask, clock), clock.now_s - begin_s


def test_ends_after_the_positions_are_asked_for_once() -> None:
    assert settle(lambda _: {A: 5, B: 9}) == ({A: 5, B: 9}, 0)


def test_each_queue_has_its_own_time() -> None:
    """Brokers that restart one after the other each rebuild their index."""
    ends, took_s = settle(
        lambda s: {A: 0 if s < PATIENCE_S - 1 else 5, B: 0 if PATIENCE_S - 2 <= s < 2 * PATIENCE_S - 4 else 5}
    )
    assert ends == KNOWN
    assert took_s == pytest.approx(2 * PATIENCE_S - 4)


def test_a_queue_that_stays_behind_is_returned_when_its_time_is_up() -> None:
    ends, took_s = settle(lambda _: {A: 0, B: 5})
    assert ends == {A: 0, B: 5}
    assert took_s == pytest.approx(PATIENCE_S)


def test_an_end_that_was_told_before_its_time_was_up_decides_nothing() -> None:
    """A request may take as long as the queue has."""
    clock, asked = FakeClock(), 0

    def ask() -> Mapping[MessageQueue, int]:
        nonlocal asked
        asked += 1
        if asked == 2:
            clock.now_s += 2 * PATIENCE_S
        return {A: 0 if asked <= 2 else 5, B: 5}

    assert settle_ends(ask(), KNOWN, ask, clock) == KNOWN
