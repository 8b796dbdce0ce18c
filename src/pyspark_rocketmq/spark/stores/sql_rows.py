"""A batch's rows in tables of a database, inserted or updated. Requires the extra ``sql`` (SQLAlchemy)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
import sqlalchemy as sa
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, MapType, StructType
from sqlalchemy.dialects import mysql, postgresql, sqlite

from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.spark.stores.table_statement import create_table_statement

__all__ = [
    "append_to",
    "execute_rows",
    "reflect_table",
    "require_whole_keys",
    "unique_keys",
    "upsert_into",
    "upsert_statement",
]

_CHUNK_ROWS: Final = 5_000

RowWriter = Callable[[sa.Connection, DataFrame], None]


def append_to(table: str, *, schema: str | None = None) -> RowWriter:
    """Return a function that inserts a batch's rows into an existing table with the same column names.

    If the table does not exist, the query fails with an error that has its CREATE TABLE statement. The rows
    pass through the driver and one connection: use it for results, not for large data.
    """

    def write(connection: sa.Connection, batch: DataFrame) -> None:
        target = reflect_table(connection, table, schema, batch.schema)
        execute_rows(connection, sa.insert(target), target, batch.toArrow())

    return write


def upsert_into(table: str, *, key: str | Sequence[str], schema: str | None = None) -> RowWriter:
    """Return a function that inserts a batch's rows, or updates the rows whose key exists.

    For aggregations in update mode. PostgreSQL, SQLite, MySQL and MariaDB. Otherwise as `append_to`.

    Parameters
    ----------
    table : str
    key : str or sequence of str
        The column or columns of the table's primary key, or of a unique index. MySQL and MariaDB update the
        row of any unique key: the table must not have another one.
    schema : str, optional

    Raises
    ------
    OptionError
        No key is given, the table does not have it, or the database is not supported.
    """
    if not key:
        raise OptionError("an upsert needs the columns of a key")
    columns = [key] if isinstance(key, str) else key

    def write(connection: sa.Connection, batch: DataFrame) -> None:
        target = reflect_table(connection, table, schema, batch.schema, columns)
        statement = upsert_statement(connection.dialect.name, target, columns, batch.columns)
        rows = batch.toArrow()
        require_whole_keys(target, columns, rows)
        execute_rows(connection, statement, target, rows)

    return write


def reflect_table(
    connection: sa.Connection, table: str, schema: str | None, rows: StructType, key: Sequence[str] = ()
) -> sa.Table:
    """Return a table as the database has it.

    Raises
    ------
    OptionError
        The table does not exist, lacks a column, or would keep a part of a failed batch; two columns of the
        rows have one name; or the table's column takes no arrays, maps or structs.
    """
    try:
        target = sa.Table(table, sa.MetaData(), schema=schema, autoload_with=connection)
    except sa.exc.NoSuchTableError as error:
        statement = create_table_statement(connection.dialect, table, rows, key=key, schema=schema)
        raise OptionError(
            f"the table does not exist, create it before the query, for example with: {statement}",
            table=table,
        ) from error
    names = rows.fieldNames()
    if twice := [name for at, name in enumerate(names) if name in names[:at]]:
        raise OptionError(f"the rows have two columns {twice[0]!r}: rename one of them", table=table)
    if missing := [name for name in names if name not in target.c]:
        raise OptionError(
            f"table {table} has no column {missing[0]!r}; it has {', '.join(target.c.keys())}", schema=schema
        )
    for column in rows.fields:
        kind = target.c[column.name].type
        if not _takes_nested(kind) and isinstance(column.dataType, ArrayType | MapType | StructType):
            raise OptionError(
                f"column {column.name} is {column.dataType.simpleString()}, and {kind} in the table: write "
                f"to_json({column.name}), or make it a JSON column of the table",
                table=table,
            )
    engine = target.kwargs.get(f"{connection.dialect.name}_engine")
    if engine is not None and not _has_transactions(connection, engine):
        raise OptionError(
            "the table's engine has no transactions, a failed batch would leave rows in it: "
            "ALTER TABLE ... ENGINE=InnoDB",
            table=table,
            engine=engine,
        )
    return target


def _takes_nested(kind: sa.types.TypeEngine[Any]) -> bool:
    # NullType: SQLAlchemy does not know it, the database decides.
    return isinstance(kind, sa.JSON | sa.ARRAY | sa.types.NullType)


def _has_transactions(connection: sa.Connection, engine: str) -> bool:
    query = sa.text("SELECT transactions FROM information_schema.engines WHERE engine = :engine")
    return bool(connection.scalar(query, {"engine": engine}) == "YES")


def upsert_statement(dialect: str, target: sa.Table, key: Sequence[str], columns: Sequence[str]) -> sa.Insert:
    """Return the statement that inserts a row of these columns, or updates the row with its key."""
    others = [name for name in columns if name not in key]
    match dialect:
        case "postgresql" | "sqlite":
            insert = postgresql.insert(target) if dialect == "postgresql" else sqlite.insert(target)
            if not others:
                return insert.on_conflict_do_nothing(index_elements=list(key))
            new = {name: insert.excluded[name] for name in others}
            return insert.on_conflict_do_update(index_elements=list(key), set_=new)
        case "mysql" | "mariadb":
            _check_only_key(target, key, columns)
            statement = mysql.insert(target)
            # Not INSERT IGNORE, which turns every other error into a warning: a key is set to itself.
            return statement.on_duplicate_key_update(
                {name: statement.inserted[name] for name in others or key}
            )
    raise OptionError(
        f"upsert_into knows PostgreSQL, SQLite, MySQL and MariaDB, not {dialect}: give a function of your own"
    )


def _check_only_key(target: sa.Table, key: Sequence[str], columns: Sequence[str]) -> None:
    """Refuse a table in which MySQL would update a different row than the key's, or never update."""
    has_key = False
    for names, whole in unique_keys(target):
        if whole and names == set(key):
            has_key = True
        elif not any(target.c[name].autoincrement is True and name not in columns for name in names):
            raise OptionError(
                "MySQL and MariaDB update the row of any unique key: the table must have the upsert's only",
                table=target.name,
                key=",".join(key),
                other=",".join(sorted(names)),
            )
    if not has_key:
        raise OptionError(
            "the table has no primary key or unique index of exactly these columns: "
            "MySQL and MariaDB would insert each row again",
            table=target.name,
            key=",".join(key),
        )


