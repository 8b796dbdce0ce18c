"""Rows added to database tables, as a stream. Needs the extra ``sql`` (SQLAlchemy).

A table is read by a growing id. A micro-batch is a range of ids per table, so a repeated batch has the same
rows. Ids are assigned when a transaction writes, but are visible only after its commit. So new ids wait for a
moment, in which transactions with smaller ids can commit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock, Deadline
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.spark.boundary import called_by_spark
from pyspark_rocketmq.spark.features import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark_rocketmq.spark.read.position_keeper import reader_for
from pyspark_rocketmq.spark.stores.database_connection import connected
from pyspark_rocketmq.streams.frame.python_steps import to_json

if TYPE_CHECKING:
    import sqlalchemy as sa

__all__ = ["TableRange", "TablesReader", "TablesSource"]

_MAX_ROWS: Final = 10_000
_CHUNK_ROWS: Final = 1_000


@called_by_spark
class TablesSource(DataSource):
    """``format("rocketmq-tables")``.

    Options: url.password, pattern, idField, refreshSeconds, settleSeconds, maxRowsPerTrigger.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "rocketmq-tables"

    def schema(self) -> str:
        """Return the columns."""
        return "row string"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader."""
        del schema
        return reader_for(TablesReader(dict(self.options), SYSTEM_CLOCK))


@dataclass(frozen=True, slots=True)
class TableRange(InputPartition):
    """Rows of a table: ids above ``after``, up to ``until``."""

    table: str
    after: int | None
    until: int


@called_by_spark
class TablesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader. Offsets are the last id of each table, by table name.

    Parameters
    ----------
    options : Mapping
        The data source's options.
    clock : Clock
    """

    def __init__(self, options: Mapping[str, str], clock: Clock) -> None:
        given = {name.lower(): value for name, value in options.items()}
        self._url = given["url.password"]
        self._id = given["idfield"]
        self._refresh_ms = float(given["refreshseconds"]) * 1000
        self._settle_s = float(given.get("settleseconds", 1))
        self._max_rows = int(given.get("maxrowspertrigger", _MAX_ROWS))
        self._clock = clock
        self._next: Deadline | None = None
        self._frozen: dict[str, int] | None = None
        self._has_answered = False
        try:
            self._pattern = re.compile(given["pattern"])
        except re.error as error:
            raise OptionError(f"tablePattern is not a regular expression: {error}") from error

    def initialOffset(self) -> dict[str, int]:
        """Return the initial offset: no table is known."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the maximum number of rows per table and batch."""
        return ReadMaxRows(self._max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Store the ids at which the run stops."""
        with self._connected() as connection:
            self._frozen = self._ends(connection, {}, None)
        self._has_answered = True
        self._settle(self._frozen)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Return the ids up to which tables are read. Between two polls, those of the last poll."""
        if self._next is not None and not self._next.expired:
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        with self._connected() as connection:
            ends = self._ends(connection, start, most)
        self._has_answered = True
        if self._frozen is not None:
            return start | ends
        more = most is not None and ends  # of a table with more rows than the limit of a batch
        self._next = None if more else Deadline(self._clock, self._refresh_ms)
        self._settle(ends)
        return start | ends

    def _connected(self) -> AbstractContextManager[sa.Connection]:
        return connected(
            self._url,
            advice=f"tables whose names match tablePattern need the column {self._id} (idField), and a user "
            "who may read them",
            clock=self._clock if self._has_answered else None,
        )

    def _ends(self, connection: sa.Connection, start: dict[str, int], most: int | None) -> dict[str, int]:
        """Return the largest id of each table with rows after ``start``, for at most the limit of rows."""
        tables = self._tables(connection) if self._frozen is None else sorted(self._frozen)
        ends = {table: self._end(connection, table, start.get(table), most) for table in tables}
        return {table: end for table, end in ends.items() if end is not None}

    def _settle(self, ends: dict[str, int]) -> None:
        """Wait a moment for transactions with ids below those seen."""
        if ends:
            self._clock.sleep(self._settle_s)

    def _tables(self, connection: sa.Connection) -> list[str]:
        import sqlalchemy as sa  # noqa: PLC0415 - an extra

        return sorted(
            name for name in sa.inspect(connection).get_table_names() if self._pattern.fullmatch(name)
        )

    def _end(self, connection: sa.Connection, table: str, after: int | None, most: int | None) -> int | None:
        """Return the largest id after ``after``, for at most the limit of rows, or None."""
        import sqlalchemy as sa  # noqa: PLC0415 - an extra

        ids = self._rows(table, after, [sa.column(self._id)])
        if self._frozen is not None:
            ids = ids.where(sa.column(self._id) <= self._frozen[table])
        if most is not None:
            ids = ids.order_by(sa.column(self._id)).limit(most)
        found = connection.execute(sa.select(sa.func.max(ids.subquery().c[self._id]))).scalar()
        if found is None:
            return None
        if not isinstance(found, int | Decimal) or found != int(found):
            raise OptionError(
                "idField names a column of growing whole numbers, by which rows are read once",
                table=table,
                column=self._id,
                value=repr(found),
            )
        return int(found)

    def _rows(self, table: str, after: int | None, columns: list[Any]) -> sa.Select[Any]:
        import sqlalchemy as sa  # noqa: PLC0415 - an extra

        rows = sa.select(*columns).select_from(sa.table(table))
        return rows if after is None else rows.where(sa.column(self._id) > after)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Return a range for each table that has new rows."""
        return [
            TableRange(table, start.get(table), until)
            for table, until in sorted(end.items())
            if start.get(table) != until
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a range as JSON."""
        import sqlalchemy as sa  # noqa: PLC0415 - an extra

        assert isinstance(partition, TableRange)
        self._has_answered = True  # to the driver
        query = self._rows(partition.table, partition.after, [sa.text("*")])
        query = query.where(sa.column(self._id) <= partition.until).order_by(sa.column(self._id))
        with self._connected() as connection:
            found = connection.execution_options(stream_results=True).execute(query)
            for rows in found.mappings().partitions(_CHUNK_ROWS):
                texts = [to_json(dict(row)) for row in rows]
                yield pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], ["row"])

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: no data is kept per batch."""
