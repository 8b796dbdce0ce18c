"""Bodies to columns and back, with Spark's functions: no Python code runs per message."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_, or_
from pathlib import Path
from typing import Final, assert_never

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import BadRecords, BodyFormat, FieldCount, TableOptions
from pyspark_rocketmq.record.java_objects import JAVA_OBJECT_HINT, JAVA_OBJECT_START
from pyspark_rocketmq.spark.bodies.avro_fields import avro_fields
from pyspark_rocketmq.spark.bodies.conversions import convert_fields
from pyspark_rocketmq.spark.bodies.csv_rows import (
    has_bad_values,
    read_csv_values,
    reading_settings,
    type_in_csv,
    without_line_end,
    write_csv,
)
from pyspark_rocketmq.spark.bodies.json_numbers import parse_json
from pyspark_rocketmq.spark.bodies.texts import decode_text, delimiter_pattern, join_fields
from pyspark_rocketmq.spark.bodies.times import EXACT_TIMES, add_defaults

__all__ = [
    "AT",
    "BAD",
    "BODY",
    "KEYS",
    "PLACE",
    "BodyColumn",
    "Decoded",
    "Fit",
    "Format",
    "judge",
    "quote",
]

BODY: Final = "__body"
KEYS: Final = "__keys"
AT: Final = "__at"
BAD: Final = "__bad"
"""The names of a message's parts while its columns are created."""

PLACE: Final = ("topic", "brokerName", "queueId", "queueOffset")
"""The columns that identify a message's position; ``AT`` is a struct of those that are available."""

_CORRUPT: Final = "__corrupt"
_LINE: Final = "__line"
_FIELDS: Final = "__fields"


class Fit(enum.Enum):
    """Which bodies of JSON and CSV match the columns."""

    FIELDS = "fields"
    """All fields of the body have the columns' types. A missing one is NULL."""
    LENIENT = "lenient"
    """The body is JSON. A field of another type is NULL."""
    COMPLETE = "complete"
    """As `FIELDS`, and none is missing."""


