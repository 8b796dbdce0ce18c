"""The format of a table: which columns are in the body, and which in the message's keys and tag."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import BadRecords, BodyFormat, SourceOptions, TableOptions
from pyspark_rocketmq.spark.body_formats import KEYS, BodyColumn, Format
from pyspark_rocketmq.sql.catalog import sample_columns
from pyspark_rocketmq.sql.flink.table_options import SortedOptions
from pyspark_rocketmq.sql.formats.avro_schemas import derive_avro_schema
from pyspark_rocketmq.sql.statements import CreateTable, Name, PhysicalColumn, TableOption

__all__ = ["TAG", "columns_outside", "infer_table_columns", "join_keys", "message_options", "table_format"]

TAG: Final = "__tag"
"""The name of a message's tag while its columns are created."""


def infer_table_columns(declared: CreateTable, given: SortedOptions, options: TableOptions) -> CreateTable:
    """Infer the columns from a sample of the topic.

    Raises
    ------
    SqlError
        The table declares columns, or its bodies do not name them.
    """
    at = given.written["inferschema"].position
    if declared.columns:
        at.fail("inferSchema is for tables without columns")
    if options.body_format not in {None, BodyFormat.JSON} or options.changelog is not None:
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


def message_options(declared: CreateTable, options: TableOptions) -> TableOptions:
    """Return a table's options: its primary key supplies the keys of messages if no option does."""
    if options.key_columns or not declared.primary_key or options.body_format is BodyFormat.KEY_VALUE:
        return options
    return replace(options, key_columns=tuple(name.text for name in declared.primary_key))


def columns_outside(declared: CreateTable, options: TableOptions) -> Mapping[str, Column]:
    """Return the values of the columns that the options exclude from the body, by their keys.

    They are read from the columns ``KEYS`` and ``TAG``.
    """
    texts: dict[str, Column] = {}
    if not options.write_keys_to_body:
        names = [name.lower() for name in options.key_columns]
        one = len(names) == 1
        parts = F.split(F.col(KEYS), " ")
        texts |= {key: F.col(KEYS) if one else F.get(parts, F.lit(at)) for at, key in enumerate(names)}
    if options.tag_column is not None and not options.write_tag_to_body:
        texts[options.tag_column.lower()] = F.col(TAG)
    return {
        column.name.key: texts[column.name.key].try_cast(column.type)
        for column in declared.columns
        if isinstance(column, PhysicalColumn) and column.name.key in texts
    }


def join_keys(values: Mapping[str, Column], options: TableOptions) -> Column:
    """Return the keys of messages. Columns that are only there must be one word each, or the query fails.

    Parameters
    ----------
    values : mapping of str to Column
        The value of each column, by its name in lower case.
    options : TableOptions
    """
    texts = [values[name.lower()].cast("string") for name in options.key_columns]
    if len(texts) > 1 and not options.write_keys_to_body:
        texts = [_require_word(text, name) for text, name in zip(texts, options.key_columns, strict=True)]
    return F.concat_ws(" ", *texts)


def _require_word(text: Column, name: str) -> Column:
    torn = F.coalesce((text == "") | F.contains(text, F.lit(" ")), F.lit(True))
    message = (
        f"column {name} is NULL, empty or has a space, but is written to the message's keys only, which "
        "spaces separate: set writeKeysToBody=true"
    )
    return F.when(torn, F.raise_error(F.lit(message)).cast("string")).otherwise(text)


def table_format(
    declared: CreateTable, given: SortedOptions, options: TableOptions, default: BodyFormat
) -> Format | None:
    """Return the codec of a table's bodies; None for a table without columns.

    Raises
    ------
    SqlError
        The columns do not fit the format.
    """
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
    if options.changelog is not None and options.bad_records is BadRecords.NULL:
        given.written["badrecords"].position.fail(
            "badRecords=null has no counterpart in a changelog, where a row of nulls is no change: use drop, "
            "dead-letter or fail"
        )
    outside = _names_outside(options)
    inside = [column for column in physical if column.name.key not in outside]
    if not inside:
        declared.position.fail(f"table {declared.name.text} has no column that is in the body")
    columns = tuple(BodyColumn(each.name.text, each.type, each.nullable) for each in inside)
    kind = options.body_format or (BodyFormat.JSON if options.changelog else default)
    settings = given.format
    charset = settings.charset if kind is BodyFormat.RAW else "UTF-8"
    try:
        if kind is BodyFormat.AVRO and (options.avro_schema, options.avro_schema_file) == (None, None):
            options = replace(options, avro_schema=derive_avro_schema(columns))
        return Format(kind, columns, options, settings.settings, settings.writing, settings.fit, charset)
    except OptionError as error:
        given.written.get("format", TableOption("", "", declared.position)).position.fail(error.message)


def _names_outside(options: TableOptions) -> frozenset[str]:
    keys = () if options.write_keys_to_body else options.key_columns
    tag = () if options.write_tag_to_body or options.tag_column is None else (options.tag_column,)
    return frozenset(name.lower() for name in (*keys, *tag))
