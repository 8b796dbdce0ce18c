"""Which offsets are rows: the first commit of a batch counts, and only what it lists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.planning.commits.records import Abort, Begin, Commit, Record
from pyspark_rocketmq.planning.commits.visible import (
    MAX_SPAN,
    Entry,
    clip,
    expand,
    find_holds,
    find_open,
    is_valid,
    join,
    listed,
    shrink,
    subtract,
)

A, B = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)

RANGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)).map(lambda r: (r[0], r[0] + r[1])))


def commit(number: int, *, since: int, owner: str = "q") -> Commit:
    return Commit(owner=owner, number=number, since=since, ranges={A: ((0, 1),)})


def log(*records: Record) -> list[Entry]:
    return [Entry(offset, 1_000 + offset, record) for offset, record in enumerate(records)]


@pytest.mark.parametrize(
    ("earlier", "valid"),
    [
        ([], True),
        ([commit(6, since=0)], True),
        ([commit(7, since=0)], False),
        ([commit(8, since=0)], False),
        ([commit(7, since=0, owner="other")], True),
        ([Begin(owner="q", number=7, ends={}), Abort(owner="q", number=7)], True),
    ],
)
def test_the_first_commit_of_a_batch_is_valid(earlier, valid) -> None:
    entries = log(*earlier)
    assert is_valid(len(entries), commit(7, since=0), entries) is valid


def test_commits_before_since_were_looked_at_by_the_writer() -> None:
    assert is_valid(3, commit(7, since=1), log(commit(7, since=0), Abort(owner="q", number=1)))
    assert not is_valid(1, commit(7, since=0), log(commit(7, since=0)))


def test_a_commit_long_after_its_look_is_void_and_voids_nothing() -> None:
    assert is_valid(MAX_SPAN, commit(7, since=0), [])
    assert not is_valid(MAX_SPAN + 1, commit(7, since=0), [])
    late = Entry(MAX_SPAN + 5, 0, commit(7, since=4))
    assert is_valid(MAX_SPAN + 6, commit(7, since=MAX_SPAN), [late])


def test_messages_of_open_batches_hold_others_back() -> None:
    entries = log(
        Begin(owner="q", number=1, ends={A: 10, B: 5}),
        Begin(owner="q", number=1, ends={A: 8}),
        Begin(owner="other", number=4, ends={A: 12, B: 4}),
    )
    assert find_holds(find_open(entries)) == {A: 8, B: 4}
    ended = [*entries, Entry(3, 1_003, commit(1, since=0))]
    assert find_holds(find_open(ended)) == {A: 12, B: 4}
    ended.append(Entry(4, 1_004, Abort(owner="other", number=9)))
    assert find_open(ended) == []


def test_a_decision_ends_what_its_owner_has_begun_until_then() -> None:
    begun = log(
        Begin(owner="q", number=1, ends={}),
        Begin(owner="q", number=2, ends={}),
        Begin(owner="q", number=3, ends={}),
        Begin(owner="other", number=1, ends={}),
    )
    for decision in (commit(2, since=0), Abort(owner="q", number=2)):
        assert find_open([*begun, Entry(4, 1_004, decision)]) == begun[2:]


def test_ranges_have_no_bounds_where_none_are_given() -> None:
    ranges = {A: ((0, 3), (5, 9)), B: ((0, 1),)}
    assert clip(ranges, begins={}) == ranges
    assert clip(ranges, begins={A: 6}) == {A: ((6, 9),), B: ((0, 1),)}
    assert clip(ranges, begins={A: 1}, ends={A: 7}) == {A: ((1, 3), (5, 7))}
    assert listed(ranges) == (OffsetRange(A, 0, 3), OffsetRange(A, 5, 9), OffsetRange(B, 0, 1))


@given(RANGES, RANGES)
def test_ranges_are_joined_and_subtracted_as_sets_are(some, others) -> None:
    joined = join([{A: some}, {A: others}])
    offsets = {at for begin, end in (*some, *others) for at in range(begin, end)}
    assert {at for begin, end in joined.get(A, ()) for at in range(begin, end)} == offsets
    assert all(
        left[1] < right[0] for left, right in zip(joined.get(A, ())[:-1], joined.get(A, ())[1:], strict=True)
    )
    rest = subtract([OffsetRange(A, 3, 25), OffsetRange(B, 0, 2)], joined)
    assert {at for each in rest if each.queue == A for at in range(each.from_offset, each.until_offset)} == (
        set(range(3, 25)) - offsets
    )
    assert [each for each in rest if each.queue == B] == [OffsetRange(B, 0, 2)]
    within = clip(joined, begins={A: 5}, ends={A: 20})
    assert {at for each in listed(within) for at in range(each.from_offset, each.until_offset)} == (
        offsets & set(range(5, 20))
    )
    assert clip(joined, begins={}, ends={B: 100}) == {}


@given(RANGES, st.integers(0, 20), st.integers(0, 25), st.data())
def test_a_limit_counts_what_is_not_listed(some, position, length, data) -> None:
    known = join([{A: some}])
    offsets = {at for begin, end in known.get(A, ()) for at in range(begin, end)}
    reach = {A: position + length}
    shrunk = shrink({A: position}, reach, known)
    assert shrunk[A] - position == len(set(range(position, reach[A])) - offsets)
    count = data.draw(st.integers(0, shrunk[A] - position))
    until = expand({A: position}, {A: position + count}, reach, known)[A]
    assert position <= until <= reach[A]
    assert len(set(range(position, until)) - offsets) == count
