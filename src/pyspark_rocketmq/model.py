"""The nouns of RocketMQ as plain, frozen values, shared by every layer."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Final, TypeAlias, cast

from pyspark_rocketmq.errors import OptionError

__all__ = [
    "Ago",
    "AtOffsets",
    "AtTimestamp",
    "BrokerData",
    "ConsumerOffset",
    "CorruptMessage",
    "Earliest",
    "GroupOffsets",
    "LastMessages",
    "Latest",
    "LostRange",
    "Message",
    "MessageQueue",
    "MessageSelector",
    "OffsetRange",
    "OutgoingMessage",
    "Permission",
    "Position",
    "PullResult",
    "PullStatus",
    "QueueData",
    "QueueStats",
    "RangeReport",
    "SendResult",
    "SendStatus",
    "StartPolicy",
    "TopicRoute",
    "new_message",
]

MASTER_ID = 0
"""The broker id of a master; every other id is a slave."""

LOGICAL_BROKER_PREFIX: Final = "__syslo__"
"""Begins the broker name of a static topic's queues (``MixAll.LOGICAL_QUEUE_MOCK_BROKER_PREFIX``)."""


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of a topic on one broker (a replica group of master and slaves).

    A queue of a static topic moves between brokers: its ``broker_name`` is that of its scope,
    ``__syslo__global__``, as in the Java client, and `TopicRoute.owner` tells the broker that has it now.

    Parameters
    ----------
    topic, broker_name : str
    queue_id : int
        0-based.
    """

    topic: str
    broker_name: str
    queue_id: int

    @property
    def logical(self) -> bool:
        """Whether it is a queue of a static topic, which no broker has for good."""
        return self.broker_name.startswith(LOGICAL_BROKER_PREFIX)

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The messages of one queue from ``from_offset`` (inclusive) to ``until_offset`` (exclusive)."""

    queue: MessageQueue
    from_offset: int
    until_offset: int

    def __post_init__(self) -> None:
        if not 0 <= self.from_offset <= self.until_offset:
            raise OptionError(
                "an offset range needs 0 <= from_offset <= until_offset",
                queue=self.queue,
                from_offset=self.from_offset,
                until_offset=self.until_offset,
            )

    @classmethod
    def create(
        cls, topic: str, queue_id: int, broker_name: str, from_offset: int, until_offset: int
    ) -> OffsetRange:
        """Return a range from its parts, in rocketmq-spark's order."""
        return cls(MessageQueue(topic, broker_name, queue_id), from_offset, until_offset)

    def __len__(self) -> int:
        return self.until_offset - self.from_offset

    @property
    def topic(self) -> str:
        """The queue's topic."""
        return self.queue.topic

    @property
    def broker_name(self) -> str:
        """The queue's broker."""
        return self.queue.broker_name

    @property
    def queue_id(self) -> int:
        """The queue's id."""
        return self.queue.queue_id

    def __str__(self) -> str:
        return f"{self.queue}[{self.from_offset}, {self.until_offset})"


@dataclass(frozen=True, slots=True)
class MessageSelector:
    """Which messages a broker hands out (``MessageSelector`` of the Java client).

    Build one with `by_tag` or `by_sql`; the default takes every message.
    """

    expression: str = "*"
    expression_type: str = "TAG"

    @classmethod
    def by_tag(cls, expression: str) -> MessageSelector:
        """Select by tag: ``"TagA || TagB"``; ``"*"`` or an empty string takes all."""
        tags = sorted({tag.strip() for tag in expression.split("||")} - {""})
        if not tags and expression.strip():
            raise OptionError("a tag expression names tags between '||'", expression=expression)
        return cls("*" if not tags or "*" in tags else " || ".join(tags))

    @classmethod
    def by_sql(cls, expression: str) -> MessageSelector:
        """Select by an SQL92 condition on the properties; the broker needs ``enablePropertyFilter=true``."""
        return cls(expression, "SQL92")

    @property
    def takes_all(self) -> bool:
        """Whether nothing is filtered out."""
        return self.expression_type == "TAG" and self.expression == "*"

    @property
    def tags(self) -> frozenset[str] | None:
        """The tags asked for; None when it is not a tag filter. Brokers compare hashes only: check again."""
        if self.takes_all or self.expression_type != "TAG":
            return None
        return frozenset(tag.strip() for tag in self.expression.split("||"))


@dataclass(frozen=True, slots=True)
class LostRange:
    """Messages of a planned range that the broker does not have (any more), and why."""

    offsets: OffsetRange
    condition: str


@dataclass(frozen=True, slots=True)
class CorruptMessage:
    """A message that does not decode, and why."""

    queue: MessageQueue
    queue_offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.queue} at {self.queue_offset}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeReport:
    """What became of every offset of a range: ``rows + filtered + gaps + lost + skipped`` is its length.

    ``filtered`` counts messages that a tag or SQL filter left out, ``gaps`` offsets that never held a
    message for consumers (compacted, remapped), ``lost`` what expired or vanished.
    """

    offsets: OffsetRange
    rows: int
    filtered: int
    gaps: int
    lost: tuple[LostRange, ...] = ()
    skipped: int = 0
    """Messages without a row because they do not decode."""
    nulled: int = 0
    """Rows of messages that do not decode in full; they count as rows, too."""
    corrupt: tuple[CorruptMessage, ...] = ()
    """The first hundred of both."""


