"""A query of a pattern whose topics come and go: those that are gone keep their positions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from tests.support.clocks import FakeClock

from pyspark_rocketmq.client import AsyncClient, Client, MessageQueue, OutgoingMessage
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.client.groups import group_lag
from pyspark_rocketmq.client.requests import max_offset
from pyspark_rocketmq.dstream.direct.batch_plan import DirectPlan
from pyspark_rocketmq.dstream.pace import Pace
from pyspark_rocketmq.errors import TopicNotFoundError
from pyspark_rocketmq.model import Earliest
from pyspark_rocketmq.model.nested_offsets import flatten
from pyspark_rocketmq.offsets.group_commits import GroupCommits
from pyspark_rocketmq.offsets.planning_client import PlanningClient
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.planning.rate import PidSettings
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.spark.features import ReadAllAvailable
from pyspark_rocketmq.spark.read.schema import read_schema
from pyspark_rocketmq.spark.read.stream import RocketMQStreamReader
from pyspark_rocketmq.testing import MockCluster

ORDERS, GONE = MessageQueue("orders", "broker-a", 0), MessageQueue("orders-2030-01", "broker-a", 0)


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with MockCluster({"orders": 1}) as cluster:
        yield cluster


def test_what_can_be_committed_is_whatever_other_topic_is_gone(mq: MockCluster) -> None:
    with Client(mq.name_server) as client:
        with pytest.raises(TopicNotFoundError, match="orders-2030-01"):
            client.commit_offsets("g", {GONE: 7, ORDERS: 5})
        assert client.committed_offsets("g", [ORDERS]) == {ORDERS: 5}


def test_the_progress_of_a_query_is_committed_after_a_restart(mq: MockCluster) -> None:
    options = Client(mq.name_server).options
    with PlanningClient(options) as client:
        commits = GroupCommits("g", client, interval_ms=0, clock=SYSTEM_CLOCK)
        commits.record_finished({ORDERS: 5, GONE: 7})
        commits.flush(30)
        assert client.committed_offsets("g", [ORDERS]) == {ORDERS: 5}
        commits.record_finished({ORDERS: 6, GONE: 7})
        commits.flush(30)
        assert client.committed_offsets("g", [ORDERS]) == {ORDERS: 6}


@pytest.mark.parametrize("names", [{"subscribePattern": "orders.*"}, {"topic": "orders,orders-2030-01"}])
def test_a_topic_that_is_deleted_while_a_query_runs_is_no_data_loss(
    mq: MockCluster, names: dict[str, str]
) -> None:
    """Brokers tell the end 0 of it, as long as the query knows its route."""
    mq.create_topic(GONE.topic, 1)
    for queue in (ORDERS, GONE):
        mq.send(OutgoingMessage(queue.topic, b"1"), queue)
    clock = FakeClock()
    given = {"nameServer": mq.name_server, "startingOffsets": "earliest"} | names
    options = parse_options(SourceOptions, given, where="readStream", environ={})
    stream = RocketMQStreamReader(options, read_schema(("body",)), clock=clock)
    read = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    mq.delete_topic(GONE.topic)
    for _ in range(20):
        assert stream.latestOffset(read, ReadAllAvailable()) == read
        clock.now_s += 1
    mq.send(OutgoingMessage("orders", b"2"), ORDERS)
    then = stream.latestOffset(read, ReadAllAvailable())
    assert flatten(then["offsets"]) == {ORDERS: 2, GONE: 1}
    stream.stop()


def test_a_topic_that_is_deleted_while_a_direct_stream_runs_is_no_data_loss(mq: MockCluster) -> None:
    mq.create_topic(GONE.topic, 1)
    for queue in (ORDERS, GONE):
        mq.send(OutgoingMessage(queue.topic, b"1"), queue)
    clock = FakeClock()
    given = {"nameServer": mq.name_server, "topic": "orders,orders-2030-01"}
    options = parse_options(SourceOptions, given, environ={})
    pace = Pace(pid=PidSettings(batch_interval_ms=1000))
    plan = DirectPlan(Earliest(), {ORDERS: 0, GONE: 0}, clock.now_ms(), pace, clock=clock)
    with PlanningClient(options.client) as client:
        plan.ranges(0, client, options, remember_ms=0)
        mq.delete_topic(GONE.topic)
        for number in range(1, 20):
            clock.now_s += 1
            plan.ranges(number, client, options, remember_ms=0)
        assert plan.positions == {ORDERS: 1, GONE: 1}


def test_a_topic_that_is_gone_is_not_a_line_for_each_commit(
    mq: MockCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with PlanningClient(Client(mq.name_server).options) as client:
        commits = GroupCommits("g", client, interval_ms=0, clock=SYSTEM_CLOCK)
        for offset in range(10):
            commits.record_finished({ORDERS: offset, GONE: 7})
            commits.flush(30)
        assert client.committed_offsets("g", [ORDERS]) == {ORDERS: 9}
    assert caplog.text.count("are not committed, tried again later") == 1


def test_the_others_are_asked_again_although_one_topic_is_gone(mq: MockCluster) -> None:
    with Client(mq.name_server) as client:
        mq.fail(RequestCode.GET_MAX_OFFSET, code=ResponseCode.SYSTEM_BUSY, times=2)
        calls = {queue: max_offset(queue) for queue in (GONE, ORDERS)}
        outcomes = client.requests.try_each(calls, deadline=client.deadline())
    assert outcomes[ORDERS] == 0
    assert isinstance(outcomes[GONE], TopicNotFoundError)


def test_a_commit_waits_for_a_topic_whose_only_broker_restarts(mq: MockCluster) -> None:
    with Client(mq.name_server) as client:
        assert client.read_queues("orders") == (ORDERS,)
        mq.unregister("broker-a")
        client.invalidate("orders")
        failed = client.try_commit_offsets("g", {ORDERS: 5})
        assert "no broker is registered" in str(failed[ORDERS])
        back = threading.Timer(0.3, mq.register, ("broker-a",))
        back.start()
        client.commit_offsets("g", {ORDERS: 5})
        back.join()
        assert client.committed_offsets("g", [ORDERS]) == {ORDERS: 5}


def test_a_topic_that_is_deleted_meanwhile_takes_no_broker_away(mq: MockCluster) -> None:
    away: list[str] = []
    with Client(mq.name_server) as client:
        client.commit_offsets("g", {ORDERS: 5})
        calls = {queue: max_offset(queue) for queue in (GONE, ORDERS)}
        asked = group_lag._ask(client, calls, lambda name, cause: away.append(name))
    assert (asked, away) == ({ORDERS: 0}, [])


def test_what_can_be_committed_is_in_an_event_loop_too(mq: MockCluster) -> None:
    async def commit() -> None:
        async with AsyncClient(mq.name_server) as client:
            with pytest.raises(TopicNotFoundError, match="orders-2030-01"):
                await client.commit_offsets("g", {GONE: 7, ORDERS: 5})
            assert await client.committed_offsets("g", [ORDERS]) == {ORDERS: 5}

    asyncio.run(commit())
