"""The exporter at a real broker: lag, and dead letters that a consumer has made."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.group_member import Member
from tests.support.patient import patient_producer
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client, ConsumeFromWhere, ConsumeResult, OutgoingMessage, PushOptions
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.options import ClientOptions
from pyspark_rocketmq.tools.exporter.measurement import ClusterMeter, GroupState


def test_lag_dead_letters_and_topics_of_a_group(
    mq: DevCluster, client: Client, topic: Callable[..., str], group: str
) -> None:
    name = topic(queues=1)
    producer = patient_producer(client)
    producer.send(OutgoingMessage(name, b"bad"))
    options = PushOptions(start=ConsumeFromWhere.FIRST_OFFSET, retry_delay_level=-1, commit_ms=200)
    member = Member(mq, group, options)
    member.answer = lambda _: ConsumeResult.LATER
    try:
        member.start(name)
        eventually(lambda: client.committed_offsets(group, client.read_queues(name)).popitem()[1] == 1)
    finally:
        member.consumer.close()
    for body in (b"x", b"y"):
        producer.send(OutgoingMessage(name, body))

    def measured() -> GroupState | None:
        meter = ClusterMeter(ClientOptions(name_servers=(mq.name_server,)), [group])
        try:
            (state,) = meter.state().groups
        finally:
            meter.close()
        return state if state.messages == 2 and state.dead_letters is not None else None

    state = eventually(measured, what="two messages to read, and a dead-letter topic")
    assert state.topics == (name,)
    assert [(each.at.position, each.at.max_offset) for each in state.queues] == [(1, 3)]
    assert state.seconds is not None
    assert state.dead_letters is not None
    assert state.dead_letters.messages == 1
    assert state.dead_letters.oldest_s == state.dead_letters.newest_s is not None
