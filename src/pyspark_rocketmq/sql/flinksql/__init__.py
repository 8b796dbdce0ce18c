"""Flink's dialect of SQL: queries, as trees, to Spark's SQL."""

from __future__ import annotations

from pyspark_rocketmq.sql.definitions.job_functions import register_function
from pyspark_rocketmq.sql.flinksql.functions import FUNCTIONS
from pyspark_rocketmq.sql.flinksql.queries import JobQueries, explained
from pyspark_rocketmq.sql.flinksql.relations import Relation
from pyspark_rocketmq.sql.flinksql.translate import Translated, translate, translate_expression

__all__ = [
    "FUNCTIONS",
    "JobQueries",
    "Relation",
    "Translated",
    "explained",
    "register_function",
    "translate",
    "translate_expression",
]
