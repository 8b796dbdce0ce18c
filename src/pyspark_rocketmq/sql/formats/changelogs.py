"""Changelogs of databases: the bodies of Canal, Debezium and Maxwell to rows with their kind of change.

The column `CHANGE` of a row is a struct of its ``op``, and of its ``position``, which orders changes.

# Facts (Flink 1.20 and 2.0, CanalJsonDeserializationSchema, DebeziumJsonDeserializationSchema,
MaxwellJsonDeserializationSchema): Canal's and Maxwell's ``old`` has only the changed fields, Debezium's
``before`` has all; without ``REPLICA IDENTITY FULL`` of a PostgreSQL table, an update has none, and a delete
only the key in it. Canal writes all values as texts. Kinds are +I, -U, +U and -D: an update is a -U with the
old row and a +U with the new one.

# Facts (Spark 4.0 to 4.3, JacksonParser): a number that is read as a STRING was a DOUBLE meanwhile. A VARIANT
has up to 38 digits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Final, assert_never

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pyspark_rocketmq.options import Changelog
from pyspark_rocketmq.spark.bodies.json_numbers import parse_json
from pyspark_rocketmq.spark.bodies.times import EXACT_TIMES, add_defaults
from pyspark_rocketmq.spark.body_formats import BODY, BodyColumn, Decoded, Fit, quote
from pyspark_rocketmq.sql.flinksql.relations import CHANGE, WITHOUT_OLD_ROW
from pyspark_rocketmq.sql.formats.flink_options import FormatSettings

__all__ = [
    "CHANGE",
    "OP",
    "ROW_KEY",
    "current_rows",
    "decode_changes",
    "encode_change",
    "is_removal",
    "latest_changes",
    "with_removal",
]

OP: Final = "op"
"""The property of a message that removes the row with its keys. Its value is ``-D``."""

ROW_KEY: Final = "__key"
"""The column of the values of a row's key, which the message's keys need not tell apart."""

_ENVELOPE: Final = "__envelope"
_INDEX: Final = "__index"
_ONE: Final = "__one"
_ROW: Final = "MAP<STRING, VARIANT>"
_NONE: Final = f"CAST(array() AS ARRAY<STRUCT<op: STRING, row: {_ROW}>>)"
_DEBEZIUM: Final = f"before {_ROW}, after {_ROW}, op STRING"
_SCHEMAS: Final[Mapping[Changelog, str]] = {
    Changelog.DEBEZIUM: f"{_DEBEZIUM}, payload STRUCT<{_DEBEZIUM}>",
    Changelog.CANAL: f"data ARRAY<{_ROW}>, old ARRAY<{_ROW}>, type STRING, database STRING, table STRING",
    Changelog.MAXWELL: f"data {_ROW}, old {_ROW}, type STRING, database STRING, table STRING",
}
_CHANGES_OF_DEBEZIUM: Final = f"""CASE
    WHEN {{0}}.op IN ('c', 'r') AND {{0}}.after IS NOT NULL THEN array(struct('+I' AS op, {{0}}.after AS row))
    WHEN {{0}}.op = 'u' AND {{0}}.after IS NOT NULL AND {{0}}.before IS NOT NULL
        THEN array(struct('-U' AS op, {{0}}.before AS row), struct('+U' AS op, {{0}}.after AS row))
    WHEN {{0}}.op = 'u' AND {{0}}.after IS NOT NULL AND {{1}}
        THEN array(struct('+U' AS op, {{0}}.after AS row))
    WHEN {{0}}.op = 'd' AND {{0}}.before IS NOT NULL THEN array(struct('-D' AS op, {{0}}.before AS row))
    WHEN {{0}}.op NOT IN ('c', 'r', 'u', 'd') THEN {_NONE}
    END"""
# Not map_concat, which fails the query if a field comes twice.
_OLD: Final = (
    "map_zip_with(d, {0}, (k, new, old) -> CASE WHEN map_contains_key({0}, k) THEN old ELSE new END)"
)
_CHANGES_BY_TYPE: Final = f"""CASE upper({{type}})
    WHEN 'INSERT' THEN transform({{data}}, d -> struct('+I' AS op, d AS row))
    WHEN 'BOOTSTRAP-INSERT' THEN transform({{data}}, d -> struct('+I' AS op, d AS row))
    WHEN 'DELETE' THEN transform({{data}}, d -> struct('-D' AS op, d AS row))
    WHEN 'UPDATE' THEN flatten(transform({{data}}, (d, i) -> array(
        struct('-U' AS op, {_OLD.format("coalesce(get({old}, i), map())")} AS row),
        struct('+U' AS op, d AS row))))
    ELSE CASE WHEN {{type}} IS NOT NULL THEN {_NONE} END
    END"""
_CORRUPT: Final = "__corrupt"
_TIMES: Final = ("DATE", "TIMESTAMP")
_NESTED: Final = ("ARRAY", "STRUCT", "MAP")
_REMOVALS: Final = ("-U", "-D")


def decode_changes(
    rows: DataFrame,
    changelog: Changelog,
    columns: Sequence[BodyColumn],
    given: FormatSettings,
    *,
    keys: Collection[str],
) -> Decoded:
    """Return a row for each change in rows that have ``BODY`` and ``queueOffset``, with `CHANGE`.

    Changes of a database's definitions have no row.

    Parameters
    ----------
    rows : DataFrame
    changelog : Changelog
    columns : sequence of BodyColumn
    given : FormatSettings
    keys : collection of str
        The columns of the primary key, in lower case. With one, a change needs no old row.
    """
    body = F.col(BODY).cast("string")
    # Spark would push conditions below a plain projection, and parse each body several times.
    parsed = rows.withColumn(_ENVELOPE, F.explode(F.array(F.from_json(body, _SCHEMAS[changelog]))))
    changes = F.expr(_changes(changelog, bool(keys)))
    for name, pattern in given.filters.items():
        is_other = ~F.col(f"{_ENVELOPE}.{name}").rlike(f"^(?:{pattern})$")
        changes = F.when(is_other, F.expr(_NONE)).otherwise(changes)
    changes = F.when(F.length(F.col(BODY)) == 0, F.expr(_NONE)).otherwise(changes)  # Debezium's tombstone
    unknown = F.expr(f"array(CAST(NULL AS STRUCT<op: STRING, row: {_ROW}>))")
    one = parsed.select("*", F.posexplode(F.coalesce(changes, unknown)).alias(_INDEX, _ONE))
    texts = [F.col(f"{_ONE}.row").getItem(column.name).cast("string") for column in columns]
    others = [text for text, column in zip(texts, columns, strict=True) if column.name.lower() not in keys]
    has_key_only = reduce(and_, (text.isNull() for text in others), F.lit(bool(keys and others)))
    is_alone = F.when(F.col(f"{_ONE}.op") == "-D", has_key_only).otherwise(F.col(f"{_ONE}.op") == "+U")
    index = F.when(is_alone & (F.col(_INDEX) == 0), WITHOUT_OLD_ROW).otherwise(F.col(_INDEX)).alias("index")
    position = F.struct(F.col("queueOffset"), index)
    one = one.withColumn(CHANGE, F.struct(F.col(f"{_ONE}.op").alias("op"), position.alias("position")))
    lenient = given.fit is Fit.LENIENT
    values = [_value(text, column, lenient) for text, column in zip(texts, columns, strict=True)]
    bad = F.col(f"{_ONE}.op").isNull() | ~F.is_valid_utf8(body)
    for text, value, column in zip(texts, values, columns, strict=True):
        if not lenient:
            bad = bad | (text.isNotNull() & value.isNull())
        if not column.nullable:  # a row with a key is removed by it alone
            needs_key_only = bool(keys) and column.name.lower() not in keys
            bad = bad | (value.isNull() & ~(F.lit(needs_key_only) & is_removal()))
    return Decoded(one, tuple(values), F.col(BODY).isNotNull() & bad)


def _changes(changelog: Changelog, has_key: bool) -> str:
    match changelog:
        case Changelog.DEBEZIUM:
            wrapped, plain = (
                _CHANGES_OF_DEBEZIUM.format(place, str(has_key).lower())
                for place in (f"{_ENVELOPE}.payload", _ENVELOPE)
            )
            return f"CASE WHEN {_ENVELOPE}.payload IS NOT NULL THEN {wrapped} ELSE {plain} END"
        case Changelog.CANAL:
            data, old = f"{_ENVELOPE}.data", f"{_ENVELOPE}.old"
        case Changelog.MAXWELL:
            data = f"CASE WHEN {_ENVELOPE}.data IS NOT NULL THEN array({_ENVELOPE}.data) END"
            old = f"array({_ENVELOPE}.old)"
        case _:
            assert_never(changelog)
    return _CHANGES_BY_TYPE.format(type=f"{_ENVELOPE}.type", data=data, old=old)


def _value(text: Column, column: BodyColumn, lenient: bool) -> Column:
    if column.type == "BINARY":
        return F.try_to_binary(text, F.lit("base64"))
    if column.type.startswith(_NESTED):
        wrapped = F.concat(F.lit('{"value":'), text, F.lit("}"))
        schema, settings = f"value {column.type}, {_CORRUPT} STRING", {"columnNameOfCorruptRecord": _CORRUPT}
        found = parse_json(wrapped, schema, settings)
        value = found.getField("value")
        return value if lenient else F.when(found.getField(_CORRUPT).isNull(), value)
    if column.type.startswith(_TIMES):
        text = F.when(~text.rlike("^[-+]?[0-9]+$"), text)  # Spark takes a number alone for a year
    return text.try_cast(column.type)


def is_removal() -> Column:
    """Return whether a change removes its row."""
    return F.col(CHANGE).getField("op").isin(*_REMOVALS)


def with_removal(properties: Column | None) -> Column:
    """Return a message's properties with ``op``, ``-D``, if its row is removed."""
    none = F.create_map().cast("map<string,string>")
    own = none if properties is None else F.coalesce(properties, none)
    others = F.map_filter(own, lambda name, _: name != OP)
    return F.map_concat(others, F.when(is_removal(), F.create_map(F.lit(OP), F.lit("-D"))).otherwise(none))


