"""A table: its checked declaration, the DataFrame that reads it, and the messages that it writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, assert_never

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pyspark_rocketmq.options import (
    BadRecords,
    BodyFormat,
    SinkOptions,
    SourceOptions,
    TableOptions,
)
from pyspark_rocketmq.spark.body_formats import AT, BODY, KEYS, PLACE, BodyColumn, Decoded, Format, judge
from pyspark_rocketmq.spark.session_settings import add_session_settings
from pyspark_rocketmq.sql.declared_columns import (
    Writable,
    add_computed,
    mark_watermark,
    quote,
    required,
    writable_columns,
)
from pyspark_rocketmq.sql.flink.table_options import SortedOptions, sort_options
from pyspark_rocketmq.sql.formats.changelogs import (
    CHANGE,
    ROW_KEY,
    current_rows,
    decode_changes,
    encode_change,
    is_removal,
    with_removal,
)
from pyspark_rocketmq.sql.formats.table_formats import (
    TAG,
    columns_outside,
    infer_table_columns,
    join_keys,
    message_options,
    table_format,
)
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


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A table of a job. One that is declared again is another one.

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
        options = message_options(declared, given.parse(TableOptions, given.table, at))
        if options.infer_schema and infer:
            declared = infer_table_columns(declared, given, options)
        for column in declared.columns:
            if isinstance(column, MetadataColumn):
                metadata_of(column)
        return cls(declared, given, options, table_format(declared, given, options, default_format))

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
        if self.is_changelog and not streaming:
            rows = self._current(rows)
        return self._mark_watermark(add_computed(self.declared, rows))

    @property
    def is_changelog(self) -> bool:
        """Whether messages are changes of rows. A stream of them has the column `CHANGE`."""
        return self.options.changelog is not None

    def _current(self, rows: DataFrame) -> DataFrame:
        key = self.declared.primary_key
        if not key and not all(isinstance(c, PhysicalColumn | ComputedColumn) for c in self.declared.columns):
            self.declared.position.fail(
                f"{self.name} is read as a batch with metadata: declare PRIMARY KEY (…) NOT ENFORCED"
            )
        return current_rows(rows, [name.text for name in key])

    def dead_letters(
        self, spark: SparkSession, *, streaming: bool, read: Mapping[str, str] | None = None
    ) -> DataFrame:
        """Return the messages that do not fit the table, as messages for ``badRecordsTopic``.

        They keep their body, keys and tag. Their properties hold the original position and the reason.

        Parameters
        ----------
        spark : SparkSession
        streaming : bool
        read : mapping of str to str, optional
            The options of the read; by default the table's.
        """
        decoded = self._decode(spark, streaming=streaming, also=("keys", "tags"), read=read)
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
        self,
        spark: SparkSession,
        *,
        streaming: bool,
        also: Sequence[str] = (),
        idle: str | None = None,
        read: Mapping[str, str] | None = None,
    ) -> Decoded:
        assert self.format is not None
        wanted = [
            "body",
            *also,
            *(_BEAT_COLUMNS if idle else ()),
            *self._message_columns,
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
        columns = tuple(dict.fromkeys(wanted))
        messages = self._load(spark, columns, streaming=streaming, idle=idle, read=read)
        messages = messages.withColumn(BODY, F.col("body"))
        for source, name in self._message_columns.items():
            if name is not None:
                messages = messages.withColumn(name, F.col(source))
        if PLACE[-1] in messages.columns:
            messages = messages.withColumn(AT, F.struct(*PLACE))
        if self.options.changelog is None:
            return self.format.decode(messages)
        keys = {name.key for name in self.declared.primary_key}
        return decode_changes(
            messages, self.options.changelog, self.format.columns, self.given.format, keys=keys
        )

    @property
    def _message_columns(self) -> Mapping[str, str | None]:
        """The source's columns that the table's columns need besides the body, and their names then."""
        assert self.format is not None
        found: dict[str, str | None] = {}
        if self.format.needs_keys or (self.options.key_columns and not self.options.write_keys_to_body):
            found["keys"] = KEYS
        if self.options.tag_column is not None and not self.options.write_tag_to_body:
            found["tags"] = TAG
        if self.is_changelog:
            found["queueOffset"] = None
        return found

    def read_options(self, spark: SparkSession) -> dict[str, str]:
        """Return the options of a read, with those that the session adds."""
        return add_session_settings(spark, self.given.read)

    def _load(
        self,
        spark: SparkSession,
        columns: Sequence[str],
        *,
        streaming: bool,
        idle: str | None = None,
        read: Mapping[str, str] | None = None,
    ) -> DataFrame:
        given = self.read_options(spark) if read is None else dict(read)
        self.given.parse(SourceOptions, given, self.whole)
        options = given
        if columns:
            options = {name: value for name, value in given.items() if name.lower() != _IDLE.lower()}
            options |= {"columns": ",".join(columns)} | ({_IDLE: idle} if idle else {})
        if streaming:
            return spark.readStream.format(SOURCE).options(**options).load()
        return spark.read.format(SOURCE).options(**options).load()

    @property
    def whole(self) -> TableOption:
        """A stand-in for a missing option, at the table's position."""
        return TableOption("", "", self.declared.position)

    def _select(self, rows: DataFrame, values: Sequence[Column], *, beats: bool) -> DataFrame:
        """Select the columns that are not computed, in the order of the declaration, and heartbeats' time."""
        by_name = dict(zip((c.key for c in self._format_columns()), values, strict=True))
        by_name |= columns_outside(self.declared, self.options)
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
        if self.is_changelog:
            selected.append(F.col(CHANGE))
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
        changes = [CHANGE] if CHANGE in rows.columns else []
        named = rows.toDF(*(column.name.text for column in columns), *changes)
        given = {column.name.key: F.col(quote(column.name)).cast(column.type) for column in columns}
        removed = is_removal() if changes else None
        values = {
            column.name.key: required(
                column, self.name, given.get(column.name.key, F.lit(None).cast(column.type)), removed
            )
            for column in self.declared.columns
            if not isinstance(column, ComputedColumn)
        }
        if changes and self.options.changelog is None:
            key = {name.lower() for name in self.options.key_columns}
            values = {name: v if name in key else F.when(~is_removal(), v) for name, v in values.items()}
        parts = self._encode(rows, values)
        if self.options.key_columns:
            parts["keys"] = join_keys(values, self.options)
        if self.options.tag_column is not None:
            parts["tags"] = values[self.options.tag_column.lower()].cast("string")
        for column in columns:
            if isinstance(column, MetadataColumn):
                sink, kind = metadata_of(column).sink, metadata_of(column).type
                assert sink is not None
                parts[sink] = values[column.name.key].cast(kind)
        if changes and self.options.changelog is None:
            parts["properties"] = with_removal(parts.get("properties"))
            parts[ROW_KEY] = F.struct(*(values[name.lower()] for name in self.options.key_columns))
        return named.select(*(value.alias(name) for name, value in parts.items()), *changes)

    def _encode(self, rows: DataFrame, values: Mapping[str, Column]) -> dict[str, Column]:
        assert self.format is not None
        if self.options.changelog is None:
            return self.format.encode(values)
        row = F.struct(*(values[column.key].alias(column.name) for column in self.format.columns))
        removed = is_removal() if CHANGE in rows.columns else F.lit(False)
        return {"body": encode_change(self.options.changelog, row, removed, self.format.writing)}

    def sink_options(self) -> Mapping[str, str]:
        """Return the options of a write.

        Raises
        ------
        SqlError
        """
        self.given.parse(SinkOptions, self.given.write, self.whole)
        return self.given.write
