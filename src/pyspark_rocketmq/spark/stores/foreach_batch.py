"""``foreachBatch`` with a batch's offset ranges: for results and offsets in one store of the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyspark.sql import DataFrame

from pyspark_rocketmq.planning.batch_replay import BatchTurn, decide_turn
from pyspark_rocketmq.spark.boundary import called_for_batches
from pyspark_rocketmq.spark.stores.checkpoint_log import CheckpointLog
from pyspark_rocketmq.spark.stores.offset_store import OffsetStore

__all__ = ["transactional_writer"]

H = TypeVar("H")


def transactional_writer(
    *, checkpoint: str, store: OffsetStore[H], write: Callable[[H, DataFrame], None]
) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` that writes rows and offset ranges in one transaction.

    Spark does not pass a batch's offsets to ``foreachBatch``: they are read from the checkpoint's offset log.
    Every range must begin at the store's offset.

    Delivery promise: exactly once in the store, including aggregations, if ``write`` uses only the
    transaction's handle. A repeated batch has no effect. A batch that would skip messages is rolled back and
    raises.

    Parameters
    ----------
    checkpoint : str
        The query's ``checkpointLocation``.
    store : OffsetStore
        For example ``SqlOffsetStore(url, job="orders")``.
    write : Callable
        Called with the transaction's handle and the batch's rows. ``append_to(table)`` and
        ``upsert_into(table, key=[...])`` return such functions for databases. The table must exist: it is not
        created, and the error names its CREATE TABLE statement.

    Raises
    ------
    DataLossError
        Raised in the query: the batch does not follow the stored end.

    Examples
    --------
    >>> query = (  # doctest: +SKIP
    ...     totals.writeStream.outputMode("update")
    ...     .option("checkpointLocation", checkpoint)
    ...     .foreachBatch(transactional_writer(
    ...         checkpoint=checkpoint, store=store, write=upsert_into("totals", key=["product"])))
    ...     .start()
    ... )
    """

    def write_batch(batch: DataFrame, batch_id: int) -> None:
        log = CheckpointLog(batch.sparkSession, checkpoint)
        identity, ranges = log.batch_id(batch_id), log.ranges(batch_id)
        with store.transaction() as transaction:
            before = transaction.progress()
            if decide_turn(before, identity, ranges) is BatchTurn.REPEAT:
                # Spark's state (of aggregations, joins) must process the batch nevertheless.
                batch.write.format("noop").mode("append").save()
                return
            transaction.advance(before, identity, ranges)
            write(transaction.handle, batch)

    return called_for_batches(write_batch)
