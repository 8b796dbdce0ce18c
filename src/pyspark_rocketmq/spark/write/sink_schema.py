"""The columns of a write: checked at the driver, converted to messages' columns in the tasks."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from pyspark_rocketmq.client.trace.spans import current_traceparent
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import Guarantee, SinkOptions
from pyspark_rocketmq.options.choices import KAFKA_COLUMNS
from pyspark_rocketmq.record.encode.outgoing_rows import MessageColumns, binary_of

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SINK_COLUMNS", "SinkLayout", "sink_layout"]

_TEXT: Final = (StringType,)
_INTEGER: Final = (ByteType, ShortType, IntegerType)
_WHOLE: Final = (*_INTEGER, LongType)


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a write: its valid types, their description, and the message column that it supplies."""

    types: tuple[type[DataType], ...]
    expected: str
    field: str
    convert: Callable[[pa.Array], pa.Array]


def _same(array: pa.Array) -> pa.Array:
    return array


def _join_keys(array: pa.Array) -> pa.Array:
    """Return keys in RocketMQ's form: one text, the keys separated by spaces."""
    if not pa.types.is_list(array.type) and not pa.types.is_large_list(array.type):
        return binary_of(array)
    filled = pc.greater(pc.binary_length(array.flatten()), 0)
    if pc.all(filled, skip_nulls=False, min_count=0).as_py():
        return binary_of(pc.binary_join(array.cast(pa.list_(pa.string())), " "))
    # As bytes: a key that is not UTF-8 is its row's error.
    rows = array.cast(pa.list_(pa.binary())).to_pylist()
    texts = [None if keys is None else b" ".join(filter(None, keys)) for keys in rows]
    return pa.array(texts, pa.binary())


def _milliseconds(array: pa.Array) -> pa.Array:
    """Return a time, an interval or a number of milliseconds as 64-bit milliseconds."""
    if pa.types.is_timestamp(array.type) or pa.types.is_duration(array.type):
        return pc.divide(array.cast(pa.int64()), 1_000)
    return array.cast(pa.int64())


SINK_COLUMNS: Final[Mapping[str, _Column]] = {
    "body": _Column((StringType, BinaryType), "string or binary", "body", binary_of),
    "topic": _Column(_TEXT, "string", "topic", binary_of),
    "tags": _Column(_TEXT, "string", "tags", binary_of),
    "keys": _Column((StringType, ArrayType), "string or array<string>", "keys", _join_keys),
    "properties": _Column((MapType,), "map<string,string>", "properties", _same),
    "shardingKey": _Column((StringType, *_WHOLE), "string or a whole number", "sharding_key", binary_of),
    "brokerName": _Column(_TEXT, "string", "broker_name", binary_of),
    "queueId": _Column(_INTEGER, "int", "queue_id", _same),
    "flag": _Column(_INTEGER, "int", "flag", _same),
    "delayLevel": _Column(_INTEGER, "int", "delay_level", _same),
    "delay": _Column(
        (DayTimeIntervalType, *_WHOLE),
        "an interval, or a whole number of milliseconds",
        "delay_ms",
        _milliseconds,
    ),
    "deliverAt": _Column((TimestampType,), "timestamp", "deliver_at_ms", _milliseconds),
    "priority": _Column(_INTEGER, "int", "priority", _same),
    "traceparent": _Column(_TEXT, "string", "traceparent", binary_of),
    "writeId": _Column((StringType, *_WHOLE), "string or a whole number", "write_id", binary_of),
}
"""Every column that a write accepts; ``body`` is required."""

_ALIASES: Final = {"key": "keys", "messagegroup": "shardingKey"}

_DELAYS: Final = ("delayLevel", "delay", "deliverAt")

_OF_READS: Final = frozenset(
    name.lower()
    for name in (
        *("queueOffset", "msgId", "bornTimestamp", "storeTimestamp", "offsetMsgId", "sysFlag", "bornHost"),
        *("storeHost", "reconsumeTimes", "preparedTransactionOffset", "bodyCrc", "offset", "timestamp"),
        "alignedTimestamp",
    )
)
"""Columns of a read that a write ignores in rows as they were read: the broker assigns new values."""

