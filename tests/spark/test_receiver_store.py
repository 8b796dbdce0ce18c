"""Where received blocks are kept: Spark's block manager, log and tracker, without receivers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.wait import eventually

from pyspark_rocketmq.dstream.receiver.receivers import storage_level
from pyspark_rocketmq.dstream.receiver.store import BlockStore

NUMBERS = itertools.count(1_000)


@pytest.fixture
def sc(spark):
    return spark.sparkContext


@pytest.fixture
def open_store(sc) -> Iterator[Callable[..., BlockStore]]:
    """``open_store(number, level, directory)``: a store, closed at the end."""
    opened: list[BlockStore] = []

    def make(number: int, level: str, directory: Path | None = None, *, recover: bool = False) -> BlockStore:
        java = sc._getJavaStorageLevel(storage_level(level))
        place = None if directory is None else str(directory)
        opened.append(BlockStore(sc, number, java, place, recover=recover))
        return opened[-1]

    yield make
    for store in opened:
        store.close()


def put(store: BlockStore, data: bytes, messages: int = 1) -> None:
    buffer = store.buffer(len(data))
    buffer.put(bytearray(data))
    assert store.put(buffer, messages)


def found(store: BlockStore, time_ms: int) -> list[bytes]:
    return store.batch(time_ms).rdd.map(bytes).collect()


def kept(sc, number: int) -> list[tuple[bool, bool]]:
    """Whether Spark has each block of a stream in memory, and on disk."""
    blocks = sc._jvm.scala.jdk.javaapi.CollectionConverters.asJava(
        sc._jsc.sc().statusStore().streamBlocksList()
    )
    mine = [block for block in blocks if block.name().startswith(f"input-{number}-")]
    return [(bool(block.useMemory()), bool(block.useDisk())) for block in mine]


@pytest.mark.parametrize(
    ("level", "memory", "disk"),
    [
        ("MEMORY_ONLY", True, False),
        ("MEMORY_AND_DISK", True, False),
        ("MEMORY_AND_DISK_SER_2", True, False),
        ("DISK_ONLY", False, True),
    ],
)
def test_a_block_is_where_its_level_says_until_it_is_forgotten(sc, open_store, level, memory, disk):
    number = next(NUMBERS)
    store = open_store(number, level)
    put(store, b"one", 2)
    put(store, b"two" * 100_000, 3)
    batch = store.batch(1_000)
    assert (batch.messages, batch.blocks) == (5, 2)
    assert batch.rdd.map(len).collect() == [3, 300_000]
    assert found(store, 1_000)[0] == b"one", "asked again, the same"
    eventually(lambda: kept(sc, number) == [(memory, disk)] * 2, what="the blocks in Spark's list")
    assert store.batch(2_000).blocks == 0
    store.forget(1_000)
    assert len(found(store, 1_000)) == 2
    store.forget(1_001)
    eventually(lambda: kept(sc, number) == [], what="the blocks to go")
    put(store, b"left over")
    store.close()
    eventually(lambda: kept(sc, number) == [], what="what no batch took to go")


def test_a_batch_that_gets_no_blocks_has_those_that_it_had(sc, open_store):
    store = open_store(next(NUMBERS), "MEMORY_ONLY")
    put(store, b"one")
    assert store.batch(1_000, allocate=False).blocks == 0
    assert found(store, 2_000) == [b"one"]
    put(store, b"two")
    assert store.batch(2_000, allocate=False).blocks == 1
    assert found(store, 3_000) == [b"two"]


def test_nothing_is_kept_of_batches_that_are_forgotten(sc, open_store):
    """Spark's tracker has an object for each block: five a second and receiver, for weeks."""
    store = open_store(next(NUMBERS), "MEMORY_ONLY")
    times = range(1_000, 13_000, 1_000)
    for time_ms in times:
        put(store, b"block")
        assert store.batch(time_ms).blocks == 1
        store.forget(time_ms - 2_000)
    time_of = sc._jvm.org.apache.spark.streaming.Time
    tracked = [at for at in times if not store._tracker.getBlocksOfBatch(time_of(at)).isEmpty()]
    assert tracked == [10_000, 11_000, 12_000]


def test_the_log_brings_batches_back_and_ends_before_a_torn_record(sc, open_store, tmp_path):
    number = next(NUMBERS)
    store = open_store(number, "MEMORY_ONLY", tmp_path)
    for data in (b"a", b"b"):
        put(store, data)
    assert found(store, 1_000) == [b"a", b"b"]
    for data in (b"c", b"d"):
        put(store, data)
    store.close()
    (metadata,) = (tmp_path / "receivedBlockMetadata").glob("log-*")
    metadata.write_bytes(metadata.read_bytes()[:-3])
    again = open_store(number, "MEMORY_ONLY", tmp_path, recover=True)
    assert found(again, 1_000) == [b"a", b"b"], "a batch has the same blocks"
    assert found(again, 2_000) == [b"c"], "the torn record's block was never acknowledged"
    put(again, b"e")
    assert found(again, 3_000) == [b"e"]
    assert found(again, 1_000) == [b"a", b"b"]


def test_old_logs_are_deleted(conf, open_store, tmp_path):
    conf(
        {
            "spark.streaming.receiver.writeAheadLog.rollingIntervalSecs": "1",
            "spark.streaming.driver.writeAheadLog.rollingIntervalSecs": "1",
        }
    )
    store = open_store(next(NUMBERS), "MEMORY_ONLY", tmp_path)
    put(store, b"old")
    assert found(store, 1_000) == [b"old"]
    times = itertools.count(2_000)

    def logs() -> list[str]:
        return sorted(path.name for path in (tmp_path / "receivedData").rglob("log-*"))

    first = logs()

    def rolled() -> bool:
        put(store, b"new")
        assert found(store, next(times))[-1] == b"new"
        return logs() != first

    eventually(rolled, 20, what="a second log")
    end = int(first[0].split("-")[2]) + 1
    eventually(lambda: store.clean_log(end) or first[0] not in logs(), what="the first log to go")
    assert logs()
