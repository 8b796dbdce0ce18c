"""Results and offsets in one transaction of a database. Requires the extra ``sql`` (SQLAlchemy)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock
from pyspark_rocketmq.errors import DataLossError, RocketMQError
from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.planning.batch_replay import BatchId, StoredProgress
from pyspark_rocketmq.spark.stores.database_connection import (
    database_errors,
    open_connection,
    open_engine,
)
from pyspark_rocketmq.spark.stores.database_url import parse_url, shown_url
from pyspark_rocketmq.spark.stores.offset_store import OffsetStore, StoreTransaction

__all__ = ["SqlOffsetStore"]

_METADATA: Final = sa.MetaData()


def _name(length: int) -> sa.types.TypeEngine[str]:
    """Return the type of a name, case-sensitive: for MySQL and MariaDB, orders and Orders are equal keys."""
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


# Independent of the server's default engine.
_WITH_TRANSACTIONS: Final[dict[str, Any]] = {"mysql_engine": "InnoDB", "mariadb_engine": "InnoDB"}

_OFFSETS: Final = sa.Table(
    "rocketmq_offsets",
    _METADATA,
    sa.Column("job", _name(200), primary_key=True),
    sa.Column("topic", _name(255), primary_key=True),
    sa.Column("broker_name", _name(255), primary_key=True),
    sa.Column("queue_id", sa.Integer, primary_key=True),
    sa.Column("next_offset", sa.BigInteger, nullable=False),
    **_WITH_TRANSACTIONS,
)
_BATCHES: Final = sa.Table(
    "rocketmq_batches",
    _METADATA,
    sa.Column("job", _name(200), primary_key=True),
    sa.Column("query_id", _name(200), nullable=False),
    sa.Column("batch", sa.BigInteger, nullable=False),
    **_WITH_TRANSACTIONS,
)

_CHANGED_SINCE_READ: Final = 1020
"""MariaDB's error with ``innodb_snapshot_isolation``, which is the default since 11.6."""


class SqlOffsetStore(OffsetStore[sa.Connection]):
    """Offsets in the tables ``rocketmq_offsets`` and ``rocketmq_batches``, created on first use.

    Delivery promise: exactly once for rows written through the transaction's connection. A repeated batch has
    no effect. A batch that does not begin where the last one ended is rolled back.

    Parameters
    ----------
    url : str
        Any database that SQLAlchemy supports: ``"postgresql+psycopg://…"``, ``"mysql+pymysql://…"``,
        ``"sqlite:///results.db"``.
    job : str
        The name of the job. Each job has separate rows in the two tables.

    Examples
    --------
    >>> store = SqlOffsetStore("sqlite:///results.db", job="orders")
    >>> store.starting_offsets()
    'earliest'
    """

    def __init__(self, url: str, *, job: str) -> None:
        self._url = url
        self._job = job
        self._engine: sa.Engine | None = None

    def __repr__(self) -> str:
        return f"SqlOffsetStore({shown_url(parse_url(self._url))}, job={self._job!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_engine": None}

    @contextmanager
    def transaction(self) -> Iterator[StoreTransaction[sa.Connection]]:
        """Begin a database transaction.

        Raises
        ------
        OptionError
            The URL is invalid, or the database's driver is missing.
        RocketMQError
            The database does not answer, or refuses a statement. The transaction is rolled back.
        """
        if self._engine is None:
            self._engine = self._with_tables()
        with self._begun(self._engine, SYSTEM_CLOCK) as connection:
            yield _SqlTransaction(connection, self._job)

    def _with_tables(self) -> sa.Engine:
        engine = open_engine(self._url)
        for table in _METADATA.sorted_tables:
            self._create(engine, table)
        return engine

    def _create(self, engine: sa.Engine, table: sa.Table) -> None:
        """Create a table, unless it exists, or another job creates it at the same moment."""
        try:
            with self._begun(engine) as connection:
                table.create(connection, checkfirst=True)
        except RocketMQError:
            with self._begun(engine) as connection:
                if not sa.inspect(connection).has_table(table.name):
                    raise

    @contextmanager
    def _begun(self, engine: sa.Engine, clock: Clock | None = None) -> Iterator[sa.Connection]:
        advice = "the transaction is rolled back, and its batch runs again when the query is started again"
        said = database_errors(engine.url, advice=advice, job=self._job)
        with open_connection(engine, clock) as connection, said, connection.begin():
            yield connection

    def close(self) -> None:
        """Close the database connections. The store can be used again."""
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None


class _SqlTransaction(StoreTransaction[sa.Connection]):
    def __init__(self, connection: sa.Connection, job: str) -> None:
        self.handle = connection
        self._job = job

    def progress(self) -> StoredProgress:
        rows = self.handle.execute(sa.select(_OFFSETS).where(_OFFSETS.c.job == self._job))
        offsets = {
            MessageQueue(row.topic, row.broker_name, row.queue_id): int(row.next_offset) for row in rows
        }
        last = self.handle.execute(sa.select(_BATCHES).where(_BATCHES.c.job == self._job)).first()
        return StoredProgress(offsets, None if last is None else BatchId(last.query_id, int(last.batch)))

    def advance(self, before: StoredProgress, batch: BatchId, ranges: Sequence[OffsetRange]) -> None:
        self._note(before.batch, batch)
        for offsets in ranges:
            self._move(offsets, before.offsets)

    def _note(self, before: BatchId | None, batch: BatchId) -> None:
        """Set the last batch. Two writers of one job conflict at this row."""
        values = {"query_id": batch.query_id, "batch": batch.number}
        if before is None:
            self._execute(sa.insert(_BATCHES).values(job=self._job, **values), batch)
            return
        self._update(
            sa.update(_BATCHES)
            .where(
                _BATCHES.c.job == self._job,
                _BATCHES.c.query_id == before.query_id,
                _BATCHES.c.batch == before.number,
            )
            .values(**values),
            batch,
        )

    def _move(self, offsets: OffsetRange, before: Mapping[MessageQueue, int]) -> None:
        """Set a queue's end, if it is still where the range begins."""
        queue = offsets.queue
        if queue not in before:
            place = {"topic": queue.topic, "broker_name": queue.broker_name, "queue_id": queue.queue_id}
            values = {"job": self._job, **place, "next_offset": offsets.until_offset}
            self._execute(sa.insert(_OFFSETS).values(**values), offsets)
            return
        self._update(
            sa.update(_OFFSETS)
            .where(
                _OFFSETS.c.job == self._job,
                _OFFSETS.c.topic == queue.topic,
                _OFFSETS.c.broker_name == queue.broker_name,
                _OFFSETS.c.queue_id == queue.queue_id,
                _OFFSETS.c.next_offset == offsets.from_offset,
            )
            .values(next_offset=offsets.until_offset),
            offsets,
        )

    def _update(self, statement: sa.Update, what: object) -> None:
        if self._execute(statement, what) != 1:
            raise self._overtaken(what)

    def _execute(self, statement: sa.Insert | sa.Update, what: object) -> int:
        """Execute a statement and return the number of its rows."""
        try:
            return self.handle.execute(statement).rowcount
        except sa.exc.DBAPIError as error:
            code = None if error.orig is None else next(iter(error.orig.args), None)
            if isinstance(error, sa.exc.IntegrityError) or code == _CHANGED_SINCE_READ:
                raise self._overtaken(what) from error
            raise

    def _overtaken(self, what: object) -> DataLossError:
        return DataLossError(
            "the stored offsets changed during the batch: another query writes under this job's name",
            condition="BATCH_OVERLAPS",
            job=self._job,
            at=what,
        )
