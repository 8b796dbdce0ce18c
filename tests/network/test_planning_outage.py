"""A stream's planning through outages of the whole cluster, on the mock one."""

from __future__ import annotations

import threading

import pytest
from tests.support.threads import HostWithoutThreads

from pyspark_rocketmq.client import Client, OutgoingMessage
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Deadline
from pyspark_rocketmq.errors import PermissionDeniedError
from pyspark_rocketmq.offsets.offset_lookup import PlanningClient, fetch_running_ends, wait_for_ends
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.testing import MockBroker, MockCluster, Refuse

pytestmark = pytest.mark.timeout(60)


def test_ends_are_waited_for_while_the_whole_cluster_restarts() -> None:
    with MockBroker({"orders": 1}) as mq:
        mq.send(OutgoingMessage("orders", b"1"))
        given = {"nameServer": mq.name_server, "topic": "orders", "connectTimeoutMs": "500"}
        options = parse_options(SourceOptions, given, environ={})
        client = PlanningClient(options.client)
        try:
            ends = wait_for_ends(client, options, clock=SYSTEM_CLOCK, deadline=Deadline(SYSTEM_CLOCK, 5_000))
            assert ends.masters == {mq.queue("orders"): 1}
            mq.stop_broker("broker-a")
            mq.stop_name_server()

            def come_back() -> None:
                mq.start_name_server()
                mq.start_broker("broker-a")

            back = threading.Timer(1.0, come_back)
            back.start()
            try:
                ends = wait_for_ends(
                    client, options, clock=SYSTEM_CLOCK, deadline=Deadline(SYSTEM_CLOCK, 20_000)
                )
            finally:
                back.join()
            assert ends.masters == {mq.queue("orders"): 1}
        finally:
            client.close()


def test_the_topics_of_a_pattern_are_read_on_while_the_name_servers_are_away() -> None:
    with MockBroker({"orders": 1}) as mq:
        mq.send(OutgoingMessage("orders", b"1"))
        given = {"nameServer": mq.name_server, "subscribePattern": "ord.*"}
        given |= {"connectTimeoutMs": "200", "routeRefreshMs": "1"}
        options = parse_options(SourceOptions, given, environ={})
        client = PlanningClient(options.client)
        try:
            assert fetch_running_ends(client, options).masters == {mq.queue("orders"): 1}
            mq.stop_name_server()
            mq.send(OutgoingMessage("orders", b"2"))
            assert fetch_running_ends(client, options).masters == {mq.queue("orders"): 2}
        finally:
            client.close()


def test_a_broker_that_refuses_one_question_is_not_away_for_the_next() -> None:
    with MockCluster({"orders": 1}, brokers=("broker-a", "broker-b")) as mq:
        for queue in mq.queues("orders"):
            mq.send(OutgoingMessage("orders", b"1"), queue)
        given = {"nameServer": mq.name_server, "topic": "orders"}
        options = parse_options(SourceOptions, given, environ={})
        client = PlanningClient(options.client)
        try:
            everywhere = dict.fromkeys(mq.queues("orders"), 1)
            assert fetch_running_ends(client, options).masters == everywhere
            mq.inject(
                Refuse(ResponseCode.NO_PERMISSION), on=RequestCode.PULL_MESSAGE, broker="broker-b", times=None
            )
            for _ in range(3):
                found, failed = client.stored_at(dict.fromkeys(everywhere, 0), "g")
                assert (found.keys(), failed.keys()) == (
                    {*everywhere} - failed.keys(),
                    {mq.queues("orders")[1]},
                )
                assert isinstance(failed[mq.queues("orders")[1]], PermissionDeniedError)
                assert fetch_running_ends(client, options).masters == everywhere
        finally:
            client.close()


@pytest.mark.parametrize("refusals", [1, 2])
def test_a_look_for_which_no_thread_can_be_started_is_made_all_the_same(refusals: int) -> None:
    """It ended the query. A direct stream never asked these brokers again."""
    with MockCluster({"orders": 1}, brokers=("broker-a", "broker-b")) as mq:
        options = Client(mq.name_server).options
        with PlanningClient(options, host=HostWithoutThreads(0)) as client:
            queues = client.read_queues("orders")
            client.host.refusals = refusals
            for _ in range(2):
                found = client.ends(queues)
                assert (dict(found.masters), dict(found.failed)) == (dict.fromkeys(queues, 0), {})


def test_why_a_topic_has_no_route_is_not_asked_with_each_look() -> None:
    """Streams look many times a second, and the list of all topics may be long."""
    listing = (RequestCode.GET_BROKER_CLUSTER_INFO, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    with MockBroker({"orders": 1}) as mq:
        given = {"nameServer": mq.name_server, "topic": "orders,payments"}
        options = parse_options(SourceOptions, given, environ={})
        with PlanningClient(options.client) as client:
            for _ in range(20):
                assert fetch_running_ends(client, options).masters == {mq.queue("orders"): 0}
            assert all(1 <= mq.asked[code] < 20 for code in listing), "about once in five seconds"
            mq.create_topic("payments", 1)
            assert len(fetch_running_ends(client, options).masters) == 2
