"""A DataFrame between the steps of a pipeline, with hidden columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.spark.bodies.json_numbers import parse_json
from pyspark_rocketmq.spark.body_formats import quote
from pyspark_rocketmq.streams.frame.error_handling import Guard
from pyspark_rocketmq.streams.frame.python_steps import BEAT, BODY, ERROR, TAG, TIME, VALUE, WINDOW
from pyspark_rocketmq.streams.plan.lambda_projection import Field, Projection
from pyspark_rocketmq.streams.plan.nodes import Node, Schema, Shape
from pyspark_rocketmq.streams.plan.times import to_milliseconds

__all__ = ["TIME_FORMAT", "WINDOW_ID", "Flow", "column", "parse_result", "parse_schema", "window_id"]

TIME_FORMAT: Final = "yyyy-MM-dd HH:mm:ss"
"""The time format of results, as in RocketMQ Streams."""

_EXACT: Final = 2.0**53
"""From this number on, not every whole number can be a double."""

_WIDEST: Final = 38
"""As many digits as a decimal can have: its scale is not one that a user has chosen."""

_IDENTITY: Final = "__identity_"
WINDOW_ID: Final = f"{_IDENTITY}window"
"""The column that tells a group's windows apart."""

_ID_FORMAT: Final = "yyyy-MM-dd_HH:mm:ss"
_CORRUPT: Final = "__corrupt"
_PARSED: Final = "__parsed"


def column(name: str) -> Column:
    """Return a column by its exact name."""
    return F.col(quote(name))


def window_id(start: Column) -> Column:
    """Return a window's start as a text that no other window has.

    It is the start as it is shown. Windows that begin within one second, or in an hour that is shown twice
    because the clock is set back, have the exact time.
    """
    shown = F.date_format(start, _ID_FORMAT)
    is_exact = F.try_to_timestamp(shown, F.lit(_ID_FORMAT)) == start
    exact = F.date_format(start, f"{_ID_FORMAT}.SSSSSSXXX")
    return F.when(is_exact, shown).otherwise(exact).alias(WINDOW_ID)


def parse_result(text: Column) -> Column:
    """Return a function's result, so that an object is printed and sent as an object, and stored as text.

    Unlike `try_parse_json`, this reads NaN and infinity.
    """
    return F.from_json(text, "variant")


