"""``RocketMQSourceFunction``: rocketmq-flink's source, as a DataFrame."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Self

from pyspark.sql import DataFrame, SparkSession

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.model.nested_offsets import nest
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.options.text.kinds import require_member
from pyspark_rocketmq.sql.flink.config import OffsetResetStrategy, RocketMQConfig, to_options
from pyspark_rocketmq.sql.flink.schemas import KeyValueDeserializationSchema, deserialize_rows

__all__ = ["RocketMQSourceFunction"]


class RocketMQSourceFunction:
    """Reads a topic as rows of a schema. A thin layer on ``format("rocketmq")``.

    As in Flink, start policies apply only to a query without a checkpoint. The default is the group's
    offsets, else the latest ones. Each message is in exactly one micro-batch.

    Parameters
    ----------
    schema : KeyValueDeserializationSchema
        Converts messages to rows.
    props : mapping of str to object
        Keyed by the names of `RocketMQConfig` or of the data source's options.

    Raises
    ------
    OptionError
        A property is unknown, malformed or missing.

    Examples
    --------
    >>> source = RocketMQSourceFunction(  # doctest: +SKIP
    ...     SimpleKeyValueDeserializationSchema("id", "address"), consumerProps
    ... ).setStartFromGroupOffsets(OffsetResetStrategy.LATEST)
    >>> rows = source.load(spark)  # doctest: +SKIP
    """

    def __init__(self, schema: KeyValueDeserializationSchema, props: Mapping[str, object]) -> None:
        self._schema = schema
        self._props = to_options(props)
        self._start = _from_group(_reset_of(self._props))
        parse_options(SourceOptions, self.options())

    def setStartFromEarliest(self) -> Self:
        """Start at the earliest offsets."""
        return self._starting({"startingOffsets": "earliest"})

    def setStartFromLatest(self) -> Self:
        """Start at the latest offsets."""
        return self._starting({"startingOffsets": "latest"})

    def setStartFromTimeStamp(self, timestamp: int) -> Self:
        """Start at the first message of each queue that was stored at or after a time.

        Parameters
        ----------
        timestamp : int
            In milliseconds since the epoch.
        """
        return self._starting({"startingTimestamp": str(timestamp)})

    def setStartFromGroupOffsets(
        self, offsetResetStrategy: OffsetResetStrategy = OffsetResetStrategy.LATEST
    ) -> Self:
        """Start at the group's committed offsets, else where the strategy says."""
        return self._starting(_from_group(offsetResetStrategy))

    def setStartFromSpecificOffsets(self, specificOffsets: Mapping[MessageQueue, int]) -> Self:
        """Start at these offsets. Unlisted queues start at the group's offset, else at their latest."""
        start = {"startingOffsets": json.dumps(nest(specificOffsets)), "startingOffsetsDefault": "group"}
        return self._starting(start | {"groupOffsetReset": OffsetResetStrategy.LATEST.value})

    def options(self) -> dict[str, str]:
        """Return the corresponding options of the data source."""
        return self._start | self._props

    def load(self, spark: SparkSession) -> DataFrame:
        """Return the rows as a stream."""
        reader = spark.readStream.format("rocketmq").options(**self.options(), columns="keys,body")
        return deserialize_rows(reader.load(), self._schema)

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the existing rows as a batch. A start at the latest offsets is an error."""
        reader = spark.read.format("rocketmq").options(**self.options(), columns="keys,body")
        return deserialize_rows(reader.load(), self._schema)

    def _starting(self, start: dict[str, str]) -> Self:
        self._start = start
        return self


def _reset_of(props: dict[str, str]) -> OffsetResetStrategy:
    """Take the properties that say where queues without a committed offset start, and return the strategy."""
    value = props.pop(RocketMQConfig.CONSUMER_OFFSET_RESET_TO, RocketMQConfig.CONSUMER_OFFSET_LATEST)
    moment = props.pop(RocketMQConfig.CONSUMER_OFFSET_FROM_TIMESTAMP, None)
    if value == RocketMQConfig.CONSUMER_OFFSET_TIMESTAMP:
        raise OptionError(
            "consumer.offset.reset.to=timestamp has no counterpart: use setStartFromTimeStamp"
            f"({moment or 'milliseconds'}), which does not look at the group's offsets",
            option=RocketMQConfig.CONSUMER_OFFSET_RESET_TO,
        )
    try:
        return OffsetResetStrategy(value)
    except ValueError:
        raise OptionError(
            f"consumer.offset.reset.to is earliest or latest, not {value!r}",
            option=RocketMQConfig.CONSUMER_OFFSET_RESET_TO,
        ) from None


def _from_group(strategy: OffsetResetStrategy) -> dict[str, str]:
    require_member(OffsetResetStrategy, strategy, "offsetResetStrategy")
    return {"startingOffsets": "group", "groupOffsetReset": strategy.value}
