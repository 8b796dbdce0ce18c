"""A table: its checked declaration, the DataFrame that reads it, and the messages that it writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, assert_never

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import (
    BadRecords,
    BodyFormat,
    SinkOptions,
    SourceOptions,
    TableOptions,
)
from pyspark_rocketmq.spark.body_formats import AT, BODY, KEYS, PLACE, BodyColumn, Decoded, Format, judge
from pyspark_rocketmq.spark.session_settings import add_session_settings
from pyspark_rocketmq.sql.catalog import sample_columns
from pyspark_rocketmq.sql.declared_columns import (
    Writable,
    add_computed,
    mark_watermark,
    quote,
    writable_columns,
)
from pyspark_rocketmq.sql.flink.table_options import SortedOptions, sort_options
from pyspark_rocketmq.sql.metadata import metadata_of
from pyspark_rocketmq.sql.statements import (
    ComputedColumn,
    CreateTable,
    MetadataColumn,
    Name,
    PhysicalColumn,
    Position,
    TableOption,
)

__all__ = ["SOURCE", "Table"]

SOURCE: Final = "rocketmq"

BEAT: Final = "__beat"
"""The time of a heartbeat; null for messages."""

_BEAT_COLUMNS: Final = ("topic", "storeTimestamp")
_IDLE: Final = "heartbeatInterval"


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a job.

    Parameters
    ----------
    declared : CreateTable
    given : SortedOptions
    options : TableOptions
    format : Format, optional
        None for a table without columns, whose rows are the source's messages.
    """

    declared: CreateTable
    given: SortedOptions = field(repr=False)
    options: TableOptions
    format: Format | None

    @classmethod
    def of(cls, declared: CreateTable, *, default_format: BodyFormat, infer: bool = True) -> Table:
        """Check a declaration.

        Parameters
        ----------
        declared : CreateTable
        default_format : BodyFormat
        infer : bool
            Look at the topic for the columns of ``inferSchema``. Without them, the table has no columns.

        Raises
        ------
        SqlError
        """
        given = sort_options(declared.options, with_columns=bool(declared.columns))
        at = TableOption("", "", declared.position)
        options = given.parse(TableOptions, given.table, at)
        if options.infer_schema and infer:
            declared = _infer_columns(declared, given, options)
        for column in declared.columns:
            if isinstance(column, MetadataColumn):
                metadata_of(column)
        return cls(declared, given, options, _format(declared, given, options, default_format))

    @property
    def name(self) -> str:
        """The table's name."""
        return self.declared.name.text

    # --- reading ----------------------------------------------------------------------------

    def read(self, spark: SparkSession, *, streaming: bool, idle_ms: int | None = None) -> DataFrame:
        """Return the table's rows.

        Parameters
        ----------
        spark : SparkSession
        streaming : bool
        idle_ms : int, optional
            After this time without messages a stream's watermark follows the clock, unless the table says.

        Raises
        ------
        SqlError
            The table cannot be read: an option is invalid, or a column is write-only.
        """
        if self.format is None:
            return mark_watermark(self.declared, self._load(spark, (), streaming=streaming))
        idle = self._idle(streaming, idle_ms)
        judged = judge(
            self._decode(spark, streaming=streaming, idle=idle),
            self.options.bad_records,
            what=f"the columns of table {self.name}, format {self._kind().value}",
            counted_as=self.name,
        )
        rows = self._select(judged.rows, judged.columns, beats=idle is not None)
        return self._mark_watermark(add_computed(self.declared, rows))

    def dead_letters(self, spark: SparkSession, *, streaming: bool) -> DataFrame:
        """Return the messages that do not fit the table, as messages for ``badRecordsTopic``.

        They keep their body, keys and tag. Their properties hold the original position and the reason.
        """
        decoded = self._decode(spark, streaming=streaming, also=("keys", "tags"))
        assert decoded.bad is not None
        cause = f"the body does not fit the columns of table {self.name}, format {self._kind().value}"
        facts = {"deadLetterCause": F.lit(cause), "deadLetterTopic": F.col(f"{AT}.topic")} | {
            f"deadLetter{name[0].upper()}{name[1:]}": F.col(f"{AT}.{name}").cast("string")
            for name in PLACE[1:]
        }
        pairs = [part for name, value in facts.items() for part in (F.lit(name), value)]
        return decoded.rows.where(decoded.bad).select(
            F.lit(self.options.bad_records_topic).alias("topic"),
            F.col(BODY).alias("body"),
            "keys",
            "tags",
            F.create_map(*pairs).alias("properties"),
        )

    def _kind(self) -> BodyFormat:
        assert self.format is not None
        return self.format.kind

    def _decode(
        self, spark: SparkSession, *, streaming: bool, also: Sequence[str] = (), idle: str | None = None
    ) -> Decoded:
        assert self.format is not None
        wanted = [
            "body",
            *also,
            *(_BEAT_COLUMNS if idle else ()),
            *(("keys",) if self.format.needs_keys else ()),
        ]
        for column in self.declared.columns:
            if isinstance(column, MetadataColumn):
                source = metadata_of(column).source
                if source is None:
                    column.name.position.fail(
                        f"{column.key} can only be written: {self.name} cannot be read with it"
                    )
                wanted.append(source)
        if self.options.bad_records in {BadRecords.FAIL, BadRecords.DEAD_LETTER}:
            wanted += PLACE
        messages = self._load(spark, tuple(dict.fromkeys(wanted)), streaming=streaming, idle=idle)
        messages = messages.withColumn(BODY, F.col("body"))
        if self.format.needs_keys:
            messages = messages.withColumn(KEYS, F.col("keys"))
        if PLACE[-1] in messages.columns:
            messages = messages.withColumn(AT, F.struct(*PLACE))
        return self.format.decode(messages)

    def _load(
        self, spark: SparkSession, columns: Sequence[str], *, streaming: bool, idle: str | None = None
    ) -> DataFrame:
        given = add_session_settings(spark, self.given.read)
        self.given.parse(SourceOptions, given, self._whole)
        options = given
        if columns:
            options = {name: value for name, value in given.items() if name.lower() != _IDLE.lower()}
            options |= {"columns": ",".join(columns)} | ({_IDLE: idle} if idle else {})
        if streaming:
            return spark.readStream.format(SOURCE).options(**options).load()
        return spark.read.format(SOURCE).options(**options).load()

    @property
    def _whole(self) -> TableOption:
        """A stand-in for a missing option, at the table's position."""
        return TableOption("", "", self.declared.position)

    def _select(self, rows: DataFrame, values: Sequence[Column], *, beats: bool) -> DataFrame:
        """Select the columns that are not computed, in the order of the declaration, and heartbeats' time."""
        by_name = dict(zip((c.key for c in self._format_columns()), values, strict=True))
        selected: list[Column] = []
        for column in self.declared.columns:
            match column:
                case PhysicalColumn():
                    selected.append(by_name[column.name.key].alias(column.name.text))
                case MetadataColumn():
                    selected.append(metadata_of(column).read().cast(column.type).alias(column.name.text))
                case ComputedColumn():
                    pass
                case _:
                    assert_never(column)
        if beats:
            selected.append(F.when(F.col("topic").isNull(), F.col("storeTimestamp")).alias(BEAT))
        return rows.select(*selected)

    def _format_columns(self) -> tuple[BodyColumn, ...]:
        assert self.format is not None
        return self.format.columns

    def _idle(self, streaming: bool, idle_ms: int | None) -> str | None:
        """Return the interval of heartbeats: they move the watermark, and no query sees them."""
        given = next(
            (value for name, value in self.given.read.items() if name.lower() == _IDLE.lower()), None
        )
        if not streaming or given is not None:
            return given if streaming else None
        return f"{idle_ms}ms" if idle_ms and self.declared.watermark is not None else None

    def _mark_watermark(self, rows: DataFrame) -> DataFrame:
        """Set the watermark, and drop heartbeats above it.

        The condition uses the time, so that Spark does not move it below the watermark. It is not
        deterministic, so that later conditions stay above, too, such as the ``isnotnull`` that Spark infers
        from a join: below, they would drop heartbeats, which have no columns, before they move the watermark.
        """
        mark = self.declared.watermark
        if BEAT not in rows.columns:
            return mark_watermark(self.declared, rows)
        beat = F.col(BEAT)
        if mark is None:
            return rows.where(beat.isNull()).drop(BEAT)
        time = F.col(quote(mark.column))
        kinds = {field.name.lower(): field.dataType for field in rows.schema.fields}
        of_beat = rows.withColumn(mark.column.text, F.coalesce(beat.cast(kinds[mark.column.key]), time))
        marked = mark_watermark(self.declared, of_beat)
        return marked.where((beat.isNull() | time.isNull()) & (F.spark_partition_id() >= 0)).drop(BEAT)

    # --- writing ----------------------------------------------------------------------------

    def writable(self, names: Sequence[Name], at: Position) -> tuple[Writable, ...]:
        """Return the columns that an INSERT fills, see `writable_columns`."""
        return writable_columns(self.declared, names, at)

    def messages(self, rows: DataFrame, columns: Sequence[Writable]) -> DataFrame:
        """Convert rows with these columns, in this order, to messages."""
        if self.format is None:
            return rows
        named = rows.toDF(*(column.name.text for column in columns))
        given = {column.name.key: F.col(quote(column.name)).cast(column.type) for column in columns}
        values = {
            column.name.key: given.get(column.name.key, F.lit(None).cast(column.type))
            for column in self.declared.columns
            if not isinstance(column, ComputedColumn)
        }
        parts = self._body_format().encode(values)
        if self.options.key_columns:
            keys = [values[key.lower()].cast("string") for key in self.options.key_columns]
            parts["keys"] = F.concat_ws(" ", *keys)
        if self.options.tag_column is not None:
            parts["tags"] = values[self.options.tag_column.lower()].cast("string")
        for column in columns:
            if isinstance(column, MetadataColumn):
                sink, kind = metadata_of(column).sink, metadata_of(column).type
                assert sink is not None
                parts[sink] = values[column.name.key].cast(kind)
        return named.select(*(value.alias(name) for name, value in parts.items()))

    def _body_format(self) -> Format:
        """Exclude the columns from the body that the options exclude."""
        assert self.format is not None
        absent = set()
        if not self.options.write_keys_to_body:
            absent |= {name.lower() for name in self.options.key_columns}
        if self.options.tag_column is not None and not self.options.write_tag_to_body:
            absent.add(self.options.tag_column.lower())
        columns = tuple(column for column in self.format.columns if column.key not in absent)
        return Format(self.format.kind, columns, self.options, self.format.settings)

    def sink_options(self) -> Mapping[str, str]:
        """Return the options of a write.

        Raises
        ------
        SqlError
        """
        self.given.parse(SinkOptions, self.given.write, self._whole)
        return self.given.write


