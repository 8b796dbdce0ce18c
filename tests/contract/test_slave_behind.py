"""A real slave that lacks the newest messages, while its master is away: it decides about none of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.support.group_member import Member
from tests.support.slaves import end_at, pull, serves
from tests.support.topics import TopicFactory, fill
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client, ConsumeFromWhere, PushOptions
from pyspark_rocketmq.client.net.pull_lanes import PullChannel
from pyspark_rocketmq.client.read.queue_reader import read_messages
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.model import MessageQueue, OffsetRange, PullStatus

pytestmark = [pytest.mark.needs("cluster"), pytest.mark.timeout(300)]

BOTH_HAVE, ALL, LATER = 10, 40, 45
"""How many messages are small and replicated at once, the master has, and the queue has in the end."""

BODY = random.Random(1).randbytes(60_000)
"""Of the others: each takes half a minute to the slave."""


@pytest.fixture(scope="module", params=[False, True], ids=["tells to try again", "tells its own end"])
def cluster(request: pytest.FixtureRequest) -> Iterator[DevCluster]:
    """A slave that may be read, and its master, which replicates slowly; the master is killed."""
    settings = {
        "slaveReadEnable": "true",
        "haFlowControlEnable": "true",
        "maxHaTransferByteInSecond": "2000",
        "offsetCheckInSlave": str(request.param).lower(),
    }
    with DevCluster(slaves=1, broker_config=settings) as cluster:
        yield cluster


class NotingClient(Client):
    """A client that notes where it pulled."""

    def __init__(self, name_server: str) -> None:
        super().__init__(name_server)
        self.asked: list[str] = []

    def pull_channel(self, addr: str, *given: Any, **how: Any) -> PullChannel:
        self.asked.append(addr)
        return super().pull_channel(addr, *given, **how)


def test_positions_past_its_end_are_kept_until_the_master_is_back(
    cluster: DevCluster, client: Client, topic: TopicFactory, group: str, request: pytest.FixtureRequest
) -> None:
    master, slave = cluster.broker("broker-a"), cluster.broker("broker-a-1")
    name = topic(queues=1, cluster=cluster)
    (queue,) = client.read_queues(name)
    fill(client, name, [b"x"] * BOTH_HAVE)
    eventually(lambda: serves(client, slave.address, queue, BOTH_HAVE - 1), 60, what="the slave's copies")
    options = PushOptions(start=ConsumeFromWhere.FIRST_OFFSET, commit_ms=200, rebalance_ms=1_000)
    member = Member(cluster, group, options).start(name)
    try:
        eventually(lambda: len(member.got) == BOTH_HAVE, what="the first messages")
        fill(client, name, [BODY] * (ALL - BOTH_HAVE))
        eventually(lambda: len(member.got) == ALL, what="what the master has")
        master.kill()
        end = end_at(client, slave.address, queue)
        assert BOTH_HAVE <= end < ALL - 5, "the slave has everything"
        told = pull(client, slave.address, queue, ALL)
        if request.node.callspec.params["cluster"]:
            assert (told.status, told.header.next_begin_offset) == (PullStatus.OFFSET_ILLEGAL, end)
        else:
            assert (told.status, told.header.next_begin_offset) == (PullStatus.NO_MATCHED_MSG, ALL)
        reader = NotingClient(cluster.name_server)
        with reader, ThreadPoolExecutor(3) as pool:
            reads = {begin: pool.submit(read, reader, queue, begin) for begin in (5, end, ALL - 5)}
            eventually(lambda: reader.asked.count(slave.address) >= 6, what="questions to the slave")
            assert not any(future.done() for future in reads.values())
            master.start()
            for begin, future in reads.items():
                assert future.result(timeout=240) == list(range(begin, ALL))
        fill(client, name, [b"x"] * (LATER - ALL))
        eventually(lambda: len(member.got) >= LATER, 60, what="what came after the outage")
        assert [message.queue_offset for message in member.got] == list(range(LATER))
    finally:
        member.consumer.close()


def read(client: Client, queue: MessageQueue, begin: int) -> list[int]:
    """Read to the end; a slave's word would be a loss at once."""
    options = ReadOptions(consumer_group="g", missing_patience_ms=0, stall_timeout_ms=240_000)
    return [each.queue_offset for each in read_messages(client, [OffsetRange(queue, begin, ALL)], options)]
