"""The messages of a batch as an RDD: blocks, decoded in the tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.core.rdd import PipelinedRDD

from pyspark_rocketmq.client.read.queue_reader import DecodeOptions
from pyspark_rocketmq.dstream.receiver.block import BlockReading, block_batches, block_elements
from pyspark_rocketmq.dstream.receiver.store import StoredBatch
from pyspark_rocketmq.dstream.record_batches import HasRecordBatches
from pyspark_rocketmq.spark.read.schema import Projection

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ReceivedRDD"]


@dataclass(frozen=True, slots=True)
class _Elements:
    reading: BlockReading

    def __call__(self, _: int, blocks: Iterable[bytes]) -> Iterator[Any]:
        for block in blocks:
            yield from block_elements(bytes(block), self.reading)


@dataclass(frozen=True, slots=True)
class _Batches:
    tags: frozenset[str] | None
    decode: DecodeOptions

    def __call__(self, _: int, blocks: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
        for block in blocks:
            yield from block_batches(bytes(block), self.decode, self.tags)


class ReceivedRDD(PipelinedRDD[bytes, Any], HasRecordBatches["ReceivedRDD"]):
    """The messages of a batch, or the objects that ``deserialize`` returned: one partition per block.

    Parameters
    ----------
    batch : StoredBatch
    reading : BlockReading
    reader : Callable, optional
        Replaces the reader of messages.
    """

    def __init__(self, batch: StoredBatch, reading: BlockReading, reader: _Batches | None = None) -> None:
        super().__init__(batch.rdd, reader or _Elements(reading))
        self._batch = batch
        self._reading = reading

    @property
    def received(self) -> int:
        """The number of messages in the batch, as the receivers counted them."""
        return self._batch.messages

    def _read_batches(self, projection: Projection) -> ReceivedRDD:
        decode = DecodeOptions(
            columns=projection.columns,
            body_as=projection.body_as,
            on_corrupt=self._reading.on_corrupt.value,
            check_crc=self._reading.check_crc,
        )
        return ReceivedRDD(self._batch, self._reading, _Batches(self._reading.tags, decode))
