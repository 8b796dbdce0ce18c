"""The offsets that a streaming query writes into its checkpoint: versioned JSON.

Spark keeps only the **end** of each batch and passes it back as the start of the next one. It requests the
initial offset whenever it has no finished batch: twice in a new query, and again after a failed first batch.
Therefore:

* the initial offset means only "not yet resolved" and is the same at every call;
* ``begin`` in the end of a batch contains the start of each queue that the batch's start does not contain:
  all queues in the first batch, later the new queues and those that do not begin where the last batch ended.

So the end of a batch contains both ends of its ranges. The same (start, end) always means the same ranges.

Version 1::

    {"version": 1,
     "source": {"topics": "orders;payments", "group": "billing", "nameServer": "10.0.0.1:9876"},
     "startedAt": 1767225600000,
     "offsets": {"orders": {"broker-a": {"0": 120, "1": 98}}},
     "begin": {"orders": {"broker-a": {"1": 7}}}}

``startedAt`` is the time of the start in milliseconds since the epoch. The initial offset has ``"unresolved":
true`` instead of it and of the offsets. ``brokers`` are the brokers whose topics were all known at that time.
``heartbeatAt``, in the same unit, is present once the query has had a heartbeat row (`heartbeat`): a batch
has such a row exactly if the value grew. ``alignedAt``, in the same unit, is present if rows have the column
``alignedTimestamp`` (`aligned_column`). ``witness`` contains, as ``[offset, store time]``, one of the last
messages read of each topic and broker (`topic_recreation`). ``start`` is the policy with which the query
started (`start_record`). The offsets contain no secrets.

With ``isolation=read_committed``, ``commits`` contains positions in the commit topics (`CommitPosition`) as
``[begin, read, needed, known, stored at]``, and ``floor`` the start: what was written before it is no row,
whenever it is committed.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Final, Self, TypeVar

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageQueue, StartPolicy
from pyspark_rocketmq.model.nested_offsets import flatten, nest
from pyspark_rocketmq.offsets.start_record import decode_start, encode_start
from pyspark_rocketmq.options import SourceOptions
from pyspark_rocketmq.planning.topics.discovery import check_checkpoint
from pyspark_rocketmq.planning.topics.queue_names import rename_queues

__all__ = [
    "VERSION",
    "CommitPosition",
    "SourceIdentity",
    "SourceOffset",
    "Witness",
    "offset_of_rocketmq",
    "read_offset",
]

T = TypeVar("T")

VERSION: Final = 1

_FIELDS: Final = frozenset(
    {
        "version",
        "source",
        "startedAt",
        "offsets",
        "begin",
        "unresolved",
        "brokers",
        "heartbeatAt",
        "alignedAt",
        "witness",
        "start",
        "isolation",
        "commits",
        "floor",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceIdentity:
    """The source that offsets belong to, for tools that see only offsets."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    group: str | None = None
    name_server: str | None = None
    namespace: str | None = None
    commits: bool = True

    @classmethod
    def of(cls, options: SourceOptions) -> Self:
        """Return the identity of a source with these options."""
        return cls(
            topics=options.topics or tuple(sorted({queue.topic for queue in options.assign})),
            pattern=options.topic_pattern.pattern if options.topic_pattern else None,
            group=options.consumer_group,
            name_server=";".join(options.client.name_servers),
            namespace=options.client.namespace,
            commits=options.commit_offsets is not False,
        )

    def to_dict(self) -> dict[str, str]:
        """Return the JSON form."""
        facts = {
            "topics": ";".join(self.topics),
            "subscribePattern": self.pattern,
            "group": self.group,
            "nameServer": self.name_server,
            "namespace": self.namespace,
            "commitOffsets": None if self.commits else "false",
        }
        return {name: value for name, value in facts.items() if value}

    def reads(self, topic: str) -> bool:
        """Whether the query named the topic."""
        return topic in self.topics if self.pattern is None else bool(re.fullmatch(self.pattern, topic))

    def client_options(self) -> dict[str, str]:
        """Return the client options that the identity contains."""
        known = {"nameServer": self.name_server, "namespace": self.namespace}
        return {name: value for name, value in known.items() if value}

    @classmethod
    def from_dict(cls, facts: Mapping[str, str]) -> Self:
        """Read the JSON form."""
        return cls(
            topics=tuple(filter(None, facts.get("topics", "").split(";"))),
            pattern=facts.get("subscribePattern"),
            group=facts.get("group"),
            name_server=facts.get("nameServer"),
            namespace=facts.get("namespace"),
            commits=facts.get("commitOffsets") != "false",
        )


