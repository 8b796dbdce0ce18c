"""Flink's connectors ``blackhole``, ``print``, ``filesystem`` and ``jdbc``."""

from __future__ import annotations

import enum
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_rocketmq.model.names import suggest_names
from pyspark_rocketmq.options import CompatibilityWarning, OutputMode
from pyspark_rocketmq.spark.bodies.csv_rows import reading_settings, writing_settings
from pyspark_rocketmq.spark.bodies.times import EXACT_TIMES, NO_OLD_TIMES, add_defaults
from pyspark_rocketmq.spark.body_formats import Fit
from pyspark_rocketmq.spark.body_formats import quote as quoted_text
from pyspark_rocketmq.spark.boundary import called_for_batches
from pyspark_rocketmq.spark.stores.file_log import check_new_batches, check_readable
from pyspark_rocketmq.sql.declared_columns import (
    Writable,
    add_computed,
    mark_watermark,
    required,
    writable_columns,
)
from pyspark_rocketmq.sql.flink.jdbc import (
    JDBC_OPTIONS,
    check_database,
    check_writable,
    read_database,
    row_writer,
)
from pyspark_rocketmq.sql.flinksql.relations import CHANGE
from pyspark_rocketmq.sql.formats.changelogs import is_removal
from pyspark_rocketmq.sql.formats.flink_options import format_settings
from pyspark_rocketmq.sql.statements import CreateTable, Insert, MetadataColumn, PhysicalColumn, TableOption

__all__ = ["ConnectorKind", "ConnectorTable", "ConnectorTarget"]


class ConnectorKind(enum.Enum):
    """The connectors, by their names."""

    BLACKHOLE = "blackhole"
    PRINT = "print"
    FILESYSTEM = "filesystem"
    JDBC = "jdbc"


_FORMATS: Final = {name: name for name in ("csv", "json", "parquet", "orc", "avro", "text")} | {"raw": "text"}
_PREFIXES: Final = tuple(f"{name}." for name in _FORMATS)
_OPTIONS: Final[Mapping[ConnectorKind, frozenset[str]]] = {
    ConnectorKind.BLACKHOLE: frozenset(),
    ConnectorKind.PRINT: frozenset({"print-identifier", "standard-error"}),
    ConnectorKind.FILESYSTEM: frozenset({"path", "format"}),
    ConnectorKind.JDBC: JDBC_OPTIONS,
}
_NO_EFFECT: Final[Mapping[str, str]] = {
    "sink.parallelism": "spark.sql.shuffle.partitions sets the tasks of a query",
    "sink.rolling-policy.": "each task of a micro-batch writes separate files",
    "sink.partition-commit.": "files are visible from the end of their micro-batch on",
    "partition.": "files are visible from the end of their micro-batch on",
    "source.monitor-interval": "each micro-batch lists the files",
    "auto-compaction": "Spark compacts no files",
    "compaction.": "Spark compacts no files",
    "lookup.": "a micro-batch reads the table once",
    "scan.auto-commit": "Spark's reader sets it",
    "sink.buffer-flush.": "a micro-batch is one transaction",
    "sink.max-retries": "a query that failed continues with the same batch after a restart",
    "connection.max-retry-timeout": "a query that failed continues with the same batch after a restart",
    "compatible-mode": "the URL says which database it is",
}
"""Options of Flink's, or how they begin, and why they have no effect."""


