"""Storage of received blocks until their batches are done: Spark's block manager, log and tracker."""

# Facts (Spark 4.3.0, read with javap and tried)
# - ReceivedBlockHandler, ReceivedBlockTracker, BlockRDD and WriteAheadLogBackedBlockRDD are what Spark's
#   receivers stand on; none of them needs a receiver. Their log goes through Hadoop's FileSystem, its reader
#   ends before a torn record, and a block is in it, flushed, when storeBlock returns.
# - The tracker writes a block down when it is added, and what a batch consists of before the batch is made;
#   recovered, it answers the same for the batches it knows.
# - With a log one replica is kept in memory, whatever the level says: Spark warns of it.
# - py4j hands byte arrays over by value, in base64: only buffers stay in the JVM. A block of bytes is what
#   spark.serializer writes for its elements. For one byte array, Java's writes an object stream's head
#   (AC ED 00 05), the class [B, the length, the bytes.
# - A block of elements is serialized by Spark into arrays of 1 MiB and 16 bytes each. In heaps below 4 GiB
#   G1 gives each of them two regions of 1 MiB, and Spark counts one: the default heap overflowed before
#   Spark moved blocks to disk. A block of bytes stays one array, and is not copied.
# - SparkEnv cannot be looked through by reflection on its methods (one names a class that is not there).

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from pyspark import RDD, SparkContext
from pyspark.serializers import NoOpSerializer

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.dstream.jvm import bytes_tag, elements_of_seq, env_part, jvm_of

__all__ = ["ARRAY_HEAD", "BlockStore", "StoredBatch"]

_FOREVER: Final = 1 << 62

ARRAY_HEAD: Final = bytes.fromhex("aced0005757200025b42acf317f8060854e0020000" + "7870")
"""The bytes before the length and the content of a byte array that Java serialized."""


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """The blocks of a batch: an RDD of bytes, one partition and one element per block."""

    rdd: RDD[Any]
    messages: int
    blocks: int


