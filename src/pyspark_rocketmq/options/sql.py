"""The options of SQL: a table's body format, and the settings of ``SET``."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options.declare import Kind, Options, option
from pyspark_rocketmq.options.text.kinds import (
    BOOLEAN,
    DURATION_MS,
    FILE,
    TEXT,
    TOPIC,
    choice,
    names,
    parse_duration_ms,
    whole_number,
)

__all__ = [
    "BadRecords",
    "BodyFormat",
    "Changelog",
    "FieldCount",
    "JobOptions",
    "OutputMode",
    "RuntimeMode",
    "TableOptions",
]


class BodyFormat(enum.Enum):
    """The format of message bodies."""

    JSON = "json"
    CSV = "csv"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    RAW = "raw"
    DELIMITED = "delimited"
    KEY_VALUE = "key-value"


class Changelog(enum.Enum):
    """Whose changes of a database's rows bodies have."""

    CANAL = "canal-json"
    DEBEZIUM = "debezium-json"
    MAXWELL = "maxwell-json"


class BadRecords(enum.Enum):
    """How a body that does not match the table's schema is handled."""

    FAIL = "fail"
    NULL = "null"
    DROP = "drop"
    DEAD_LETTER = "dead-letter"


class FieldCount(enum.Enum):
    """How a line with more or fewer fields than columns is handled."""

    EXACT = "exact"
    CUT = "cut"
    PAD = "pad"


class RuntimeMode(enum.Enum):
    """Whether a table is read as a stream or as a batch."""

    STREAMING = "streaming"
    BATCH = "batch"


class OutputMode(enum.Enum):
    """Which rows of a result a micro-batch writes."""

    APPEND = "append"
    UPDATE = "update"
    COMPLETE = "complete"


class SqlDialect(enum.Enum):
    """Whose meaning the queries of a job have."""

    FLINK = "flink"
    SPARK = "spark"


_ESCAPES: Final = {"\\t": "\t", "\\n": "\n", "\\r": "\r", "\\u0001": "\u0001", "\\001": "\u0001"}


def _delimiter(text: str) -> str:
    found = _ESCAPES.get(text.lower(), text)
    if not found:
        raise ValueError("it is empty")
    return found


def _trigger(text: str) -> int | None:
    if text.lower() == "availablenow":
        return None
    return parse_duration_ms(text)