def unique_keys(target: sa.Table) -> Iterator[tuple[set[str], bool]]:
    """Yield the columns of each unique key, and whether it covers whole values, not only prefixes."""
    if target.primary_key.columns:
        yield set(target.primary_key.columns.keys()), True
    for index in target.indexes:
        if index.unique:
            parts = index.kwargs.get("mysql_length") or index.kwargs.get("mariadb_length")
            yield set(index.columns.keys()), not parts


def require_whole_keys(target: sa.Table, key: Sequence[str], rows: pa.Table) -> None:
    """Check that each row has its key. NULL equals no NULL: such a row would be inserted again and again.

    Raises
    ------
    OptionError
        The rows have no such column.
    RocketMQError
        A row has NULL there.
    """
    nulls = {name.lower(): rows[name].null_count for name in rows.column_names}
    if missing := [name for name in key if name.lower() not in nulls]:
        raise OptionError(
            f"the rows have no column {missing[0]!r}, by which they are updated; they have "
            f"{', '.join(rows.column_names)}",
            table=target.name,
        )
    empty = [name for name in key if nulls[name.lower()]]
    if empty and not any(index.kwargs.get("postgresql_nulls_not_distinct") for index in target.indexes):
        raise RocketMQError(
            f"a row has NULL in column {empty[0]!r} of the key, and could never be updated: leave such rows "
            "out, or write another value with coalesce",
            table=target.name,
        )


def execute_rows(
    connection: sa.Connection, statement: sa.Insert | sa.Delete, target: sa.Table, rows: pa.Table
) -> None:
    """Execute a statement for each row. Instants are in UTC.

    Raises
    ------
    RocketMQError
        A row has a value that drivers do not take.
    """
    with _utc(connection, needed=_has_instants(connection.dialect.name, target, rows.column_names)):
        for part in rows.to_batches(max_chunksize=_CHUNK_ROWS):
            values = _to_python(part, target.name)
            if values:
                connection.execute(statement, values)


def _to_python(rows: pa.RecordBatch, table: str) -> list[dict[str, Any]]:
    """Return rows as drivers take them.

    Raises
    ------
    RocketMQError
        A value has no counterpart in Python.
    """
    try:
        values: list[dict[str, Any]] = rows.to_pylist(maps_as_pydicts="strict")
    except (OverflowError, ValueError, KeyError):
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            if problem := _find_problem(name, column):
                # Without the cause, which may have the value.
                raise RocketMQError(f"column {name} has {problem}", table=table) from None
        raise
    return values


def _find_problem(name: str, values: pa.Array) -> str | None:
    """Return what a column has that Python does not."""
    try:
        values.to_pylist(maps_as_pydicts="strict")
    except OverflowError:
        return (
            "a time outside of the years 1 to 9999, as it is in the session's time zone: leave such rows "
            "out, or write null or another time"
        )
    except UnicodeDecodeError:
        return f"a text that is not UTF-8: write make_valid_utf8({name})"
    except KeyError:
        return "a map with a key twice, of which a JSON object would have one"
    return None


def _has_instants(dialect: str, target: sa.Table, columns: Sequence[str]) -> bool:
    """Whether MySQL would interpret values in the connection's time zone."""
    return dialect in ("mysql", "mariadb") and any(
        isinstance(target.c[name].type, sa.TIMESTAMP) for name in columns if name in target.c
    )


@contextmanager
def _utc(connection: sa.Connection, *, needed: bool) -> Iterator[None]:
    """Have MySQL interpret values as UTC."""
    if not needed:
        yield
        return
    before: Any = connection.scalar(sa.text("SELECT @@session.time_zone"))
    change = sa.text("SET time_zone = :zone")
    connection.execute(change, {"zone": "+00:00"})
    try:
        yield
    finally:
        if not connection.invalidated:
            connection.execute(change, {"zone": before})
