"""What a user of Spark is told when the other side is wrong: the cause, the place, within seconds."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.support.scripted_peer import Peer, ScriptedPeer
from tests.support.wait import PATIENCE

from pyspark_rocketmq.model import OutgoingMessage
from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.remoting.frame import Frame
from pyspark_rocketmq.testing import Announce, MockCluster


@pytest.fixture
def mock() -> Iterator[MockCluster]:
    """A cluster in this process with ten messages in one queue."""
    with MockCluster({"orders": 1}) as cluster:
        for i in range(10):
            cluster.send(OutgoingMessage(topic="orders", body=b"message %d" % i))
        yield cluster


def load(spark: SparkSession, name_server: str, **options: object) -> DataFrame:
    reader = spark.read.format("rocketmq").option("nameServer", name_server).option("topic", "orders")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def test_a_broker_whose_advertised_address_is_unreachable(spark: SparkSession, mock: MockCluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dead = f"127.0.0.1:{listener.getsockname()[1]}"
    mock.advertise("broker-a", dead)
    start = time.monotonic()
    with pytest.raises(PySparkException, match=f"cannot connect.*{dead}"):
        load(spark, mock.name_server, connectTimeoutMs=10_000).collect()
    assert time.monotonic() - start < 60 * PATIENCE


def test_a_corrupt_record_names_its_queue_and_offset(spark: SparkSession, mock: MockCluster) -> None:
    queue = mock.queue("orders")
    mock.corrupt(queue, 7, lambda record: record[:4] + b"\xff" * 4 + record[8:])
    with pytest.raises(PySparkException, match=r"CorruptMessageError.*orders.*broker-a.*7"):
        load(spark, mock.name_server).collect()
    rows = load(spark, mock.name_server, endingOffsets='{"orders": {"broker-a": {"0": 7}}}').collect()
    assert [bytes(row.body) for row in rows] == [b"message %d" % i for i in range(7)]


def test_a_corrupt_frame_is_not_waited_for(spark: SparkSession, mock: MockCluster) -> None:
    mock.inject(Announce(), on=RequestCode.GET_MAX_OFFSET)
    with pytest.raises(PySparkException, match="RemoteProtocolError"):
        load(spark, mock.name_server).collect()


def test_the_port_of_a_proxy_is_no_name_server(spark: SparkSession) -> None:
    """A RocketMQ 5 proxy's gRPC port speaks HTTP/2: it greets with a SETTINGS frame and hangs up."""

    def grpc(peer: Peer, frame: Frame) -> None:
        peer.send(bytes.fromhex("000012040000000000"))
        peer.hang_up()

    with (
        ScriptedPeer(grpc) as proxy,
        pytest.raises(PySparkException, match=f"{proxy.addr}.*Is this a name server"),
    ):
        load(spark, proxy.addr).collect()