_DELIMITER: Final = Kind("one or more characters; \\t, \\n, \\u0001 are understood", "|", _delimiter)
_TRIGGER: Final = Kind("availableNow, or the time between two micro-batches", "10 seconds", _trigger)
_COLUMN_NAMES: Final = names("column names between commas", "user_id,item_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions(Options):
    """The options of a table, besides those of reading and writing.

    Raises
    ------
    OptionError
        Options contradict one another, or the format lacks its schema.
    """

    COMPATIBILITY: ClassVar[Mapping[str, str]] = {
        "useNewApi": "there is one source",
        "rocketmq.source.api.new.enable": "there is one source",
        "columnErrorDebug": "bad records say where they are: see badRecords",
        "rocketmq.source.column.error.debug": "bad records say where they are: see badRecords",
        "sleepTimeMs": "the pause between two tries grows by itself",
        "scan.watermark.emit.strategy": "the watermark moves with every micro-batch",
        "scan.watermark.emit.on-event.gap": "the watermark moves with every micro-batch",
        "scan.watermark.alignment.group": "a micro-batch reads all queues",
        "scan.watermark.alignment.max-drift": "a micro-batch reads all queues",
        "scan.watermark.alignment.update-interval": "a micro-batch reads all queues",
    }

    body_format: BodyFormat | None = option(
        "format",
        choice(BodyFormat),
        default=None,
        default_text="the job's defaultFormat",
        aliases=("value.format", "rocketmq.sink.serialize.format"),
        doc="Body format. `json.…`, `csv.…`, `avro.…`, `protobuf.…` are passed to Spark's function for the "
        "format.",
    )
    changelog: Changelog | None = option(
        "changelog",
        choice(Changelog),
        default=None,
        default_text="none",
        example="debezium-json",
        doc="Bodies are changes of a database's rows, in this format; `format` accepts its values, too.",
    )
    bad_records: BadRecords = option(
        "badRecords",
        choice(BadRecords),
        default=BadRecords.FAIL,
        default_text="fail",
        example="dead-letter",
        doc="For a body that does not match the schema: fail the query, return a row of nulls, drop it, or "
        "send it to badRecordsTopic. All but fail are counted.",
    )
    bad_records_topic: str | None = option(
        "badRecordsTopic",
        TOPIC,
        default=None,
        example="orders-bad",
        doc="Topic to which badRecords=dead-letter sends messages, with the cause.",
    )
    field_delimiter: str = option(
        "fieldDelimiter",
        _DELIMITER,
        default="\u0001",
        default_text="\\u0001",
        doc="Field delimiter of format=delimited.",
    )
    line_delimiter: str = option(
        "lineDelimiter",
        _DELIMITER,
        default="\n",
        default_text="\\n",
        example="\\n",
        doc="Delimiter between the rows in one body of format=delimited.",
    )
    field_count: FieldCount = option(
        "fieldCount",
        choice(FieldCount),
        default=FieldCount.EXACT,
        default_text="exact",
        example="cut",
        doc="For a line of format=delimited with another number of fields: exact makes it a bad record, cut "
        "ignores surplus fields, pad also fills missing ones with null.",
    )
    key_columns: tuple[str, ...] = option(
        "keyColumns", _COLUMN_NAMES, default=(), doc="Columns that supply the keys of written messages."
    )
    write_keys_to_body: bool = option(
        "writeKeysToBody",
        BOOLEAN,
        default=True,
        doc="Write the key columns to the body, too (rocketmq-flink's default is false).",
    )
    is_dynamic_tag: bool | None = option(
        "isDynamicTag",
        BOOLEAN,
        default=None,
        default_text="true if dynamicTagColumn is set",
        doc="Use dynamicTagColumn.",
    )
    dynamic_tag_column: str | None = option(
        "dynamicTagColumn",
        TEXT,
        default=None,
        example="region",
        doc="Column that supplies the tag of written messages.",
    )
    write_tag_to_body: bool = option(
        "dynamicTagColumnWriteIncluded",
        BOOLEAN,
        default=True,
        doc="Write the tag column to the body, too.",
    )
    avro_schema: str | None = option(
        "avroSchema",
        TEXT,
        default=None,
        example='{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}',
        default_text="the schema that Flink derives from a table's columns",
        doc="Schema of format=avro, as JSON.",
    )
    avro_schema_file: str | None = option(
        "avroSchemaFile",
        FILE,
        default=None,
        example="/schemas/order.avsc",
        doc="File with the schema of format=avro.",
    )
    protobuf_descriptor_file: str | None = option(
        "protobufDescriptorFile",
        FILE,
        default=None,
        example="/schemas/order.desc",
        doc="Descriptor set file of format=protobuf (`protoc --include_imports --descriptor_set_out`).",
    )
    protobuf_message: str | None = option(
        "protobufMessage",
        TEXT,
        default=None,
        example="shop.Order",
        doc="Message type of format=protobuf, with its package.",
    )
    infer_schema: bool = option(
        "inferSchema",
        BOOLEAN,
        default=False,
        doc="Infer the columns of a table that declares none from a sample of its messages (json only).",
    )
    infer_sample: int = option(
        "inferSample",
        whole_number(1, example=1_000, maximum=100_000),
        default=1_000,
        doc="Number of messages that inferSchema samples: the latest ones.",
    )

    def __post_init__(self) -> None:
        if (self.bad_records is BadRecords.DEAD_LETTER) != (self.bad_records_topic is not None):
            raise OptionError(
                "badRecords=dead-letter and badRecordsTopic belong together", option="badRecordsTopic"
            )
        if self.is_dynamic_tag and self.dynamic_tag_column is None:
            raise OptionError("isDynamicTag=true needs dynamicTagColumn", option="isDynamicTag")
        if self.avro_schema is not None and self.avro_schema_file is not None:
            raise OptionError("only one of avroSchema and avroSchemaFile may be set", option="avroSchema")
        if self.body_format is BodyFormat.PROTOBUF and not (
            self.protobuf_descriptor_file and self.protobuf_message
        ):
            raise OptionError(
                "format=protobuf needs protobufDescriptorFile and protobufMessage", option="format"
            )

    @property
    def tag_column(self) -> str | None:
        """The column that supplies the tag, or None."""
        return None if self.is_dynamic_tag is False else self.dynamic_tag_column


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions(Options):
    """The settings of ``SET``, besides Spark's."""

    COMPATIBILITY: ClassVar[Mapping[str, str]] = {
        "execution.checkpointing.mode": "a checkpoint is written for every micro-batch, each row is in one",
        "state.backend": "see spark.sql.streaming.stateStore.providerClass",
        "state.backend.type": "see spark.sql.streaming.stateStore.providerClass",
        "state.backend.incremental": "see Spark's settings of the RocksDB state store",
        "state.checkpoints.num-retained": "see spark.sql.streaming.minBatchesToRetain",
        "pipeline.object-reuse": "Spark decides that by itself",
        "sql-client.execution.result-mode": "it is a matter of Flink's shell",
        "table.exec.mini-batch.enabled": "a micro-batch has many rows anyway",
        "table.exec.mini-batch.allow-latency": "see trigger",
        "table.exec.mini-batch.size": "see maxOffsetsPerTrigger of a table",
        "table.optimizer.agg-phase-strategy": "Spark aggregates in two phases",
        "table.optimizer.distinct-agg.split.enabled": "Spark decides that by itself",
        "table.exec.sink.upsert-materialize": "a topic with a primary key gets the last change of each key",
        "execution.checkpointing.timeout": "a micro-batch has no time limit",
        "execution.checkpointing.min-pause": "see trigger",
        "execution.checkpointing.max-concurrent-checkpoints": "a query runs one micro-batch at a time",
        "execution.checkpointing.unaligned": "a query runs one micro-batch at a time",
        "execution.checkpointing.externalized-checkpoint-retention": "checkpoints stay after a job",
        "execution.target": "spark-submit sets where a job runs",
        "jobmanager.memory.process.size": "see spark.driver.memory",
        "taskmanager.memory.process.size": "see spark.executor.memory",
        "taskmanager.numberOfTaskSlots": "see spark.executor.cores",
        "pipeline.max-parallelism": "spark.sql.shuffle.partitions is fixed by the first run of a query",
        "pipeline.operator-chaining": "Spark decides that by itself",
        "table.dml-sync": "the command waits for all queries",
        "restart-strategy": "what starts the job restarts it, and it continues from its checkpoint",
        "restart-strategy.type": "what starts the job restarts it, and it continues from its checkpoint",
        "restart-strategy.fixed-delay.attempts": "what starts the job restarts it",
        "restart-strategy.fixed-delay.delay": "what starts the job restarts it",
    }

    mode: RuntimeMode = option(
        "runtimeMode",
        choice(RuntimeMode),
        default=RuntimeMode.STREAMING,
        default_text="streaming",
        aliases=("execution.runtime-mode",),
        example="batch",
        doc="Read the tables of the statements that follow as streams or as batches.",
    )
    checkpoint_location: str | None = option(
        "checkpointLocation",
        FILE,
        default=None,
        aliases=("state.checkpoints.dir", "execution.checkpointing.dir"),
        example="/checkpoints/orders",
        doc="Folder or URI for the checkpoints of the queries, each in a folder with the query's name.",
    )
    trigger_ms: int | None = option(
        "trigger",
        _TRIGGER,
        default=0,
        default_text="as soon as data is available",
        aliases=("execution.checkpointing.interval",),
        doc="Interval of micro-batches. availableNow reads the messages available at the start, then stops.",
    )
    output_mode: OutputMode | None = option(
        "outputMode",
        choice(OutputMode),
        default=None,
        default_text="append; update for a query of Flink's dialect whose rows change",
        example="update",
        doc="Which rows of an aggregation are written: final rows, changed rows, or all.",
    )
    dialect: SqlDialect | None = option(
        "dialect",
        choice(SqlDialect),
        default=None,
        default_text="flink after a CREATE TABLE … WITH ('connector' = …), otherwise spark",
        example="spark",
        doc="Whose meaning queries have: Flink's are translated to Spark's, Spark's are passed as they are.",
    )
    query_name: str | None = option(
        "queryName",
        TEXT,
        default=None,
        default_text="the sink's name",
        aliases=("pipeline.name",),
        example="orders-per-minute",
        doc="Name of the next INSERT. Its checkpoint is identified by this name.",
    )
    idle_ms: int | None = option(
        "idleTimeout",
        DURATION_MS,
        default=None,
        default_text="off",
        aliases=("table.exec.source.idle-timeout",),
        example="30 seconds",
        doc="After this time without messages, the watermark of a table follows the clock. 0 is off.",
    )
    state_ttl_ms: int | None = option(
        "stateTtl",
        DURATION_MS,
        default=None,
        default_text="off",
        aliases=("table.exec.state.ttl",),
        example="36 hours",
        doc="How long aggregations and Top-N without a window keep a key without new rows. 0 is off.",
    )
    default_format: BodyFormat = option(
        "defaultFormat",
        choice(BodyFormat),
        default=BodyFormat.JSON,
        default_text="json",
        doc="Format of tables that set none.",
    )
