"""Answers at the edge of the protocol, to which a real broker can be brought: the simulation has its text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.simulation.edge_answers import answer
from tests.support.light_cluster import light_cluster
from tests.support.wait import eventually

from pyspark_rocketmq.client import Admin, Client
from pyspark_rocketmq.client.net.connection import Connection
from pyspark_rocketmq.model import MessageQueue
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
        yield Edge(client, client.connection(client.queue_address(queue)), queue)


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
