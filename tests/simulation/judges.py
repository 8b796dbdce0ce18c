"""Judges: each reads a history and says what was wrong in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from tests.simulation.history import History, Place

__all__ = ["JUDGES", "judge"]


def _rows(history: History) -> list[tuple[Place, bytes]]:
    return [(row.place, row.body) for number in sorted(history.batches) for row in history.batches[number]]


def lost(history: History) -> list[str]:
    """Messages that were acknowledged, or at least stored, and came out in no batch."""
    places = Counter(place for place, _ in _rows(history))
    read = {body for _, body in _rows(history)}
    gone = {history.stored[place] for place in history.expired}
    never = [
        f"{lane}:{number}"
        for lane, numbers in sorted(history.acknowledged.items())
        for number in sorted(numbers)
        if (body := b"%s:%d" % (lane.encode(), number)) not in read and body not in gone
    ]
    return never + [
        f"{place} is stored and was not read"
        for place in sorted(history.stored.keys() - places.keys() - history.expired)
    ]


def repeated(history: History) -> list[str]:
    """A place of a queue that came out twice."""
    counts = Counter(place for place, _ in _rows(history))
    return [f"{place} came out {count} times" for place, count in sorted(counts.items()) if count > 1]


def phantom(history: History) -> list[str]:
    """A row that no broker ever stored so."""
    return [
        f"{place} has {body!r}, stored is {history.stored.get(place)!r}"
        for place, body in _rows(history)
        if history.stored.get(place) != body
    ]


def reordered(history: History) -> list[str]:
    """A queue whose rows do not ascend within a partition, or from batch to batch."""
    wrong = list(history.disordered)
    last: dict[tuple[str, str, int], int] = {}
    for (topic, broker, queue_id, offset), _ in _rows(history):
        queue = (topic, broker, queue_id)
        if offset < last.get(queue, -1):
            wrong.append(f"{queue}: {offset} comes after {last[queue]}")
        last[queue] = max(offset, last.get(queue, -1))
    return wrong


def disordered(history: History) -> list[str]:
    """An ordered lane whose numbers do not ascend where they come for the first time."""
    wrong: list[str] = []
    highest: dict[str, int] = {}
    seen: set[bytes] = set()
    for _, body in _rows(history):
        lane, _, text = body.decode().rpartition(":")
        if body in seen or lane.endswith("any"):
            continue
        seen.add(body)
        if int(text) < highest.get(lane, -1):
            wrong.append(f"{lane}: {text} comes after {highest[lane]}")
        highest[lane] = max(int(text), highest.get(lane, -1))
    return wrong


def torn(history: History) -> list[str]:
    """A batch that had other rows when it was read again."""
    return history.torn


def ahead(history: History) -> list[str]:
    """Offsets that were committed before their rows were written."""
    return history.ahead


def refused(history: History) -> list[str]:
    """Sends that were given up, though every fault was shorter than the writer's patience."""
    return history.refused


def died(history: History) -> list[str]:
    """Outages that ended a query that had been running: it has to wait for their end."""
    return history.died


def unexpected(history: History) -> list[str]:
    """Errors that ended the query and are no outage."""
    return [
        error
        for error in history.errors
        if error.startswith(("DataLoss", "Option", "Corrupt", "RemoteProtocol", "TopicNotFound"))
    ]


JUDGES: Final[dict[str, Callable[[History], list[str]]]] = {
    "lost": lost,
    "repeated": repeated,
    "phantom": phantom,
    "reordered": reordered,
    "disordered": disordered,
    "torn": torn,
    "committed ahead": ahead,
    "refused": refused,
    "died of an outage": died,
    "unexpected error": unexpected,
}


def judge(history: History) -> dict[str, list[str]]:
    """Return what each judge found; nothing if all was right."""
    return {name: found for name, check in JUDGES.items() if (found := check(history))}
