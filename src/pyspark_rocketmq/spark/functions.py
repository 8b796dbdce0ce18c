"""DataFrames to messages and back: formats, builders, order by key, and deduplication of writes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import BadRecords, TableOptions, parse_options
from pyspark_rocketmq.record.properties import PROPERTY_WRITE_ID
from pyspark_rocketmq.spark.bodies.times import EXACT_TIMES
from pyspark_rocketmq.spark.body_formats import AT, BODY, KEYS, PLACE, BodyColumn, Format, judge, quote
from pyspark_rocketmq.spark.read.aligned_column import ALIGNED_TIMESTAMP

__all__ = [
    "drop_repeats",
    "from_rocketmq",
    "identical_rows_together",
    "json_messages",
    "key_value_messages",
    "ordered_by",
    "to_rocketmq",
    "with_topic",
]

_CONTENT: Final = "__content"
_WRITE_ID: Final = "__write_id"
_PLACE: Final = "__place"
_BATCH_COLUMNS: Final = ("topic", "brokerName", "queueId", "queueOffset", "properties")
_STREAM_COLUMNS: Final = (*_BATCH_COLUMNS, "storeTimestamp", ALIGNED_TIMESTAMP)
_FORMAT_OPTIONS: Final = frozenset(
    (
        "avroSchema",
        "avroSchemaFile",
        "protobufDescriptorFile",
        "protobufMessage",
        "fieldDelimiter",
        "lineDelimiter",
    )
)


def from_rocketmq(
    df: DataFrame,
    format: str = "json",  # noqa: A002 - as Spark calls it
    *,
    schema: str | StructType,
    badRecords: str = "fail",
    keep: Iterable[str] = (),
    name: str | None = None,
    **options: str,
) -> DataFrame:
    """Convert messages to the columns of their bodies, with Spark's functions.

    The formats are those of SQL tables: json, csv, avro, protobuf, delimited, raw (one column, the body) and
    key-value (two columns, the keys and the body).

    Parameters
    ----------
    df : DataFrame
        A DataFrame of the source, batch or stream, with the column ``body``, for key-value also ``keys``.
    format : str
    schema : str or StructType
        The columns in the body. A body without a value for a NOT NULL column is a bad record.
    badRecords : {"fail", "null", "drop"}
        For a body that does not match the schema: fail the query with an error that names the message's
        position, return a row of nulls, or drop it.
    keep : iterable of str
        Message columns to keep, such as ``queueOffset``. They precede the body's columns.
    name : str, optional
        With null and drop, a query's progress counts rows and bad records as ``badRecords.<name>``.
    **options : str
        ``avroSchema``, ``avroSchemaFile``, ``protobufDescriptorFile``, ``protobufMessage``,
        ``fieldDelimiter``, ``lineDelimiter``. Others, such as ``timestampFormat``, are passed to Spark's
        function.

    Raises
    ------
    OptionError
        An option is invalid, or a column is missing.

    Examples
    --------
    >>> orders = from_rocketmq(df, "json", schema="id BIGINT, price DOUBLE", keep=["keys"])  # doctest: +SKIP
    """
    columns = _body_columns(StructType.fromDDL(schema) if isinstance(schema, str) else schema)
    body_format = _format(format, columns, {"badRecords": badRecords, **options})
    policy = body_format.options.bad_records
    kept = list(keep)
    _check_columns(df, ["body", *(["keys"] if body_format.needs_keys else []), *kept])
    twice = sorted({each.lower() for each in kept} & {column.key for column in columns})
    if twice:
        raise OptionError(f"the schema and keep both name {', '.join(twice)}: rename the message's column")
    rows = df.withColumn(BODY, F.col("body").cast("binary"))
    if body_format.needs_keys:
        rows = rows.withColumn(KEYS, F.col("keys"))
    known = [each for each in PLACE if each in df.columns]
    if known:
        rows = rows.withColumn(AT, F.struct(*known))
    what = f"the schema, format {body_format.kind.value}"
    judged = judge(body_format.decode(rows), policy, what=what, counted_as=name)
    values = [value.alias(column.name) for value, column in zip(judged.columns, columns, strict=True)]
    return judged.rows.select(*(F.col(quote(each)) for each in kept), *values)


def to_rocketmq(
    df: DataFrame,
    format: str = "json",  # noqa: A002 - as Spark calls it
    *,
    columns: Iterable[str] | None = None,
    keys: str | None = None,
    tags: str | None = None,
    keep: Iterable[str] = (),
    **options: str,
) -> DataFrame:
    """Convert rows to messages: the reverse of `from_rocketmq`.

    Parameters
    ----------
    df : DataFrame
    format : str
        As of `from_rocketmq`.
    columns : iterable of str, optional
        The columns of the body; by default every column that ``keep`` does not name.
    keys, tags : str, optional
        The columns that also supply the message's keys and tag.
    keep : iterable of str
        Columns that are passed to the sink unchanged, such as ``topic`` or ``shardingKey``.
    **options : str
        As of `from_rocketmq`.

    Raises
    ------
    OptionError
        An option is invalid, or a column is missing.

    Examples
    --------
    >>> messages = to_rocketmq(totals, "json", keys="product")  # doctest: +SKIP
    >>> messages.write.format("rocketmq").option("topic", "totals").mode("append").save()  # doctest: +SKIP
    """
    kept = list(keep)
    names = [each for each in df.columns if each not in kept] if columns is None else list(columns)
    _check_columns(df, [*names, *kept, *filter(None, (keys, tags))])
    fields = {field.name: field for field in df.schema.fields}
    body_format = _format(format, _body_columns(StructType([fields[each] for each in names])), options)
    parts = body_format.encode({each.lower(): F.col(quote(each)) for each in names})
    parts |= {
        part: F.col(quote(column)).cast("string")
        for part, column in (("keys", keys), ("tags", tags))
        if column is not None
    }
    parts |= {each: F.col(quote(each)) for each in kept}
    return df.select(*(value.alias(part) for part, value in parts.items()))


def _format(kind: str, columns: tuple[BodyColumn, ...], options: Mapping[str, Any]) -> Format:
    declared = {each: value for each, value in options.items() if each in {*_FORMAT_OPTIONS, "badRecords"}}
    if declared.get("badRecords") == BadRecords.DEAD_LETTER.value:
        raise OptionError(
            "dead letters are a second write: take tables (pyspark-rocketmq sql), or null and filter",
            option="badRecords",
        )
    parsed = parse_options(TableOptions, {"format": kind, **declared}, environ={})
    assert parsed.body_format is not None
    settings = {each: str(value) for each, value in options.items() if each not in declared}
    return Format(parsed.body_format, columns, parsed, settings)


def _body_columns(schema: DataType) -> tuple[BodyColumn, ...]:
    if not isinstance(schema, StructType) or not schema.fields:
        raise OptionError("the schema must name columns, such as 'id BIGINT, price DOUBLE'")
    return tuple(BodyColumn(field.name, _ddl(field.dataType), field.nullable) for field in schema.fields)


def _ddl(kind: DataType) -> str:
    match kind:
        case StructType():
            parts = (f"{quote(field.name)}: {_ddl(field.dataType)}" for field in kind.fields)
            return f"STRUCT<{', '.join(parts)}>"
        case ArrayType():
            return f"ARRAY<{_ddl(kind.elementType)}>"
        case MapType():
            return f"MAP<{_ddl(kind.keyType)}, {_ddl(kind.valueType)}>"
        case BinaryType():
            return "BINARY"
        case StringType():
            return "STRING"
        case other:
            return other.simpleString()


def _check_columns(df: DataFrame, names: Sequence[str]) -> None:
    missing = [each for each in names if each not in df.columns]
    if missing:
        raise OptionError(
            f"the rows lack the columns {', '.join(missing)}: they have {', '.join(df.columns)}"
        )


def key_value_messages(df: DataFrame, key: str = "key", value: str = "value") -> DataFrame:
    """Create messages from two columns: one supplies the keys, the other the body.

    The counterpart of rocketmq-flink's ``SimpleKeyValueSerializationSchema``.

    Examples
    --------
    >>> key_value_messages(users, key="id", value="address")  # doctest: +SKIP
    ...     .write.format("rocketmq").option("topic", "users").mode("append").save()
    """
    keys, body = (_column(df, name).cast("string") for name in (key, value))
    return df.select(keys.alias("keys"), body.alias("body"))


def _column(df: DataFrame, name: str) -> Column:
    """Return the column of a name, whatever its characters, or else a field of a struct."""
    return F.col(quote(name) if name in df.columns else name)


def json_messages(
    df: DataFrame, *, key: str | None = None, tags: str | None = None, columns: Iterable[str] | None = None
) -> DataFrame:
    """Create messages whose body is the row as a JSON object.

    Parameters
    ----------
    df : DataFrame
    key, tags : str, optional
        The columns that supply the keys and the tag. They are also part of the body.
    columns : iterable of str, optional
        The columns of the body; every column by default. Null fields are omitted.
    """
    wanted = [F.col(quote(name)) for name in (columns or df.columns)]
    selected: list[Column] = [F.to_json(F.struct(*wanted), EXACT_TIMES).alias("body")]
    if key is not None:
        selected.append(_column(df, key).cast("string").alias("keys"))
    if tags is not None:
        selected.append(_column(df, tags).cast("string").alias("tags"))
    return df.select(*selected)


def with_topic(df: DataFrame, topic: str | Column, tags: str | Column | None = None) -> DataFrame:
    """Set the topic, and the tag, of each row by SQL expressions.

    A fast counterpart of rocketmq-flink's ``TopicSelector``: Spark evaluates the expressions, without Python.

    Examples
    --------
    >>> with_topic(df, "if(price > 1000, 'big-orders', 'orders')", tags="lower(status)")  # doctest: +SKIP
    """
    chosen = df.withColumn("topic", F.expr(topic) if isinstance(topic, str) else topic)
    if tags is None:
        return chosen
    return chosen.withColumn("tags", F.expr(tags) if isinstance(tags, str) else tags)


def ordered_by(
    df: DataFrame, key: str | Column, *, order_by: str | Column | None = None, partitions: int | None = None
) -> DataFrame:
    """Prepare rows for an ordered write: all rows of a key in one Spark partition, the key as sharding key.

    A Python sink cannot request a distribution from Spark, so this is a step of the query. The rows of a key
    are in the order of ``order_by``. Without it, the rows of one input partition keep their order, but rows
    of several partitions are interleaved by the shuffle. Streaming DataFrames cannot be sorted: a source's
    queue is one input partition unless ``minPartitions`` or ``maxRecordsPerPartition`` split it.

    The order applies to the first copy of each row, while the number of the topic's writable queues does not
    change. It does not apply to duplicates: a repeated batch begins with an earlier row, and a send that was
    repeated because its response was missing may be delivered late, after later rows.

    Parameters
    ----------
    df : DataFrame
    key : str or Column
        The sharding key, as text.
    order_by : str or Column, optional
        The order of a key's rows; batch DataFrames only.
    partitions : int, optional
        Number of Spark partitions; ``spark.sql.shuffle.partitions`` by default.

    Raises
    ------
    OptionError
        ``order_by`` is set for a streaming DataFrame.
    """
    if order_by is not None and df.isStreaming:
        raise OptionError("Spark does not sort streaming DataFrames: use order_by within foreachBatch")
    keyed = df.withColumn("shardingKey", (_column(df, key) if isinstance(key, str) else key).cast("string"))
    together = (
        keyed.repartition("shardingKey")
        if partitions is None
        else keyed.repartition(partitions, "shardingKey")
    )
    return together if order_by is None else together.sortWithinPartitions(order_by)


def identical_rows_together(df: DataFrame) -> DataFrame:
    """Shuffle rows of equal content into one Spark partition, as write ids derived from content require.

    With ``deliveryGuarantee=effectively-once`` and no column ``writeId``, a row's id is derived from its
    content and the number of its occurrence, which a task can count only in its partition. It is not needed
    if all rows differ; the write fails if it is needed and missing.
    """
    content = [
        F.array_sort(F.map_entries(quote(column.name)))
        if isinstance(column.dataType, MapType)
        else F.col(quote(column.name))
        for column in df.schema.fields
    ]
    hashed = df.withColumn(_CONTENT, F.xxhash64(*content))
    return hashed.repartition(_CONTENT).drop(_CONTENT)


def drop_repeats(df: DataFrame, *, within: str | None = None) -> DataFrame:
    """Drop the duplicates of effectively-once writes: each write id of a topic occurs once.

    A row is dropped only if a row of its topic with its write id was read before it, regardless of the order
    of queues. Messages without a write id are never dropped.

    A stream keeps write ids for a limited time. Of two rows with one write id, stored no more than ``within``
    apart, one is dropped; ``docs/guarantees.md`` describes the conditions. ``within`` must cover the writer's
    longest outage, from a failed batch to its repetition, whether or not the reader runs meanwhile.

    The stream's watermark is on the column ``alignedTimestamp``, and Spark allows one watermark between two
    stateful operations: use ``withWatermark`` neither before nor after this in the same query.

    Parameters
    ----------
    df : DataFrame
        A DataFrame of the source with ``includeProperties=true``; a stream also with
        ``eventTimeAlignment=store`` and ``includeAlignedTimestamp=true``. It must have the columns topic,
        brokerName, queueId, queueOffset and properties; a stream also storeTimestamp and alignedTimestamp.
    within : str, optional
        Maximum time between the store times of two copies of a row, above 0, such as ``"1 hour"``. Required
        for streams, not used for batches.

    Raises
    ------
    OptionError
        A column is missing, or the DataFrame is a stream and ``within`` is missing or 0.
    """
    needed = _STREAM_COLUMNS if df.isStreaming else _BATCH_COLUMNS
    missing = [name for name in needed if name not in df.columns]
    if missing:
        how = (
            "includeProperties=true, eventTimeAlignment=store and includeAlignedTimestamp=true"
            if df.isStreaming
            else "includeProperties=true"
        )
        raise OptionError(f"drop_repeats lacks the columns {', '.join(missing)}: read with {how}")
    if df.isStreaming and (within is None or not re.search("[1-9]", within)):
        raise OptionError("a stream needs within above 0, such as within='1 hour'")
    write_id = F.col("properties")[PROPERTY_WRITE_ID]
    place: list[Column | str] = ["brokerName", "queueId", "queueOffset"]
    if df.isStreaming:  # in heartbeat rows, only times are set
        place.append(F.unix_micros("storeTimestamp"))
    identified = df.withColumns(
        {_WRITE_ID: write_id, _PLACE: F.when(write_id.isNull(), F.concat_ws("/", *place))}
    )
    identity = ["topic", _WRITE_ID, _PLACE]
    if within is None or not df.isStreaming:
        return identified.dropDuplicates(identity).drop(_WRITE_ID, _PLACE)
    aligned = identified.withWatermark(ALIGNED_TIMESTAMP, within)
    return aligned.dropDuplicatesWithinWatermark(identity).drop(_WRITE_ID, _PLACE)
