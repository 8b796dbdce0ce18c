"""Monitor queries and groups while they run. The documentation includes parts of this file."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from pyspark_rocketmq.spark import QueryLog


def write_log(spark: SparkSession, folder: str) -> QueryLog:
    """Log the progress of every query of the session to a folder."""
    log = QueryLog(folder)
    spark.streams.addListener(log)
    return log


def look(
    name_server: str, group: str, topic: str, stream: DataFrame, folder: str, *, seconds: float = 10
) -> list[object]:
    """Show topics, lag and offsets, follow a stream for some seconds, and plot the query log."""
    from pyspark_rocketmq import notebook  # noqa: PLC0415 - an extra

    return [
        notebook.topics(name_server),
        notebook.lag(name_server, group, topic),
        notebook.offsets(name_server, group, topic),
        notebook.live(stream.groupBy("tags").count(), seconds=seconds, mode="complete"),
        notebook.plot_lag(folder),
    ]
