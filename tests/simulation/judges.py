"""Judges: each reads a history and says what was wrong in it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Final

from tests.simulation.history import KEYS, History, Place

from pyspark_rocketmq.client.send.queue_selection import queue_for_key
from pyspark_rocketmq.model import MessageQueue

__all__ = ["JUDGES", "judge"]


def _rows(history: History) -> list[tuple[Place, bytes]]:
    return [(row.place, row.body) for number in sorted(history.batches) for row in history.batches[number]]


def lost(history: History) -> list[str]:
    """Messages that were acknowledged, or at least stored, and came out in no batch."""
    places = Counter(place for place, _ in _rows(history))
    read = {body for _, body in _rows(history)}
    gone = {history.stored[place] for place in history.expired} | {*history.unwanted.values()}
    never = [
        f"{lane}:{number}"
        for lane, numbers in sorted(history.acknowledged.items())
        for number in sorted(numbers)
        if (body := b"%s:%d" % (lane.encode(), number)) not in read and body not in gone
    ]
    ended = any(error.startswith("DataLoss") for error in history.errors)
    gone = bool(history.expired - history.read) and not history.generations
    if history.strict and (gone or (ended and _may_miss(history))):
        return []  # it has ended before
    return never + [
        f"{place} is stored and was not read"
        for place in sorted(history.stored.keys() - places.keys() - history.expired)
    ]


def _may_miss(history: History) -> bool:
    """Whether messages are gone that a query needs: not read so far, or of a batch that is run again."""
    return bool(history.generations or history.unseen) or any(
        place not in history.read or place[3] >= history.finished.get(MessageQueue(*place[:3]), 0)
        for place in history.expired
    )


def passed_over(history: History) -> list[str]:
    """Messages that are gone, and that a query passed which is told to end there."""
    if not history.strict:
        return []
    return [
        f"{place} is gone, and was passed"
        for place in sorted(history.expired - history.read)
        if not history.generations[place[:3]]  # it cannot know of messages that were replaced unread
        and place[3] in _passed(history, MessageQueue(*place[:3]))
    ]


def _passed(history: History, queue: MessageQueue) -> range:
    """Return the offsets that finished batches have read."""
    return range(history.begun.get(queue, 0), history.finished.get(queue, 0))


def repeated(history: History) -> list[str]:
    """A place of a queue that came out twice."""
    counts = Counter(place for place, _ in _rows(history))
    return [f"{place} came out {count} times" for place, count in sorted(counts.items()) if count > 1]


def phantom(history: History) -> list[str]:
    """A row that no broker ever stored so, or a message that nobody sent."""
    return [
        f"{place} has {body!r}, which nobody sent"
        for place, body in sorted(history.stored.items())
        if body not in history.sent
    ] + [
        f"{place} has {body!r}, stored is {history.stored.get(place)!r}"
        for place, body in _rows(history)
        if history.stored.get(place) != body
    ]


def _writer(history: History, body: bytes) -> str:
    """Return whose rows keep their order: rows of a transactional write come when they are committed."""
    return body.decode().partition("-")[0] if history.ranged else ""


def reordered(history: History) -> list[str]:
    """A queue whose rows do not ascend within a partition, or from batch to batch."""
    wrong = list(history.disordered)
    last: dict[tuple[str, str, int, str], int] = {}
    for (topic, broker, queue_id, offset), body in _rows(history):
        queue = (topic, broker, queue_id, _writer(history, body))
        if offset < last.get(queue, -1):
            wrong.append(f"{queue}: {offset} comes after {last[queue]}")
        last[queue] = max(offset, last.get(queue, -1))
    return wrong


def _ordered_lanes(history: History) -> dict[str, dict[tuple[str, int], list[int]]]:
    """Return each ordered lane's numbers in each queue, where they are stored for the first time."""
    lanes: dict[str, dict[tuple[str, int], list[int]]] = {}
    for (_, broker, queue_id, _), body in sorted((history.stored | history.unwanted).items()):
        lane, _, text = body.decode().rpartition(":")
        if lane.endswith("any"):
            continue
        numbers = lanes.setdefault(lane, {}).setdefault((broker, queue_id), [])
        if int(text) not in numbers:
            numbers.append(int(text))
    return lanes


def disordered(history: History) -> list[str]:
    """An ordered lane whose numbers do not ascend where they are stored for the first time.

    A lane in two queues is that of a key whose queue changed with the number of queues: it has no order.
    """
    return [
        f"{lane}: {after} comes after {before}"
        for lane, queues in _ordered_lanes(history).items()
        if len(queues) == 1
        for numbers in queues.values()
        for before, after in itertools.pairwise(numbers)
        if after < before
    ]


def misplaced(history: History) -> list[str]:
    """Rows of a key that are not in the queue which the Java client would choose."""
    if not history.queues:
        return []
    expected = {key: queue_for_key(key, history.queues) for key in KEYS if key is not None}
    return [
        f"{lane} is in {broker}:{queue_id}, not in {queue}"
        for lane, queues in _ordered_lanes(history).items()
        if (queue := expected.get(lane.rpartition("-")[2])) is not None
        for broker, queue_id in sorted(queues)
        if (broker, queue_id) != (queue.broker_name, queue.queue_id)
    ]


def torn(history: History) -> list[str]:
    """A batch that had other rows when it was read again."""
    return history.torn


def ahead(history: History) -> list[str]:
    """Offsets that were committed before their rows were written."""
    return history.ahead


def refused(history: History) -> list[str]:
    """Sends that were given up, though every fault was shorter than the writer's patience."""
    return history.refused


def renamed(history: History) -> list[str]:
    """A row that was written more than once, with different write ids: readers would not drop its repeats."""
    return [
        f"{body!r} has the write ids {sorted(ids)}"
        for body, ids in sorted(history.write_ids.items())
        if len(ids) > 1
    ]


