"""The corrected search by time finds what a look at every message finds."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from pyspark_rocketmq.client.time_search import LowerBoundSearch


def find(times: list[int], moment: int, hint: int, min_offset: int) -> tuple[int, int]:
    """Run a search; ``times`` are the store times from ``min_offset`` on."""
    end = min_offset + len(times)
    search = LowerBoundSearch(moment, min_offset=min_offset, max_offset=end, hint=hint)
    probes = 0
    while search.answer is None:
        probes += 1
        offset = search.probe
        assert min_offset <= offset < end
        search.record_found(offset, times[offset - min_offset])
    return search.answer, probes


@examples(300)
@given(
    times=st.lists(st.integers(0, 30), max_size=80).map(sorted),
    moment=st.integers(-1, 31),
    hint=st.integers(-5, 200),
    min_offset=st.integers(0, 50),
)
def test_any_hint_leads_to_the_first_at_or_after(
    times: list[int], moment: int, hint: int, min_offset: int
) -> None:
    answer, probes = find(times, moment, hint, min_offset)
    assert answer == min_offset + sum(time < moment for time in times)
    assert probes <= 2 * math.log2(len(times) + 1) + 3


def test_a_good_hint_is_cheap() -> None:
    times = list(range(1_000_000))
    assert find(times, 500_000, 500_000, 0) == (500_000, 2)
    assert find(times, 500_000, 499_999, 0) == (500_000, 2)


@examples(200)
@given(
    kept=st.sets(st.integers(0, 60)).map(sorted),
    moment=st.integers(0, 70),
    hint=st.integers(0, 61),
    skips=st.booleans(),
)
def test_offsets_without_a_message(kept: list[int], moment: int, hint: int, skips: bool) -> None:
    """Message ``offset`` was stored at time ``offset``, but only those in ``kept`` are there.

    A broker that skips returns the next message there is, another one only says where to go on.
    """
    search = LowerBoundSearch(moment, min_offset=0, max_offset=61, hint=hint)
    while search.answer is None:
        there = [offset for offset in kept if offset >= search.probe]
        if search.probe in kept or (there and skips):
            search.record_found(there[0], there[0])
        else:
            search.record_gone(there[0] if there else 61)
    # Reading from the answer starts with the same message as reading from the moment.
    first = next((offset for offset in kept if offset >= moment), None)
    assert next((offset for offset in kept if offset >= search.answer), None) == first


@examples(200)
@given(expired=st.integers(0, 60), moment=st.integers(0, 70), hint=st.integers(0, 61))
def test_messages_that_expire_meanwhile(expired: int, moment: int, hint: int) -> None:
    search = LowerBoundSearch(moment, min_offset=0, max_offset=60, hint=hint)
    while search.answer is None:
        if search.probe < expired:
            search.record_expired(expired)
        else:
            search.record_found(search.probe, search.probe)
    assert max(search.answer, expired) == max(min(moment, 60), expired)
