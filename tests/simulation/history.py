"""What happened in a life: what was stored and acknowledged, what a query gave out, and when."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tests.simulation.damage import DAMAGED
from tests.simulation.dead_letters import DeadLetters

from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.record.compress import decompress
from pyspark_rocketmq.testing.store import BrokerStore, HalfMessage, Placed

__all__ = ["KEYS", "History", "Place", "RecordingStore", "Row", "generation_of"]

KEYS: Final = ("ann", "bob", "cy", None)
"""Sharding keys of rows; those of none may be anywhere."""

Place = tuple[str, str, int, int]
"""Topic, broker, queue and offset; of a topic that was created again, offsets continue elsewhere."""

_GENERATION: Final = 1_000_000_000


def generation_of(place: Place) -> int:
    """Return how often the topic had been created again when a message was stored."""
    return place[3] // _GENERATION


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the query's output."""

    place: Place
    body: bytes


@dataclass(slots=True)
class History:
    """Everything that judges need.

    Attributes
    ----------
    stored : dict
        The body of every message that a broker ever stored and the reader wants, by its place there.
    unwanted : dict
        Likewise those that the reader must not read, or that do not decode.
    acknowledged : dict
        For each writer's lane, the numbers that were acknowledged.
    refused : list of str
        Why a writer gave up a send.
    batches : dict
        The rows of each micro-batch, as the sink has them, sorted by their places.
    torn : list of str
        Batches whose rows were others when they were read again.
    disordered : list of str
        Partitions whose rows were not in their queue's order.
    errors : list of str
        What ended the query.
    died : list of str
        Outages that ended a query that was running: each fault is shorter than its patience.
    expired : set of Place
        Messages that retention deleted.
    unseen : int
        How many of `unwanted` were deleted: nobody can tell any more that they were not wanted.
    read : set of Place
        The places of all rows.
    sent : set of bytes
        Every body that was ever given to a writer.
    write_ids : dict
        The write ids of each body that was stored with one.
    transactional : bool
        Whether the sink's rows become visible once, when their batch is decided.
    rolled_back : list of str
        Half messages that a resolver rolled back although their batch was not finished.
    undecided : list of str
        Rows of the sink that were visible before their batch was decided.
    stored_ms : dict
        When each message was stored, by its broker's clock.
    unaligned : list of str
        Rows that were stored before an earlier micro-batch's ``alignedTimestamp``.
    stored_at : dict
        When each message was stored (virtual seconds).
    well_from_s : float
        From when no send has a reason to be repeated.
    stored_when_well : Counter
        How often each body was stored from then on.
    batch_jobs : list of str
        What batches lacked, or had too much.
    overlaps : list of str
        Queues in order that two members of a group worked on at the same time.
    set_back : list of str
        Offsets that a member set back which was frozen when another one committed.
    oversized : list of str
        Moments at which a reader had more bytes in its memory than it may have.
    miscounted : list of str
        Reports of tasks whose numbers are wrong.
    ahead : list of str
        Commits of offsets whose rows were not in the sink.
    strict : bool
        Whether the query has to end where messages are gone that it has not read.
    proxied : bool
        Whether a proxy answers, which does not tell whether name servers have restarted.
    hidden : bool
        Whether a topic whose brokers are away looks like one that is missing.
    dead_letters : DeadLetters
    queues : tuple of MessageQueue
        The topic's, if writers saw all of them all the time.
    begun : mapping of MessageQueue to int
        Where each queue's first batch begins.
    finished : mapping of MessageQueue to int
        Where each queue's finished batches end.
    events : list of str
        The timeline.
    did : Counter
        What happened how often.
    generations : Counter
        How often each queue's topic was created again.
    now : callable
        Returns the virtual seconds.
    watch : callable
        Told of each body that becomes visible.
    """

    stored: dict[Place, bytes] = field(default_factory=dict)
    unwanted: dict[Place, bytes] = field(default_factory=dict)
    acknowledged: dict[str, set[int]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    batches: dict[int, list[Row]] = field(default_factory=dict)
    torn: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    died: list[str] = field(default_factory=list)
    expired: set[Place] = field(default_factory=set)
    unseen: int = 0
    read: set[Place] = field(default_factory=set)
    sent: set[bytes] = field(default_factory=set)
    write_ids: dict[bytes, set[str]] = field(default_factory=dict)
    transactional: bool = False
    ranged: bool = False
    deciding: set[str] = field(default_factory=set)
    marked: dict[Place, bytes] = field(default_factory=dict)
    came: set[bytes] = field(default_factory=set)
    rolled_back: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    stored_ms: dict[Place, int] = field(default_factory=dict)
    unaligned: list[str] = field(default_factory=list)
    stored_at: dict[Place, float] = field(default_factory=dict)
    well_from_s: float = math.inf
    stored_when_well: Counter[bytes] = field(default_factory=Counter)
    batch_jobs: list[str] = field(default_factory=list)
    overlaps: list[str] = field(default_factory=list)
    set_back: list[str] = field(default_factory=list)
    oversized: list[str] = field(default_factory=list)
    left_over: list[str] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    miscounted: list[str] = field(default_factory=list)
    ahead: list[str] = field(default_factory=list)
    dead_letters: DeadLetters = field(default_factory=DeadLetters)
    errors: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    strict: bool = False
    proxied: bool = False
    hidden: bool = False
    queues: tuple[MessageQueue, ...] = ()
    begun: Mapping[MessageQueue, int] = field(default_factory=dict)
    finished: Mapping[MessageQueue, int] = field(default_factory=dict)
    did: Counter[str] = field(default_factory=Counter)
    generations: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    now: Callable[[], float] = lambda: 0.0
    watch: Callable[[bytes], None] = lambda body: None

    def digest(self) -> str:
        """Return a hash of what happened, and when."""
        parts = (self.events, sorted(self.stored.items()), sorted(self.batches.items()), self.errors)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    def place(self, topic: str, broker: str, queue_id: int, offset: int) -> Place:
        """Return the place of an offset of a queue as it is now."""
        generation = self.generations[topic, broker, queue_id]
        return topic, broker, queue_id, generation * _GENERATION + offset

    def row(self, place: Place, body: bytes) -> Row:
        """Return a row that was read: of a topic that was created again, of the newest that it fits."""
        topic, broker, queue_id, offset = place
        newest = self.generations[topic, broker, queue_id]
        places = [
            (topic, broker, queue_id, number * _GENERATION + offset) for number in range(newest, -1, -1)
        ]
        return Row(next((each for each in places if self.stored.get(each) == body), places[0]), body)

    def still_there(self, rows: list[Row]) -> list[Row]:
        """Return the rows that retention has not deleted so far, of queues that were not created again."""
        return [row for row in rows if row.place not in self.expired and not self.generations[row.place[:3]]]

    def same(self, one: list[Row], other: list[Row]) -> bool:
        """Return whether rows are the same, but for those that are not there any more."""
        return one == other or self.still_there(one) == self.still_there(other)

    def check_decided(self, rows: list[Row]) -> None:
        """No row of a transactional write comes before its batch is committed."""
        if self.ranged:
            written = {row.body.decode().partition(".")[0] for row in rows if row.body.startswith(b"sink")}
            self.undecided += [
                f"batch {each} is read, and not committed" for each in sorted(written - self.deciding)
            ]

    def begin_again(self, queue: MessageQueue) -> None:
        """Record that a queue's messages are deleted, and its offsets begin at 0."""
        key = (queue.topic, queue.broker_name, queue.queue_id)
        self.expired |= {place for place in self.stored if place[:3] == key}
        self.generations[key] += 1

    def leave_out(self, place: Place, body: bytes) -> None:
        """Record a message that a broker stored and the reader does not want."""
        self.unwanted[self.place(*place)] = body

    def spoil(self, place: Place, *, has_row: bool, has_time: bool) -> None:
        """Record that a message that was just stored does not decode."""
        place = self.place(*place)
        if not has_time:
            del self.stored_ms[place]
        self.unwanted[place] = self.stored[place]
        self.sent.add(DAMAGED)
        if has_row:
            self.stored[place] = DAMAGED
        else:
            del self.stored[place], self.stored_at[place]

    def store(self, place: Place, body: bytes, write_id: str | None, stored_ms: int) -> None:
        """Record a message that a broker stored."""
        self.stored_ms[self.place(*place)] = stored_ms
        self.stored[self.place(*place)] = body
        self.stored_at[self.place(*place)] = self.now()
        self.stored_when_well[body] += self.now() >= self.well_from_s
        if write_id is not None:
            self.write_ids.setdefault(body, set()).add(write_id)
        self.watch(body)


class _Commits(dict[tuple[str, str, int], int]):
    """A broker's table of offsets."""

    def __init__(self, store: RecordingStore) -> None:
        super().__init__()
        self._store = store

    def __setitem__(self, key: tuple[str, str, int], offset: int) -> None:
        super().__setitem__(key, offset)
        group, topic, queue_id = key
        self._store.on_commit(group, MessageQueue(topic, self._store.name, queue_id), offset)


@dataclass(slots=True)
class RecordingStore(BrokerStore):
    """A broker's data, which tells of every message that it stores, and of every offset that is committed."""

    on_append: Callable[[Place, bytes, Mapping[str, str], int], None] = lambda *_: None
    on_commit: Callable[[str, MessageQueue, int], None] = lambda group, queue, offset: None
    on_half: Callable[[int, HalfMessage], None] = lambda commit_log_offset, half: None
    damage: Callable[[Place], Callable[[bytes], bytes] | None] = lambda _: None

    def __post_init__(self) -> None:
        self.committed = _Commits(self)

    def expire_halves(self, record: bytes) -> None:
        """Delete half messages before a record: if there are none, it may be damaged."""
        if self._halves:
            BrokerStore.expire_halves(self, record)

    def append_half(self, half: HalfMessage) -> Placed:
        """Store a half message."""
        placed = BrokerStore.append_half(self, half)
        self.on_half(int(placed.msg_id[-16:], 16), replace(half, offset=placed.offset))
        return placed

    def append(
        self,
        topic: str,
        queue_id: int,
        stored_body: bytes,
        properties: Mapping[str, str],
        *,
        store_timestamp: int,
        **named: object,
    ) -> Placed:
        """Store a message."""
        placed = BrokerStore.append(
            *(self, topic, queue_id, stored_body, properties),
            store_timestamp=store_timestamp,
            **named,  # type: ignore[arg-type]
        )
        place = (topic, self.name, queue_id, placed.offset)
        if topic.startswith("%"):  # of a group: messages that come again
            return placed
        body = decompress(stored_body, named["sys_flag"])  # type: ignore[arg-type]
        self.on_append(place, bytes(body).rstrip(), properties, store_timestamp)
        if (change := self.damage(place)) is not None:
            log = self.log(topic, queue_id)
            stored = log.messages[-1]
            log.replace(replace(stored, record=change(stored.record)))
        return placed