@dataclass(frozen=True, slots=True)
class ConnectorTable:
    """A table of one of these connectors.

    Parameters
    ----------
    declared : CreateTable
    kind : ConnectorKind
    options : mapping of str to str
        Those of the connector, by their names in lower case.
    settings : mapping of str to str
        Those of Spark's format.
    writing : mapping of str to str
        More of them, for writing.
    """

    declared: CreateTable
    kind: ConnectorKind
    options: Mapping[str, str] = field(repr=False)
    settings: Mapping[str, str] = field(repr=False)
    writing: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, declared: CreateTable) -> ConnectorTable:
        """Check a declaration.

        Raises
        ------
        SqlError
        """
        kind = ConnectorKind(declared.connector)
        own: dict[str, str] = {}
        of_format: list[TableOption] = []
        for option in declared.options:
            lowered = option.name.lower()
            if lowered == "connector":
                continue
            if lowered in _OPTIONS[kind]:
                own[lowered] = option.value
            elif kind is ConnectorKind.FILESYSTEM and lowered.startswith(_PREFIXES):
                of_format.append(option)
            elif not _warn_no_effect(option):
                _refuse(option, kind)
        given = format_settings(of_format)
        modes = {"mode": "DROPMALFORMED"} if given.fit is Fit.LENIENT else {}
        table = cls(declared, kind, own, {**given.settings, **modes}, given.writing)
        table._check_files()
        return table

    def _check_files(self) -> None:
        declared = self.declared
        for column in declared.columns:
            if isinstance(column, MetadataColumn):
                column.name.position.fail(f"connector {self.kind.value!r} has no metadata columns")
        if not declared.columns:
            declared.position.fail(f"connector {self.kind.value!r} needs columns")
        known = {column.name.key for column in self._physical}
        for name in declared.partitions:
            if self.kind is not ConnectorKind.FILESYSTEM:
                name.position.fail(f"connector {self.kind.value!r} has no partitions")
            if name.key not in known:
                name.position.fail(f"{name.text!r} is no column of {declared.name.text}")
        if self.kind is ConnectorKind.JDBC:
            check_database(declared, self.options)
        if self.kind is not ConnectorKind.FILESYSTEM:
            return
        missing = [name for name in ("path", "format") if name not in self.options]
        if missing:
            declared.position.fail(f"connector 'filesystem' needs the option '{missing[0]}'")
        if self.options["format"].lower() not in _FORMATS:
            declared.position.fail(f"format {self.options['format']!r} is not one of {', '.join(_FORMATS)}")

    @property
    def name(self) -> str:
        """The table's name."""
        return self.declared.name.text

    @property
    def format(self) -> str:
        """Spark's name of the format of its files."""
        return _FORMATS[self.options["format"].lower()]

    @property
    def _physical(self) -> tuple[PhysicalColumn, ...]:
        return tuple(column for column in self.declared.columns if isinstance(column, PhysicalColumn))

    @property
    def _reading(self) -> Mapping[str, str]:
        match self.format:
            case "csv":
                return reading_settings(self.settings)
            case "json":
                return add_defaults(NO_OLD_TIMES, self.settings)
        return self.settings

    @property
    def file_options(self) -> Mapping[str, str]:
        """The options by which Spark writes its files."""
        given = {**self.settings, **self.writing}
        match self.format:
            case "csv":
                return writing_settings(given)
            case "json":
                return add_defaults(EXACT_TIMES, given)
        return given

    @property
    def is_readable(self) -> bool:
        """Whether queries can read it."""
        return self.kind in {ConnectorKind.FILESYSTEM, ConnectorKind.JDBC}

    def read(self, spark: SparkSession, *, streaming: bool) -> DataFrame:
        """Return the rows of the files, or of the database's table, which is no stream."""
        if self.kind is ConnectorKind.JDBC:
            return read_database(spark, self.declared, self.options)
        schema = ", ".join(f"{quoted_text(c.name.text)} {c.type}" for c in self._physical)
        if streaming:
            stream = spark.readStream.format(self.format).options(**self._reading).schema(schema)
            rows = stream.load(self.options["path"])
        else:
            batch = spark.read.format(self.format).options(**self._reading).schema(schema)
            rows = batch.load(self.options["path"])
        return mark_watermark(self.declared, add_computed(self.declared, rows))

    def align(self, rows: DataFrame, columns: tuple[Writable, ...]) -> DataFrame:
        """Give rows the names and types of the table's columns."""
        changes = [CHANGE] if CHANGE in rows.columns else []
        given = rows.toDF(*(column.name.key for column in columns), *changes)
        values = {column.name.key: F.col(quoted_text(column.name.key)) for column in columns}
        removed = is_removal() if changes else None
        return given.select(
            *(
                required(
                    column, self.name, values.get(column.name.key, F.lit(None)).cast(column.type), removed
                ).alias(column.name.text)
                for column in self._physical
            ),
            *changes,
        )


