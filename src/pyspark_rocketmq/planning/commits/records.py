"""The records of a commit topic: JSON, one message each, in one queue and so in one order.

A transactional write marks its messages with the property ``COMMIT_TOPIC`` (the topic's name) and sends them
like any others. A marked message is a row only if a valid `Commit` lists its offset::

    {"version": 1, "kind": "commit", "owner": "2f0c...", "number": 7, "since": 41,
     "ranges": {"orders": {"broker-a": {"0": [[120, 2120], [2300, 2310]]}}}}

``owner`` is the id of a query or the ``jobId`` of a batch write, ``number`` counts the owner's batches. The
first commit of a batch is valid, and no later one: a repeated batch is not committed twice. ``since`` is the
end of the commit topic up to which the writer found no commit of this or a later batch of the owner, so that
a reader needs only the records from ``since`` on to judge a commit (`visible.is_valid`).

`Begin` and `Abort` decide nothing. They tell readers which messages will soon be committed, so that these are
not read twice. `Append` and `Appended` are for writers that copy committed rows to another topic.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias, TypeVar, assert_never

from pyspark_rocketmq.errors import RemoteProtocolError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.model.nested_offsets import nest

__all__ = [
    "Abort",
    "Append",
    "Appended",
    "Begin",
    "Commit",
    "Ranges",
    "Record",
    "decode_record",
    "encode_record",
]

T = TypeVar("T")

_VERSION: Final = 1

Ranges: TypeAlias = Mapping[MessageQueue, Sequence[tuple[int, int]]]
"""Offset ranges by queue, each from its first offset to the one after its last, in order, disjoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """A task is going to write messages of a batch; no queue has any of them before ``ends``."""

    owner: str
    number: int
    ends: Mapping[MessageQueue, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A batch is complete: the messages in ``ranges`` are its rows."""

    owner: str
    number: int
    since: int
    ranges: Ranges

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(end - begin for parts in self.ranges.values() for begin, end in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """Readers need not wait for what was written so far for a batch of the owner, or an earlier one."""

    owner: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """A process is going to append the rows of a committed batch to another topic, and no other one may.

    ``claim`` identifies the process. No queue of the other topic has any of the rows before ``ends``.
    """

    owner: str
    number: int
    claim: str
    ends: Mapping[MessageQueue, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """The other topic has every row of the batch."""

    owner: str
    number: int


Record: TypeAlias = Begin | Commit | Abort | Append | Appended


def encode_record(record: Record) -> bytes:
    """Return a record as the body of a message."""
    document: dict[str, Any] = {"version": _VERSION, "kind": type(record).__name__.lower()}
    document |= {"owner": record.owner, "number": record.number}
    match record:
        case Begin():
            document["ends"] = nest(record.ends)
        case Commit():
            document |= {"since": record.since, "ranges": nest(record.ranges)}
        case Append():
            document |= {"claim": record.claim, "ends": nest(record.ends)}
        case Abort() | Appended():
            pass
        case _:
            assert_never(record)
    return json.dumps(document, separators=(",", ":")).encode()


def decode_record(body: bytes, **facts: object) -> Record:
    """Read the body of a message of a commit topic.

    Parameters
    ----------
    body : bytes
    **facts
        Where the message is, for the error.

    Raises
    ------
    RemoteProtocolError
        It is no record, or one of a newer release.
    """
    try:
        document = json.loads(body.decode())
        version, kind = document["version"], document["kind"]
        owner, number = str(document["owner"]), int(document["number"])
        if version == _VERSION and kind == "commit":
            ranges = _by_queue(document["ranges"], _parts)
            return Commit(owner=owner, number=number, since=int(document["since"]), ranges=ranges)
        if version == _VERSION and kind == "begin":
            ends = _by_queue(document["ends"], int)
            return Begin(owner=owner, number=number, ends=ends)
        if version == _VERSION and kind == "abort":
            return Abort(owner=owner, number=number)
        if version == _VERSION and kind == "append":
            ends = _by_queue(document["ends"], int)
            return Append(owner=owner, number=number, claim=str(document["claim"]), ends=ends)
        if version == _VERSION and kind == "appended":
            return Appended(owner=owner, number=number)
    except (ValueError, OverflowError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise RemoteProtocolError(
            "a message in a commit topic is no record of a transactional write: only such writes may send "
            "to it",
            **facts,
        ) from error
    raise RemoteProtocolError(
        f"a commit topic has a record of kind {kind!r}, version {version!r}, which a newer release wrote: "
        "read it with that release",
        **facts,
    )


def _by_queue(
    nested: Mapping[str, Mapping[str, Mapping[str, Any]]], parse: Callable[[Any], T]
) -> dict[MessageQueue, T]:
    """Return the values of `nest` by queue; thousands of records name the same few queues."""
    return {
        _queue(topic, broker_name, queue_id): parse(value)
        for topic, brokers in nested.items()
        for broker_name, queues in brokers.items()
        for queue_id, value in queues.items()
    }


def _parts(given: Iterable[tuple[Any, Any]]) -> tuple[tuple[int, int], ...]:
    return tuple([(int(begin), int(end)) for begin, end in given])


@lru_cache(maxsize=4096)
def _queue(topic: str, broker_name: str, queue_id: str) -> MessageQueue:
    return MessageQueue(topic, broker_name, int(queue_id))
