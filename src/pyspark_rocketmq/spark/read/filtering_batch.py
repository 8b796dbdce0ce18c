"""The batch reader that uses the query's filters, for Spark 4.1 and later: earlier releases pass none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pyspark.sql.datasource import Filter

from pyspark_rocketmq.model import OffsetRange
from pyspark_rocketmq.offsets.offset_lookup import PlanningClient
from pyspark_rocketmq.spark.boundary import called_by_spark
from pyspark_rocketmq.spark.read.batch import RocketMQBatchReader
from pyspark_rocketmq.spark.read.pushdown import Demand, demand_of, narrow_positions

__all__ = ["FilteringBatchReader"]


@called_by_spark
class FilteringBatchReader(RocketMQBatchReader):
    """The reader of ``pushDownFilters=true``: uses the query's filters from Spark to read less.

    Spark evaluates every filter again, so the rows are those of the plain reader. But Spark 4.1 to 4.3 keep
    one plan per ``load()``: every use of the DataFrame must have the same filters.
    """

    _demand = Demand()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Record the usable filters, and return all filters to Spark."""
        columns = {column.name: column.source for column in self._projection.columns}
        self._demand = demand_of(filters, columns)
        if self._options.selector.takes_all and self._demand.tags:
            self._options = replace(self._options, tags=tuple(sorted(self._demand.tags)))
        return filters

    def _ranges(self, client: PlanningClient) -> tuple[OffsetRange, ...]:
        return narrow_positions(client, super()._ranges(client), self._demand)
