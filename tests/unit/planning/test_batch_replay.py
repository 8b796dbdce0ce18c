"""Whether a batch is the next one, a repeat, or one that must not be written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from pyspark_rocketmq.errors import DataLossError
from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.planning.batch_replay import BatchId, BatchTurn, StoredProgress, decide_turn

A, B = (MessageQueue("orders", "broker-a", number) for number in range(2))


def batch(number: int, query: str = "q") -> BatchId:
    return BatchId(query, number)


def stored(a: int, b: int, number: int, query: str = "q") -> StoredProgress:
    return StoredProgress({A: a, B: b}, batch(number, query))


def test_anything_is_next_for_an_empty_store() -> None:
    assert decide_turn(StoredProgress(), batch(0), [OffsetRange(A, 5, 9)]) is BatchTurn.NEXT
    assert decide_turn(StoredProgress(), batch(0), []) is BatchTurn.NEXT


def test_what_begins_where_the_store_ended_is_next() -> None:
    ranges = [OffsetRange(A, 9, 12), OffsetRange(B, 4, 5)]
    assert decide_turn(stored(9, 4, 0), batch(1), ranges) is BatchTurn.NEXT
    assert decide_turn(stored(9, 4, 7, "before"), batch(0), ranges) is BatchTurn.NEXT


def test_a_queue_that_is_new_may_begin_anywhere() -> None:
    before = StoredProgress({A: 9}, batch(0))
    assert decide_turn(before, batch(1), [OffsetRange(A, 9, 10), OffsetRange(B, 3, 4)]) is BatchTurn.NEXT


@pytest.mark.parametrize("query", ["q", "another checkpoint"])
def test_what_is_stored_already_is_a_repeat(query: str) -> None:
    ranges = [OffsetRange(A, 5, 9), OffsetRange(B, 0, 4)]
    assert decide_turn(stored(9, 4, 1), batch(1, query), ranges) is BatchTurn.REPEAT
    assert decide_turn(stored(20, 4, 3), batch(1, query), ranges) is BatchTurn.REPEAT


def test_a_skip_is_refused_and_names_the_queue_and_the_gap() -> None:
    with pytest.raises(DataLossError, match=r"BATCH_SKIPPED.*orders@broker-a:1\[5, 7\).*stored_end=4"):
        decide_turn(stored(9, 4, 0), batch(2), [OffsetRange(A, 9, 10), OffsetRange(B, 5, 7)])


@pytest.mark.parametrize(
    "ranges",
    [
        [OffsetRange(A, 5, 12)],
        [OffsetRange(A, 5, 9), OffsetRange(B, 4, 6)],
        [OffsetRange(A, 5, 9), OffsetRange(MessageQueue("orders", "broker-b", 0), 0, 6)],
    ],
    ids=["overlap", "one queue stored, one not", "stored, and a new queue"],
)
def test_a_batch_of_which_a_part_is_stored_is_refused(ranges: list[OffsetRange]) -> None:
    with pytest.raises(DataLossError, match="BATCH_OVERLAPS"):
        decide_turn(stored(9, 4, 1, "before"), batch(0), ranges)


def test_a_batch_without_messages_is_judged_by_its_number() -> None:
    assert decide_turn(stored(9, 4, 3), batch(4), []) is BatchTurn.NEXT
    assert decide_turn(stored(9, 4, 3), batch(3), []) is BatchTurn.REPEAT
    assert decide_turn(stored(9, 4, 3), batch(0, "another checkpoint"), []) is BatchTurn.NEXT


@examples(60)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=8),
    st.lists(st.integers(0, 7), max_size=12),
)
def test_whatever_is_tried_again_each_batch_counts_once(
    sizes: list[tuple[int, int]], tries: list[int]
) -> None:
    """Batches come in order, any earlier one may come again; what is written is each batch once, in order."""
    ends = [(0, 0)]
    for a, b in sizes:
        ends.append((ends[-1][0] + a, ends[-1][1] + b))

    def ranges(number: int) -> list[OffsetRange]:
        (a, b), (a_end, b_end) = ends[number], ends[number + 1]
        return [o for o in (OffsetRange(A, a, a_end), OffsetRange(B, b, b_end)) if len(o)]

    progress, written = StoredProgress(), []
    for number in range(len(sizes)):
        for attempt in [*(t for t in tries if t < number), number, number]:
            if decide_turn(progress, batch(attempt), ranges(attempt)) is BatchTurn.NEXT:
                written.append(attempt)
                moved = {o.queue: o.until_offset for o in ranges(attempt)}
                progress = StoredProgress({**progress.offsets, **moved}, batch(attempt))
    assert written == list(range(len(sizes)))
