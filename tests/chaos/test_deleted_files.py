"""Files of a broker's log that are deleted under a reader: what is gone is told, offset by offset."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.patient import patient_producer
from tests.support.topics import create_topic
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client, MessageQueue, OffsetRange, OutgoingMessage
from pyspark_rocketmq.client.read.queue_reader import DecodeOptions, read_batches
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.errors import DataLossError
from pyspark_rocketmq.model import RangeReport

pytestmark = pytest.mark.needs("cluster")

QUEUE = MessageQueue("deleted", "broker-a", 0)
MESSAGES = 90
FILE_BYTES = 1 << 20
"""Of a file of the log; a message takes 64 KiB."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[DevCluster]:
    settings = {"mappedFileSizeCommitLog": str(FILE_BYTES), "flushDiskType": "SYNC_FLUSH"}
    with DevCluster(broker_config=settings) as cluster:
        create_topic(cluster, QUEUE.topic, 1, 6)
        yield cluster


def fill_until(client: Client, until: int) -> None:
    """Send messages one by one: a batch has to fit into a file."""
    producer = patient_producer(client)
    for number in range(client.max_offsets([QUEUE])[QUEUE], until):  # nothing that compresses
        producer.send(OutgoingMessage(QUEUE.topic, random.Random(number).randbytes(64 << 10)), QUEUE)
    eventually(lambda: client.max_offsets([QUEUE])[QUEUE] >= until, 30)


def delete(cluster: DevCluster, files: slice) -> None:
    """Kill the broker, delete files of its log, and start it again."""
    broker = cluster.broker("broker-a")
    broker.kill()
    folder: Path = broker.home / "store" / "commitlog"
    for file in sorted(folder.iterdir())[files]:
        file.unlink()
    broker.start()


class Reader:
    """Reads a planned range slowly; ``wait`` until some of it has come."""

    def __init__(self, client: Client, offsets: OffsetRange, *, fail: bool) -> None:
        options = ReadOptions(
            consumer_group="deleted", fail_on_data_loss=fail, pulls_in_flight=1, missing_patience_ms=3_000
        )
        decode = DecodeOptions(columns=("queueOffset",), max_batch_rows=1)
        self.report: RangeReport | None = None
        self.offsets: list[int] = []
        self._batches = read_batches(client, [offsets], options, decode, on_report=self._take_report)

    def some(self) -> None:
        self.offsets += next(self._batches).column("queueOffset").to_pylist()

    def rest(self) -> None:
        for batch in self._batches:
            self.offsets += batch.column("queueOffset").to_pylist()

    def _take_report(self, report: RangeReport) -> None:
        self.report = report


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("files", "condition"),
    [(slice(0, 3), "OFFSETS_EXPIRED"), (slice(-2, None), "OFFSET_WENT_BACK")],
    ids=["oldest", "newest"],
)
def test_what_is_gone_is_told(cluster: DevCluster, files: slice, condition: str) -> None:
    with Client(cluster.name_server) as client:
        begin = client.min_offsets([QUEUE])[QUEUE]
        end = begin + MESSAGES
        fill_until(client, end)
        planned = OffsetRange(QUEUE, begin, end)
        strict, lenient = (Reader(client, planned, fail=fail) for fail in (True, False))
        for reader in (strict, lenient):
            reader.some()
        delete(cluster, files)
        with pytest.raises(DataLossError) as caught:
            strict.rest()
        assert caught.value.facts["condition"] == condition
        lenient.rest()
        (low,), (high,) = client.min_offsets([QUEUE]).values(), client.max_offsets([QUEUE]).values()
        assert low > begin or high < end
        report = lenient.report
        assert report is not None
        lost = [
            offset
            for one in report.lost
            for offset in range(one.offsets.from_offset, one.offsets.until_offset)
        ]
        assert {one.condition for one in report.lost} == {condition}
        assert sorted(lenient.offsets + lost) == list(range(begin, end))
        assert set(range(low, high)) & set(lost) == set()
        assert strict.offsets == list(range(begin, begin + len(strict.offsets)))
