"""Aligned micro-batches: no message is read that is newer than one that stays unread."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.planning.alignment import ahead, align, barrier, heads, tails
from pyspark_rocketmq.planning.limit import Limits, admit, extend

QUEUES = tuple(MessageQueue("t", "a", index) for index in range(5))

# A log is its store times, which never decrease; batches share one.
logs = st.lists(st.integers(0, 20), max_size=30).map(lambda steps: list(accumulate(steps)))


def aligned_batch(
    store: dict[MessageQueue, list[int]], positions: dict[MessageQueue, int], limits: Limits
) -> dict[MessageQueue, int]:
    reach = {queue: len(times) for queue, times in store.items()}
    head_times = {queue: store[queue][offset] for queue, offset in heads(positions, reach).items()}
    until = held_back(store, positions, admit(positions, reach, limits, head_times_ms=head_times), head_times)
    extended = extend(positions, until, reach, limits)
    wider = held_back(store, positions, extended, head_times)
    assert all(wider[queue] >= end for queue, end in until.items()), "what is extended loses nothing"
    return wider


def held_back(
    store: dict[MessageQueue, list[int]],
    positions: dict[MessageQueue, int],
    until: dict[MessageQueue, int],
    head_times: dict[MessageQueue, int],
) -> dict[MessageQueue, int]:
    reach = {queue: len(times) for queue, times in store.items()}
    tail_times = {queue: store[queue][offset] for queue, offset in tails(until, reach).items()}
    if not tail_times:
        return align(positions, until, head_times_ms=head_times, tail_times_ms={}, offsets={})
    every = {queue: bisect_left(times, barrier(tail_times) + 1) for queue, times in store.items()}
    known = ahead(positions, head_times_ms=head_times, tail_times_ms=tail_times)
    few, all_of_them = (
        align(positions, until, head_times_ms=head_times, tail_times_ms=tail_times, offsets=offsets)
        for offsets in (every | known, every)
    )
    assert few == all_of_them, "what need not be looked up makes no difference"
    return few


@examples(150)
@given(st.fixed_dictionaries(dict.fromkeys(QUEUES, logs)), st.integers(1, 12))
def test_the_watermark_never_passes_an_unread_message(
    store: dict[MessageQueue, list[int]], limit: int
) -> None:
    positions = dict.fromkeys(store, 0)
    total = sum(map(len, store.values()))
    newest = -1
    for _ in range(total):
        until = aligned_batch(store, positions, Limits(max_offsets=limit))
        assert all(positions[queue] <= until[queue] <= len(store[queue]) for queue in store)
        assert sum(until.values()) > sum(positions.values()), "no progress with a backlog"
        assert sum(until.values()) - sum(positions.values()) <= limit
        for queue, times in store.items():
            batch = times[positions[queue] : until[queue]]
            assert all(time >= newest for time in times[positions[queue] :]), "late"
            newest_of_batch = max(batch, default=-1)
            unread = [times[until[q]] for q, times in store.items() if until[q] < len(times)]
            assert newest_of_batch <= min(unread, default=newest_of_batch)
        newest = max(
            [newest, *(t for queue, times in store.items() for t in times[positions[queue] : until[queue]])]
        )
        positions = until
        if sum(positions.values()) == total:
            break
    assert sum(positions.values()) == total


times = st.integers(0, 1_000)


@examples(150)
@given(
    st.dictionaries(
        st.sampled_from(QUEUES),
        st.tuples(st.integers(0, 50), st.integers(1, 50), times, times, st.integers(0, 120)),
    ),
    st.integers(1, 60),
)
def test_whatever_the_times_say_offsets_stay_in_bounds_and_move(
    world: dict[MessageQueue, tuple[int, int, int, int, int]], limit: int
) -> None:
    """Born times may lie: alignment may then be too strict or too lax, but never wrong about offsets."""
    positions = {queue: position for queue, (position, *_) in world.items()}
    reach = {queue: position + size for queue, (position, size, *_) in world.items()}
    head_times = {queue: head for queue, (_, _, head, _, _) in world.items()}
    until = admit(positions, reach, Limits(max_offsets=limit), head_times_ms=head_times)
    tail_times = {queue: world[queue][3] for queue in tails(until, reach)}
    offsets = {queue: found for queue, (*_, found) in world.items()}
    after = align(positions, until, head_times_ms=head_times, tail_times_ms=tail_times, offsets=offsets)
    assert all(positions[queue] <= after[queue] <= until[queue] for queue in world)
    assert (after != positions) == bool(world)
