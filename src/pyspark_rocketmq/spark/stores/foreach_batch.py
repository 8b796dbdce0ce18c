"""``foreachBatch`` with a batch's offset ranges: for results and offsets in one store of the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from pyspark.sql import DataFrame

from pyspark_rocketmq.errors import DataLossError
from pyspark_rocketmq.model import OffsetRange
from pyspark_rocketmq.planning.batch_replay import BatchId, BatchTurn, decide_turn
from pyspark_rocketmq.spark.boundary import called_for_batches
from pyspark_rocketmq.spark.stores.checkpoint_log import CheckpointLog
from pyspark_rocketmq.spark.stores.offset_store import OffsetStore

__all__ = ["transactional_writer", "write_in_turn"]

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
        write_in_turn(store, identity, ranges, batch, write)

    return called_for_batches(write_batch)


def write_in_turn(
    store: OffsetStore[H],
    identity: BatchId,
    ranges: Sequence[OffsetRange],
    batch: DataFrame,
    write: Callable[[H, DataFrame], None],
) -> None:
    """Write a batch and its progress in one transaction, unless it is written already.

    Raises
    ------
    DataLossError
        The batch does not follow what is stored.
    """
    try:
        with store.transaction() as transaction:
            before = transaction.progress()
            if decide_turn(before, identity, ranges) is BatchTurn.NEXT:
                transaction.advance(before, identity, ranges)
                write(transaction.handle, batch)
                return
    except DataLossError:
        # The commit of an earlier run may have come meanwhile, from a server that was slow to store it.
        with store.transaction() as transaction:
            stored = transaction.progress()
        if stored.batch != identity or decide_turn(stored, identity, ranges) is BatchTurn.NEXT:
            raise
    # Spark's state (of aggregations, joins) must process the batch nevertheless.
    batch.write.format("noop").mode("append").save()