def latest_changes(rows: DataFrame, keys: Collection[str]) -> DataFrame:
    """Return the last change of each key."""
    row = F.struct(*(F.col(quote(name)) for name in rows.columns))
    last = F.max_by(row, F.col(CHANGE).getField("position")).alias("__last")
    return (
        rows.groupBy(*(F.col(quote(name)).alias(f"__key{at}") for at, name in enumerate(keys)))
        .agg(last)
        .select("__last.*")
    )


def current_rows(rows: DataFrame, keys: Collection[str]) -> DataFrame:
    """Return the rows that remain after all changes of a batch.

    Parameters
    ----------
    rows : DataFrame
        With `CHANGE`.
    keys : collection of str
        The columns of the primary key. Without one, a removed row cancels an equal row.
    """
    if keys:
        return latest_changes(rows, keys).where(~is_removal()).drop(CHANGE)
    names = [quote(name) for name in rows.columns if name != CHANGE]
    count = F.sum(F.when(is_removal(), -1).otherwise(1)).alias("__count")
    counted = rows.groupBy(*names).agg(count).where("__count > 0")
    times = F.explode(F.sequence(F.lit(1), F.col("__count").cast("int"))).alias("__time")
    return counted.select(*names, times).drop("__time")


def encode_change(changelog: Changelog, row: Column, removed: Column, settings: Mapping[str, str]) -> Column:
    """Return the body of a change: an insert, or a delete of a removed row.

    As in Flink, the old and the new row of an update have separate bodies.
    """
    parts: tuple[Column, ...]
    match changelog:
        case Changelog.DEBEZIUM:
            parts = (
                F.when(removed, row).alias("before"),
                F.when(~removed, row).alias("after"),
                F.when(removed, "d").otherwise("c").alias("op"),
            )
        case Changelog.CANAL:
            parts = (F.array(row).alias("data"), F.when(removed, "DELETE").otherwise("INSERT").alias("type"))
        case Changelog.MAXWELL:
            parts = (row.alias("data"), F.when(removed, "delete").otherwise("insert").alias("type"))
        case _:
            assert_never(changelog)
    return F.to_json(F.struct(*parts), add_defaults({**EXACT_TIMES, "ignoreNullFields": "false"}, settings))
