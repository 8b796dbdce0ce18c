"""A broker that limits what a group reads of old messages (``coldDataFlowControlEnable``): a read goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.simulation.edge_answers import answer
from tests.support.light_cluster import light_cluster
from tests.support.patient import patient_producer
from tests.support.wait import eventually

from pyspark_rocketmq.client import Admin, Client, MessageSelector, OutgoingMessage
from pyspark_rocketmq.client import requests as broker
from pyspark_rocketmq.client.groups.membership import Membership
from pyspark_rocketmq.client.net.connection import Response
from pyspark_rocketmq.client.read.queue_reader import read_messages
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.remoting.codes import ResponseCode

pytestmark = [pytest.mark.needs("cluster"), pytest.mark.timeout(180)]

MESSAGES = 1_000
_SETTINGS = {
    "coldDataFlowControlEnable": "true",
    # All messages are old but the last one: their place decides, not whether the system has them in memory.
    "coldDataScanEnable": "false",
    "accessMessageInMemoryHotRatio": "0",
    # In five seconds, a third of the messages.
    "cgColdReadThreshold": "400000",
}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with light_cluster(**_SETTINGS) as cluster, Client(cluster.name_server) as client:
        yield client


@pytest.fixture(scope="module")
def queue(client: Client) -> MessageQueue:
    Admin(client).create_topic("old", queues=1)
    eventually(lambda: client.write_queues("old"), 30)
    (queue,) = client.write_queues("old")
    producer = patient_producer(client)
    for start in range(0, MESSAGES, 50):
        some = [OutgoingMessage("old", b"%d".ljust(1_000) % n) for n in range(start, start + 50)]
        producer.send_batch(some, queue=queue)
    eventually(lambda: client.max_offsets([queue])[queue] == MESSAGES, 30)
    return queue


def refusal(client: Client, queue: MessageQueue, group: str) -> Response:
    """Pull old messages for the group until the broker refuses."""
    request = broker.pull(queue, 0, group=group, max_nums=32, selector=MessageSelector()).request
    connection, answers = client.connection(client.queue_address(queue)), list[Response]()

    def refused() -> bool:
        answers.append(connection.call(request, deadline=client.deadline(30_000)))
        return answers[-1].code != ResponseCode.SUCCESS

    eventually(refused, 60)
    return answers[-1]


def test_a_group_without_members_is_refused_by_an_accident_of_the_broker(
    client: Client, queue: MessageQueue
) -> None:
    response = refusal(client, queue, "alone")
    assert (response.code, response.remark) == answer("a group without members reads cold data")


def test_a_group_that_is_pushed_to_is_told_why(client: Client, queue: MessageQueue) -> None:
    member = Membership(
        client,
        "pushed",
        "one",
        {queue.topic: MessageSelector()},
        broadcasting=False,
        start="CONSUME_FROM_FIRST_OFFSET",
        on_change=lambda: None,
    )
    member.send_heartbeat(client.queue_address(queue), again=True)
    response = refusal(client, queue, "pushed")
    assert (response.code, response.remark) == (
        ResponseCode.SYSTEM_BUSY,
        "This consumer group is reading cold data. It has been flow control",
    )


def test_a_read_waits_and_goes_on(client: Client, queue: MessageQueue) -> None:
    refusal(client, queue, "reader")
    ranges = [OffsetRange(queue, 0, MESSAGES)]
    found = read_messages(client, ranges, ReadOptions(consumer_group="reader"))
    assert [int(message.body) for message in found] == list(range(MESSAGES))