@dataclass(frozen=True, slots=True)
class BodyColumn:
    """A column that is part of the body.

    Parameters
    ----------
    name : str
    type : str
        Spark's DDL of its type.
    nullable : bool
    """

    name: str
    type: str
    nullable: bool = True

    @property
    def key(self) -> str:
        """The key for comparing names: Spark is not case-sensitive."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Decoded:
    """The columns of messages.

    Parameters
    ----------
    rows : DataFrame
        The given rows, or more rows if a body contains several.
    columns : tuple of Column
        The value of each physical column.
    bad : Column, optional
        Whether the body does not match the schema; None if every body matches.
    """

    rows: DataFrame
    columns: tuple[Column, ...]
    bad: Column | None


@dataclass(frozen=True, slots=True)
class Format:
    """The codec of a table: columns to bodies and back.

    Parameters
    ----------
    kind : BodyFormat
    columns : tuple of BodyColumn
        The columns in the body (for key-value, also in the keys), in order.
    options : TableOptions
    settings : mapping of str to str
        Options for Spark's function of the format.
    writing : mapping of str to str
        More of them, for writing.
    fit : Fit
    charset : str
        Of format=raw.
    """

    kind: BodyFormat
    columns: tuple[BodyColumn, ...]
    options: TableOptions
    settings: Mapping[str, str]
    writing: Mapping[str, str] = field(default_factory=dict)
    fit: Fit = Fit.FIELDS
    charset: str = "UTF-8"

    def __post_init__(self) -> None:
        count = len(self.columns)
        if self.kind is BodyFormat.RAW and count != 1:
            raise OptionError(f"format=raw is for one column that is the body, not {count}", option="format")
        schemas = (self.options.avro_schema, self.options.avro_schema_file)
        if self.kind is BodyFormat.AVRO and schemas == (None, None):
            raise OptionError("format=avro needs avroSchema or avroSchemaFile", option="format")
        if self.kind is BodyFormat.KEY_VALUE and count != 2:
            raise OptionError(
                f"format=key-value is for two columns, the keys and the body, not {count}", option="format"
            )

    @property
    def needs_keys(self) -> bool:
        """Whether columns are in the keys."""
        return self.kind is BodyFormat.KEY_VALUE

    @property
    def _kinds(self) -> dict[str, str]:
        return {column.name: column.type for column in self.columns}

    # --- reading ----------------------------------------------------------------------------

    def decode(self, rows: DataFrame) -> Decoded:
        """Return the columns of rows that have ``BODY`` (and ``KEYS``)."""
        match self.kind:
            case BodyFormat.JSON | BodyFormat.CSV:
                return self._decode_text(rows)
            case BodyFormat.AVRO | BodyFormat.PROTOBUF:
                return self._decode_binary(rows)
            case BodyFormat.RAW:
                return self._cast(rows, [F.col(BODY)])
            case BodyFormat.KEY_VALUE:
                return self._cast(rows, [F.col(KEYS), F.col(BODY)])
            case BodyFormat.DELIMITED:
                return self._decode_lines(rows)
        assert_never(self.kind)

    def _decode_text(self, rows: DataFrame) -> Decoded:
        is_csv = self.kind is BodyFormat.CSV
        kinds = {quote(name): kind for name, kind in self._kinds.items()}
        if is_csv:
            kinds = {name: type_in_csv(kind, self.settings) for name, kind in kinds.items()}
        schema = ", ".join(f"{name} {kind}" for name, kind in [*kinds.items(), (_CORRUPT, "STRING")])
        settings = {**self.settings, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
        body = F.col(BODY).cast("string")
        if is_csv:
            row = F.from_csv(without_line_end(body, self.settings), schema, reading_settings(settings))
        else:
            row = parse_json(body, schema, settings)
        return self._of_struct(rows, row, lambda parsed: ~F.is_valid_utf8(body) | self._is_bad_text(parsed))

    def _is_bad_text(self, parsed: Column) -> Column:
        corrupt = parsed[_CORRUPT].isNotNull()
        if self.fit is Fit.FIELDS:
            is_csv = self.kind is BodyFormat.CSV
            wrong = has_bad_values(parsed, self._kinds, self.settings) if is_csv else F.lit(False)
            return parsed.isNull() | corrupt | wrong
        if self.kind is BodyFormat.CSV:
            return parsed.isNull()
        names = F.json_object_keys(F.col(BODY).cast("string"))  # NULL if it is no object
        if self.fit is Fit.LENIENT:
            return parsed.isNull() | (corrupt & names.isNull())
        absent = (
            parsed.getField(column.name).isNull() & ~F.array_contains(names, column.name)
            for column in self.columns
        )
        return reduce(or_, absent, parsed.isNull() | corrupt)

    def _decode_binary(self, rows: DataFrame) -> Decoded:
        settings = {**self.settings, "mode": "PERMISSIVE"}
        if self.kind is BodyFormat.AVRO:
            from pyspark.sql.avro.functions import from_avro  # noqa: PLC0415 - needs Spark's module for it

            row = from_avro(F.col(BODY), self._avro_schema(), settings)
            return self._of_struct(rows, row, self._is_bad_avro)
        from pyspark.sql.protobuf.functions import from_protobuf  # noqa: PLC0415

        descriptor = self.options.protobuf_descriptor_file
        row = from_protobuf(F.col(BODY), self._message(), descriptor, settings)
        return self._of_struct(rows, row, lambda parsed: parsed.isNull())

    def _is_bad_avro(self, parsed: Column) -> Column:
        """Distinguish bad bodies, which Spark returns as records of nulls, from records of null fields."""
        from pyspark.sql.avro.functions import to_avro  # noqa: PLC0415

        schema = self._avro_schema()
        fields = avro_fields(schema)
        empty = reduce(and_, (parsed.getField(name).isNull() for name in fields), parsed.isNotNull())
        if all(fields.values()):
            # A record of nulls is good only if it equals its encoding; no other record is encoded for this
            # check.
            written = F.when(empty, to_avro(parsed, schema))
            return parsed.isNull() | F.coalesce(written != F.col(BODY), F.lit(False))
        return parsed.isNull() | empty

    def _of_struct(self, rows: DataFrame, row: Column, is_bad: Callable[[Column], Column]) -> Decoded:
        # Spark would push conditions on the columns below a plain projection, and parse each body twice.
        parsed = rows.withColumn(_FIELDS, F.explode(F.array(row)))
        fields = F.col(_FIELDS)
        bad = is_bad(fields)
        if self.kind in {BodyFormat.AVRO, BodyFormat.PROTOBUF}:
            columns, lost = convert_fields(parsed, fields, self._kinds)
            bad = bad | lost
        elif self.kind is BodyFormat.CSV:
            columns = read_csv_values(fields, self._kinds, self.settings)
        else:
            columns = [fields.getField(column.name) for column in self.columns]
        return Decoded(parsed, tuple(columns), self._bad(columns, F.col(BODY).isNotNull() & bad))

    def _decode_lines(self, rows: DataFrame) -> Decoded:
        body = F.col(BODY).cast("string")
        lines = F.split(body, delimiter_pattern(self.options.line_delimiter))
        parsed = rows.withColumn(_LINE, F.explode_outer(lines)).withColumn(
            _FIELDS, F.split(F.col(_LINE), delimiter_pattern(self.options.field_delimiter), -1)
        )
        # The line delimiter after the last line starts no line, but an empty body is a line.
        parsed = parsed.where((F.col(_LINE) != "") | F.col(_LINE).isNull() | (F.length(F.col(BODY)) == 0))
        fields = F.col(_FIELDS)
        texts = [F.nullif(F.get(fields, F.lit(at)), F.lit("")) for at in range(len(self.columns))]
        found = self._cast(parsed, texts)
        assert found.bad is not None
        wrong = ~F.is_valid_utf8(body) | self._is_wrong_count(F.size(fields))
        return Decoded(parsed, found.columns, (F.col(_LINE).isNotNull() & wrong) | found.bad)

    def _is_wrong_count(self, count: Column) -> Column:
        match self.options.field_count:
            case FieldCount.EXACT:
                return count != len(self.columns)
            case FieldCount.CUT:
                return count < len(self.columns)
            case FieldCount.PAD:
                return F.lit(False)
        assert_never(self.options.field_count)

    def _cast(self, rows: DataFrame, texts: Sequence[Column]) -> Decoded:
        """Convert one text or some bytes to each column."""
        columns: list[Column] = []
        bad = F.lit(False)
        for text, column in zip(texts, self.columns, strict=True):
            binary = column.type == "BINARY"
            value = text.cast("binary") if binary else decode_text(text, self.charset).try_cast(column.type)
            columns.append(value)
            bad = bad | (text.isNotNull() & value.isNull())
        return Decoded(rows, tuple(columns), self._bad(columns, bad))

    def _bad(self, values: Sequence[Column], bad: Column) -> Column:
        """Treat a missing value of a NOT NULL column as a mismatch."""
        for value, column in zip(values, self.columns, strict=True):
            if not column.nullable:
                bad = bad | (F.col(BODY).isNotNull() & value.isNull())
        return bad

    # --- writing ----------------------------------------------------------------------------

    def encode(self, values: Mapping[str, Column]) -> dict[str, Column]:
        """Return the sink's columns ``body`` (and ``keys``) of the physical columns' values."""
        if self.kind is BodyFormat.KEY_VALUE:
            keys, body = self.columns
            return {"keys": values[keys.key].cast("string"), "body": self._write(values, body)}
        return {"body": self._body(values)}

    def _body(self, values: Mapping[str, Column]) -> Column:
        row = F.struct(*(values[column.key].alias(column.name) for column in self.columns))
        match self.kind:
            case BodyFormat.JSON:
                return F.to_json(row, add_defaults(EXACT_TIMES, {**self.settings, **self.writing}))
            case BodyFormat.CSV:
                return write_csv(values, self._kinds, {**self.settings, **self.writing})
            case BodyFormat.AVRO:
                from pyspark.sql.avro.functions import to_avro  # noqa: PLC0415

                return to_avro(row, self._avro_schema())
            case BodyFormat.PROTOBUF:
                from pyspark.sql.protobuf.functions import to_protobuf  # noqa: PLC0415

                descriptor = self.options.protobuf_descriptor_file
                return to_protobuf(row, self._message(), descriptor, dict(self.settings))
            case BodyFormat.DELIMITED:
                field, line = self.options.field_delimiter, self.options.line_delimiter
                return join_fields(values, list(self._kinds), field=field, line=line)
            case BodyFormat.RAW | BodyFormat.KEY_VALUE:
                return self._write(values, self.columns[-1])
        assert_never(self.kind)

    def _write(self, values: Mapping[str, Column], column: BodyColumn) -> Column:
        value = values[column.key]
        if column.type == "BINARY":
            return value
        text = value.cast("string")
        return text if self.charset == "UTF-8" else F.encode(text, self.charset)

    # --- settings ---------------------------------------------------------------------------

    def _avro_schema(self) -> str:
        if self.options.avro_schema is not None:
            return self.options.avro_schema
        assert self.options.avro_schema_file is not None
        try:
            return Path(self.options.avro_schema_file).read_text(encoding="utf-8")
        except OSError as error:
            raise OptionError(
                f"the schema cannot be read: {error.strerror}", option="avroSchemaFile"
            ) from error

    def _message(self) -> str:
        assert self.options.protobuf_message is not None
        return self.options.protobuf_message


def judge(decoded: Decoded, policy: BadRecords, *, what: str, counted_as: str | None) -> Decoded:
    """Apply a policy to the bodies that do not match; the result has columns that can be selected.

    Parameters
    ----------
    decoded : Decoded
        With a column ``AT`` if the position of a message is available.
    policy : BadRecords
        With dead-letter, bad rows are dropped here.
    what : str
        The expected schema, for the error.
    counted_as : str, optional
        The name under which a query's progress counts rows and bad records.
    """
    bad = F.lit(False) if decoded.bad is None else decoded.bad
    rows = decoded.rows.withColumn(BAD, bad)
    if counted_as is not None and policy is not BadRecords.FAIL:
        counts = F.count_if(F.col(BAD)).alias("bad"), F.count(F.lit(1)).alias("rows")
        rows = rows.observe(f"badRecords.{counted_as}", *counts)
    match policy:
        case BadRecords.FAIL if decoded.bad is None:
            columns = decoded.columns
        case BadRecords.FAIL:
            failure = F.raise_error(_complaint(rows, what))
            columns = tuple(F.when(F.col(BAD), failure).otherwise(value) for value in decoded.columns)
        case BadRecords.NULL:
            columns = tuple(F.when(~F.col(BAD), value) for value in decoded.columns)
        case BadRecords.DROP | BadRecords.DEAD_LETTER:
            rows, columns = rows.where(~F.col(BAD)), decoded.columns
        case other:
            assert_never(other)
    return Decoded(rows, columns, decoded.bad)


def _complaint(rows: DataFrame, what: str) -> Column:
    parts = [F.lit(f"a body does not fit {what}: ")]
    if AT in rows.columns:
        for name in rows.select(f"{AT}.*").columns:
            parts += [F.lit(f"{name}="), F.col(f"{AT}.{name}").cast("string"), F.lit(" ")]
    parts.append(F.lit("(badRecords says what else may become of it: null, drop, dead-letter)"))
    is_java = F.substring(F.col(BODY).cast("binary"), 1, 4) == F.lit(JAVA_OBJECT_START)
    parts.append(F.when(is_java, F.lit(f". {JAVA_OBJECT_HINT}")).otherwise(F.lit("")))
    return F.concat(*parts)


def quote(name: str) -> str:
    """Return a column's name quoted for Spark."""
    return "`" + name.replace("`", "``") + "`"