class Permission(enum.IntFlag):
    """The permission bits of a queue (``PermName`` of the Java client)."""

    NONE = 0
    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8


@dataclass(frozen=True, slots=True)
class BrokerData:
    """Where one broker (replica group) lives: addresses by broker id, 0 being the master."""

    broker_name: str
    cluster: str
    addresses: Mapping[int, str]

    @property
    def master(self) -> str | None:
        """The master's ``host:port``, or None while the group has none."""
        return self.addresses.get(MASTER_ID)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the addresses, master first."""
        return iter([self.addresses[broker_id] for broker_id in sorted(self.addresses)])


@dataclass(frozen=True, slots=True)
class QueueData:
    """How many queues of a topic a broker has, and what may be done with them."""

    broker_name: str
    read_queues: int
    write_queues: int
    perm: Permission


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """A topic's route as one name server sees it.

    ``static_queues`` is filled for static topics only: the broker that owns each queue now, None where no
    broker of the route does (it is away). Each remap makes a greater ``static_epoch``.
    """

    topic: str
    brokers: tuple[BrokerData, ...]
    queues: tuple[QueueData, ...]
    static_queues: Mapping[MessageQueue, str | None] = field(default_factory=dict)
    static_epoch: int = 0

    def broker(self, broker_name: str) -> BrokerData | None:
        """Return the broker of that name, or None."""
        return next((data for data in self.brokers if data.broker_name == broker_name), None)

    def owner(self, queue: MessageQueue) -> str | None:
        """Return the name of the broker that has the queue now; None if no broker of the route does.

        A static topic's queue may also be called by the name of a broker that has it or had it.
        """
        if not self.static_queues:
            return queue.broker_name
        if queue in self.static_queues:
            return self.static_queues[queue]
        same = (owner for one, owner in self.static_queues.items() if one.queue_id == queue.queue_id)
        return next(same, None)

    def read_queues(self) -> tuple[MessageQueue, ...]:
        """Return the queues that may be read, sorted."""
        if self.static_queues:
            return tuple(sorted(self.static_queues))
        return tuple(
            sorted(
                MessageQueue(self.topic, data.broker_name, queue_id)
                for data in self.queues
                if Permission.READ in data.perm
                for queue_id in range(data.read_queues)
            )
        )

    def write_queues(self) -> tuple[MessageQueue, ...]:
        """Return the queues that may be written, sorted: those of brokers that have a master."""
        if self.static_queues:
            return self.read_queues()
        masters = {data.broker_name for data in self.brokers if data.master is not None}
        return tuple(
            sorted(
                MessageQueue(self.topic, data.broker_name, queue_id)
                for data in self.queues
                if Permission.WRITE in data.perm and data.broker_name in masters
                for queue_id in range(data.write_queues)
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A stored message with everything that Java's ``MessageExt`` tells.

    ``body`` is decompressed; timestamps are milliseconds since the epoch; hosts are ``ip:port``.
    ``msg_id`` is the client's unique id (property ``UNIQ_KEY``) and falls back to ``offset_msg_id``.
    """

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    body: bytes
    msg_id: str
    offset_msg_id: str
    tags: str | None
    keys: str | None
    properties: Mapping[str, str]
    born_timestamp: int
    store_timestamp: int
    born_host: str
    store_host: str
    flag: int
    sys_flag: int
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    commit_log_offset: int
    store_size: int

    @property
    def queue(self) -> MessageQueue:
        """The queue that the message was read from."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark pickles messages between processes: this takes a third of what dataclasses do by themselves.
        return _MessageDraft, _VALUES(self)


class _MessageDraft:
    """The layout of `Message` without its guard against assignment; a draft that is full becomes a message.

    ``Message(...)`` goes through that guard for each of its fields and takes 2.4 us; this takes 0.3.
    """

    __slots__ = Message.__slots__

    def __init__(  # noqa: PLR0917 - in the order of Message's fields
        self,
        topic: str,
        broker_name: str,
        queue_id: int,
        queue_offset: int,
        body: bytes,
        msg_id: str,
        offset_msg_id: str,
        tags: str | None,
        keys: str | None,
        properties: Mapping[str, str],
        born_timestamp: int,
        store_timestamp: int,
        born_host: str,
        store_host: str,
        flag: int,
        sys_flag: int,
        reconsume_times: int,
        prepared_transaction_offset: int,
        body_crc: int,
        commit_log_offset: int,
        store_size: int,
    ) -> None:
        self.topic = topic
        self.broker_name = broker_name
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.body = body
        self.msg_id = msg_id
        self.offset_msg_id = offset_msg_id
        self.tags = tags
        self.keys = keys
        self.properties = properties
        self.born_timestamp = born_timestamp
        self.store_timestamp = store_timestamp
        self.born_host = born_host
        self.store_host = store_host
        self.flag = flag
        self.sys_flag = sys_flag
        self.reconsume_times = reconsume_times
        self.prepared_transaction_offset = prepared_transaction_offset
        self.body_crc = body_crc
        self.commit_log_offset = commit_log_offset
        self.store_size = store_size
        self.__class__ = Message  # type: ignore[assignment]


_VALUES: Final = attrgetter(*(part.name for part in fields(Message)))

new_message: Final = cast("Callable[..., Message]", _MessageDraft)
"""Make a `Message` of its values in the order of its fields: many times faster than by keywords."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to be sent.

    Parameters
    ----------
    topic : str
    body : bytes
        Not empty: brokers of 5.1 and later fail on an empty body.
    tags : str, optional
        The tag; consumers filter by it.
    keys : str or sequence of str
        Indexed by the broker; a string may hold several keys between spaces.
    properties : Mapping[str, str]
        The user's own; names that RocketMQ reserves are refused when the message is sent.
    flag : int
        A signed 32-bit number that RocketMQ stores and never looks at.
    sharding_key : str, optional
        Messages of one key go to one queue while the number of queues stays, and keep their order there.
    delay_level : int
        1 to 18 (1 s to 2 h by the broker's table); 0 for none.
    delay_ms, deliver_at_ms : int, optional
        Any delay, or moment (milliseconds since the epoch), up to three days ahead by default: RocketMQ 5
        only; older brokers deliver at once.
    wait_store_ok : bool
        Whether the broker answers only once the message is as durable as it is configured to make it.

    Raises
    ------
    OptionError
        A part that no broker takes, or more than one kind of delay.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    sharding_key: str | None = None
    delay_level: int = 0
    delay_ms: int | None = None
    deliver_at_ms: int | None = None
    wait_store_ok: bool = True

    def __post_init__(self) -> None:
        if not self.topic:
            raise OptionError("a message needs a topic")
        if not isinstance(self.body, bytes) or not self.body:
            raise OptionError("a message needs a body of at least one byte, as bytes", topic=self.topic)
        if not -(2**31) <= self.flag < 2**31:
            raise OptionError("flag must be a signed 32-bit integer", topic=self.topic, flag=self.flag)
        if not 0 <= self.delay_level <= 18:
            raise OptionError("delay_level goes from 1 to 18", topic=self.topic, delay_level=self.delay_level)
        delays = (self.delay_level or None, self.delay_ms, self.deliver_at_ms)
        if sum(delay is not None for delay in delays) > 1:
            raise OptionError("give one of delay_level, delay_ms and deliver_at_ms", topic=self.topic)

    @property
    def delayed(self) -> bool:
        """Whether the message is not to be delivered at once."""
        return bool(self.delay_level) or self.delay_ms is not None or self.deliver_at_ms is not None


class PullStatus(enum.Enum):
    """What a pull found (``PullStatus`` of the Java client)."""

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


@dataclass(frozen=True, slots=True)
class PullResult:
    """The answer to one pull; ``next_begin_offset`` is where the next pull must begin."""

    status: PullStatus
    messages: tuple[Message, ...]
    next_begin_offset: int
    min_offset: int
    max_offset: int


class SendStatus(enum.Enum):
    """How durable a stored message is (``SendStatus`` of the Java client)."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """Where a message (or the first of a batch) was stored."""

    status: SendStatus
    queue: MessageQueue
    queue_offset: int
    msg_id: str
    offset_msg_id: str
    transaction_id: str | None = None


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Offsets of a queue as its broker reports them; ``last_update_timestamp`` in ms, 0 if never written."""

    min_offset: int
    max_offset: int
    last_update_timestamp: int


@dataclass(frozen=True, slots=True)
class ConsumerOffset:
    """A group's progress in a queue; ``last_timestamp`` (ms) is when the last consumed message was stored."""

    broker_offset: int
    consumer_offset: int
    last_timestamp: int


# --- where to start (or end) ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Earliest:
    """The queue's min offset."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The queue's max offset (the next to be written)."""


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """The group's committed offset; ``reset`` decides where there is none (None: fail)."""

    reset: Earliest | Latest | AtTimestamp | None


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first message stored at or after ``timestamp_ms`` (milliseconds since the epoch)."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Ago:
    """The first message stored at or after the moment ``ago_ms`` before the query's start."""

    ago_ms: int


@dataclass(frozen=True, slots=True)
class LastMessages:
    """``count`` offsets before the queue's max offset, but not before its min offset."""

    count: int


Position: TypeAlias = int | Earliest | Latest | AtTimestamp | Ago | LastMessages
"""Where one queue starts or ends; a number is an offset."""


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """Explicit positions by queue, else by topic; ``default`` decides for the rest (None: fail)."""

    offsets: Mapping[MessageQueue, Position]
    default: Earliest | Latest | GroupOffsets | AtTimestamp | None = None
    topics: Mapping[str, Position] = field(default_factory=dict)


StartPolicy: TypeAlias = Earliest | Latest | GroupOffsets | AtTimestamp | Ago | LastMessages | AtOffsets
