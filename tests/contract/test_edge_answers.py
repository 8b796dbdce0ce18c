"""Answers at the edge of the protocol, to which a real broker can be brought: the simulation has its text."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.simulation.edge_answers import GOES_AWAY, answer
from tests.support.light_cluster import light_cluster
from tests.support.wait import eventually

from pyspark_rocketmq.client import Admin, Client, OutgoingMessage, Producer, ProducerOptions
from pyspark_rocketmq.client.net.connection import Connection
from pyspark_rocketmq.client.read.queue_reader import read_messages
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.errors import TransportError
from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.remoting.codes import ResponseCode
from pyspark_rocketmq.remoting.header import (
    GetMaxOffsetRequest,
    OffsetResponse,
    PullMessageRequest,
    SendMessageRequest,
)

pytestmark = [pytest.mark.needs("cluster"), pytest.mark.timeout(180)]

_OF_TWO = {"brokerRole": "SYNC_MASTER", "totalReplicas": "2", "inSyncReplicas": "2"}

FLOOD = 2_000
"""So many requests at once are more than a queue of one takes."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A broker with settings that bring it to the edge."""

    cluster: DevCluster
    client: Client
    connection: Connection
    queue: MessageQueue

    def send(self) -> SendMessageRequest:
        return SendMessageRequest(
            producer_group="edge",
            topic=self.queue.topic,
            queue_id=self.queue.queue_id,
            born_timestamp=1_700_000_000_000,
            broker_name=self.queue.broker_name,
        )

    def pull(self) -> PullMessageRequest:
        return PullMessageRequest(
            consumer_group="edge",
            topic=self.queue.topic,
            queue_id=self.queue.queue_id,
            queue_offset=0,
            max_msg_nums=32,
            sys_flag=4,
            subscription="*",
            broker_name=self.queue.broker_name,
        )

    def stored(self) -> int:
        request = GetMaxOffsetRequest(
            topic=self.queue.topic, queue_id=self.queue.queue_id, broker_name=self.queue.broker_name
        )
        response = self.connection.call(request, deadline=self.client.deadline(10_000)).require()
        return OffsetResponse.parse(response.fields).offset


@pytest.fixture
def edge(request: pytest.FixtureRequest) -> Iterator[Edge]:
    with light_cluster(**request.param) as cluster, Client(cluster.name_server) as client:
        Admin(client).create_topic("edge", queues=1)
        eventually(lambda: client.write_queues("edge"), 30)
        (queue,) = client.write_queues("edge")
        yield Edge(cluster, client, client.connection(client.queue_address(queue)), queue)


@pytest.mark.parametrize(
    ("edge", "kind", "stored"),
    [
        pytest.param(_OF_TWO, "stored, and not at a slave in time", 1, id="no slave acknowledges it"),
        pytest.param(
            _OF_TWO | {"enableSlaveActingMaster": "true"},
            "too few replicas are in sync",
            0,
            id="no slave is alive",
        ),
    ],
    indirect=["edge"],
)
def test_a_message_that_is_not_stored_as_the_broker_is_told_to(edge: Edge, kind: str, stored: int) -> None:
    code, remark = answer(kind)
    response = edge.connection.call(edge.send(), b"body", deadline=edge.client.deadline(30_000))
    assert (response.code, response.remark or "") == (code, remark)
    eventually(lambda: edge.stored() == stored, 10)


@pytest.mark.parametrize("edge", [{"pullThreadPoolQueueCapacity": "1"}], indirect=True)
def test_pulls_for_which_a_broker_has_no_room_are_refused_one_by_one(edge: Edge) -> None:
    code, remark = answer("a broker has no room for pulls")
    deadline = edge.client.deadline(60_000)
    opaques = edge.connection.submit_all([(edge.pull(), b"")] * FLOOD, deadline=deadline)
    answers = [edge.connection.wait(opaque, deadline) for opaque in opaques]
    codes = {(each.code, each.remark) for each in answers}
    assert (code, remark) in codes
    assert codes - {(code, remark)} <= {(ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE")}
    assert len(codes) == 2


_BUSY_PAGE_CACHE = (
    *("the page cache is busy: sends are rejected", "the page cache is busy: waiting sends are refused"),
    "the page cache is busy: a message is not stored",
)


@pytest.mark.parametrize("edge", [{"osPageCacheBusyTimeOutMills": "-1"}], indirect=True)
def test_sends_while_the_page_cache_is_busy_are_refused_and_not_stored(edge: Edge) -> None:
    """With this setting it is busy whenever a message is written. Sends may also wait too long meanwhile."""
    known = {_without_numbers(*answer(kind)) for kind in _BUSY_PAGE_CACHE}
    late = _without_numbers(*answer("sends wait too long at a broker"))
    seen = Counter[tuple[int, str]]()
    deadline = edge.client.deadline(120_000)
    while not seen.keys() >= known:
        opaques = edge.connection.submit_all([(edge.send(), bytes(16 << 10))] * 500, deadline=deadline)
        answers = [edge.connection.wait(opaque, deadline) for opaque in opaques]
        seen.update(_without_numbers(each.code, each.remark or "") for each in answers)
    assert seen.keys() - {late} == known | {(ResponseCode.SUCCESS, "")}
    eventually(lambda: edge.stored() == seen[ResponseCode.SUCCESS, ""], 10)


def _without_numbers(code: int, remark: str) -> tuple[int, str]:
    return code, re.sub(r"\d+", "0", remark)


@pytest.mark.parametrize(
    "edge", [{"enableShutdownGracefully": "true", "shutdownWaitTimeSeconds": "4"}], indirect=True
)
def test_a_broker_that_shuts_down_sends_clients_away_and_stores_nothing_of_them(edge: Edge) -> None:
    broker, deadline = edge.cluster.broker(), edge.client.deadline(120_000)
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGTERM)
    stored = 0
    while (response := edge.connection.call(edge.send(), b"early", deadline=deadline)).code == 0:
        stored += 1
    assert (response.code, response.remark) == answer(GOES_AWAY)
    response = edge.connection.call(edge.pull(), deadline=deadline)
    assert (response.code, response.remark) == answer(GOES_AWAY)

    bodies = [b"%d" % number for number in range(20)]
    patient = ProducerOptions(send_timeout_ms=60_000, retries=1_000)
    producer = Producer(edge.client, options=patient)
    sender = threading.Thread(
        target=lambda: [producer.send(OutgoingMessage("edge", body), edge.queue) for body in bodies]
    )
    sender.start()
    with pytest.raises(TransportError):
        _send_until_closed(edge)
    broker.kill()  # it closed its connections, and takes 20 s more
    broker.start()
    sender.join(60)
    eventually(lambda: edge.client.max_offsets([edge.queue])[edge.queue] >= stored + len(bodies), 60)
    end = edge.client.max_offsets([edge.queue])[edge.queue]
    found = read_messages(edge.client, [OffsetRange(edge.queue, 0, end)], ReadOptions(consumer_group="edge"))
    assert [each.body for each in found] == [b"early"] * stored + bodies


def _send_until_closed(edge: Edge) -> None:
    while True:
        response = edge.connection.call(edge.send(), b"late", deadline=edge.client.deadline(30_000))
        assert (response.code, response.remark) == answer(GOES_AWAY)
