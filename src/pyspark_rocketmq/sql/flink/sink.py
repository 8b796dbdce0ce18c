"""``RocketMQSink``: rocketmq-flink's sink, as Spark's writers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Self, overload

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.readwriter import DataFrameWriter
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import SinkOptions, parse_options
from pyspark_rocketmq.sql.flink.config import to_options
from pyspark_rocketmq.sql.flink.schemas import KeyValueSerializationSchema, NativeWriter
from pyspark_rocketmq.sql.flink.selectors import NativeSelector, TopicSelector

__all__ = ["RocketMQSink"]

_MESSAGE: Final = "topic STRING, tags STRING, keys STRING, body BINARY"
_ARROW: Final = pa.schema(
    [("topic", pa.string()), ("tags", pa.string()), ("keys", pa.string()), ("body", pa.binary())]
)


class RocketMQSink:
    """Writes rows, or messages, to topics. A thin layer on ``format("rocketmq")``.

    ``RocketMQSink(schema, topicSelector, props)`` converts rows to messages. ``RocketMQSink(props)`` accepts
    messages: rows with the sink's columns (``topic``, ``body``, ``tags``, ``keys``, …).

    At least once: every micro-batch, and every batch, ends after all its messages are acknowledged, with or
    without `withBatchFlushOnCheckpoint`.

    Raises
    ------
    OptionError
        A property is unknown or malformed.
    """

    @overload
    def __init__(self, props: Mapping[str, object], /) -> None: ...
    @overload
    def __init__(
        self,
        schema: KeyValueSerializationSchema,
        topicSelector: TopicSelector,
        props: Mapping[str, object],
        /,
    ) -> None: ...
    def __init__(self, *arguments: object) -> None:
        self._schema: KeyValueSerializationSchema | None = None
        self._selector: TopicSelector | None = None
        match arguments:
            case (Mapping() as props,):
                pass
            case (KeyValueSerializationSchema() as schema, TopicSelector() as selector, Mapping() as props):
                self._schema, self._selector = schema, selector
            case _:
                raise OptionError("RocketMQSink takes (props) or (schema, topicSelector, props)")
        self._props = to_options(props)
        self._async = self._flush = False
        self._batch_size: int | None = None
        parse_options(SinkOptions, self.options())

    def withAsync(self, async_: bool) -> Self:
        """Send several batches concurrently, and wait for each. Default: synchronous."""
        self._async = async_
        return self

    def withBatchFlushOnCheckpoint(self, batchFlushOnCheckpoint: bool) -> Self:
        """Send several batches concurrently. The end of a micro-batch always waits for all of them."""
        self._flush = batchFlushOnCheckpoint
        return self

    def withBatchSize(self, batchSize: int) -> Self:
        """Send at most this number of messages at once. Default: ``batchSize`` of the data source.

        Raises
        ------
        OptionError
            The number is below 1.
        """
        parse_options(SinkOptions, self.options() | {"batchSize": str(batchSize)})
        self._batch_size = batchSize
        return self

    def options(self) -> dict[str, str]:
        """Return the corresponding options of the data source."""
        own = {} if self._async or self._flush else {"sendsInFlight": "1"}
        if self._batch_size is not None:
            own["batchSize"] = str(self._batch_size)
        return own | self._props

    def messages(self, rows: DataFrame) -> DataFrame:
        """Return the messages of rows, as the sink's columns."""
        schema, selector = self._schema, self._selector
        if schema is None or selector is None:
            return rows
        if isinstance(schema, NativeWriter) and isinstance(selector, NativeSelector):
            return rows.select(
                selector.topic_column(rows).alias("topic"),
                selector.tag_column(rows).alias("tags"),
                schema.key_column().alias("keys"),
                schema.value_column().alias("body"),
            )

        def made(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                found = []
                for row in batch.to_pylist():
                    keys = schema.serializeKey(row)
                    found.append(
                        {
                            "topic": selector.getTopic(row),
                            "tags": selector.getTag(row) or None,
                            "keys": None if keys is None else keys.decode(),
                            "body": schema.serializeValue(row),
                        }
                    )
                yield pa.RecordBatch.from_pylist(found, schema=_ARROW)

        return rows.mapInArrow(made, _MESSAGE)

    def writeStream(self, rows: DataFrame) -> DataStreamWriter:
        """Return a stream writer, to which you add a checkpoint and ``start()``."""
        return self.messages(rows).writeStream.format("rocketmq").options(**self.options())

    def write(self, rows: DataFrame) -> DataFrameWriter:
        """Return a batch writer, on which you call ``save()``."""
        return self.messages(rows).write.format("rocketmq").mode("append").options(**self.options())
