"""Where an INSERT writes: a topic, or a table of Spark's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_rocketmq.errors import OptionError, TopicNotFoundError
from pyspark_rocketmq.options import OutputMode, SinkOptions, parse_options
from pyspark_rocketmq.spark.body_formats import quote
from pyspark_rocketmq.spark.stores.file_log import check_new_batches, check_readable, files_folder
from pyspark_rocketmq.spark.write.sink_topics import require_topic
from pyspark_rocketmq.spark.write.update_mode import message_writer
from pyspark_rocketmq.sql.statements import Insert
from pyspark_rocketmq.sql.tables import SOURCE, Table

__all__ = [
    "DeadLettersTarget",
    "MessagesTarget",
    "SparkTarget",
    "Target",
    "UnknownTarget",
    "require_sink_topic",
]


class Target(Protocol):
    """Where the rows of an INSERT are written."""

    def align(self, rows: DataFrame, insert: Insert) -> DataFrame:
        """Return a query's rows with the columns of the target.

        Raises
        ------
        SqlError
            The columns do not fit.
        """

    def write(self, rows: DataFrame) -> None:
        """Write a batch."""

    def start(self, writer: DataStreamWriter, mode: OutputMode, checkpoint: str) -> StreamingQuery:
        """Start a query that writes a stream. Its rows are aligned."""


@dataclass(frozen=True, slots=True)
class MessagesTarget:
    """Messages with these options of the sink.

    Parameters
    ----------
    table : Table
        The topic as a table.
    """

    table: Table

    def align(self, rows: DataFrame, insert: Insert) -> DataFrame:
        """Return the rows as messages."""
        insert.require_append()
        columns = self.table.writable(insert.columns, insert.target.position)
        if self.table.format is not None:
            insert.require_columns(rows.columns, [column.name.text for column in columns])
        return self.table.messages(rows, columns)

    def write(self, rows: DataFrame) -> None:
        """Send a batch."""
        options = self.table.sink_options()
        require_sink_topic(options, f"table {self.table.name}")
        rows.write.format(SOURCE).mode("append").options(**options).save()

    def start(self, writer: DataStreamWriter, mode: OutputMode, checkpoint: str) -> StreamingQuery:
        """Send a stream."""
        options = self.table.sink_options()
        require_sink_topic(options, f"table {self.table.name}")
        if mode is OutputMode.UPDATE:
            return writer.foreachBatch(message_writer(checkpoint, options)).start()
        return writer.format(SOURCE).options(**options).start()


@dataclass(frozen=True, slots=True)
class DeadLettersTarget:
    """The topic of a table's bad records. Its rows are messages already, and final in every output mode."""

    table: Table

    def align(self, rows: DataFrame, insert: Insert) -> DataFrame:  # noqa: ARG002 - they are messages
        """Return the rows."""
        return rows

    def write(self, rows: DataFrame) -> None:
        """Send a batch."""
        rows.write.format(SOURCE).mode("append").options(**self._options()).save()

    def _options(self) -> dict[str, str]:
        topic = self.table.options.bad_records_topic
        assert topic is not None
        return {**self.table.given.connection, "topic": topic}

    def start(self, writer: DataStreamWriter, mode: OutputMode, checkpoint: str) -> StreamingQuery:
        """Send a stream."""
        options = self._options()
        require_sink_topic(options, "")
        if mode is OutputMode.UPDATE:
            return writer.foreachBatch(message_writer(checkpoint, options)).start()
        return writer.format(SOURCE).options(**options).start()


