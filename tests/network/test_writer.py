"""The batch writer as Spark calls it: tasks write, the driver commits or aborts; no Spark session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType
from tests.support.transactional_job import visible

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import SinkOptions, parse_options
from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.spark.write.transaction_log import TransactionLog
from pyspark_rocketmq.spark.write.writer import RocketMQBatchWriter, RocketMQStreamWriter, TaskWritten
from pyspark_rocketmq.testing import MockCluster

ROWS = StructType([StructField("body", StringType())])
TRANSACTIONAL = {"deliveryGuarantee": "transactional", "jobId": "monday"}

WriterOf = Callable[..., RocketMQBatchWriter]


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with MockCluster({"orders": 2}) as cluster:
        yield cluster


@pytest.fixture
def writer(mq: MockCluster, tmp_path: Path) -> WriterOf:
    def make(*, overwrite: bool = False, **given: str) -> RocketMQBatchWriter:
        place = {"nameServer": mq.name_server, "topic": "orders", "sendTimeoutMs": "60000"}
        if given.get("deliveryGuarantee") == "transactional" and "transactionVisibility" not in given:
            place["transactionLog"] = str(tmp_path / "log")
        options = parse_options(SinkOptions, place | given, where="write", environ={})
        return RocketMQBatchWriter(options, ROWS, overwrite=overwrite)

    return make


def task(writer: RocketMQBatchWriter, *bodies: str) -> TaskWritten:
    return writer.write(iter([pa.RecordBatch.from_pydict({"body": list(bodies)})]))


def test_rows_of_a_transaction_are_visible_after_the_commit_once_for_each_job(mq, writer, tmp_path) -> None:
    for _ in range(2):  # the job runs again, as schedulers do
        run = writer(**TRANSACTIONAL)
        tasks = [task(run, "a", "b"), task(run, "c"), None]
        run.commit(tasks)
        assert visible(mq) == Counter("abc")
    log = TransactionLog(str(tmp_path / "log"))
    assert (log.undone("orders/monday"), log.newest_done("orders/monday")) == ((), 0)


def test_a_jobs_id_may_be_the_same_for_several_topics(mq, writer) -> None:
    """A nightly job writes what it has for two topics, and its date is its id."""
    mq.create_topic("payments", 2)
    for _ in range(2):
        for topic, bodies in (("orders", "ab"), ("payments", "cde")):
            run = writer(**TRANSACTIONAL, topic=topic)
            run.commit([task(run, *bodies)])
            assert visible(mq, topic) == Counter(bodies)


def test_rows_of_a_staged_write_are_visible_once_for_each_job_and_no_rows_cost_no_search(mq, writer) -> None:
    mq.create_topic("orders-staging", 2)
    mq.create_topic("orders-staging-commits", 1)
    empty = writer(**TRANSACTIONAL, transactionVisibility="staged")
    empty.commit([task(empty), None])
    assert mq.asked[RequestCode.PULL_MESSAGE] == 0
    for _ in range(2):
        run = writer(**TRANSACTIONAL, transactionVisibility="staged")
        run.commit([task(run, "a", "b"), task(run, "c"), None])
        assert visible(mq) == Counter("abc")


def test_nothing_of_a_transaction_is_visible_before_the_commit_or_after_an_abort(mq, writer) -> None:
    run = writer(**TRANSACTIONAL)
    tasks = [task(run, "a", "b"), task(run, "c")]
    assert visible(mq) == Counter()
    run.abort([*tasks, None])
    assert visible(mq) == Counter()
    assert mq.asked[RequestCode.END_TRANSACTION] == 3
    again = writer(**TRANSACTIONAL)
    again.commit([task(again, "a")])
    assert visible(mq) == Counter("a")


def test_equal_rows_of_two_tasks_are_refused_where_readers_would_drop_one(mq, writer) -> None:
    run = writer(deliveryGuarantee="effectively-once", jobId="monday")
    tasks = [task(run, "a", "b", "b"), task(run, "b", "c")]
    with pytest.raises(OptionError, match="1 contents are in rows of more than one Spark partition"):
        run.commit(tasks)
    run.commit(tasks[:1])
    run.commit([None])
    plain = writer()
    plain.commit([task(plain, "a"), task(plain, "a")])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"overwrite": True}, "cannot be overwritten"),
        ({"deliveryGuarantee": "effectively-once"}, "needs a column 'writeId', or jobId"),
        ({"deliveryGuarantee": "transactional"}, "a transactional write needs jobId"),
    ],
)
def test_what_a_writer_needs(writer, given, message) -> None:
    with pytest.raises(OptionError, match=message):
        writer(**given)


@pytest.mark.parametrize("guarantee", ["effectively-once", "transactional"])
def test_batches_that_are_not_repeated_get_no_more_than_at_least_once(
    mq: MockCluster, guarantee: str
) -> None:
    place = {"nameServer": mq.name_server, "topic": "orders", "checkpointLocation": "/c"}
    given = place | {"deliveryGuarantee": guarantee, "asyncProgressTrackingEnabled": "true"}
    options = parse_options(SinkOptions, given, where="writeStream", environ={})
    with pytest.raises(OptionError, match="does not repeat the same batches after a restart"):
        RocketMQStreamWriter(options, ROWS)
