"""The CREATE TABLE statement of a batch's rows, for errors. Requires the extra ``sql`` (SQLAlchemy)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa
from pyspark.sql import types
from sqlalchemy.dialects import mysql

__all__ = ["create_table_statement"]

_KEY_LENGTH: Final = 255
"""Of text and binary keys: MySQL and MariaDB index no columns of unlimited length."""

_TYPES: Final[dict[type[types.DataType], sa.types.TypeEngine[Any]]] = {
    types.BooleanType: sa.Boolean(),
    types.ByteType: sa.SmallInteger(),
    types.ShortType: sa.SmallInteger(),
    types.IntegerType: sa.Integer(),
    types.LongType: sa.BigInteger(),
    types.FloatType: sa.Float(),
    types.DoubleType: sa.Double(),
    types.DateType: sa.Date(),
    # An instant: MySQL keeps those only in a TIMESTAMP.
    types.TimestampType: sa.TIMESTAMP(timezone=True).with_variant(mysql.TIMESTAMP(fsp=6), "mysql", "mariadb"),
    types.TimestampNTZType: sa.TIMESTAMP().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb"),
}


def create_table_statement(
    dialect: sa.Dialect,
    table: str,
    rows: types.StructType,
    *,
    key: Sequence[str] = (),
    schema: str | None = None,
) -> str:
    """Return a statement that creates a table for these rows, in one line.

    Arrays, maps and structs become text, for their JSON.

    Parameters
    ----------
    dialect : sqlalchemy.Dialect
    table : str
    rows : StructType
    key : sequence of str
        The primary key, if any.
    schema : str, optional
    """
    columns = [
        sa.Column(
            field.name,
            _column_type(field.dataType, is_key=field.name in key),
            primary_key=field.name in key,
            autoincrement=False,
            nullable=field.name not in key,
        )
        for field in rows.fields
    ]
    target = sa.Table(table, sa.MetaData(), *columns, schema=schema)
    return " ".join(str(sa.schema.CreateTable(target).compile(dialect=dialect)).split())


def _column_type(value: types.DataType, *, is_key: bool) -> sa.types.TypeEngine[Any]:
    if type(value) in _TYPES:
        return _TYPES[type(value)]
    if isinstance(value, types.DecimalType):
        return sa.Numeric(value.precision, value.scale)
    if isinstance(value, types.BinaryType):
        return sa.LargeBinary(_KEY_LENGTH if is_key else None)
    return sa.String(_KEY_LENGTH) if is_key else sa.Text()
