"""SQL over RocketMQ: tables declared as in rocketmq-flink, job files, and the names of its code-level API.

Names resolve on first use, because Spark's processes that import the package need none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_rocketmq._lazy import lazy_names

if TYPE_CHECKING:
    from pyspark_rocketmq.sql.catalog import TableDescription, describe_table, list_tables
    from pyspark_rocketmq.sql.job import SqlJob, execute

__all__ = ["SqlJob", "TableDescription", "describe_table", "execute", "list_tables"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".catalog": ("TableDescription", "describe_table", "list_tables"),
        ".job": ("SqlJob", "execute"),
    },
)
