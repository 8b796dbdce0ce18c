"""RocketMQ's message trace: mqadmin, which has the decoder of Java's client, reads what was written."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.group_member import Member
from tests.support.wait import eventually

from pyspark_rocketmq.client import (
    TRACE_TOPIC,
    Admin,
    Client,
    ConsumeFromWhere,
    OutgoingMessage,
    Producer,
    ProducerOptions,
    PushOptions,
)
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.errors import DevClusterError


def trace_of_a_message(mq: DevCluster, client: Client, topic: str, group: str, traces: str) -> str:
    """Send a message and consume it, both traced; return what mqadmin shows of it."""
    producer = Producer(client, group, ProducerOptions(trace_topic=traces, send_timeout_ms=60_000))
    result = producer.send(OutgoingMessage(topic, b"four", tags="new", keys="key-1"))
    member = Member(mq, group, PushOptions(start=ConsumeFromWhere.FIRST_OFFSET, trace_topic=traces))
    try:
        member.start(topic)
        eventually(lambda: member.bodies, what="the message")
    finally:
        member.consumer.close()

    def shown() -> str | None:
        try:
            text = mq.mqadmin("queryMsgTraceById", "-i", result.msg_id, "-t", traces)
        except DevClusterError:  # nothing is indexed yet
            return None
        return text if "Pub" in text and "Sub" in text else None

    return eventually(shown, 60, what="both records")


def test_java_s_tools_read_the_trace_of_a_message(
    mq: DevCluster, client: Client, topic: Callable[..., str], group: str
) -> None:
    text = trace_of_a_message(mq, client, topic(queues=1), group, topic(queues=1))
    assert group in text
    assert "success" in text.lower()


@pytest.mark.needs("cluster")
def test_they_read_it_from_rocketmq_s_own_topic(group: str) -> None:
    with DevCluster(broker_config={"traceTopicEnable": "true"}) as own, Client(own.name_server) as client:
        Admin(client).create_topic("orders", queues=1)
        assert group in trace_of_a_message(own, client, "orders", group, TRACE_TOPIC)
