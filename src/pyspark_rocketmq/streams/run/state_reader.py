"""A job's state as tables, read from its checkpoint, while the job runs or after it has stopped.

# Facts (Spark 4.3: the sources `state-metadata` and `statestore`): the state is that of the last finished
# batch; `stateVarName` names a variable of `transformWithState`, `joinSide` a side of a join;
# `readChangeFeed` needs RocksDB's change logs, which jobs of this package write.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import BinaryType, StructType

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.spark.body_formats import quote
from pyspark_rocketmq.streams.run.job_registry import find_job
from pyspark_rocketmq.streams.run.session import get_session

__all__ = ["JobState", "state"]

_JOIN: Final = "symmetricHashJoin"
_UNTIL: Final = "__until"
_PARTS: Final = ("key", "user_map_key", "value", "list_element", "user_map_value")
_CHANGE: Final = ("batch_id", "change_type")


@dataclass(frozen=True, slots=True)
class _Table:
    name: str
    operator: int
    first_batch: int
    option: tuple[str, str] | None = None

    def options(self) -> dict[str, str]:
        return {"operatorId": str(self.operator), **(dict([self.option]) if self.option else {})}


class JobState:
    """The state of a job, as `state` returns it.

    Parameters
    ----------
    spark : SparkSession
    checkpoint : str
        The job's checkpoint.
    """

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        self._spark = spark
        self._checkpoint = checkpoint

    def tables(self) -> list[str]:
        """Return the names of the tables: those of a processor, or those of the job's step.

        ``groups`` is the state of Spark's aggregations (including windows) and of incremental ones,
        ``windows`` that of other fire modes, ``left`` and ``right`` the sides of a join, ``distinct`` the
        records seen.

        Raises
        ------
        OptionError
            The job has not finished a batch, or keeps no state.
        """
        return [table.name for table in self._tables()]

    def table(self, name: str | None = None) -> DataFrame:
        """Return a table as of the last finished batch at the time of the call.

        Parameters
        ----------
        name : str, optional
            A name in `tables`. Optional if there is only one.

        Returns
        -------
        DataFrame
            The fields of key and value, or both as structs if they share a name. A key of several fields that
            this package packs is one JSON text.

        Raises
        ------
        OptionError
            The table does not exist.
        """
        return self._read(self._find(name), {})

    def changes(
        self, name: str | None = None, *, first: int | None = None, last: int | None = None
    ) -> DataFrame:
        """Return the changes of a table, batch by batch.

        Parameters
        ----------
        name : str, optional
            See `table`.
        first, last : int, optional
            The range of batches. Default: all batches that the checkpoint still has.

        Returns
        -------
        DataFrame
            ``batch_id``, ``change_type`` (``update``, ``append``, ``delete``), and the columns of `table`.
        """
        table = self._find(name)
        options = {
            "readChangeFeed": "true",
            "changeStartBatchId": str(table.first_batch if first is None else first),
        }
        if last is not None:
            options["changeEndBatchId"] = str(last)
        return self._read(table, options)

    def _find(self, name: str | None) -> _Table:
        tables = self._tables()
        if name is None and len(tables) == 1:
            return tables[0]
        known = ", ".join(table.name for table in tables)
        for table in tables:
            if table.name == name:
                return table
        raise OptionError(f"the job's state has the tables {known}: name one of them", table=name)

    def _read(self, table: _Table, options: dict[str, str]) -> DataFrame:
        with self._translate_errors():
            reader = self._spark.read.format("statestore").options(**table.options(), **options)
            return _flatten(reader.load(self._checkpoint))

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except PySparkException as error:
            text = str(error).splitlines()[0]
            raise OptionError(
                f"the job's state cannot be read; has it finished a batch? {text}",
                checkpoint=self._checkpoint,
            ) from error

    def _tables(self) -> list[_Table]:
        with self._translate_errors():
            rows = self._spark.read.format("state-metadata").load(self._checkpoint).collect()
        found: dict[str, _Table] = {}
        for row in sorted(rows, key=lambda row: row["operatorId"]):
            for table in _tables_of(row):
                known = table.name in found and found[table.name].operator != table.operator
                name = f"{table.name}#{table.operator}" if known else table.name
                found[name] = replace(table, name=name)
        if not found:
            raise OptionError(
                "the job keeps no state, or has not finished a batch", checkpoint=self._checkpoint
            )
        return list(found.values())


def state(job: str, *, spark: SparkSession | None = None, checkpoint: str | None = None) -> JobState:
    """Return the state of a job, which may be running, in this process or another, or stopped.

    Parameters
    ----------
    job : str
        The job: ``namespace.pipeline``, or its job id.
    spark : SparkSession, optional
        Default: the active session, or a new one.
    checkpoint : str, optional
        The job's checkpoint. Required for jobs that were not started on this machine.

    Raises
    ------
    OptionError
        The job does not exist.
    """
    where = find_job(job).checkpoint if checkpoint is None else checkpoint
    return JobState(get_session(spark), where)


def _tables_of(row: Row) -> Iterator[_Table]:
    operator, first = row["operatorId"], row["minBatchId"]
    properties: dict[str, Any] = json.loads(row["operatorProperties"] or "{}")
    if "stateVariables" in properties:
        for variable in properties["stateVariables"]:
            name = variable["stateName"]
            if name.startswith("$"):  # Spark's own: timers, times to live
                continue
            yield _Table(name, operator, first, ("stateVarName", name))
    elif row["operatorName"] == _JOIN:
        for side in ("left", "right"):
            yield _Table(side, operator, first, ("joinSide", side))
    else:
        yield _Table("distinct" if "edupe" in row["operatorName"] else "groups", operator, first)


def _flatten(df: DataFrame) -> DataFrame:
    """Return the fields of key and value as columns with readable names."""
    columns: list[Column] = [F.col(name) for name in _CHANGE if name in df.columns]
    found: dict[str, Column] = {}
    parts = [part for part in _PARTS if part in df.columns]
    for part in parts:
        kind = df.schema[part].dataType
        assert isinstance(kind, StructType)
        for inner in kind.fields:
            if inner.name == "value" and isinstance(inner.dataType, StructType):  # has a time to live
                for field in inner.dataType.fields:
                    found[field.name] = F.col(f"{part}.value.{quote(field.name)}")
                continue
            if isinstance(inner.dataType, BinaryType) and inner.name == "folds":
                continue  # shown by the result's text next to it
            if inner.name in found:
                return df.select(*columns, *parts)
            found[inner.name] = F.col(f"{part}.{quote(inner.name)}")
    if _UNTIL in found:
        found[_UNTIL] = F.timestamp_micros(found[_UNTIL])
    shown = [value.alias(name.removeprefix("__")) for name, value in found.items()]
    return df.select(*columns, *shown)