_AS_READ: Final = frozenset({"queueoffset", "offset"})
_ORIGIN: Final = frozenset({"brokerName", "queueId"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkLayout:
    """The position of each message column in the rows. Picklable for Spark.

    Parameters
    ----------
    positions : tuple of (str, int)
        The sink's columns and their positions.
    as_read : bool
        The rows have a queue offset, so they are unchanged from a read: ``brokerName`` and ``queueId`` say
        where they were, and reserved properties are RocketMQ's.
    copies : tuple of (int, int)
        Positions of columns that a read returns under two names, as ``key`` and ``keys``; they must be equal.
    delayed : bool
        Rows may be delivered later than they are stored.
    """

    positions: tuple[tuple[str, int], ...]
    as_read: bool
    copies: tuple[tuple[int, int], ...] = ()
    delayed: bool = False

    @property
    def names(self) -> frozenset[str]:
        """The sink's columns that the rows have."""
        return frozenset(name for name, _ in self.positions)

    def columns(self, batch: pa.RecordBatch, options: SinkOptions) -> MessageColumns:
        """Return the messages' columns. A constant in the options overrides a column.

        Raises
        ------
        OptionError
            Two columns that a read returns under two names are no longer equal.
        """
        for one, other in self.copies:
            if not batch.column(one).equals(batch.column(other)):
                first, second = batch.schema.field(one).name, batch.schema.field(other).name
                raise OptionError(
                    f"the columns {first!r} and {second!r} mean the same and differ: drop one of them"
                )
        found = {
            SINK_COLUMNS[name].field: SINK_COLUMNS[name].convert(batch.column(place))
            for name, place in self.positions
        }
        for field, text in (
            ("tags", options.tags),
            ("keys", options.keys),
            ("sharding_key", options.sharding_key),
            ("traceparent", options.traceparent or self._current_trace(found)),
        ):
            if text is not None:
                found[field] = pa.repeat(pa.scalar(text.encode()), len(batch))
        if options.delay_level is not None:
            found["delay_level"] = pa.repeat(pa.scalar(options.delay_level, pa.int32()), len(batch))
        if options.topic is not None:
            found.pop("topic", None)
        return MessageColumns(**found)

    @staticmethod
    def _current_trace(found: Mapping[str, pa.Array]) -> str | None:
        """Return the context of the task's span for rows that have no context of theirs."""
        return None if found.keys() & {"traceparent", "properties"} else current_traceparent()


def sink_layout(schema: StructType, options: SinkOptions) -> SinkLayout:
    """Check the columns of the rows to write.

    Raises
    ------
    OptionError
        The body or the topic is missing, a column is unknown, or a column has another type.
    """
    names = [field.name.lower() for field in schema.fields]
    as_read = bool(_AS_READ & set(names))
    positions: dict[str, int] = {}
    copies: list[tuple[int, int]] = []
    for place, field in enumerate(schema.fields):
        if field.name.lower() in _OF_READS:
            if not as_read:  # rows of another origin: the value would be lost, such as a time of the event
                raise OptionError(
                    f"the rows have a column {field.name!r}, which a write cannot set: only rows with "
                    "queueOffset, as they were read, may have it. Select the columns that are to be sent"
                )
            continue
        name = _column(field.name)
        if name in positions:
            if as_read and schema.fields[positions[name]].dataType == field.dataType:
                copies.append((positions[name], place))
                continue
            raise OptionError(f"two columns mean {name!r}: {schema.fields[positions[name]].name!r} and "
                              f"{field.name!r}")  # fmt: skip
        _check_type(name, field.dataType)
        if not (as_read and name in _ORIGIN):
            positions[name] = place
    if "body" not in positions:
        raise OptionError(f"a write needs a column 'body' (string or binary); the rows have {_join(names)}")
    if "topic" not in positions and options.topic is None:
        raise OptionError("a write needs the option topic, or a column 'topic'", option="topic")
    delays = [name for name in _DELAYS if name in positions]
    if options.delay_level is not None:
        delays.append("delayLevel")
    if delays and options.guarantee is Guarantee.TRANSACTIONAL:
        raise OptionError(f"brokers do not delay messages of a transaction: leave out {_join(delays)}")
    if "brokerName" in positions and "queueId" not in positions:
        raise OptionError("the column 'brokerName' needs the column 'queueId' beside it")
    return SinkLayout(
        positions=tuple(positions.items()), as_read=as_read, copies=tuple(copies), delayed=bool(delays)
    )


def _column(name: str) -> str:
    by_lower = {column.lower(): column for column in SINK_COLUMNS} | _ALIASES
    column = by_lower.get(name.lower())
    if column is not None:
        return column
    by_lower |= KAFKA_COLUMNS
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    hint = f"did you mean {by_lower[close[0]]!r}?" if close else f"there are {_join(SINK_COLUMNS)}."
    raise OptionError(f"the rows have a column {name!r}, which is no part of a message: {hint} "
                      "Select the columns that are to be sent")  # fmt: skip


def _check_type(name: str, found: DataType) -> None:
    column = SINK_COLUMNS[name]
    fits = isinstance(found, column.types)
    if isinstance(found, ArrayType):
        fits = fits and isinstance(found.elementType, StringType)
    if isinstance(found, MapType):
        fits = fits and isinstance(found.keyType, StringType) and isinstance(found.valueType, StringType)
    if not fits:
        raise OptionError(f"column {name!r} is {found.simpleString()}, but a write needs {column.expected}")


def _join(names: Sequence[str] | Mapping[str, object]) -> str:
    return ", ".join(repr(name) for name in names)