@dataclass(frozen=True, slots=True)
class ConnectorTarget:
    """Such a table as the target of an INSERT."""

    table: ConnectorTable

    def align(self, rows: DataFrame, insert: Insert) -> DataFrame:
        """Return the rows with the table's columns."""
        if insert.overwrite:
            insert.target.position.fail(f"{self.table.name} cannot be overwritten: use INSERT INTO")
        if self.table.kind is ConnectorKind.JDBC:
            check_writable(self.table.options, insert.target.position)
        columns = writable_columns(self.table.declared, insert.columns, insert.target.position)
        given = [name for name in rows.columns if name != CHANGE]
        insert.require_columns(given, [column.name.text for column in columns])
        return self.table.align(rows, columns)

    def write(self, rows: DataFrame) -> None:
        """Write a batch."""
        table = self.table
        match table.kind:
            case ConnectorKind.BLACKHOLE:
                rows.write.format("noop").mode("overwrite").save()
            case ConnectorKind.PRINT:
                _print_rows(rows, table.options, "+I")
            case ConnectorKind.FILESYSTEM:
                check_readable(table.name, table.options["path"])
                writer = rows.write.format(table.format).options(**table.file_options).mode("append")
                writer.partitionBy(*self._partitions()).save(table.options["path"])
            case ConnectorKind.JDBC:
                row_writer(table.options, table.declared)(rows)

    def start(self, writer: DataStreamWriter, mode: OutputMode, checkpoint: str) -> StreamingQuery:
        """Write a stream."""
        table = self.table
        match table.kind:
            case ConnectorKind.BLACKHOLE:
                return writer.format("noop").start()
            case ConnectorKind.PRINT:
                options, change = table.options, "+U" if mode is OutputMode.UPDATE else "+I"

                def show(rows: DataFrame, _: int) -> None:
                    _print_rows(rows, options, change)

                return writer.foreachBatch(called_for_batches(show)).start()
            case ConnectorKind.FILESYSTEM:
                check_new_batches(table.name, table.options["path"], checkpoint)
                writer = writer.format(table.format).options(**table.file_options)
                return writer.partitionBy(*self._partitions()).start(table.options["path"])
            case ConnectorKind.JDBC:
                write = row_writer(table.options, table.declared)

                def insert(rows: DataFrame, _: int) -> None:
                    write(rows)

                return writer.foreachBatch(called_for_batches(insert)).start()

    def _partitions(self) -> list[str]:
        return [name.text for name in self.table.declared.partitions]


def _print_rows(rows: DataFrame, options: Mapping[str, str], change: str) -> None:
    """Print rows as Flink does: ``identifier> +I[1, a, null]``."""
    names = [name for name in rows.columns if name != CHANGE]
    values = [F.coalesce(F.col(quoted_text(name)).cast("string"), F.lit("null")) for name in names]
    kind = F.lit(change)
    if CHANGE in rows.columns:
        rows, kind = rows.orderBy(f"{CHANGE}.position"), F.col(f"{CHANGE}.op")
    identifier = options.get("print-identifier", "")
    out = sys.stderr if options.get("standard-error", "").lower() == "true" else sys.stdout
    for text, op in rows.select(F.concat_ws(", ", *values), kind).collect():
        print(f"{identifier}> {op}[{text}]" if identifier else f"{op}[{text}]", file=out, flush=True)


def _warn_no_effect(option: TableOption) -> bool:
    for start, reason in _NO_EFFECT.items():
        lowered = option.name.lower()
        if lowered == start or (start.endswith(".") and lowered.startswith(start)):
            warnings.warn(
                f"options without effect: {option.name} ({reason})", CompatibilityWarning, stacklevel=2
            )
            return True
    return False


def _refuse(option: TableOption, kind: ConnectorKind) -> None:
    guess = suggest_names(option.name, sorted(_OPTIONS[kind]))
    known = ", ".join(sorted(_OPTIONS[kind])) or "none"
    hint = guess or f"connector {kind.value!r} has {known}"
    option.position.fail(f"unknown option {option.name!r}: {hint}")
