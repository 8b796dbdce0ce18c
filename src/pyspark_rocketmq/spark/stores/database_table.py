"""A table of a database whose rows are inserted, updated and deleted. Requires the extra ``sql``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import pyarrow.compute as pc
import sqlalchemy as sa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StructType, TimestampType

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.spark.body_formats import quote
from pyspark_rocketmq.spark.stores.database_connection import connected
from pyspark_rocketmq.spark.stores.sql_rows import (
    execute_rows,
    reflect_table,
    require_whole_keys,
    unique_keys,
    upsert_statement,
)

__all__ = ["DatabaseTable"]


@dataclass(frozen=True, slots=True)
class DatabaseTable:
    """A table in PostgreSQL, MySQL, MariaDB or SQLite.

    Parameters
    ----------
    url : str
        SQLAlchemy's.
    name : str
    schema : str, optional
    key : tuple of str
        The columns by which rows are updated and deleted. Empty: rows are only inserted.
    """

    url: str = field(repr=False)
    name: str
    schema: str | None
    key: tuple[str, ...]

    def check(self, rows: StructType) -> None:
        """Check that the table takes rows of these columns.

        Raises
        ------
        OptionError
            It does not exist, lacks a column, or its key is another one.
        RocketMQError
            The database cannot be reached.
        """
        with self._connected() as connection:
            target = reflect_table(connection, self.name, self.schema, rows, self.key)
            columns = rows.fieldNames()
            if self.key:
                self._check_key(connection.dialect.name, target, columns)

    def _check_key(self, dialect: str, target: sa.Table, columns: Sequence[str]) -> None:
        upsert_statement(dialect, target, self.key, columns)  # checks the keys of MySQL
        unique = [names for names, whole in unique_keys(target) if whole]
        unique += [set(c.columns.keys()) for c in target.constraints if isinstance(c, sa.UniqueConstraint)]
        if set(self.key) not in unique:
            raise OptionError(
                f"table {self.name} has no primary key or unique index of exactly ({', '.join(self.key)}), "
                f"by which rows are updated: CREATE UNIQUE INDEX ON {self.name} ({', '.join(self.key)})"
            )

    def write(self, rows: DataFrame, *, removed: str | None = None) -> None:
        """Write a batch in one transaction.

        Delivery promise: a batch is written whole or not at all. With a key, a batch that is written again
        leaves the same rows. Without one, it is inserted again.

        Parameters
        ----------
        rows : DataFrame
            They pass through the driver. Of a key that comes twice, the last row stays.
        removed : str, optional
            The column that says whether a row is deleted. No key comes twice then.
        """
        schema = StructType([kind for kind in rows.schema.fields if kind.name != removed])
        columns = schema.fieldNames()
        with self._connected(SYSTEM_CLOCK) as connection:
            dialect = connection.dialect.name
            target = reflect_table(connection, self.name, self.schema, schema, self.key)
        local = _local_times(dialect, target, schema)
        found = rows.withColumns(
            {name: F.col(quote(name)).cast("timestamp_ntz") for name in local}
        ).toArrow()  # no connection waits meanwhile, which a firewall would forget
        if not found.num_rows:
            return
        kept = found.select(columns)
        with self._connected(SYSTEM_CLOCK) as connection, connection.begin():
            if removed is not None:
                is_removed = found[removed]
                gone = found.filter(is_removed).select(list(self.key))
                kept = kept.filter(pc.invert(is_removed))
                where = (target.c[name] == sa.bindparam(name) for name in self.key)
                execute_rows(connection, sa.delete(target).where(*where), target, gone)
            statement = sa.insert(target)
            if self.key:
                require_whole_keys(target, self.key, kept)
                statement = upsert_statement(dialect, target, self.key, columns)
            execute_rows(connection, statement, target, kept)

    def _connected(self, clock: Clock | None = None) -> AbstractContextManager[sa.Connection]:
        return connected(self.url, advice=f"check the rows, and table {self.name}", clock=clock)


def _local_times(dialect: str, target: sa.Table, rows: StructType) -> list[str]:
    """Return the columns of instants whose column in the database is a time without a zone."""
    found = []
    for column in rows.fields:
        if isinstance(column.dataType, TimestampType) and column.name in target.c:
            kind = target.c[column.name].type
            instant = isinstance(kind, sa.TIMESTAMP) and (kind.timezone or dialect in ("mysql", "mariadb"))
            if isinstance(kind, sa.DateTime) and not instant:
                found.append(column.name)
    return found
