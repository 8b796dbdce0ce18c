"""Values of Avro and Protobuf as values of a column's type."""

# Facts (Spark 4.0 to 4.3): with spark.sql.ansi.enabled, a cast of a value that does not fit fails the query.
# A cast of a struct takes its fields by position, whatever their names.

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from pyspark_rocketmq.errors import OptionError

__all__ = ["convert_fields"]


def convert_fields(rows: DataFrame, record: Column, kinds: Mapping[str, str]) -> tuple[list[Column], Column]:
    """Return fields of a record as columns, and whether the record has a value that does not fit its column.

    Parameters
    ----------
    rows : DataFrame
        The rows that have the record.
    record : Column
    kinds : mapping of str to str
        Spark's DDL of each field's type, by its name.

    Raises
    ------
    OptionError
        A record lacks a field.
    """
    values = [record.getField(name) for name in kinds]
    found = rows.select(*(value.alias("_") for value in values)).schema.fields
    columns, lost = [], F.lit(False)
    for value, each, kind in zip(values, found, kinds.values(), strict=True):
        wanted = DataType.fromDDL(kind)
        columns.append(_convert(value, each.dataType, wanted))
        lost = lost | _is_lost(value, columns[-1], each.dataType, wanted)
    return columns, lost


def _convert(value: Column, found: DataType, wanted: DataType) -> Column:
    """Return a value as one of another type, fields by their names; NULL for what does not fit."""
    if found.simpleString() == wanted.simpleString():
        return value
    match found, wanted:
        case StructType(), StructType():
            parts = [
                _convert(value.getField(name), kind, field.dataType).alias(field.name)
                for (name, kind), field in zip(_same_fields(found, wanted), wanted.fields, strict=True)
            ]
            return F.when(value.isNotNull(), F.struct(*parts))
        case ArrayType(), ArrayType():
            return F.transform(value, lambda each: _convert(each, found.elementType, wanted.elementType))
        case MapType(), MapType() if found.keyType == wanted.keyType:
            values = found.valueType, wanted.valueType
            return F.transform_values(value, lambda _, each: _convert(each, *values))
    return value.try_cast(wanted)


def _is_lost(value: Column, converted: Column, found: DataType, wanted: DataType) -> Column:
    """Return whether a value, or a part of it, is NULL because it did not fit."""
    if found.simpleString() == wanted.simpleString():
        return F.lit(False)
    match found, wanted:
        case StructType(), StructType():
            parts = [
                _is_lost(value.getField(name), converted.getField(field.name), kind, field.dataType)
                for (name, kind), field in zip(_same_fields(found, wanted), wanted.fields, strict=True)
            ]
            return reduce(or_, parts, F.lit(False))
        case ArrayType(), ArrayType():
            return _is_any_lost(value, converted, found.elementType, wanted.elementType)
        case MapType(), MapType() if found.keyType == wanted.keyType:
            values = F.map_values(value), F.map_values(converted)
            return _is_any_lost(*values, found.valueType, wanted.valueType)
    return value.isNotNull() & converted.isNull()


def _is_any_lost(values: Column, converted: Column, found: DataType, wanted: DataType) -> Column:
    lost = F.zip_with(values, converted, lambda one, other: _is_lost(one, other, found, wanted))
    return F.coalesce(F.exists(lost, lambda each: each), F.lit(False))


def _same_fields(found: StructType, wanted: StructType) -> list[tuple[str, DataType]]:
    """Return the name and type of the field that has each wanted name; names are not case-sensitive."""
    known = {field.name.lower(): field for field in found.fields}
    missing = [field.name for field in wanted.fields if field.name.lower() not in known]
    if missing:
        raise OptionError(
            f"a record of the body has no field {missing[0]}: it has {', '.join(found.fieldNames())}",
            option="format",
        )
    return [(same.name, same.dataType) for same in (known[field.name.lower()] for field in wanted.fields)]
