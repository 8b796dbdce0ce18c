from __future__ import annotations

import pytest

from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.planning.limit import Limits, admit, enough, extend, share

A, B, C = (MessageQueue("orders", "broker-a", index) for index in range(3))


def test_without_limits_everything_is_admitted() -> None:
    assert admit({A: 5, B: 7}, {A: 9, B: 7}, Limits()) == {A: 9, B: 7}


@pytest.mark.parametrize(
    ("backlog", "limit", "expected"),
    [
        ({A: 100, B: 100}, 10, {A: 5, B: 5}),
        ({A: 900, B: 100}, 102, {A: 91, B: 11}),  # one each, then by backlog
        ({A: 1_000_000, B: 1}, 10, {A: 9, B: 1}),  # the small one does not starve
        ({A: 3, B: 4}, 100, {A: 3, B: 4}),
        ({A: 3, B: 0}, 2, {A: 2}),
        ({}, 5, {}),
    ],
)
def test_offsets_are_shared_by_backlog(
    backlog: dict[MessageQueue, int], limit: int, expected: dict[MessageQueue, int]
) -> None:
    assert share(backlog, limit) == expected


def test_below_one_message_a_queue_they_take_turns() -> None:
    positions = {A: 0, B: 0, C: 0}
    reach = {A: 9, B: 9, C: 9}
    served = []
    for _ in range(6):
        after = admit(positions, reach, Limits(max_offsets=1))
        served.append(next(queue.queue_id for queue in positions if after[queue] > positions[queue]))
        positions = after
    assert served == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("limits", [Limits(max_offsets=2), Limits(max_bytes=2 * 1024)])
def test_the_oldest_messages_go_first_where_their_times_are_known(limits: Limits) -> None:
    positions = {A: 0, B: 0, C: 0}
    ages = {A: 30, B: 10, C: 20}
    assert admit(positions, dict.fromkeys(positions, 9), limits, head_times_ms=ages) == {A: 0, B: 1, C: 1}
    del ages[A]  # unknown: it may be the oldest of all
    assert admit(positions, dict.fromkeys(positions, 9), limits, head_times_ms=ages) == {A: 1, B: 1, C: 0}


@pytest.mark.parametrize("ages", [None, {}])
def test_bytes_for_one_message_are_taken_in_turns(ages: dict[MessageQueue, int] | None) -> None:
    positions = {A: 0, B: 0, C: 0}
    served = []
    for _ in range(4):
        after = admit(positions, {A: 9, B: 9, C: 9}, Limits(max_bytes=1024), head_times_ms=ages)
        served.append(next(queue.queue_id for queue in positions if after[queue] > positions[queue]))
        positions = after
    assert served == [0, 1, 2, 0]


def test_the_first_turn_is_the_first_queues() -> None:
    assert share({A: 5, B: 5}, 1) == {A: 1}


def test_a_message_of_a_byte_is_one() -> None:
    assert admit({A: 0}, {A: 99}, Limits(max_bytes=10), message_bytes={A: 1}) == {A: 10}
    assert admit({A: 0}, {A: 99}, Limits(max_bytes=10), message_bytes={A: 0}) == {A: 10}


def test_what_is_left_of_the_bytes_never_passes_the_end_of_a_queue() -> None:
    """B is read to its end; the five bytes that are left do not suffice for another message of A."""
    assert share({A: 100, B: 1}, 16, costs={A: 10, B: 1}) == {A: 1, B: 1}


def test_bytes_are_estimated_by_queue() -> None:
    sizes = {A: 100, B: 10_000}
    ends = admit({A: 0, B: 0}, {A: 1_000, B: 1_000}, Limits(max_bytes=101_000), message_bytes=sizes)
    assert sum(sizes[queue] * end for queue, end in ends.items()) <= 101_000
    assert ends[A] >= 1
    assert ends[B] >= 9


def test_one_message_is_admitted_however_big() -> None:
    assert admit({A: 0}, {A: 10}, Limits(max_bytes=1), message_bytes={A: 4_000_000}) == {A: 1}


@pytest.mark.parametrize(("elapsed", "expected"), [(None, 100), (500, 50), (3_000, 300), (0, 1)])
def test_a_rate_counts_the_time_since_the_last_batch(elapsed: int | None, expected: int) -> None:
    ends = admit({A: 0, B: 0}, {A: 900, B: 7}, Limits(max_rate_per_queue=100), elapsed_ms=elapsed)
    assert ends == {A: expected, B: min(7, expected)}


def test_all_limits_hold_together() -> None:
    limits = Limits(max_offsets=100, max_bytes=20 * 1024, max_rate_per_queue=15)
    ends = admit({A: 0, B: 0}, {A: 1_000, B: 1_000}, limits, elapsed_ms=1_000)
    assert sum(ends.values()) == 20
    assert max(ends.values()) <= 15


def test_offsets_of_64_bits_are_shared_exactly() -> None:
    big = (1 << 62) + 1
    assert share({A: big, B: big, C: 1}, big) == {A: (big - 1) // 2, B: (big - 1) // 2, C: 1}


@pytest.mark.parametrize(
    ("backlog", "least", "waited", "expected"),
    [
        (0, None, 10**9, False),
        (1, None, 0, True),
        (99, 100, 0, False),
        (100, 100, 0, True),
        (1, 100, 899_999, False),
        (1, 100, 900_000, True),
        (0, 100, 900_000, False),
    ],
)
def test_a_batch_waits_for_enough_or_long_enough(
    backlog: int, least: int | None, waited: int, expected: bool
) -> None:
    assert enough(backlog, min_offsets=least, waited_ms=waited, max_delay_ms=900_000) is expected


@pytest.mark.parametrize(
    ("limits", "until", "expected"),
    [
        (Limits(max_offsets=100), {A: 10, B: 5, C: 0}, {A: 66, B: 33, C: 0}),
        (Limits(max_offsets=80), {A: 60, B: 0, C: 0}, {A: 80, B: 0, C: 0}),
        (Limits(max_offsets=100, max_bytes=3_000), {A: 10, B: 5, C: 0}, {A: 24, B: 12, C: 0}),
        (Limits(max_bytes=50), {A: 1, B: 0, C: 0}, {A: 1, B: 0, C: 0}),
        (Limits(max_offsets=100, max_rate_per_queue=20), {A: 10, B: 5, C: 0}, {A: 20, B: 20, C: 0}),
        (Limits(max_rate_per_queue=20), {A: 10, B: 5, C: 0}, {A: 10, B: 5, C: 0}),
        (Limits(max_offsets=1_000), {A: 10, B: 5, C: 0}, {A: 99, B: 99, C: 0}),
        (Limits(max_offsets=100), {A: 0, B: 0, C: 0}, {A: 0, B: 0, C: 0}),
        (Limits(), {A: 10, B: 5, C: 0}, {A: 10, B: 5, C: 0}),
    ],
)
def test_a_micro_batch_is_extended_in_proportion_as_far_as_all_limits_allow(
    limits: Limits, until: dict[MessageQueue, int], expected: dict[MessageQueue, int]
) -> None:
    begin, reach = {A: 0, B: 0, C: 0}, {A: 99, B: 99, C: 99}
    sizes = {A: 100, B: 50, C: 50}
    assert extend(begin, until, reach, limits, message_bytes=sizes) == expected