class BlockStore:
    """The blocks of one stream.

    Parameters
    ----------
    sc : SparkContext
    stream_id : int
    level : StorageLevel
        The JVM's storage level.
    directory : str, optional
        Folder of the logs, any path that Hadoop supports. Without it, blocks are in the block manager only.
    recover : bool
        Whether to recover blocks from the logs of an earlier run.
    """

    def __init__(
        self, sc: SparkContext, stream_id: int, level: Any, directory: str | None, *, recover: bool
    ) -> None:
        self._sc, self._jvm, self._stream_id, self._level = sc, jvm_of(sc), stream_id, level
        streaming = self._jvm.org.apache.spark.streaming
        self._scala = sc._jsc.sc()  # noqa: SLF001 - kept: PySpark drops it when the context is stopped
        self._tag = bytes_tag(sc)
        conf, hadoop = self._scala.conf(), self._scala.hadoopConfiguration()
        clock = self._jvm.org.apache.spark.util.SystemClock()
        manager = env_part(sc, "blockManager")
        self._logged = directory is not None
        if directory is None:
            self._handler = streaming.receiver.BlockManagerBasedBlockHandler(manager, level)
        else:
            self._handler = streaming.receiver.WriteAheadLogBasedBlockHandler(
                *(
                    manager,
                    env_part(sc, "serializerManager"),
                    stream_id,
                    level,
                    conf,
                    hadoop,
                    directory,
                    clock,
                )
            )
        self._tracker = streaming.scheduler.ReceivedBlockTracker(
            *(conf, hadoop, self._jvm.PythonUtils.toSeq([stream_id]), clock, recover),
            self._jvm.scala.Option.apply(directory),
        )
        self._java = self._jvm.org.apache.spark.serializer.JavaSerializer(conf)
        self._serializer = env_part(sc, "serializer")
        self._by_java = self._serializer.getClass().getName() == self._java.getClass().getName()
        self._numbers = itertools.count(SYSTEM_CLOCK.now_ms() * 1_000)
        self._held: dict[int, list[Any]] = {}
        self._closed = False

    def buffer(self, size: int) -> Any:
        """Return a buffer in the JVM for a block of that many bytes, positioned at its first byte."""
        buffer = self._jvm.java.nio.ByteBuffer.allocate(len(ARRAY_HEAD) + 4 + size)
        buffer.put(bytearray(ARRAY_HEAD + size.to_bytes(4, "big")))
        return buffer

    def put(self, buffer: Any, messages: int) -> bool:
        """Store a filled `buffer`. With a log, it is logged when this returns.

        Returns
        -------
        bool
            False: the block is not stored.

        Raises
        ------
        Py4JError
            The block is not stored: no memory at a level without disk, or the log cannot be written.
        """
        streaming = self._jvm.org.apache.spark.streaming
        name = self._jvm.org.apache.spark.storage.StreamBlockId(self._stream_id, next(self._numbers))
        serialized = buffer.flip() if self._by_java else self._serialize_again(buffer.flip())
        result = self._handler.storeBlock(name, streaming.receiver.ByteBufferBlock(serialized))
        count = self._jvm.scala.jdk.javaapi.OptionConverters.toScala(
            self._jvm.java.util.OptionalLong.of(messages)
        )
        info = streaming.scheduler.ReceivedBlockInfo(
            self._stream_id, count, self._jvm.scala.Option.empty(), result
        )
        return bool(self._tracker.addBlock(info))

    def batch(self, time_ms: int, joined: Iterable[int] = (), *, allocate: bool = True) -> StoredBatch:
        """Return the batch of a time: the blocks since the previous one. A repeated call returns the same.

        Before them come the blocks of the batches of the times in ``joined``. Without ``allocate``, the batch
        has the blocks that it had before, if any.
        """
        times = [self._jvm.org.apache.spark.streaming.Time(each) for each in (*joined, time_ms)]
        if allocate:
            self._tracker.allocateBlocksToBatch(times[-1])
        found = [self._tracker.getBlocksOfBatchAndStream(time, self._stream_id) for time in times]
        infos = [info for each in found for info in elements_of_seq(self._sc, each)]
        messages = sum(int(count.get()) for info in infos if not (count := info.numRecords()).isEmpty())
        names = [info.blockId() for info in infos]
        if names:
            self._held[time_ms] = names
        made = self._make_logged_rdd(infos, names) if self._logged else self._rdd(names)
        rdd: RDD[Any] = RDD(made.toJavaRDD(), self._sc, NoOpSerializer())
        return StoredBatch(rdd, messages, len(names))

    @property
    def unallocated(self) -> bool:
        """Whether blocks exist that are in no batch yet."""
        return bool(self._tracker.hasUnallocatedReceivedBlocks())

    def forget(self, before_ms: int) -> None:
        """Drop the blocks of batches before a time: they are no longer needed."""
        for time_ms in [known for known in list(self._held) if known < before_ms]:
            self._rdd(self._held.pop(time_ms)).removeBlocks()
        if not self._logged and not self._closed:  # with a log, `clean_log` does
            self._clean_tracker(before_ms)

    def clean_log(self, before_ms: int) -> None:
        """Delete the logs' entries from before a time."""
        self._handler.cleanupOldBlocks(before_ms)
        self._clean_tracker(before_ms)

    def _clean_tracker(self, before_ms: int) -> None:
        """Let Spark's tracker forget which blocks the batches before a time have. The time has passed."""
        self._tracker.cleanupOldBatches(self._jvm.org.apache.spark.streaming.Time(before_ms), False)

    def close(self) -> None:
        """Close the logs and drop all blocks from memory and disk."""
        if self._closed:
            return
        self._closed = True
        left = elements_of_seq(self._sc, self._tracker.getUnallocatedBlocks(self._stream_id))
        self._held[-1] = [info.blockId() for info in left]
        self.forget(_FOREVER)
        if self._logged:
            self._handler.stop()
        self._tracker.stop()

    def _serialize_again(self, buffer: Any) -> Any:
        """Return a block as ``spark.serializer`` writes it, such as Kryo: Spark reads it with that one."""
        util = self._jvm.org.apache.spark.util
        java = self._java.newInstance().deserializeStream(util.ByteBufferInputStream(buffer))
        result = util.ByteBufferOutputStream(buffer.remaining())
        stream = self._serializer.newInstance().serializeStream(result)
        stream.writeAll(java.asIterator(), self._tag)
        stream.close()
        return result.toByteBuffer()

    def _rdd(self, names: list[Any]) -> Any:
        ids = self._array(self._jvm.org.apache.spark.storage.BlockId, names)
        return self._jvm.org.apache.spark.rdd.BlockRDD(self._scala, ids, self._tag)

    def _make_logged_rdd(self, infos: list[Any], names: list[Any]) -> Any:
        storage, streaming = self._jvm.org.apache.spark.storage, self._jvm.org.apache.spark.streaming
        handles = [info.walRecordHandleOption().get() for info in infos]
        return streaming.rdd.WriteAheadLogBackedBlockRDD(
            self._scala,
            self._array(storage.BlockId, names),
            self._array(streaming.util.WriteAheadLogRecordHandle, handles),
            self._array(self._jvm.boolean, [info.isBlockIdValid() for info in infos]),
            False,
            self._level,
            self._tag,
        )

    def _array(self, kind: Any, values: list[Any]) -> Any:
        gateway = self._sc._gateway  # noqa: SLF001
        assert gateway is not None
        array = gateway.new_array(kind, len(values))
        for at, value in enumerate(values):
            array[at] = value
        return array