@dataclass(frozen=True, slots=True)
class Flow:
    """The rows after a step.

    Parameters
    ----------
    df : DataFrame
        The user's columns and hidden ones: ``__time`` always, ``__value`` (the record's text) unless the
        shape is COLUMNS, and ``__beat``, ``__tag`` and ``__window`` if needed.
    shape : Shape
    columns : tuple of str
        The user's columns. For JSON, the columns parsed so far.
    beats : bool
        Whether the rows include heartbeats.
    checked : bool
        Whether the record's text is known to be JSON.
    watermarked, windowed, updates, tagged : bool
    keyed : bool
        Whether the tag is the key of a group, and not a label of ``split``.
    serialized : bool
        Whether a function has made the bodies of the records' messages.
    identity : tuple of str
        The columns that identify a group's result if it is written again.
    shares_identity : bool
        Whether several rows may have one identity: later results of the group, or rows made of one result.
    exact : frozenset of str
        The fields whose numbers have all their digits when they are parsed as text.
    """

    df: DataFrame
    shape: Shape
    columns: tuple[str, ...] = ()
    beats: bool = False
    checked: bool = False
    watermarked: bool = False
    windowed: bool = False
    updates: bool = False
    tagged: bool = False
    keyed: bool = False
    serialized: bool = False
    identity: tuple[str, ...] = ()
    shares_identity: bool = False
    exact: frozenset[str] = frozenset()

    @property
    def hidden(self) -> list[str]:
        """The hidden columns."""
        there = {
            TIME: True,
            BEAT: self.beats,
            TAG: self.tagged,
            WINDOW: self.windowed,
            VALUE: self.shape is not Shape.COLUMNS,
            BODY: self.serialized,
        }
        return [*(name for name, is_there in there.items() if is_there), *self.hidden_identity]

    @property
    def hidden_identity(self) -> list[str]:
        """The hidden columns that `with_hidden_identity` has added."""
        return [name for name in self.identity if name.startswith(_IDENTITY)]

    def with_hidden_identity(self) -> Flow:
        """Return a flow that keeps the identity of a group's result when later steps change its fields."""
        if not self.identity or not set(self.identity) <= set(self.df.columns):
            return self
        hidden = tuple(f"{_IDENTITY}{at}" for at in range(len(self.identity)))
        copies = {
            copy: column(name) for copy, name in zip(hidden, self.identity, strict=True) if copy != name
        }
        return replace(self, df=self.df.withColumns(copies), identity=hidden) if copies else self

    def select(self, columns: Iterable[Column], names: Iterable[str], **changes: object) -> Flow:
        """Return the hidden columns with other user columns."""
        flow = replace(self, columns=tuple(names), **changes)  # type: ignore[arg-type]
        return replace(flow, df=self.df.select(*(column(name) for name in flow.hidden), *columns))

    def of_beats(self, condition: Column) -> Column:
        """Return a condition that is true for every heartbeat."""
        return (F.col(BEAT) | condition) if self.beats else condition

    def error_unless_beat(self, error: Column) -> Column:
        """Return the error column, with null for heartbeats."""
        return F.when(~F.col(BEAT), error) if self.beats else error

    # --- fields out of JSON -------------------------------------------------------------------

    def with_fields(self, names: Iterable[str], guard: Guard, step: Node) -> Flow:
        """Return a flow with columns of these names, parsed if they are not parsed yet.

        Raises
        ------
        PlanError
            The records are plain text, or lack the field.
        """
        missing = [name for name in dict.fromkeys(names) if name not in self.columns]
        if self.shape is Shape.COLUMNS:
            self.check_fields(missing, step)
            return self
        if self.shape is Shape.TEXT:
            raise PlanError(
                "the records are text without fields: parse them first, with map(json.loads) or isJson=True",
                step=step.name,
            )
        if not missing and self.checked:
            return self
        fields = [StructField(name, StringType()) for name in missing]
        return self._parse(StructType(fields), guard, step)

    def check_fields(self, names: Iterable[str], step: Node) -> None:
        """Raise a PlanError for a name without a column."""
        known = {name.lower() for name in self.columns}
        for name in names:
            if name.lower() not in known:
                raise PlanError(
                    f"there is no field {name!r} here; the fields are {', '.join(self.columns)}",
                    step=step.name,
                )

    def with_schema(self, schema: Schema, guard: Guard, step: Node) -> Flow:
        """Return the records' JSON as typed columns."""
        wanted = parse_schema(schema, step)
        return replace(self, columns=())._parse(wanted, guard, step).without_text()  # noqa: SLF001 - its own

    def _parse(self, schema: StructType, guard: Guard, step: Node) -> Flow:
        read = [StructField(one.name, self._read_type(one.name, one.dataType)) for one in schema.fields]
        parsed = self.df.withColumn(_PARSED, _parse_json(read))
        error = F.when(_is_malformed(), F.lit("malformed JSON"))
        added = []
        for one in schema.fields:
            value = F.col(f"{_PARSED}.{quote(one.name)}")
            if _is_spelled(one.dataType):
                text = F.when(_trim(value) != "", value)
                value = text.try_cast(one.dataType)
                wrong = F.lit(f"{one.name} is not {one.dataType.simpleString()}")
                error = error.when(text.isNotNull() & value.isNull(), wrong)
            elif self._is_exact(one.name, one.dataType):
                value = value.cast(one.dataType)
            added.append(value.alias(one.name))
        df = guard.without_errors(parsed, self.error_unless_beat(error), step)
        flow = replace(self, df=df, checked=True)
        kept = [column(name) for name in self.columns]
        return flow.select([*kept, *added], [*self.columns, *schema.names])

    def _read_type(self, name: str, kind: DataType) -> DataType:
        """Return the type as which Spark parses a field."""
        if self._is_exact(name, kind):
            return VariantType()
        return StringType() if _is_spelled(kind) else kind

    def _is_exact(self, name: str, kind: DataType) -> bool:
        """Whether a text must have all digits. Spark's parser makes one of a fraction by way of a double."""
        return name in self.exact and isinstance(kind, StringType)

    def project(self, projection: Projection, guard: Guard, step: Node) -> Flow:
        """Return the fields of a lifted projection, with their JSON types."""
        if self.shape is Shape.COLUMNS:
            return self._move_fields(projection, step)
        # A variant for each field: one of the whole record could not have a name twice.
        firsts = dict.fromkeys(field.path[0] for _, field in projection.fields)
        read = [StructField(name, VariantType()) for name in firsts]
        parsed = self.df.withColumn(_PARSED, _parse_json(read))
        found = [_find_variant(field).alias(name) for name, field in projection.fields]
        df = parsed.select(*(column(name) for name in self.hidden), _is_malformed().alias(_CORRUPT), *found)
        error = F.when(F.col(_CORRUPT), F.lit("malformed JSON"))
        for name, moved in projection.fields:
            if moved.required:
                error = error.when(column(name).isNull(), F.lit(f"no field {'.'.join(moved.path)}"))
        df = df.withColumn(ERROR, self.error_unless_beat(error))
        flow = replace(self, df=guard.without_errors(df, F.col(ERROR), step))
        names = [name for name, _ in projection.fields]
        return flow.select(map(column, names), names, shape=Shape.COLUMNS)

    def _move_fields(self, projection: Projection, step: Node) -> Flow:
        for _, moved in projection.fields:
            if moved.path[0] not in self.columns:
                raise PlanError(f"there is no field {moved.path[0]!r} here", step=step.name)
        columns = [F.col(".".join(map(quote, field.path))).alias(name) for name, field in projection.fields]
        return self.select(columns, [name for name, _ in projection.fields])

    def type_of(self, name: str) -> DataType:
        """Return the type of a column. As in Spark, the case of its name does not matter."""
        return next(f.dataType for f in self.df.schema.fields if f.name.lower() == name.lower())

    # --- other forms of the same rows ---------------------------------------------------------

    @property
    def variants(self) -> set[str]:
        """The columns with their JSON types."""
        kinds = {column.name: column.dataType for column in self.df.schema.fields}
        return {name for name in self.columns if isinstance(kinds[name], VariantType)}

    def plain(self) -> Flow:
        """Return the columns, with variants converted to text."""
        texts = {name: column(name).cast("string") for name in self.variants}
        return replace(self, df=self.df.withColumns(texts)) if texts else self

    def with_json_type(self, name: str) -> Flow:
        """Return a column's values as variants, as a sink would write them."""
        if isinstance(self.type_of(name), VariantType):
            return self
        value = F.from_json(F.to_json(F.struct(column(name))), StructType([StructField(name, VariantType())]))
        value = F.when(column(name).isNotNull(), value.getField(name))  # null, and not the JSON's
        return replace(self, df=self.df.withColumn(name, value))

    def as_json(self) -> Flow:
        """Return the columns as one JSON text."""
        return replace(self.with_text(), shape=Shape.JSON, columns=(), checked=True)

    def without_text(self) -> Flow:
        """Return only the parsed fields."""
        return self.select(map(column, self.columns), self.columns, shape=Shape.COLUMNS, checked=True)

    def with_text(self) -> Flow:
        """Return a flow with the record's text in ``__value`` in addition to its columns."""
        if self.shape is not Shape.COLUMNS:
            return self
        text = F.to_json(F.struct(*map(column, self.columns)), {"ignoreNullFields": "false"})
        return replace(self, df=self.df.withColumn(VALUE, text))

    def text(self) -> Column:
        """Return the record as a sink writes it: a serializer's bytes, a JSON object, or the text.

        Whole doubles in results of groups are written as whole numbers, as in RocketMQ Streams. Decimals with
        a scale chosen by Spark have no trailing zeros.
        """
        if self.serialized:
            return F.col(BODY)
        if self.shape is not Shape.COLUMNS:
            return F.col(VALUE)
        kinds = {field.name: field.dataType for field in self.df.schema.fields}
        shown = [
            _show_number(column(name), kinds.get(name)).alias(name) if self.identity else column(name)
            for name in self.columns
        ]
        return F.to_json(F.struct(*shown), {"ignoreNullFields": "false"})

    def without_beats(self) -> Flow:
        """Drop heartbeats, above the watermark.

        The condition uses the time, so that Spark does not move it below the watermark. It is not
        deterministic, so that later conditions stay above, too, such as the ``isnotnull`` that Spark infers
        from a join's condition. Otherwise these would drop heartbeats, which have no fields, before they
        move the watermark.
        """
        if not self.beats:
            return self
        above = F.spark_partition_id() >= 0
        df = self.df.where((~F.col(BEAT) | F.col(TIME).isNull()) & above).drop(BEAT)
        return replace(self, df=df, beats=False)

    def with_watermark(self, delay_s: float) -> Flow:
        """Set the watermark's delay after the newest time, if there is no watermark yet."""
        if self.watermarked:
            return self
        df = self.df.withWatermark(TIME, f"{to_milliseconds(delay_s)} milliseconds")
        return replace(self, df=df, watermarked=True)


