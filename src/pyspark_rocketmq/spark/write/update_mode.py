"""Update mode: changed rows of an aggregation as messages.

# Facts (Spark 4.0 to 4.3, PythonWriteBuilder): a Python data source takes append and complete; a query in
# update mode fails at its start with "does not support Update mode". ``foreachBatch`` takes every mode.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import ArrayType, StringType

from pyspark_rocketmq.spark.boundary import called_for_batches

__all__ = ["message_writer"]

_NEEDS_JOB: Final = frozenset({"deliveryguarantee", "jobid"})
_JOB: Final = frozenset({"jobid", "jobbatch"})
_PLACES: Final = frozenset({"shardingkey", "messagegroup", "queueid"})
"""Columns that select a row's queue."""


def message_writer(job: str, options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` that sends a batch's rows as messages.

    Delivery promise: that of a batch write with the job and the query's id as ``jobId``, and the batch's
    number as ``jobBatch``: at least once, and each row once if ``deliveryGuarantee`` is transactional. A
    query without its former checkpoint is another one, whose batches are all written. In update mode, a row
    is sent whenever it has changed; readers use the last message of a key.

    Order: rows with ``keys`` that select no queue get their keys as sharding key. All messages of a key are
    then in one queue, in the order of the batches, and the last one is the latest row. Between keys of
    different queues there is no order. See the sink's rules on order for what moves a key to another queue.

    Parameters
    ----------
    job : str
        A name that no other query that writes to the topic has.
    options : Mapping
        The options of the sink.
    """
    given = {name.lower() for name in options}

    def send(batch: DataFrame, number: int) -> None:
        query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        once = {"jobId": f"{job}/{query}", "jobBatch": str(number)} if given & _NEEDS_JOB else {}
        others = {name: value for name, value in options.items() if name.lower() not in _JOB}
        rows = _by_key(batch, given)
        rows.write.format("rocketmq").mode("append").options(**others, **once).save()

    return called_for_batches(send)


def _by_key(rows: DataFrame, options: Collection[str]) -> DataFrame:
    """Let the keys of a row select its queue, if nothing else does."""
    names = {name.lower(): name for name in rows.columns}
    key = names.get("keys") or names.get("key")
    if key is None or _PLACES & {*names, *options}:
        return rows
    match rows.schema[key].dataType:
        case StringType():
            joined = F.col(key)
        case ArrayType():
            joined = F.concat_ws(" ", key)
        case _:  # an error of the sink's
            return rows
    return rows.withColumn("shardingKey", F.nullif(joined, F.lit("")))