@dataclass(frozen=True, slots=True)
class SparkTarget:
    """A table of Spark's catalog.

    Parameters
    ----------
    name : str
    provider : str, optional
        The format of its files; None for a table of another catalog, which knows it.
    partitions : tuple of str
        The columns of its folders.
    options : mapping of str to str
        Of its format. Spark's streams do not take them from the table.
    folder : str, optional
        Where it has its files, if it is a table of files.
    """

    name: str
    provider: str | None = None
    partitions: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    folder: str | None = None

    @classmethod
    def of(cls, spark: SparkSession, insert: Insert) -> SparkTarget:
        """Look the table of an INSERT up in the catalog.

        Raises
        ------
        SqlError
            The INSERT has a clause that only Spark's own INSERT has.
        PySparkException
            The table does not exist.
        """
        clause = insert.query.text.split(maxsplit=1)[0].upper()
        if clause in _CLAUSES:
            insert.query.position.fail(
                f"{clause} is for INSERTs that read Spark's tables only: name the columns instead, t (a, b)"
            )
        name = insert.target
        spark.table(name.text)  # the error for a missing table
        try:
            quoted = ".".join(quote(part) for part in name.text.split("."))
            (row,) = spark.sql(f"DESCRIBE TABLE EXTENDED {quoted} AS JSON").collect()
        except PySparkException:  # not of Spark's own catalog
            return cls(name.text)
        found = json.loads(row[0])
        given = found.get("storage_properties") or {}
        options = {name: value for name, value in given.items() if name.lower() not in _NOT_OF_FORMAT}
        partitions = tuple(found.get("partition_columns") or ())
        return cls(name.text, found.get("provider"), partitions, options, files_folder(found))

    def align(self, rows: DataFrame, insert: Insert) -> DataFrame:
        """Give the columns the table's names and types: by position, or those that the INSERT names."""
        schema = rows.sparkSession.table(self.name).schema
        fields = {column.name.lower(): column for column in schema.fields}
        names = [name.key for name in insert.columns] or list(fields)
        for name in insert.columns:
            if name.key not in fields:
                known = ", ".join(column.name for column in fields.values())
                name.position.fail(f"{self.name} has no column {name.text!r}; it has {known}")
        insert.require_columns(rows.columns, [fields[name].name for name in names])
        given = rows.toDF(*names)
        columns = []
        for key, column in fields.items():
            value = F.col(quote(key)) if key in names else F.expr(column.metadata.get(_DEFAULT, "NULL"))
            if rows.isStreaming or key not in names:  # Spark casts only batches
                value = _of_length(value.cast(column.dataType), column.metadata.get(_LENGTH, ""))
            columns.append(value.alias(column.name))
        return given.select(*columns)

    def write(self, rows: DataFrame) -> None:
        """Append a batch."""
        if self.folder is not None:
            check_readable(self.name, self.folder)
        rows.write.mode("append").insertInto(self.name)

    def start(self, writer: DataStreamWriter, mode: OutputMode, checkpoint: str) -> StreamingQuery:
        """Append a stream."""
        del mode  # of the writer
        if self.folder is not None:
            check_new_batches(self.name, self.folder, checkpoint)
        if self.provider is not None:
            writer = writer.format(self.provider).options(**self.options)
        if self.partitions:
            writer = writer.partitionBy(*self.partitions)
        return writer.toTable(self.name)


def _of_length(value: Column, declared: str) -> Column:
    """Return a text as Spark's INSERT writes it to ``char(n)`` or ``varchar(n)``: cut, padded, or refused."""
    kind, _, length = declared.rstrip(")").partition("(")
    if kind not in {"char", "varchar"}:
        return value
    most = int(length)
    refused = F.raise_error(F.lit(f"Exceeds char/varchar type length limitation: {most}"))
    cut = F.when(F.length(F.rtrim(value)) <= most, F.substring(value, 1, most)).otherwise(refused)
    text = F.when(F.length(value) > most, cut).otherwise(value)
    return F.rpad(text, most, " ") if kind == "char" else text


@dataclass(frozen=True, slots=True)
class UnknownTarget:
    """A table that does not exist while its job is only checked."""

    name: str

    def align(self, rows: DataFrame, insert: Insert) -> DataFrame:  # noqa: ARG002 - its columns are unknown
        """Return the rows."""
        return rows

    def write(self, rows: DataFrame) -> None:
        """Refuse: a check writes nothing."""
        raise NotImplementedError(self.name)

    def start(self, writer: DataStreamWriter, mode: OutputMode, checkpoint: str) -> StreamingQuery:
        """Refuse: a check starts nothing."""
        raise NotImplementedError(self.name)


def require_sink_topic(options: Mapping[str, str], table: str) -> None:
    """Fail before a query starts, whose tasks would be tried again and again.

    Raises
    ------
    OptionError
        The topic does not exist, and ``createTopic`` is off.
    """
    given = parse_options(SinkOptions, options)
    try:
        require_topic(given)
    except TopicNotFoundError as error:
        how = f", or set 'createTopic' = 'true' in the WITH clause of {table}" if table else ""
        raise OptionError(f"topic {given.topic} does not exist: create it{how}", option="topic") from error


_CLAUSES: Final = frozenset({"PARTITION", "BY", "REPLACE"})
"""How a query begins that has a clause of Spark's INSERT before it."""

_DEFAULT: Final = "CURRENT_DEFAULT"
"""Spark's entry of a column's metadata with the expression of its DEFAULT."""

_LENGTH: Final = "__CHAR_VARCHAR_TYPE_STRING"
"""Spark's entry of a column's metadata with the type of its declaration, such as ``varchar(2)``."""

_NOT_OF_FORMAT: Final = frozenset({"path", "serialization.format"})