def _infer_columns(declared: CreateTable, given: SortedOptions, options: TableOptions) -> CreateTable:
    """Infer the columns from a sample of the topic."""
    at = given.written["inferschema"].position
    if declared.columns:
        at.fail("inferSchema is for tables without columns")
    if options.body_format not in {None, BodyFormat.JSON}:
        at.fail("inferSchema is for format=json: other bodies do not name their columns")
    read = {"timeZone": "UTC", **given.read}  # times do not matter for a sample
    source = given.parse(SourceOptions, read, TableOption("", "", declared.position))
    if len(source.topics) != 1:
        at.fail("inferSchema takes one topic")
    with Client(source.client) as client:
        inferred = sample_columns(client, source.topics[0], sample=options.infer_sample)
    columns = tuple(
        PhysicalColumn(Name(name, declared.position), kind) for name, kind in inferred.columns.items()
    )
    return replace(declared, columns=columns)


def _format(
    declared: CreateTable, given: SortedOptions, options: TableOptions, default: BodyFormat
) -> Format | None:
    if not declared.columns:
        return None
    physical = tuple(column for column in declared.columns if isinstance(column, PhysicalColumn))
    known = {column.name.key for column in physical}
    named = [*options.key_columns, *([options.tag_column] if options.tag_column else [])]
    missing = [name for name in named if name.lower() not in known]
    if missing:
        declared.position.fail(
            f"keyColumns or dynamicTagColumn name {missing[0]!r}, which is no column of the body"
        )
    if not physical:
        declared.position.fail(f"table {declared.name.text} has no column that is in the body")
    try:
        columns = tuple(BodyColumn(each.name.text, each.type, each.nullable) for each in physical)
        return Format(options.body_format or default, columns, options, given.format)
    except OptionError as error:
        given.written.get("format", TableOption("", "", declared.position)).position.fail(error.message)
