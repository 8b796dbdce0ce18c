"""The store of offsets in a file, without Hadoop."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import DataLossError
from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.planning.batch_replay import BatchId, StoredProgress
from pyspark_rocketmq.spark.stores.offset_store import FileTransaction

QUEUE = MessageQueue("orders", "broker-a", 0)
FIRST = StoredProgress({QUEUE: 5}, BatchId("mine", 0))
OTHERS = StoredProgress({QUEUE: 9}, BatchId("another", 3))
RANGES = [OffsetRange(QUEUE, 5, 8)]


class File:
    def __init__(self, progress: StoredProgress) -> None:
        self.progress = progress

    def __call__(self) -> StoredProgress:
        return self.progress


def test_a_transaction_moves_the_ends_of_its_ranges():
    transaction = FileTransaction(File(FIRST))
    transaction.advance(transaction.progress(), BatchId("mine", 1), RANGES)
    transaction.check()
    assert transaction.after == StoredProgress({QUEUE: 8}, BatchId("mine", 1))


def test_another_query_s_offsets_are_not_overwritten():
    file = File(FIRST)
    transaction = FileTransaction(file)
    before = transaction.progress()
    file.progress = OTHERS
    with pytest.raises(DataLossError, match="another query writes to the same file"):
        transaction.advance(before, BatchId("mine", 1), RANGES)
    assert transaction.after is None


def test_it_is_looked_at_again_when_the_rows_are_written():
    file = File(FIRST)
    transaction = FileTransaction(file)
    transaction.advance(transaction.progress(), BatchId("mine", 1), RANGES)
    file.progress = OTHERS
    with pytest.raises(DataLossError, match="BATCH_OVERLAPS"):
        transaction.check()


def test_the_caller_s_view_counts():
    transaction = FileTransaction(File(OTHERS))
    with pytest.raises(DataLossError):
        transaction.advance(FIRST, BatchId("mine", 1), RANGES)
