"""Records and results with an error: skipped, kept as dead letters, or the end of the query."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pyspark_rocketmq.streams.frame.python_steps import ADVICE, VALUE
from pyspark_rocketmq.streams.plan.choices import OnError
from pyspark_rocketmq.streams.plan.nodes import Node

__all__ = ["Guard"]


@dataclass(frozen=True, slots=True)
class Guard:
    """The handling of records with an error.

    Parameters
    ----------
    mode : OnError
    found : list of DataFrame
        The records with an error, per step: their text and the cause.
    """

    mode: OnError
    found: list[DataFrame] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def without_errors(self, df: DataFrame, error: Column, step: Node) -> DataFrame:
        """Return the rows without an error. The others are counted, or fail the query.

        The count is an observed metric of the query, under the step's name. It also keeps Spark from
        computing the step twice, because Spark pushes nothing below it.
        """
        counted = self.count_errors(df, error, step)
        if self.mode == "fail":
            return counted
        if VALUE in df.columns:
            text = _cause(error, step)
            self.found.append(
                df.where(error.isNotNull()).select(F.col(VALUE).alias("body"), text.alias("cause"))
            )
        return counted.where(error.isNull())

    def count_errors(self, df: DataFrame, error: Column, step: Node, advice: str = ADVICE) -> DataFrame:
        """Return all rows. Those with an error are counted, or fail the query."""
        counted = df.observe(self._metric(step.name), F.count_if(error.isNotNull()).alias("skipped"))
        if self.mode != "fail":
            return counted
        failing = F.raise_error(F.concat(_cause(error, step), F.lit(f": {advice}"))).cast("boolean")
        return counted.where(F.when(error.isNotNull(), failing).otherwise(F.lit(True)))

    def _metric(self, step: str) -> str:
        """Return a metric name that is unique in the query. The part after ``/`` only makes it unique."""
        self.names.append(step)
        times = self.names.count(step)
        return step if times == 1 else f"{step}/{times}"


def _cause(error: Column, step: Node) -> Column:
    return F.concat(F.lit(f"{step.name}: "), error)
