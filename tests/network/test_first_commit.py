"""A broker that gets a group's first commits side by side keeps some of them only: one goes ahead."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.clocks import FakeClock, WrongClock

from pyspark_rocketmq.client import Admin, AsyncClient, Client, ClientOptions, MessageQueue
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.client.groups.push_progress import GroupProgress
from pyspark_rocketmq.errors import BrokerError, GroupNotFoundError, RocketMQError, TransportError
from pyspark_rocketmq.options import parse_options
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.testing import Damage, HangUp, MockCluster, Silence

COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET


def test_one_commit_a_broker_and_topic_goes_ahead_of_the_others():
    with (
        MockCluster({"orders": 4, "payments": 4}, brokers=("broker-a", "broker-b")) as mq,
        Client(mq.name_server) as client,
    ):
        offsets = {
            queue: queue.queue_id for topic in ("orders", "payments") for queue in client.read_queues(topic)
        }
        mq.fail(COMMIT, code=ResponseCode.NO_PERMISSION, times=None)
        with pytest.raises(BrokerError):
            client.commit_offsets("billing", offsets)
        assert mq.asked[COMMIT] == 4  # of 16: two brokers, two topics
        mq.heal()
        client.commit_offsets("billing", offsets)
        assert mq.asked[COMMIT] == 4 + 16
        assert client.committed_offsets("billing", offsets) == offsets

        mq.fail(COMMIT, code=ResponseCode.NO_PERMISSION, times=None)
        with pytest.raises(BrokerError):
            client.commit_offsets("billing", offsets)
        assert mq.asked[COMMIT] == 4 + 16 + 16  # the tables are there now


@pytest.mark.parametrize("known", [False, True])
def test_a_broker_that_is_away_keeps_no_other_from_its_offsets(known: bool):
    topics = {"orders": 4, "payments": 4}
    with (
        MockCluster(topics, brokers=("broker-a", "broker-b")) as mq,
        Client(mq.name_server, operation_timeout_ms=1_000) as client,
    ):
        offsets = {queue: queue.queue_id for topic in topics for queue in client.read_queues(topic)}
        if known:
            client.commit_offsets("billing", dict.fromkeys(offsets, 9))
        mq.stop_broker("broker-a", unregister=False)
        with pytest.raises(TransportError):
            client.commit_offsets("billing", offsets)
        there = {queue: at for queue, at in offsets.items() if queue.broker_name == "broker-b"}
        assert {queue: mq.committed("billing", queue) for queue in there} == there
        mq.start_broker("broker-a")
        client.commit_offsets("billing", offsets)
        assert client.committed_offsets("billing", offsets) == offsets


def test_a_busy_broker_is_asked_again():
    with (
        MockCluster({"orders": 2}, brokers=("broker-a",)) as mq,
        Client(mq.name_server, operation_timeout_ms=500) as client,
    ):
        offsets = dict.fromkeys(client.read_queues("orders"), 1)
        mq.fail(COMMIT, code=ResponseCode.SYSTEM_BUSY, times=2)
        client.commit_offsets("billing", offsets)
        assert client.committed_offsets("billing", offsets) == offsets


@pytest.mark.parametrize("lost", [RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT])
def test_a_registration_whose_answer_is_late_leaves_no_member(lost: RequestCode):
    """It would get its share of the queues from the consumers of the group, and not read them.

    A broker removes a member when its connection ends.
    """
    queue = MessageQueue("orders", "broker-a", 0)
    with MockCluster({"orders": 1}) as mq:
        given = {"nameServer": mq.name_server, "requestTimeoutMs": "1000"}
        with Client(parse_options(ClientOptions, given, environ={})) as client:
            client.max_offsets([queue])
            connection = client.connection(mq.address("broker-a"))
            mq.inject(Silence(executed=True), on=lost)
            with ThreadPoolExecutor(1) as threads:
                commit = threads.submit(client.try_commit_offsets, "billing", {queue: 0})
                while not commit.done():  # other answers arrive meanwhile: the broker is not taken for dead
                    client.max_offsets([queue])
                assert commit.result() == {}
            assert not connection.alive


def test_a_group_that_a_broker_has_lost_is_registered_again():
    """An operator deleted it, or the broker came back with an empty disk, weeks after the first commit."""
    with MockCluster({"orders": 2}) as mq, Client(mq.name_server) as client:
        queues = client.read_queues("orders")
        client.commit_offsets("billing", dict.fromkeys(queues, 1))
        Admin(client).delete_group("billing")
        client.commit_offsets("billing", dict.fromkeys(queues, 2))
        assert client.committed_offsets("billing", queues) == dict.fromkeys(queues, 2)
        Admin(client).delete_group("billing")
        assert client.try_commit_offsets("billing", dict.fromkeys(queues, 3)) == {}
        assert client.committed_offsets("billing", queues) == dict.fromkeys(queues, 3)


def test_a_group_that_a_broker_has_lost_is_registered_again_in_an_event_loop():
    async def commit(mq: MockCluster) -> None:
        async with AsyncClient(mq.name_server) as client:
            queues = await client.read_queues("orders")
            await client.commit_offsets("billing", dict.fromkeys(queues, 1))
            with Client(mq.name_server) as other:
                Admin(other).delete_group("billing")
            await client.commit_offsets("billing", dict.fromkeys(queues, 2))
            assert await client.committed_offsets("billing", queues) == dict.fromkeys(queues, 2)

    with MockCluster({"orders": 2}) as mq:
        asyncio.run(commit(mq))


def test_brokers_that_do_not_answer_a_heartbeat_take_no_time_from_the_others():
    silent = ("broker-a", "broker-b", "broker-c")

    async def commit_offsets(mq: MockCluster, offsets: dict[MessageQueue, int]) -> None:
        given = {"nameServer": mq.name_server, "requestTimeoutMs": "1000"}
        options = parse_options(ClientOptions, given, environ={})
        async with AsyncClient(options, operation_timeout_ms=2_500) as client:
            with contextlib.suppress(RocketMQError):
                await client.commit_offsets("billing", offsets)

    with MockCluster({"orders": 1}, brokers=(*silent, "broker-d")) as mq:
        for name in silent:
            mq.inject(Silence(), broker=name, times=None)
        asyncio.run(
            commit_offsets(mq, {MessageQueue("orders", name, 0): 7 for name in (*silent, "broker-d")})
        )
        assert mq.committed("billing", MessageQueue("orders", "broker-d", 0)) == 7


def lose_a_heartbeat(mq: MockCluster) -> ClientOptions:
    """Have a broker not hear of a group in time, as one that comes back just before the commit."""
    mq.inject(Silence(), on=RequestCode.HEART_BEAT)
    given = {"nameServer": mq.name_server, "requestTimeoutMs": "300"}
    return parse_options(ClientOptions, given, environ={})


def test_a_group_of_which_a_broker_has_not_heard_is_registered_again():
    with MockCluster({"orders": 2}) as mq, Client(lose_a_heartbeat(mq)) as client:
        offsets = dict.fromkeys(client.read_queues("orders"), 1)
        assert client.try_commit_offsets("billing", offsets) == {}
        assert client.committed_offsets("billing", offsets) == offsets


def test_a_group_of_which_a_broker_has_not_heard_is_registered_again_in_an_event_loop():
    async def commit(mq: MockCluster) -> None:
        async with AsyncClient(lose_a_heartbeat(mq)) as client:
            offsets = dict.fromkeys(await client.read_queues("orders"), 1)
            await client.commit_offsets("billing", offsets)
            assert await client.committed_offsets("billing", offsets) == offsets

    with MockCluster({"orders": 2}) as mq:
        asyncio.run(commit(mq))


def test_a_group_that_brokers_may_not_create_is_an_error():
    with MockCluster({"orders": 1}) as mq, Client(mq.name_server) as client:
        (queue,) = client.read_queues("orders")
        client.commit_offsets("billing", {queue: 1})
        mq.fail(COMMIT, code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, times=None)
        with pytest.raises(GroupNotFoundError):
            client.commit_offsets("billing", {queue: 2})
        assert mq.asked[COMMIT] == 3


@pytest.mark.parametrize("fault", ["an answer that comes late", "a connection that ends"])
def test_offsets_that_are_old_by_now_are_not_sent(fault: str) -> None:
    """Of a member whose machine slept: another one may have the queues. The monotonic clock stood still."""
    clock = WrongClock(base=FakeClock(base=SYSTEM_CLOCK))
    with (
        MockCluster({"orders": 600}, brokers=("broker-a",)) as mq,
        Client(mq.name_server, clock=clock) as client,
    ):
        queues = client.read_queues("orders")
        progress = GroupProgress(client, "billing")
        client.commit_offsets("billing", dict.fromkeys(queues, 1))
        progress.write({queues[0]: 1})
        asked = mq.asked[COMMIT]

        def sleep(frame: bytes = b"") -> bytes:
            clock.ahead_s = 600.0
            return frame

        if fault == "an answer that comes late":
            mq.inject(Damage(sleep), on=COMMIT, times=1, after=10)
        else:
            mq.inject(HangUp(), on=COMMIT, times=1)
            clock._base.on_sleep = sleep
        with pytest.raises(RocketMQError, match="s old, and are not sent"):
            progress.write(dict.fromkeys(queues, 2))
        assert clock.ahead_s == 600.0
        assert mq.asked[COMMIT] - asked < 600
        progress.write(dict.fromkeys(queues, 3))
        assert client.committed_offsets("billing", queues) == dict.fromkeys(queues, 3)
