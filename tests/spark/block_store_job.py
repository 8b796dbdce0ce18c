"""Stores more blocks than Spark's memory holds, with a heap of the default size, and reads them back."""

from __future__ import annotations

import sys
from typing import Any

from pyspark import SparkConf, SparkContext
from tests.support.wait import eventually

from pyspark_rocketmq.dstream.jvm import elements_of_seq, jvm_of
from pyspark_rocketmq.dstream.receiver.receivers import storage_level
from pyspark_rocketmq.dstream.receiver.store import BlockStore

_BLOCK = 8 << 20


def main(serializer: str, blocks: int) -> None:
    """Print how many of the blocks Spark has in memory."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.serializer": f"org.apache.spark.serializer.{serializer}",
    }
    sc = SparkContext(conf=SparkConf().setMaster("local[4]").setAppName("blocks").setAll([*settings.items()]))
    try:
        store = BlockStore(
            sc, 1, sc._getJavaStorageLevel(storage_level("MEMORY_AND_DISK")), None, recover=False
        )
        for number in range(blocks):
            buffer = store.buffer(_BLOCK)
            fill(sc, buffer, number)
            assert store.put(buffer, 1)
        eventually(lambda: len(kept(sc)) == blocks, 60, what="all blocks in Spark's list")
        in_memory = sum(bool(block.useMemory()) for block in kept(sc))
        batch = store.batch(1_000)
        assert batch.blocks == blocks
        some = [0, 1, blocks - 1]  # the first ones go to disk first
        found = sc.runJob(batch.rdd, lambda each: [(block[0], len(block)) for block in each], some)
        assert found == [(number, _BLOCK) for number in some], found
        print(f"|{in_memory}", flush=True)
        store.close()
    finally:
        sc.stop()


def kept(sc: SparkContext) -> list[Any]:
    """Return what Spark tells about each block."""
    return elements_of_seq(sc, sc._jsc.sc().statusStore().streamBlocksList())


def fill(sc: SparkContext, buffer: Any, number: int) -> None:
    """Fill a buffer in the JVM. py4j would copy a whole block as text: it carries the first byte only."""
    buffer.put(bytearray([number]))
    buffer.put(jvm_of(sc).java.nio.ByteBuffer.allocate(_BLOCK - 1))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
