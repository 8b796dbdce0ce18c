"""A slave becomes master and lacks the last commit record, or the last messages of a committed batch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.support.committed_query import LOG, Query, send

from pyspark_rocketmq.client import Client, CommittedConsumer
from pyspark_rocketmq.client.read import settled_ends
from pyspark_rocketmq.errors import DataLossError, SendError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.frame import decode_frame, encode_frame
from pyspark_rocketmq.spark.read.committed import CommittedBatchReader, CommittedStreamReader
from pyspark_rocketmq.spark.read.schema import read_schema
from pyspark_rocketmq.testing import Damage, HangUp, MockCluster
from pyspark_rocketmq.tools.open_batches import find_open_batches

BODY = read_schema(("body",))


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with MockCluster({"orders": 1, "orders-commits": 1}, slaves=1, slave_readable=True) as cluster:
        yield cluster


@pytest.fixture
def query(mq: MockCluster, client: Client) -> Query:
    return Query(mq.name_server, client)


def promote_slave(mq: MockCluster, queue: MessageQueue, lacks: int) -> None:
    """The master dies; its slave, which lacks the last messages of a queue, takes its place."""
    mq.lag("broker-a", lacks)
    mq.stop_broker("broker-a")
    mq.truncate(queue, mq.max_offset(queue) - lacks)
    mq.lag("broker-a", 0)
    mq.start_broker("broker-a")


def status(code: ResponseCode) -> Damage:
    """The answer says: stored, but not as durably as asked."""

    def change(frame: bytes) -> bytes:
        answer = decode_frame(memoryview(frame))
        return encode_frame(replace(answer.command, code=code), bytes(answer.body))

    return Damage(change)


def read(mq: MockCluster) -> Counter[str]:
    """Read what a batch read sees now."""
    given = {"nameServer": mq.name_server, "topic": "orders", "isolation": "read_committed"}
    reader = CommittedBatchReader(parse_options(SourceOptions, given, where="read", environ={}), BODY)
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return Counter(body.decode() for batch in batches for body in batch.column("body").to_pylist())


@pytest.mark.parametrize(("later", "said"), [(0, "ends at"), (1, "has other records now")])
def test_a_stream_that_has_read_a_lost_record_is_told(
    mq, client, query, monkeypatch, later: int, said: str
) -> None:
    """Also when others have taken the place of the lost ones."""
    monkeypatch.setattr(settled_ends, "MOVED_BACK_PATIENCE_MS", 0)
    given = {"nameServer": mq.name_server, "topic": "orders", "isolation": "read_committed"}
    given |= {"startingOffsets": "earliest", "routeRefreshMs": "200"}
    stream = CommittedStreamReader(parse_options(SourceOptions, given, where="readStream", environ={}), BODY)
    consumer = CommittedConsumer("orders", client=client)
    query.run(1, "a")
    query.run(2, "b")
    start = stream.initialOffset()
    end = json.loads(json.dumps(stream.latestOffset(start, stream.getDefaultReadLimit())))
    assert len(consumer.read()) == 2
    promote_slave(mq, LOG, 1)
    for number in range(later):
        Query(mq.name_server, client, "other").run(number, "c")
    with pytest.raises(DataLossError, match=said) as failure:
        stream.latestOffset(end, stream.getDefaultReadLimit())
    assert failure.value.condition == "COMMITS_LOST"
    with pytest.raises(DataLossError) as failure:
        consumer.read()
    assert failure.value.condition == "COMMITS_LOST"
    stream.stop()


def test_a_batch_whose_record_is_lost_is_lost_as_a_whole(mq, client, query) -> None:
    """Its query has it in its checkpoint, and continues."""
    query.run(1, "a")
    query.run(2, *"bcdefg")
    promote_slave(mq, LOG, 1)
    query.run(3, "h")
    assert read(mq) == Counter("ah")
    query = Query(mq.name_server, client)
    query.run(2, *"bcdefg")
    assert read(mq) == Counter("ah"), "a later batch is committed: this one would be out of order"


def test_a_lost_record_of_the_last_batch_is_shown_and_written_again(mq, client, query) -> None:
    query.run(1, "a")
    query.run(2, *"bcdefg")
    promote_slave(mq, LOG, 1)
    assert read(mq) == Counter("a")
    (found,) = find_open_batches(client, "orders-commits")
    assert found.number == 2
    Query(mq.name_server, client).run(2, *"bcdefg")  # Spark repeats it, if its checkpoint does not have it
    assert read(mq) == Counter("abcdefg")


def test_a_batch_whose_messages_are_lost_waits_as_a_whole(mq, client, query, caplog) -> None:
    consumer = CommittedConsumer("orders", client=client)
    query.run(1, "a")
    query.run(2, *"bcdefg")
    queue = MessageQueue("orders", "broker-a", 0)
    promote_slave(mq, queue, 2)
    assert [message.body for message in consumer.read()] == [b"a"]
    assert not consumer.read()


def test_a_consumer_that_has_read_lost_messages_is_told(mq, client, monkeypatch) -> None:
    """The queue gets other messages at the offsets of the lost ones: they would be passed over."""
    monkeypatch.setattr(settled_ends, "MOVED_BACK_PATIENCE_MS", 0)
    consumer = CommittedConsumer("orders", client=client)
    send(client, *"abc")
    assert len(consumer.read()) == 3
    promote_slave(mq, MessageQueue("orders", "broker-a", 0), 2)
    send(client, "d")
    with pytest.raises(DataLossError, match="ends at 2, and was read up to 3") as failure:
        consumer.read()
    assert failure.value.condition == "OFFSET_WENT_BACK"
    position = json.loads(consumer.position)
    position["offsets"]["orders"]["broker-a"]["0"] = 1
    again = CommittedConsumer("orders", client=client, position=json.dumps(position))
    assert [message.body for message in again.read()] == [b"d"]


@pytest.mark.parametrize(
    "code", [ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE], ids=lambda code: code.name
)
def test_a_record_that_no_slave_has_is_sent_until_one_has_it(mq, client, code, caplog) -> None:
    """With SYNC_MASTER: what is acknowledged later is stored after it, so the slave has both."""
    query = Query(mq.name_server, client, outageTimeout="60s")
    part = query.write(1, *"ab")
    mq.inject(status(code), on=RequestCode.SEND_MESSAGE_V2, times=1)
    query.commit(1, part)
    assert read(mq) == Counter("ab")
    assert "are no rows" not in caplog.text


def test_a_record_that_no_slave_ever_has_fails_the_batch(mq, client, query) -> None:
    part = query.write(1, *"ab")
    mq.inject(status(ResponseCode.SLAVE_NOT_AVAILABLE), on=RequestCode.SEND_MESSAGE_V2)
    with pytest.raises(SendError, match="a crash may lose the message"):
        query.commit(1, part)


def test_a_commit_whose_answer_is_lost_is_a_commit(mq, client, caplog) -> None:
    query = Query(mq.name_server, client, outageTimeout="60s")
    part = query.write(1, *"ab")
    mq.inject(HangUp(executed=True), on=RequestCode.SEND_MESSAGE_V2, times=1)
    query.commit(1, part)
    assert read(mq) == Counter("ab")
    assert "are no rows" not in caplog.text
