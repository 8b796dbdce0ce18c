"""DataFrames to messages and back: builders, order by key, and dropping the repeats of a write."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import MapType

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.record.properties import PROPERTY_WRITE_ID

__all__ = [
    "drop_repeats",
    "identical_rows_together",
    "json_messages",
    "key_value_messages",
    "ordered_by",
    "with_topic",
]

_CONTENT: Final = "__content"
_IDENTITY: Final = "__write_id"


def key_value_messages(df: DataFrame, key: str = "key", value: str = "value") -> DataFrame:
    """Make messages of two columns: one becomes the keys, the other the body.

    The counterpart of rocketmq-flink's ``SimpleKeyValueSerializationSchema``.

    Examples
    --------
    >>> key_value_messages(users, key="id", value="address")  # doctest: +SKIP
    ...     .write.format("rocketmq").option("topic", "users").mode("append").save()
    """
    return df.select(F.col(key).cast("string").alias("keys"), F.col(value).cast("string").alias("body"))


def json_messages(
    df: DataFrame, *, key: str | None = None, tags: str | None = None, columns: Iterable[str] | None = None
) -> DataFrame:
    """Make messages whose body is the row as a JSON object.

    Parameters
    ----------
    df : DataFrame
    key, tags : str, optional
        The columns that become the keys and the tag, beside being part of the body.
    columns : iterable of str, optional
        What the body consists of; every column by default. Fields that are null are left out.
    """
    wanted = [F.col(f"`{name}`") for name in (columns or df.columns)]
    selected: list[Column] = [F.to_json(F.struct(*wanted)).alias("body")]
    if key is not None:
        selected.append(F.col(key).cast("string").alias("keys"))
    if tags is not None:
        selected.append(F.col(tags).cast("string").alias("tags"))
    return df.select(*selected)


def with_topic(df: DataFrame, topic: str | Column, tags: str | Column | None = None) -> DataFrame:
    """Let each row choose its topic, and its tag, by SQL expressions.

    The fast form of rocketmq-flink's ``TopicSelector``: Spark computes it, without Python.

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
    """Prepare rows for a write in order: all rows of a key in one Spark partition, the key as sharding key.

    A sink in Python cannot ask Spark for a distribution, so this is a step of the query. Within a key the
    rows come in the order of ``order_by``. Without it the rows of one input partition keep their order, but
    those of several are mixed as the shuffle delivers them. Streaming DataFrames cannot be sorted: a source's
    queue is one input partition unless ``minPartitions`` or ``maxRecordsPerPartition`` split it.

    The order is that of each row's first copy, as long as the number of the topic's writable queues stays the
    same. Repeats are not part of it: a batch that is written again begins with an earlier row, and a send
    that was made again for want of an answer may be delivered late, behind rows that came after it.

    Parameters
    ----------
    df : DataFrame
    key : str or Column
        The sharding key, as text.
    order_by : str or Column, optional
        What the rows of a key are sorted by; batch DataFrames only.
    partitions : int, optional
        How many Spark partitions; ``spark.sql.shuffle.partitions`` by default.

    Raises
    ------
    OptionError
        ``order_by`` for a streaming DataFrame.
    """
    if order_by is not None and df.isStreaming:
        raise OptionError("Spark does not sort streaming DataFrames: use order_by within foreachBatch")
    keyed = df.withColumn("shardingKey", (F.col(key) if isinstance(key, str) else key).cast("string"))
    together = (
        keyed.repartition("shardingKey")
        if partitions is None
        else keyed.repartition(partitions, "shardingKey")
    )
    return together if order_by is None else together.sortWithinPartitions(order_by)


def identical_rows_together(df: DataFrame) -> DataFrame:
    """Shuffle rows of equal content into one Spark partition, as write ids made of content need it.

    With ``deliveryGuarantee=effectively-once`` and no column ``writeId`` a row's id is made of its content
    and the number of its occurrence, which a task can count only within its own partition. Rows that are all
    different do not need this; the write fails where it would have been needed.
    """
    content = [
        F.array_sort(F.map_entries(column.name))
        if isinstance(column.dataType, MapType)
        else F.col(column.name)
        for column in df.schema.fields
    ]
    hashed = df.withColumn(_CONTENT, F.xxhash64(*content))
    return hashed.repartition(_CONTENT).drop(_CONTENT)


def drop_repeats(df: DataFrame, *, within: str | None = None, time: str = "storeTimestamp") -> DataFrame:
    """Drop the repeats of effectively-once writes: each write id comes once.

    A stream needs ``within``: the state forgets an id when the watermark has passed its time by so much, and
    repeats that were stored later than that come through. It must cover the writer's longest outage, from a
    failed batch to its repetition. Messages without a write id are told apart by their ``msgId``: none of
    them is dropped.

    Parameters
    ----------
    df : DataFrame
        Of the source, with ``includeProperties=true`` (or all ``columns``).
    within : str, optional
        How far apart repeats may be stored, such as ``"1 hour"``; required for streams, not used for batches.
    time : str
        The column of the watermark; if the DataFrame has a watermark already, that one counts.

    Raises
    ------
    OptionError
        The DataFrame has no properties, or is a stream and ``within`` is missing.
    """
    missing = {"properties", "msgId"} - set(df.columns)
    if missing:
        raise OptionError(
            f"drop_repeats needs the columns properties and msgId, missing: {', '.join(sorted(missing))} "
            "(read with includeProperties=true)"
        )
    identified = df.withColumn(
        _IDENTITY,
        F.coalesce(F.col("properties")[PROPERTY_WRITE_ID], F.concat(F.lit("msgId:"), F.col("msgId"))),
    )
    if not df.isStreaming:
        return identified.dropDuplicates([_IDENTITY]).drop(_IDENTITY)
    if within is None:
        raise OptionError("a stream needs within, such as within='1 hour'")
    return identified.withWatermark(time, within).dropDuplicatesWithinWatermark([_IDENTITY]).drop(_IDENTITY)
