from __future__ import annotations

import pytest

from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.planning.split import SMALL_RANGE, split

A0, A1, A2, A3 = (MessageQueue("orders", "broker-a", index) for index in range(4))


def ranges(*sizes: int) -> list[OffsetRange]:
    return [
        OffsetRange(queue, 1_000, 1_000 + size) for queue, size in zip((A0, A1, A2, A3), sizes, strict=False)
    ]


def shape(partitions: tuple[tuple[OffsetRange, ...], ...]) -> list[list[tuple[int, int, int]]]:
    return [[(r.queue_id, r.from_offset, r.until_offset) for r in partition] for partition in partitions]


def test_nothing_to_read_is_no_partition() -> None:
    assert split([]) == ()
    assert split(ranges(0, 0), min_partitions=4, partition_per_queue=False) == ()
    assert split(ranges(0, 0), partition_per_queue=True) == ()


def test_small_ranges_share_a_partition() -> None:
    assert shape(split(ranges(10, 20, 30, 40))) == [
        [(0, 1000, 1010), (1, 1000, 1020), (2, 1000, 1030), (3, 1000, 1040)]
    ]


def test_big_ranges_have_a_partition_of_their_own() -> None:
    found = split(ranges(SMALL_RANGE, 10, SMALL_RANGE + 1, 20))
    assert [[r.queue_id for r in partition] for partition in found] == [[0], [1, 3], [2]]


def test_packing_spreads_evenly_over_as_few_partitions_as_are_filled() -> None:
    found = split(ranges(60, 60, 50, 40), small_range=100)
    assert sorted(sum(map(len, partition)) for partition in found) == [100, 110]


@pytest.mark.parametrize(
    ("queues", "size", "partitions"),
    [
        (16, SMALL_RANGE, 16),
        (64, SMALL_RANGE - 1, 16),  # twice as many messages: the same number of larger partitions
        (64, SMALL_RANGE, 16),
        (64, 2 * SMALL_RANGE, 32),
        (1_000, SMALL_RANGE // 2, 125),
        (20, 4 * SMALL_RANGE, 20),
    ],
)
def test_many_partitions_become_larger_before_there_are_more(queues: int, size: int, partitions: int) -> None:
    many = [OffsetRange(MessageQueue("orders", "broker-a", index), 0, size) for index in range(queues)]
    found = split(many)
    assert len(found) == partitions
    assert len(split(many, min_partitions=queues)) == queues
    assert max(sum(map(len, partition)) for partition in found) <= 4 * SMALL_RANGE


def test_one_partition_a_queue_is_strict() -> None:
    found = split(ranges(1, 10 * SMALL_RANGE, 0, 5), partition_per_queue=True)
    assert [[r.queue_id for r in partition] for partition in found] == [[0], [1], [3]]


@pytest.mark.parametrize(
    ("sizes", "wanted", "parts"),
    [
        ((100,), 3, [34, 33, 33]),
        ((100, 100), 4, [50, 50, 50, 50]),
        ((300, 10), 4, [100, 100, 100, 10]),  # the skewed queue is the one that is split
        ((2, 1), 10, [1, 1, 1]),  # no more partitions than messages
        ((100, 100), 1, [100, 100]),
        ((100, 100), 2, [100, 100]),
    ],
)
def test_at_least_so_many_partitions(sizes: tuple[int, ...], wanted: int, parts: list[int]) -> None:
    found = split(ranges(*sizes), min_partitions=wanted, small_range=1)
    assert sorted((sum(map(len, partition)) for partition in found), reverse=True) == parts


def test_small_ranges_are_not_packed_below_the_wanted_partitions() -> None:
    assert len(split(ranges(10, 10, 10, 10), min_partitions=3)) == 3


@pytest.mark.parametrize("most", [1, 7, 50, 99, 100, 101])
def test_at_most_so_many_records_a_partition(most: int) -> None:
    found = split(ranges(100, 30, 5), max_records_per_partition=most)
    assert all(sum(map(len, partition)) <= most for partition in found)
    assert sum(len(r) for partition in found for r in partition) == 135


def test_the_parts_of_a_queue_follow_one_another() -> None:
    found = split(ranges(90), max_records_per_partition=30)
    assert shape(found) == [[(0, 1000, 1030)], [(0, 1030, 1060)], [(0, 1060, 1090)]]
