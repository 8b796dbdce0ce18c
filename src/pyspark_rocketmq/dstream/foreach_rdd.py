"""An output operation that writes results and offsets in one transaction of the user's store."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from pyspark_rocketmq.dstream.rdd import RocketMQRDD
from pyspark_rocketmq.planning.batch_replay import BatchId, BatchTurn, decide_turn
from pyspark_rocketmq.spark.stores.offset_store import OffsetStore

__all__ = ["transactional_output"]

H = TypeVar("H")


def transactional_output(
    store: OffsetStore[H], write: Callable[[H, RocketMQRDD], Any]
) -> Callable[[datetime, RocketMQRDD], None]:
    """Return a function for ``foreachRDD`` that writes a batch and its offset ranges in one transaction.

    Start the stream at the store's offsets, without a checkpoint, and without automatic commits::

        strategy = ConsumerStrategy.specificOffset(store.offsets())
        stream = RocketMQUtils.createMQPullStream(ssc, group, topic, strategy, False, True)
        stream.foreachRDD(transactional_output(store, write))

    Delivery promise: exactly once in the store, including aggregations, if ``write`` uses only the
    transaction's handle. A repeated batch has no effect. A batch that would skip messages, or that only
    partly follows the stored end, is rolled back and raises.

    Parameters
    ----------
    store : OffsetStore
        For example ``SqlOffsetStore(url, job="orders")``.
    write : Callable
        Called on the driver with the transaction's handle and the batch's RDD.

    Raises
    ------
    DataLossError
        Raised in the batch: it does not follow the stored end.
    """
    run = uuid.uuid4().hex

    def output(time: datetime, rdd: RocketMQRDD) -> None:
        ranges = [found for found in rdd.offsetRanges if len(found) > 0]
        if not ranges:
            return
        batch = BatchId(run, round(time.timestamp() * 1000))
        with store.transaction() as transaction:
            before = transaction.progress()
            if decide_turn(before, batch, ranges) is BatchTurn.REPEAT:
                return
            transaction.advance(before, batch, ranges)
            write(transaction.handle, rdd)

    return output
