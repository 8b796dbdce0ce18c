"""Values of this process, and its standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TextIO

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pyspark_rocketmq.streams.connectors.base import BatchWriter, SinkConnector, SourceConnector, texts
from pyspark_rocketmq.streams.frame.flow import Flow
from pyspark_rocketmq.streams.frame.python_steps import TIME, VALUE, to_json, to_text
from pyspark_rocketmq.streams.plan.analysis import Analysis
from pyspark_rocketmq.streams.plan.nodes import Plan, Shape

__all__ = ["PrintSink", "RowsSource"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RowsSource(SourceConnector):
    """Values: texts (JSON or not), or records."""

    rows: Sequence[Any]
    json: bool = False

    @property
    def shape(self) -> Shape:
        """The shape of its records."""
        if self.schema is not None:
            return Shape.COLUMNS
        if self.json:
            return Shape.JSON
        return Shape.TEXT if all(isinstance(row, str | bytes) for row in self.rows) else Shape.JSON

    @property
    def bounded(self) -> bool:
        """Whether it is bounded."""
        return True

    def read(self, spark: SparkSession, analysis: Analysis, plan: Plan) -> Flow:
        """Return the source's flow. A record's time is the time of reading."""
        del analysis, plan
        df = spark.createDataFrame([(to_text(row),) for row in self.rows], f"{VALUE} string")
        return Flow(df.select(F.current_timestamp().alias(TIME), VALUE), self.shape)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PrintSink(SinkConnector):
    """Standard output, one JSON line per row."""

    def rows(self, flow: Flow, plan: Plan) -> DataFrame:
        """Return lines."""
        del plan
        return texts(flow)

    def batch_writer(self, plan: Plan, checkpoint: str | None, *, numbered: bool) -> BatchWriter:
        """Return a function that prints a batch. A repeated batch is printed again."""
        del plan, checkpoint, numbered
        return lambda df, _: print_rows(df, sys.stdout)


def print_rows(df: DataFrame, out: TextIO) -> None:
    """Print rows, with whole doubles without ``.0``, as RocketMQ Streams does."""
    # Spark 4.3 keeps the job of each toLocalIterator(), including its rows, even after both sides finished.
    out.writelines(f"{_drop_zeros(text)}\n" for (text,) in df.collect())
    out.flush()


def _drop_zeros(text: str) -> str:
    try:
        value = json.loads(text, parse_float=_parse_number)
        return value if isinstance(value, str) else to_json(value)
    except (ArithmeticError, RecursionError, ValueError):  # an exponent that no decimal has, or very deep
        return text


def _parse_number(text: str) -> float | int:
    exact, value = Decimal(text), float(text)
    if exact != Decimal(repr(value)):
        raise ValueError("a double has fewer digits")  # the line is printed as it is
    return int(exact) if value.is_integer() else value