@dataclass(frozen=True, slots=True)
class Witness:
    """A message that was read: its offset and its store time (ms since the epoch)."""

    offset: int
    stored_at_ms: int


@dataclass(frozen=True, slots=True)
class CommitPosition:
    """The records of a commit topic that make up a micro-batch.

    Parameters
    ----------
    begin, read : int
        What was committed from ``begin`` on, before ``read``, is rows of the micro-batch.
    needed, known : int
        What was committed from ``needed`` on, before ``known``, is left out where unmarked messages are read.
        Equal while the commit topic cannot be read.
    stored_at_ms : int
        When the record before ``known`` was stored; 0 if there is none.
    """

    begin: int
    read: int
    needed: int
    known: int
    stored_at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOffset:
    """A position in every queue: the next offset to read.

    Parameters
    ----------
    source : SourceIdentity
    offsets : Mapping
        The next offset of each queue.
    begin : Mapping
        Where the batch that ends here began, for queues that did not begin at the end of the previous batch.
    started_at_ms : int, optional
        The time at which the query's start was resolved; None while it is unresolved.
    start : StartPolicy, optional
        What was resolved then; None in checkpoints of earlier releases.
    heartbeat_at_ms : int
        The time of the last heartbeat row; 0 before the first one.
    aligned_at_ms : int
        The ``alignedTimestamp`` of the rows of the batch that ends here; 0 if they have none.
    brokers : frozenset of str
        The brokers whose topics were all known at that time: their other topics were created later.
    witnesses : Mapping
        A message of each topic and broker, by its queue.
    committed_only : bool
        Whether it is of a read with ``isolation=read_committed``.
    commits : Mapping
        The position in each commit topic.
    floor : Mapping
        The start of each queue, unless the query started at the latest offsets.
    """

    source: SourceIdentity
    offsets: Mapping[MessageQueue, int] = field(default_factory=dict)
    begin: Mapping[MessageQueue, int] = field(default_factory=dict)
    started_at_ms: int | None = None
    start: StartPolicy | None = None
    brokers: frozenset[str] = frozenset()
    heartbeat_at_ms: int = 0
    aligned_at_ms: int = 0
    witnesses: Mapping[MessageQueue, Witness] = field(default_factory=dict)
    committed_only: bool = False
    commits: Mapping[MessageQueue, CommitPosition] = field(default_factory=dict)
    floor: Mapping[MessageQueue, int] = field(default_factory=dict)

    @property
    def resolved(self) -> bool:
        """Whether the start has been resolved."""
        return self.started_at_ms is not None

    @property
    def positions(self) -> dict[MessageQueue, int]:
        """The next offset of each queue, and the next record of each commit topic."""
        return {**self.offsets, **{queue: at.read for queue, at in self.commits.items()}}

    def named_as(self, seen: Iterable[MessageQueue]) -> Self:
        """Return the same position with the current names of the queues.

        Checkpoints of earlier releases named a static topic's queue after its owner. A queue that was read
        across a remap may occur twice in them: everything before the greater offset was read.
        """
        seen = tuple(seen)
        return replace(
            self,
            offsets=rename_queues(self.offsets, seen, choose=max),
            witnesses=rename_queues(self.witnesses, seen, choose=_later),
        )

    def advance(
        self,
        offsets: Mapping[MessageQueue, int],
        begin: Mapping[MessageQueue, int],
        *,
        heartbeat_at_ms: int | None = None,
        aligned_at_ms: int | None = None,
        witnesses: Mapping[MessageQueue, Witness] | None = None,
    ) -> Self:
        """Return the end of a batch that starts here."""
        return replace(
            self,
            offsets={**self.offsets, **offsets},
            begin=begin,
            heartbeat_at_ms=self.heartbeat_at_ms if heartbeat_at_ms is None else heartbeat_at_ms,
            aligned_at_ms=self.aligned_at_ms if aligned_at_ms is None else aligned_at_ms,
            witnesses=self.witnesses if witnesses is None else witnesses,
        )

    def without(self, forgotten: Callable[[MessageQueue], bool]) -> Self:
        """Return this position without some queues."""
        dropped = set(filter(forgotten, {*self.offsets, *self.begin, *self.witnesses}))
        if not dropped:
            return self
        return replace(
            self,
            # If the queue is added again later, it must not count as newer than the start.
            brokers=self.brokers - {queue.broker_name for queue in dropped},
            offsets={queue: at for queue, at in self.offsets.items() if not forgotten(queue)},
            begin={queue: at for queue, at in self.begin.items() if not forgotten(queue)},
            witnesses={queue: seen for queue, seen in self.witnesses.items() if not forgotten(queue)},
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, its keys in a stable order: Spark compares offsets as text."""
        document: dict[str, Any] = {"version": VERSION, "source": self.source.to_dict()}
        if self.started_at_ms is None:
            return document | {"unresolved": True}
        document |= {"startedAt": self.started_at_ms, "offsets": nest(self.offsets)}
        if self.start is not None:
            document["start"] = encode_start(self.start)
        if self.brokers:
            document["brokers"] = sorted(self.brokers)
        if self.heartbeat_at_ms:
            document["heartbeatAt"] = self.heartbeat_at_ms
        if self.aligned_at_ms:
            document["alignedAt"] = self.aligned_at_ms
        if self.witnesses:
            seen = {queue: [each.offset, each.stored_at_ms] for queue, each in self.witnesses.items()}
            document["witness"] = nest(seen)
        if self.committed_only:
            document["isolation"] = "read_committed"
            document["commits"] = nest({queue: [*astuple(at)] for queue, at in self.commits.items()})
            document["floor"] = nest(self.floor)
        return document | ({"begin": nest(self.begin)} if self.begin else {})

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Read the JSON form.

        Raises
        ------
        OptionError
            The version or a field is unknown to this release, or the offsets are not of this source.
        """
        version = document.get("version")
        if version != VERSION:
            raise OptionError(
                f"the checkpoint holds offsets of version {version!r} and this release reads version "
                f"{VERSION}: use the release that wrote it, or start with a new checkpointLocation"
            )
        if unknown := set(document) - _FIELDS:
            raise OptionError(
                "a newer release wrote the checkpoint: its offsets have fields that this one does not know "
                f"({', '.join(sorted(unknown))})"
            )
        try:
            return cls(
                source=SourceIdentity.from_dict(document["source"]),
                offsets=_flat(document.get("offsets", {})),
                begin=_flat(document.get("begin", {})),
                started_at_ms=None if document.get("unresolved") else int(document["startedAt"]),
                start=decode_start(document["start"]) if "start" in document else None,
                brokers=frozenset(map(str, document.get("brokers", ()))),
                heartbeat_at_ms=int(document.get("heartbeatAt", 0)),
                aligned_at_ms=int(document.get("alignedAt", 0)),
                witnesses={
                    queue: Witness(int(offset), int(stored_at_ms))
                    for queue, (offset, stored_at_ms) in flatten(document.get("witness", {})).items()
                },
                committed_only=document.get("isolation") == "read_committed",
                commits={
                    queue: CommitPosition(*map(int, at))
                    for queue, at in flatten(document.get("commits", {})).items()
                },
                floor=_flat(document.get("floor", {})),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise OptionError(f"the checkpoint's offsets are malformed: {document!r}") from error


def offset_of_rocketmq(text: str | None) -> SourceOffset | None:
    """Read an offset of any source, as Spark logs and reports it; None if it is not RocketMQ's.

    Raises
    ------
    OptionError
        A release that this one does not know wrote it.
    """
    document = _document(text or "null")
    if not isinstance(document, dict) or "source" not in document or "version" not in document:
        return None
    return SourceOffset.from_dict(document)


def _document(text: str) -> Any:
    """Parse an offset: PySpark before 4.2 reports it as Python writes a dictionary, not as JSON."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    except RecursionError:
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _later(one: Witness, other: Witness) -> Witness:
    return max(one, other, key=lambda witness: witness.offset)


def _flat(nested: Mapping[str, Mapping[str, Mapping[str, int]]]) -> dict[MessageQueue, int]:
    return {queue: int(offset) for queue, offset in flatten(nested).items()}


def read_offset(document: Mapping[str, Any], options: SourceOptions) -> SourceOffset:
    """Read an offset from the checkpoint of a query.

    Raises
    ------
    OptionError
        Its topics or its isolation are not the query's; or as `SourceOffset.from_dict`.
    """
    offset = SourceOffset.from_dict(document).without(options.forgets)
    check_checkpoint(offset.offsets, options)
    if offset.resolved and offset.committed_only != options.isolation.committed_only:
        was = "read_committed" if offset.committed_only else "read_uncommitted"
        raise OptionError(
            f"the checkpoint was written with isolation={was}: set it again, or choose another "
            "checkpointLocation",
            option="isolation",
        )
    return offset
