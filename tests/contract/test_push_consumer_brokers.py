"""Members of a group on two real brokers, beside a Java consumer: a topic grows, a broker dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.group_member import Member
from tests.support.java_member import JavaMember
from tests.support.topics import TopicFactory, fill
from tests.support.wait import eventually

from pyspark_rocketmq.client import (
    Admin,
    Client,
    ConsumeFromWhere,
    MessageQueue,
    PushOptions,
)
from pyspark_rocketmq.devcluster import DevCluster

pytestmark = [pytest.mark.needs("cluster"), pytest.mark.timeout(240)]

FIRST, LAST = ConsumeFromWhere.FIRST_OFFSET, ConsumeFromWhere.LAST_OFFSET
JAVA_S = 60
"""A Java client that misses its turn is refused until its next heartbeat, 30 s later."""


@pytest.fixture(scope="module")
def two() -> Iterator[DevCluster]:
    """Two brokers of the module's own: one of them is killed and comes back."""
    with DevCluster(2) as cluster:
        yield cluster


@pytest.fixture
def cluster(two: DevCluster) -> DevCluster:
    return two


@pytest.fixture
def member(two: DevCluster, group: str) -> Iterator[Callable[..., Member]]:
    made: list[Member] = []

    def make(**options: object) -> Member:
        made.append(Member(two, group, PushOptions(**{"commit_ms": 200, "rebalance_ms": 1_000, **options})))
        return made[-1]

    yield make
    for one in made:
        one.consumer.close()


def send(client: Client, queue: MessageQueue, prefix: str, count: int) -> list[str]:
    bodies = [f"{prefix}{number}" for number in range(count)]
    fill(client, queue.topic, bodies, queues=[queue])
    return bodies


def test_a_topic_that_grows_loses_nothing(two, member, topic: TopicFactory, client, group):
    name = topic(queues=2, cluster=two)
    old = client.read_queues(name)
    for queue in old:
        send(client, queue, "old", 3)
    eventually(lambda: sum(client.max_offsets(old).values()) == 12, what="the old ones to be readable")
    one = member(start=LAST).start(name)
    eventually(lambda: one.queues(name) == set(old), 30, what="the queues")
    eventually(
        lambda: client.committed_offsets(group, old) == dict.fromkeys(old, 3), 20, what="where it begins"
    )
    Admin(client).alter_topic(name, queues=4)
    client.invalidate(name)
    new = sorted(set(client.read_queues(name)) - set(old))
    assert len(new) == 4
    bodies = [
        body for queue in new for body in send(client, queue, f"{queue.broker_name}-{queue.queue_id}-", 5)
    ]
    eventually(lambda: len(one.got) >= 20, 60, what="what the new queues have")
    assert sorted(one.bodies) == sorted(bodies)
    one.consumer.close()
    Admin(client).alter_topic(name, queues=5)
    client.invalidate(name)
    while_away = [
        body
        for queue in sorted(set(client.read_queues(name)) - set(old) - set(new))
        for body in send(client, queue, f"{queue.broker_name}-later-", 5)
    ]
    again = member(start=LAST).start(name)
    eventually(lambda: len(again.got) >= 10, 60, what="what came while no member was looking")
    assert sorted(again.bodies) == sorted(while_away)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_broker_that_is_killed_holds_up_no_other(two, member, topic: TopicFactory, client, group, ordered):
    name = topic(queues=4, cluster=two)
    queues = client.read_queues(name)
    here = [queue for queue in queues if queue.broker_name == "broker-a"]
    there = [queue for queue in queues if queue.broker_name == "broker-b"]
    one = member(start=FIRST, ordered=ordered).start(name)
    eventually(lambda: one.queues(name) == set(queues), 60, what="the queues")
    two.broker("broker-b").kill()
    try:
        bodies = [body for queue in here for body in send(client, queue, f"a{queue.queue_id}-", 50)]
        eventually(lambda: len(one.got) >= 200, 20, what="the healthy broker's messages")
        ends = client.max_offsets(here)
        eventually(lambda: client.committed_offsets(group, here) == ends, 20, what="their commits")
        # Members that know different routes would share different queues, and read some of them twice.
        eventually(lambda: one.queues(name) == set(here), 60, what="the route without the dead broker")
        other = member(start=FIRST, ordered=ordered).start(name)

        def shared() -> bool:
            mine, others = one.queues(name), other.queues(name)
            return (len(mine), len(others)) == (2, 2) and mine | others == set(here)

        eventually(shared, 30, what="half of the healthy broker's queues to change hands")
        bodies += [body for queue in here for body in send(client, queue, f"b{queue.queue_id}-", 10)]
        eventually(lambda: len(one.got) + len(other.got) >= 240, 30, what="forty more")
        ends = client.max_offsets(here)
        eventually(lambda: client.committed_offsets(group, here) == ends, 20, what="their commits")
        assert sorted(one.bodies + other.bodies) == sorted(bodies), "each once"
    finally:
        two.broker("broker-b").start()
    bodies += [body for queue in there for body in send(client, queue, f"c{queue.queue_id}-", 10)]
    eventually(lambda: {*one.bodies, *other.bodies} == set(bodies), 60, what="what the other broker has")
    eventually(lambda: client.committed_offsets(group, there) == dict.fromkeys(there, 10), 30, what="commits")


def test_beside_a_java_consumer_while_a_broker_is_away(two, member, topic: TopicFactory, client, group):
    classes: Path = two.compile_java(Path(__file__).parent / "java" / "GroupMember.java")
    name = topic(queues=4, cluster=two)
    queues = client.read_queues(name)
    here = [queue for queue in queues if queue.broker_name == "broker-a"]
    one = member(start=FIRST).start(name)
    eventually(lambda: one.queues(name) == set(queues), 60, what="the queues")
    with JavaMember(two, classes, group, name) as java:
        eventually(lambda: len(one.queues(name)) == 4, 60, what="its half")
        two.broker("broker-b").kill()
        try:
            bodies = [body for queue in here for body in send(client, queue, f"a{queue.queue_id}-", 20)]

            def got() -> list[str]:
                return [*one.bodies, *(body for _, _, body in java.got)]

            eventually(lambda: set(got()) == set(bodies), JAVA_S, what="the healthy broker's messages")
            java.leave()
            eventually(lambda: one.queues(name) >= set(here), 30, what="the Java consumer's queues")
            bodies += [body for queue in here for body in send(client, queue, f"b{queue.queue_id}-", 5)]
            eventually(lambda: set(got()) == set(bodies), 30, what="all further messages")
        finally:
            two.broker("broker-b").start()


def test_what_a_broker_loses_of_the_groups_offsets_is_committed_again(topic: TopicFactory, group):
    """It keeps them in memory between two writes to its disk; a queue may have no news for a long time."""
    never = {"flushConsumerOffsetInterval": "3600000"}
    with DevCluster(broker_config=never) as own, Client(own.name_server) as client:
        name = topic(queues=2, cluster=own)
        queues = client.read_queues(name)
        for queue in queues:
            send(client, queue, "old", 3)
        ends = dict.fromkeys(queues, 3)
        eventually(lambda: client.max_offsets(queues) == ends, 20, what="the messages to be readable")
        one = Member(own, group, PushOptions(commit_ms=200, rebalance_ms=1_000, start=LAST)).start(name)
        try:
            eventually(lambda: client.committed_offsets(group, queues) == ends, 30, what="where it begins")
            own.broker().kill()
            own.broker().start()
            eventually(lambda: client.committed_offsets(group, queues) == ends, 60, what="the offsets again")
        finally:
            one.consumer.close()
