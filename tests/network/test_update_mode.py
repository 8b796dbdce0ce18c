"""Changed rows as messages, batch by batch, without a Spark session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType
from tests.support.transactional_job import visible

from pyspark_rocketmq.client import Client, MessageQueue
from pyspark_rocketmq.client.commits.commit_log import read_committed, read_entries
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import SinkOptions, parse_options
from pyspark_rocketmq.planning.commits.records import Commit
from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.spark.write.transaction_log import TransactionLog
from pyspark_rocketmq.spark.write.update_mode import message_writer
from pyspark_rocketmq.spark.write.writer import RocketMQBatchWriter
from pyspark_rocketmq.testing import MockCluster

ROWS = StructType([StructField("body", StringType())])
WAYS = ("plain", "staged", "committed")
LOGS = {"staged": "orders-staging-commits", "committed": "orders-commits"}


class Frame:
    """The rows of a batch; a write of them runs one task and the driver's part."""

    columns = ("body",)

    def __init__(self, *bodies: str) -> None:
        self._rows = pa.RecordBatch.from_pydict({"body": list(bodies)})
        self._given: dict[str, str] = {}
        self.write = self
        self.sparkSession = self.sparkContext = self
        self.query = "f0"

    def getLocalProperty(self, name: str) -> str:
        assert name == "sql.streaming.queryId"
        return self.query

    def format(self, name: str) -> Frame:
        assert name == "rocketmq"
        return self

    def mode(self, name: str) -> Frame:
        assert name == "append"
        return self

    def options(self, **given: str) -> Frame:
        self._given |= given
        return self

    def save(self) -> None:
        options = parse_options(SinkOptions, self._given, where="write", environ={})
        writer = RocketMQBatchWriter(options, ROWS, overwrite=False)
        writer.commit([writer.write(iter([self._rows]))])


def send(options: dict[str, str], number: int, *bodies: str, query: str = "f0") -> None:
    frame: Any = Frame(*bodies)
    frame.query = query
    message_writer("totals", options)(frame, number)


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with MockCluster({"orders": 2}) as cluster:
        cluster.create_topic("orders-staging", 2)
        for name in LOGS.values():
            cluster.create_topic(name, 1)
        yield cluster


@pytest.fixture(params=WAYS)
def options(request: pytest.FixtureRequest, mq: MockCluster, tmp_path: Path) -> dict[str, str]:
    given = {"nameServer": mq.name_server, "topic": "orders", "deliveryGuarantee": "transactional"}
    given["transactionVisibility"] = request.param
    return given | ({"transactionLog": str(tmp_path)} if request.param == "plain" else {})


def rows(mq: MockCluster, options: dict[str, str]) -> Counter[str]:
    """Return how often readers see each body."""
    if options["transactionVisibility"] != "committed":
        return visible(mq)
    with Client(mq.name_server) as client:
        ranges = read_committed(client, {"orders": LOGS["committed"]}).ranges
    return Counter(
        message.body.decode()
        for queue in mq.queues("orders")
        for message in mq.messages("orders", queue)
        if any(begin <= message.queue_offset < end for begin, end in ranges.get(queue, ()))
    )


def test_the_batches_of_a_query_are_those_of_one_job_so_that_what_is_noted_does_not_grow(
    mq, options, tmp_path
) -> None:
    for number in range(5):
        send(options, number, f"row {number}")
        send(options, number, f"row {number}")  # Spark repeats a batch after a crash
    assert rows(mq, options) == Counter(f"row {number}" for number in range(5))
    if options["transactionVisibility"] == "plain":
        log = TransactionLog(str(tmp_path))
        assert (log.owners(), log.newest_done("orders/totals/f0")) == (("orders/totals/f0",), 4)
        assert len([file for file in tmp_path.rglob("*") if file.is_file()]) == 2
        return
    queue = MessageQueue(LOGS[options["transactionVisibility"]], "broker-a", 0)
    with Client(mq.name_server) as client:
        records = [each.record for each in read_entries(client, queue, 0, client.max_offsets([queue])[queue])]
    commits = [record for record in records if isinstance(record, Commit)]
    assert [commit.number for commit in commits] == [0, 1, 2, 3, 4]
    assert len({record.owner for record in records}) == 1


def test_a_query_without_its_former_checkpoint_writes_its_first_batches(mq, options) -> None:
    send(options, 0, "a")
    send(options, 1, "b")
    send(options, 0, "c", query="f1")
    assert rows(mq, options) == Counter("abc")


def test_a_batch_with_a_lower_number_fails_and_is_not_taken_for_written(mq, options) -> None:
    """A day is written late, or a query without its checkpoint counts from 0 again."""

    def write(number: int, *bodies: str) -> None:
        frame = Frame(*bodies).options(**options, jobId="days", jobBatch=str(number))
        frame.save()

    write(30, "a")
    write(31, "b")
    with pytest.raises(OptionError, match=r"batch 30 of the job .* is not written: batch 31 .* is committed"):
        write(30, "c")
    write(30)  # it has no rows
    write(31, "b")
    write(32, "d")
    assert rows(mq, options) == Counter("abd")


def test_a_batch_without_rows_costs_no_search(mq, options) -> None:
    send(options, 1)
    assert mq.asked[RequestCode.PULL_MESSAGE] == 0


def test_a_batch_is_one_of_a_job(mq) -> None:
    frame = Frame("a").options(nameServer=mq.name_server, topic="orders", jobBatch="3")
    with pytest.raises(OptionError, match="a batch is one of a job: set jobId"):
        frame.save()
