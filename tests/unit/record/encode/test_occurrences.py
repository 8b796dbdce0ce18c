"""Fingerprints: numbered as a dictionary would, shared ones found, and little memory."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_rocketmq.record.encode import occurrences
from pyspark_rocketmq.record.encode.occurrences import FINGERPRINT, Occurrences, count_shared

ANY = st.one_of(st.integers(0, 5), st.integers(0, 2**64 - 1))
MILLION = 1_000_000


@settings(deadline=None)
@given(st.lists(st.lists(ANY, max_size=30), max_size=8), st.integers(1, 7))
def test_numbers_are_those_of_a_dictionary(pieces: list[list[int]], slice_size: int) -> None:
    seen, expected = Occurrences(), Counter[int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(occurrences, "_SLICE", slice_size)
        for piece in pieces:
            numbers = []
            for value in piece:
                numbers.append(expected[value])
                expected[value] += 1
            assert seen.number(np.array(piece, np.uint64)).tolist() == numbers
        assert seen.fingerprints().tolist() == sorted(expected)


@settings(deadline=None)
@given(st.lists(st.sets(ANY, max_size=30), max_size=6), st.integers(1, 7))
def test_what_several_tasks_have_is_counted_once(tasks: list[set[int]], slice_size: int) -> None:
    found = Counter(value for task in tasks for value in task)
    reports = [np.array(sorted(task), FINGERPRINT).tobytes() for task in tasks]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(occurrences, "_SLICE", slice_size)
        assert count_shared(reports) == sum(1 for times in found.values() if times > 1)


def test_a_million_contents_take_few_bytes_each() -> None:
    chance = np.random.default_rng(7)
    pieces = chance.integers(0, 2**64 - 1, (16, MILLION // 16), np.uint64)
    tracemalloc.start()
    try:
        seen = Occurrences()
        for piece in pieces:
            seen.number(piece)
        report = seen.fingerprints().tobytes()
        kept, peak = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        assert count_shared([report, report[: 8 * 100]]) == 100
        checked = tracemalloc.get_traced_memory()[1] - kept
    finally:
        tracemalloc.stop()
    assert kept < 22 * MILLION, "12 bytes for the count and 8 for the report"
    assert peak < 50 * MILLION
    assert checked < 16 * MILLION, "the driver needs nothing a row beside the reports but a slice"
