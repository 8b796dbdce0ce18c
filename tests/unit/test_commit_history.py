"""The checker of histories finds each kind of defect that is planted, and nothing in a sound history."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.support.commit_history import Defect, Reading, Seen, Transaction, decide, examine

A, B = ("broker-a", 0), ("broker-a", 1)


def row(place: tuple[str, int], offset: int, number: int) -> Seen:
    return Seen(place, offset, f"key-{place[1]}", number)


FIRST = [row(A, 0, 0), row(A, 1, 1), row(B, 0, 0)]
SECOND = [row(A, 4, 2), row(A, 5, 3), row(B, 3, 1)]
THIRD = [row(A, 6, 4), row(B, 4, 2)]
SOUND = [Reading(0, FIRST), Reading(1, []), Reading(1, []), Reading(2, [*SECOND, *THIRD])]
WRITTEN = {"key-0": 5, "key-1": 3}
TRANSACTIONS = [
    Transaction("q", 0, {A: [(0, 2)], B: [(0, 1)]}),
    Transaction("q", 1, {A: [(4, 6)], B: [(3, 4)]}),
    Transaction("other", 7, {A: [(6, 7)], B: [(4, 5)]}),
]


def test_a_sound_history_has_no_defect() -> None:
    assert examine(SOUND, TRANSACTIONS, WRITTEN) == []


PLANTED: dict[str, tuple[Defect, Callable[[], list[Reading]]]] = {
    "a row is missing": (Defect.LOST, lambda: [Reading(0, FIRST), Reading(2, [*SECOND[1:], *THIRD])]),
    "a transaction is missing": (Defect.LOST, lambda: [Reading(0, FIRST), Reading(2, SECOND)]),
    "a row twice in a micro-batch": (
        Defect.REPEATED,
        lambda: [Reading(0, FIRST), Reading(2, [*SECOND, *THIRD, THIRD[0]])],
    ),
    "a transaction again in the next micro-batch": (Defect.REPEATED, lambda: [*SOUND, Reading(3, THIRD)]),
    "a row of a failed attempt": (
        Defect.ABORTED,
        lambda: [Reading(0, [*FIRST, row(A, 2, 2)]), *SOUND[1:]],
    ),
    "another attempt's rows in the place of the committed ones": (
        Defect.ABORTED,
        lambda: [Reading(0, FIRST), Reading(2, [row(A, 2, 2), row(A, 3, 3), row(B, 2, 1), *THIRD])],
    ),
    "a transaction in two micro-batches": (
        Defect.TORN,
        lambda: [Reading(0, FIRST), Reading(2, SECOND[:1]), Reading(3, [*SECOND[1:], *THIRD])],
    ),
    "two rows of a key the other way round": (
        Defect.REORDERED,
        lambda: [Reading(0, [FIRST[1], FIRST[0], FIRST[2]]), *SOUND[1:]],
    ),
    "two transactions the other way round": (
        Defect.REORDERED,
        lambda: [Reading(0, SECOND), Reading(1, FIRST), Reading(2, THIRD)],
    ),
    "a repeated micro-batch without a row": (
        Defect.CHANGED,
        lambda: [Reading(0, FIRST), Reading(2, [*SECOND, *THIRD]), Reading(2, [*SECOND, THIRD[0]])],
    ),
    "a repeated micro-batch with the next transaction": (
        Defect.CHANGED,
        lambda: [Reading(0, FIRST), Reading(2, SECOND), Reading(2, [*SECOND, *THIRD]), Reading(3, THIRD)],
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_each_planted_defect_is_found(name: str) -> None:
    defect, history = PLANTED[name]
    assert defect in {finding.defect for finding in examine(history(), TRANSACTIONS, WRITTEN)}


def test_every_defect_is_planted() -> None:
    assert {defect for defect, _ in PLANTED.values()} == set(Defect)


def commit(number: int, since: int, begin: int, owner: str = "q") -> bytes:
    ranges = {"orders": {"broker-a": {"0": [[begin, begin + 2]]}}}
    document = {"version": 1, "kind": "commit", "owner": owner, "number": number, "since": since}
    return json.dumps({**document, "ranges": ranges}).encode()


def test_the_first_commit_of_a_batch_counts() -> None:
    begin = json.dumps({"version": 1, "kind": "begin", "owner": "q", "number": 1, "ends": {}}).encode()
    log = [
        (0, begin),
        (1, commit(1, 0, 10)),
        (2, commit(1, 0, 20)),  # of a process that did not see the first
        (3, commit(1, 2, 30, "other")),
        (4, commit(2, 4, 40)),
        (5, commit(1, 1, 50)),  # of one that was frozen
        (10_006, commit(3, 5, 60)),  # too late
        (10_007, commit(3, 10_006, 70)),
    ]
    found = decide(log, "orders")
    assert [transaction.ranges[A][0][0] for transaction in found] == [10, 30, 40, 70]
    assert decide(log, "payments") == [replace(transaction, ranges={}) for transaction in found]
