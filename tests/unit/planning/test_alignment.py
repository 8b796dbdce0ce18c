from __future__ import annotations

import pytest

from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.planning.alignment import align, barrier, heads, next_heartbeat, tails
from pyspark_rocketmq.planning.limit import Limits, admit

SLOW, FAST, IDLE = (MessageQueue("orders", "broker-a", index) for index in range(3))
POSITIONS = {SLOW: 0, FAST: 0, IDLE: 7}
REACH = {SLOW: 100, FAST: 1_000, IDLE: 7}


def test_what_to_look_up() -> None:
    assert heads(POSITIONS, REACH) == {SLOW: 0, FAST: 0}
    assert tails({SLOW: 40, FAST: 1_000, IDLE: 7}, REACH) == {SLOW: 40}
    assert barrier({SLOW: 5_000, FAST: 9_000}) == 5_000


def test_no_queue_runs_past_the_slowest_one_with_a_backlog() -> None:
    found = align(
        POSITIONS,
        {SLOW: 40, FAST: 400, IDLE: 7},
        head_times_ms={SLOW: 0, FAST: 0},
        tail_times_ms={SLOW: 10_000, FAST: 100_000},
        offsets={SLOW: 41, FAST: 160, IDLE: 7},
    )
    assert found == {SLOW: 40, FAST: 160, IDLE: 7}


def test_without_a_backlog_left_nothing_is_held_back() -> None:
    until = {SLOW: 100, FAST: 1_000, IDLE: 7}
    assert align(POSITIONS, until, head_times_ms={SLOW: 0, FAST: 0}, tail_times_ms={}, offsets={}) == until


def test_the_oldest_message_is_read_even_if_nothing_else_may() -> None:
    found = align(
        POSITIONS,
        {SLOW: 5, FAST: 5, IDLE: 7},
        head_times_ms={SLOW: 10, FAST: 20},
        tail_times_ms={SLOW: 30, FAST: 25},
        offsets={SLOW: 0, FAST: 0, IDLE: 7},
    )
    assert found == {SLOW: 1, FAST: 5, IDLE: 7}


def test_of_messages_of_one_time_the_one_that_a_limit_admits_is_read() -> None:
    """By born time: they are stored after the barrier. Nothing was ever read again."""
    born = {SLOW: 1_000, FAST: 1_000}
    until = admit(POSITIONS, REACH, Limits(max_offsets=1), head_times_ms=born)
    assert until == POSITIONS | {FAST: 1}
    tail_times = {SLOW: 1_000, FAST: 2_000}
    assert align(POSITIONS, until, head_times_ms=born, tail_times_ms=tail_times, offsets=POSITIONS) == until


@pytest.mark.parametrize(
    ("now", "idle", "expected"),
    [
        (1_999, True, 1_000),
        (2_000, True, 2_000),
        (9_000, True, 9_000),
        (9_000, False, 1_000),
        (500, True, 1_000),
    ],
)
def test_a_heartbeat_is_due_when_nothing_has_come_for_a_while(now: int, idle: bool, expected: int) -> None:
    assert next_heartbeat(1_000, now_ms=now, interval_ms=1_000, idle=idle) == expected