def mixed_up(history: History) -> list[str]:
    """Rows that have one write id: readers would drop all but one."""
    owners: dict[str, set[bytes]] = {}
    for body, ids in history.write_ids.items():
        for write_id in ids:
            owners.setdefault(write_id, set()).add(body)
    return [f"{write_id} is that of {sorted(o)}" for write_id, o in sorted(owners.items()) if len(o) > 1]


def visible_twice(history: History) -> list[str]:
    """Rows of a transactional sink that are in the topic more than once.

    A commit whose answer was lost is sent again if its message is not found: after retention it cannot be.
    """
    if not history.transactional:
        return []
    copies = Counter(
        body
        for place, body in history.stored.items()
        if place not in history.expired and (not history.ranged or body.startswith(b"sink"))
    )
    return [f"{body!r} is visible {count} times" for body, count in sorted(copies.items()) if count > 1]


def undecided(history: History) -> list[str]:
    """Rows of a transactional sink that were visible before their batch was decided."""
    return history.undecided


def rolled_back(history: History) -> list[str]:
    """Half messages that a resolver rolled back before their batch was finished."""
    return history.rolled_back


def divided(history: History) -> list[str]:
    """Batches of a transactional write whose rows came in more than one micro-batch."""
    if not history.ranged:
        return []
    came: dict[str, set[int]] = {}
    for number, rows in history.batches.items():
        for row in rows:
            if row.body.startswith(b"sink"):
                came.setdefault(row.body.decode().partition(".")[0], set()).add(number)
    return [
        f"batch {name} is in the micro-batches {sorted(numbers)}"
        for name, numbers in sorted(came.items())
        if len(numbers) > 1
    ]


def owned_twice(history: History) -> list[str]:
    """Queues in order that two members of a group worked on, while the lock of one was valid."""
    return history.overlaps


def set_back(history: History) -> list[str]:
    """Offsets that a member set back which another one had committed while it was frozen."""
    return history.set_back


def incomplete(history: History) -> list[str]:
    """Batches without some of the messages that were stored when they began, or with others."""
    return history.batch_jobs


def miscounted(history: History) -> list[str]:
    """Tasks that report other numbers of rows than they wrote."""
    return history.miscounted


def dead_letters(history: History) -> list[str]:
    """Dead letters that are missing, that could have been sent, or that differ from their rows."""
    return history.dead_letters.judge()


def oversized(history: History) -> list[str]:
    """Answers that were sent to a reader and not given out, of more bytes than it may have in its memory."""
    return history.oversized


def left_over(history: History) -> list[str]:
    """Requests and answers that connections still keep when nobody waits for them."""
    return history.left_over


def idle(history: History) -> list[str]:
    """Waits for an answer while no server owes one."""
    return history.idle


def unaligned(history: History) -> list[str]:
    """Rows that were stored before the time up to which all queues had been read, and came later."""
    return history.unaligned


def sent_again(history: History) -> list[str]:
    """Messages that were stored twice when nothing was wrong any more.

    Not where two attempts of a task may have waited for that, both with the same messages.
    """
    if history.did["speculative attempt"]:
        return []
    again = {body: count for body, count in history.stored_when_well.items() if count > 1}
    return [f"{body!r} is stored {count} times" for body, count in sorted(again.items())]


def slow(history: History) -> list[str]:
    """Reads that took long though nothing was wrong, or only a master was gone whose slaves can be read."""
    return history.slow


def died(history: History) -> list[str]:
    """Outages that ended a query that had been running: it has to wait for their end."""
    return history.died


def unexpected(history: History) -> list[str]:
    """Errors that ended the query, or a batch job, and are no outage."""
    if not history.errors:  # asked often
        return []
    gone = _may_miss(history)
    of_jobs = tuple(f"batch: {kind}" for kind in ("DataLoss", "Corrupt", "RemoteProtocol"))
    kinds = ("DataLoss", "Option", "Corrupt", "RemoteProtocol", *of_jobs)
    hides = history.did["a queue is hidden"]
    removes = history.did["a queue that was read is removed"]  # while a job reads it again
    if not history.hidden:  # else a topic that has no broker now cannot be told from one that is missing
        kinds += ("TopicNotFound",)
    return [
        error
        for error in history.errors
        if not (history.strict and gone and error.startswith("DataLoss"))
        and not (hides and "condition=QUEUE_LOST" in error)
        and not (removes and error.startswith("batch: ") and "condition=QUEUE_LOST" in error)
        and error.startswith(kinds)
    ]


JUDGES: Final[dict[str, Callable[[History], list[str]]]] = {
    "lost": lost,
    "passed over": passed_over,
    "repeated": repeated,
    "phantom": phantom,
    "reordered": reordered,
    "disordered": disordered,
    "misplaced": misplaced,
    "torn": torn,
    "committed ahead": ahead,
    "refused": refused,
    "write ids differ": renamed,
    "write ids are shared": mixed_up,
    "visible twice": visible_twice,
    "visible too early": undecided,
    "rolled back too early": rolled_back,
    "divided": divided,
    "owned twice": owned_twice,
    "set back": set_back,
    "batch is wrong": incomplete,
    "miscounted": miscounted,
    "dead letters are wrong": dead_letters,
    "memory over its bound": oversized,
    "kept for nobody": left_over,
    "waited for nothing": idle,
    "sent again for nothing": sent_again,
    "slow": slow,
    "not aligned": unaligned,
    "died of an outage": died,
    "unexpected error": unexpected,
}


def judge(history: History) -> dict[str, list[str]]:
    """Return what each judge found; nothing if all was right."""
    return {name: found for name, check in JUDGES.items() if (found := check(history))}
