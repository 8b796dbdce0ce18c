"""Dimension tables: small tables in a file or database, reloaded while the stream runs.

Spark reads the table in each micro-batch through a Python data source. A worker caches the table for the
refresh time, so changed and added rows are visible after that time at the latest.
"""

from __future__ import annotations

import contextlib
import csv
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock, Deadline
from pyspark_rocketmq.errors import PlanError, RocketMQError
from pyspark_rocketmq.spark.body_formats import quote
from pyspark_rocketmq.spark.boundary import called_by_spark
from pyspark_rocketmq.spark.stores.database_connection import connected
from pyspark_rocketmq.streams.frame.python_steps import to_json, to_plain

if TYPE_CHECKING:
    import sqlalchemy as sa

__all__ = ["DimensionSource", "DimensionTable"]

_LOADED: Final[dict[str, tuple[float, list[dict[str, Any]]]]] = {}
"""The tables that this worker has loaded, with the times at which their loads began."""

_QUIET_MS: Final = 1_000
_PATIENCE_MS: Final = 10_000
_POLL_S: Final = 0.1

_TABLE: Final = re.compile(r"""(?i)(?!(?:SELECT|VALUES|WITH)\b)(?:[^\s"`\[]|"[^"]*"|`[^`]*`|\[[^]]*\])+""")
"""A table's name: without white space, except between quotes. Everything else is a query."""


@dataclass(frozen=True, slots=True)
class DimensionTable:
    """The table of a dimension join.

    Parameters
    ----------
    origin : str
        A file (``.csv`` with a header, else JSON lines), or a SQLAlchemy URL.
    query : str, optional
        A table or a query of the database.
    refresh_s : float
        The maximum age of a worker's cached table, in seconds.
    columns : tuple of str
    """

    origin: str = field(repr=False)
    query: str | None
    refresh_s: float
    columns: tuple[str, ...]

    @classmethod
    def load(cls, origin: str, query: str | None, refresh_s: float, step: str) -> DimensionTable:
        """Return the table with its current columns.

        Raises
        ------
        PlanError
            The table cannot be read, or has no rows from which to infer its columns.
        """
        try:
            columns = _database_columns(origin, query) if query else _file_columns(origin)
        except RocketMQError as error:
            facts = {**error.facts, "step": step}
            raise PlanError(f"the dimension table cannot be read: {error.message}", **facts) from error
        except (OSError, ValueError) as error:
            raise PlanError(f"the dimension table cannot be read: {error}", step=step) from error
        if not columns:
            raise PlanError("the dimension table has no columns: it needs a first row", step=step)
        return cls(origin, query, refresh_s, tuple(columns))

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the table as a DataFrame of texts that is read again in each batch."""
        spark.dataSource.register(DimensionSource)
        schema = ", ".join(f"{quote(name)} string" for name in self.columns)
        options = {"origin.password": self.origin, "refresh": str(self.refresh_s)}
        if self.query is not None:
            options["query"] = self.query
        return spark.read.format("rocketmq-dimension").schema(schema).options(**options).load()


@called_by_spark
class DimensionSource(DataSource):
    """``format("rocketmq-dimension")``."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "rocketmq-dimension"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        return _Reader(dict(self.options), schema.fieldNames())


@called_by_spark
class _Reader(DataSourceReader):
    def __init__(self, options: Mapping[str, str], columns: list[str]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        del partition
        rows = cached_rows(
            self._options["origin.password"],
            self._options.get("query"),
            float(self._options["refresh"]),
            clock=SYSTEM_CLOCK,
        )
        columns = {
            name: pa.array([_text(row.get(name)) for row in rows], pa.string()) for name in self._columns
        }
        yield pa.RecordBatch.from_pydict(columns)


def cached_rows(origin: str, query: str | None, refresh_s: float, *, clock: Clock) -> list[dict[str, Any]]:
    """Return the table's rows, from the cache if they are recent enough."""
    key = f"{origin}\n{query}"
    known, began = _LOADED.get(key), clock.monotonic()
    if known is not None and began - known[0] < refresh_s:
        return known[1]
    rows = _database_rows(origin, query, clock) if query else _whole_file_rows(origin, clock)
    _LOADED[key] = (began, rows)  # what changes while a large table is loaded may not be in it
    return rows


def _whole_file_rows(path: str, clock: Clock) -> list[dict[str, Any]]:
    """Return the rows of a file once it has not been written to for a moment: before, it may be half written.

    A file that is written to all the time is read as it is.
    """
    patience = Deadline(clock, _PATIENCE_MS)
    while not patience.expired:
        before = _stamp(path)
        if before is not None and not 0 <= clock.now_ms() - before[0] // 1_000_000 < _QUIET_MS:
            with contextlib.suppress(OSError, ValueError):  # or it is raised below
                rows = _file_rows(path)
                if _stamp(path) == before:
                    return rows
            if _stamp(path) == before:
                break
        clock.sleep(_POLL_S)
    return _file_rows(path)


def _stamp(path: str) -> tuple[int, int, int] | None:
    """Return what changes when a file is written, or None while there is none."""
    with contextlib.suppress(FileNotFoundError):
        found = Path(path).stat()
        return found.st_mtime_ns, found.st_size, found.st_ino
    return None


def _file_rows(path: str) -> list[dict[str, Any]]:
    with Path(path).open(encoding="utf-8-sig", newline="") as lines:  # spreadsheets write a mark at the start
        if path.endswith(".csv"):
            try:
                return list(csv.DictReader(lines))
            except csv.Error as error:  # such as a field of more than 128 KiB: JSON lines may have that
                raise ValueError(f"{path} is no CSV: {error}") from error
        rows = [json.loads(line) for line in lines if line.strip()]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path} has lines that are not JSON objects")
    return rows


def _file_columns(path: str) -> list[str]:
    # A CSV row that is longer than the header has the rest at None.
    return list(dict.fromkeys(name for row in _file_rows(path) for name in row if name is not None))


def _statement(query: str) -> str:
    return f"SELECT * FROM {query}" if _TABLE.fullmatch(query.strip()) else query  # noqa: S608 - the user's


def _database_rows(url: str, query: str, clock: Clock) -> list[dict[str, Any]]:
    with _result(url, query, clock) as result:
        return [dict(row) for row in result.mappings()]


def _database_columns(url: str, query: str) -> list[str]:
    with _result(url, query) as result:
        return list(result.keys())


@contextlib.contextmanager
def _result(url: str, query: str, clock: Clock | None = None) -> Iterator[sa.CursorResult[Any]]:
    advice = "check the table or query of the dimension"
    with connected(url, advice=advice, clock=clock) as connection:
        # As it is: a colon or a percent sign in it begins no parameter.
        as_it_is = connection.execution_options(no_parameters=True)
        yield as_it_is.exec_driver_sql(_statement(query))


def _text(value: Any) -> str | None:
    if isinstance(value, bool | dict | list):
        return to_json(value)
    return None if value is None else to_plain(value)
