"""RocketMQ's message trace: mqadmin, which has the decoder of Java's client, reads what was written."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.group_member import Member
from tests.support.wait import eventually

from pyspark_rocketmq.client import (
    Client,
    ConsumeFromWhere,
    OutgoingMessage,
    Producer,
    ProducerOptions,
    PushOptions,
)
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.errors import DevClusterError


def test_java_s_tools_read_the_trace_of_a_message(
    mq: DevCluster, client: Client, topic: Callable[..., str], group: str
) -> None:
    name, traces = topic(queues=1), topic(queues=1)
    producer = Producer(client, group, ProducerOptions(trace_topic=traces, send_timeout_ms=60_000))
    result = producer.send(OutgoingMessage(name, b"four", tags="new", keys="key-1"))
    member = Member(mq, group, PushOptions(start=ConsumeFromWhere.FIRST_OFFSET, trace_topic=traces))
    try:
        member.start(name)
        eventually(lambda: member.bodies, what="the message")
    finally:
        member.consumer.close()

    def shown() -> str | None:
        try:
            text = mq.mqadmin("queryMsgTraceById", "-i", result.msg_id, "-t", traces)
        except DevClusterError:  # nothing is indexed yet
            return None
        return text if "Pub" in text and "Sub" in text else None

    text = eventually(shown, 60, what="both records")
    assert group in text
    assert "success" in text.lower()