def parse_schema(schema: Schema, step: Node) -> StructType:
    """Return a schema, which may be given as SQL text.

    Raises
    ------
    PlanError
        The text is malformed.
    """
    if isinstance(schema, StructType):
        return schema
    try:
        found = StructType.fromDDL(schema)
    except Exception as error:  # Spark raises several kinds of errors for a malformed text
        raise PlanError(f"the schema is malformed: {error}", step=step.name) from error
    if not isinstance(found, StructType):
        raise PlanError("the schema must have columns, such as 'name string, age int'", step=step.name)
    return found


def _parse_json(fields: list[StructField]) -> Column:
    """Return the fields of the record's text, and the text itself if it is no JSON object."""
    schema = StructType([*fields, StructField(_CORRUPT, StringType())])
    settings = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return parse_json(F.col(VALUE), schema, settings, wild="{")  # which is malformed


def _is_malformed() -> Column:
    is_empty = F.col(VALUE).isNull() | (_trim(F.col(VALUE)) == "")
    return is_empty | F.col(f"{_PARSED}.{_CORRUPT}").isNotNull()


def _trim(text: Column) -> Column:
    """Return a text without the white space of JSON around it. Spark trims only spaces."""
    return F.btrim(text, F.lit(" \t\r\n"))


def _is_spelled(kind: DataType) -> bool:
    """Whether a text may hold such a value. RocketMQ Streams allows that; Spark's parser does not."""
    return isinstance(kind, IntegralType | FloatType | DoubleType | BooleanType)


def _show_number(value: Column, kind: DataType | None) -> Column:
    """Return a number of a group's result as it is written."""
    if isinstance(kind, DoubleType):
        return _show_whole(value)
    if isinstance(kind, DecimalType) and kind.precision == _WIDEST:
        return value.cast("variant")  # which is written without zeros at its end
    return value


def _show_whole(value: Column) -> Column:
    """Return a double as a variant that prints whole numbers without ``.0``."""
    whole = (value % 1 == 0) & (F.abs(value) < _EXACT)  # floor would overflow
    return F.when(whole, value.cast("long").cast("variant")).otherwise(value.cast("variant"))


def _find_variant(field: Field) -> Column:
    first, *others = field.path
    value = F.col(f"{_PARSED}.{quote(first)}")
    path = "".join(f"['{name}']" for name in others)
    return F.try_variant_get(value, f"${path}", "variant") if path else value
