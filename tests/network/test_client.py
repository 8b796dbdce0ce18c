"""Offsets of many queues, through brokers that are busy, slow, or move away."""

from __future__ import annotations

import itertools
import os

import pytest
from tests.support.clocks import FakeClock
from tests.support.fakes import Highest, Lowest
from tests.support.scripted_cluster import ScriptedCluster
from tests.support.scripted_peer import Peer, answer

from pyspark_rocketmq.client import (
    Client,
    ClientOptions,
    MessageQueue,
    OutgoingMessage,
    Producer,
    ProducerOptions,
    PullConsumer,
    PullStatus,
)
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Deadline
from pyspark_rocketmq.client.requests import max_offset
from pyspark_rocketmq.client.shared import shared_client
from pyspark_rocketmq.errors import BrokerNotFoundError, ConnectError, PermissionDeniedError, SendError
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.frame import Frame
from pyspark_rocketmq.testing import HangUp, MockCluster


def offset(peer: Peer, frame: Frame, name: str) -> None:
    del name
    peer.send(answer(frame, offset=frame.command.fields["queueId"]))


def client_of(cluster: ScriptedCluster) -> Client:
    return Client(cluster.name_server, random=Lowest(), operation_timeout_ms=30_000)


def hasty_client_of(cluster: ScriptedCluster) -> Client:
    """Its time passes only when it pauses before another attempt."""
    return Client(cluster.name_server, clock=FakeClock(), random=Highest(), operation_timeout_ms=300)


def test_all_brokers_have_their_requests_before_any_answers() -> None:
    waiting: list[tuple[Peer, Frame]] = []

    def script(peer: Peer, frame: Frame, name: str) -> None:
        del name
        waiting.append((peer, frame))
        if len(waiting) == 300:
            for each, request in reversed(waiting):
                offset(each, request, "")

    names = ("broker-a", "broker-b", "broker-c")
    with ScriptedCluster(script, brokers=names, queues=100) as cluster, client_of(cluster) as client:
        queues = client.read_queues("orders")
        assert client.max_offsets(queues) == {queue: queue.queue_id for queue in queues}


def test_only_what_failed_is_asked_again() -> None:
    busy = {1: 2, 3: 1}  # queue id to the number of times that it is busy

    def script(peer: Peer, frame: Frame, name: str) -> None:
        queue_id = int(frame.command.fields["queueId"])
        if busy.get(queue_id):
            busy[queue_id] -= 1
            peer.send(answer(frame, code=ResponseCode.SYSTEM_BUSY, remark="[OVERLOAD]"))
        else:
            offset(peer, frame, name)

    with ScriptedCluster(script, queues=5) as cluster, client_of(cluster) as client:
        queues = client.read_queues("orders")
        assert client.max_offsets(queues) == {queue: queue.queue_id for queue in queues}
        assert cluster.asked[RequestCode.GET_MAX_OFFSET] == 5 + 2 + 1


def test_a_lost_connection_is_made_anew() -> None:
    numbers = itertools.count()

    def script(peer: Peer, frame: Frame, name: str) -> None:
        if next(numbers) == 3:
            peer.hang_up()
        else:
            offset(peer, frame, name)

    with ScriptedCluster(script, queues=8) as cluster, client_of(cluster) as client:
        queues = client.read_queues("orders")
        assert client.max_offsets(queues) == {queue: queue.queue_id for queue in queues}


def test_an_error_for_good_is_not_retried() -> None:
    def script(peer: Peer, frame: Frame, name: str) -> None:
        del name
        peer.send(answer(frame, code=ResponseCode.NO_PERMISSION, remark="the broker is not readable"))

    with ScriptedCluster(script, queues=2) as cluster, client_of(cluster) as client:
        with pytest.raises(PermissionDeniedError) as caught:
            client.max_offsets(client.read_queues("orders"))
        assert cluster.asked[RequestCode.GET_MAX_OFFSET] == 2
        assert {"topic", "broker_name", "addr", "queue"} <= caught.value.facts.keys()


def test_a_broker_that_left_the_route() -> None:
    with ScriptedCluster(offset) as cluster, hasty_client_of(cluster) as client:
        with pytest.raises(BrokerNotFoundError, match="no such broker") as caught:
            client.max_offsets([MessageQueue("orders", "broker-z", 0)])
        assert caught.value.facts["broker_name"] == "broker-z"


def test_a_broker_whose_address_cannot_be_reached() -> None:
    with ScriptedCluster(offset, brokers=("broker-a", "broker-b")) as cluster:
        cluster.addresses["broker-b"] = "127.0.0.1:1"
        with hasty_client_of(cluster) as client:
            with pytest.raises(ConnectError, match="cannot connect") as caught:
                client.max_offsets(client.read_queues("orders"))
            facts = caught.value.facts
            assert (facts["addr"], facts["broker_name"], facts["topic"]) == (
                "127.0.0.1:1",
                "broker-b",
                "orders",
            )


def test_a_slave_serves_pulls_but_no_end_offsets() -> None:
    """A slave may lag: what it calls the end is not the end."""

    def script(peer: Peer, frame: Frame, name: str) -> None:
        del name
        offsets = {"nextBeginOffset": "0", "minOffset": "0", "maxOffset": "0"}
        peer.send(answer(frame, code=ResponseCode.PULL_NOT_FOUND, **offsets))

    with ScriptedCluster(script) as cluster:
        cluster.broker_ids["broker-a"] = 1
        with hasty_client_of(cluster) as client:
            queue = client.read_queues("orders")[0]
            assert PullConsumer("g", client=client).pull(queue, "*", 0).status is PullStatus.NO_NEW_MSG
            assert client.write_queues("orders") == ()
            with pytest.raises(BrokerNotFoundError, match="no master"):
                client.max_offsets((queue,))
            with pytest.raises(SendError, match="master"):
                Producer(client, options=ProducerOptions(retries=1)).send(OutgoingMessage("orders", b"x"))


def test_advice_that_cannot_be_followed() -> None:
    seen: list[str] = []

    def script(peer: Peer, frame: Frame, name: str) -> None:
        seen.append(name)
        fields = {"nextBeginOffset": "0", "minOffset": "0", "maxOffset": "0"}
        peer.send(answer(frame, code=ResponseCode.PULL_NOT_FOUND, suggestWhichBrokerId="1", **fields))

    with ScriptedCluster(script, brokers=("broker-a", "broker-b")) as cluster, client_of(cluster) as client:
        queue = client.read_queues("orders")[0]
        consumer = PullConsumer("g", client=client)
        for _ in range(2):  # there is no slave to follow the advice
            consumer.pull(queue, "*", 0)
        assert seen == ["broker-a", "broker-a"]


def test_a_child_process_has_clients_of_its_own() -> None:
    options = ClientOptions(name_servers=("127.0.0.1:1",))
    parents = shared_client(options)
    assert shared_client(options) is parents
    child = os.fork()
    if child == 0:
        os._exit(0 if shared_client(options) is not parents else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert shared_client(options) is parents


def test_no_commit_is_none_and_minus_one_too() -> None:
    def script(peer: Peer, frame: Frame, name: str) -> None:
        del name
        assert frame.command.fields["setZeroIfNotFound"] == "false"
        match frame.command.fields["queueId"]:
            case "0":
                peer.send(answer(frame, code=ResponseCode.QUERY_NOT_FOUND))
            case "1":
                peer.send(answer(frame, offset="-1"))
            case _:
                peer.send(answer(frame, offset="7"))

    with ScriptedCluster(script, queues=3) as cluster, client_of(cluster) as client:
        queues = client.read_queues("orders")
        assert list(client.committed_offsets("g", queues).values()) == [None, None, 7]


def test_queues_of_one_broker_that_is_down_tell_their_own_topics() -> None:
    with MockCluster({"orders": 1, "billing": 1}) as mq, Client(mq.name_server) as client:
        queues = [MessageQueue(topic, "broker-a", 0) for topic in ("orders", "billing")]
        mq.stop_broker("broker-a", unregister=False)
        calls = {queue: max_offset(queue) for queue in queues}
        errors = client.requests.try_each(calls, deadline=Deadline(SYSTEM_CLOCK, 1_000))
        assert [errors[queue].facts["topic"] for queue in queues] == ["orders", "billing"]


def test_queues_whose_connection_ends_tell_their_own_topics() -> None:
    with MockCluster({"orders": 1, "billing": 1}) as mq, Client(mq.name_server) as client:
        queues = [MessageQueue(topic, "broker-a", 0) for topic in ("orders", "billing")]
        mq.inject(HangUp(), on=RequestCode.GET_MAX_OFFSET, times=None)
        calls = {queue: max_offset(queue) for queue in queues}
        errors = client.requests.try_each(calls, deadline=Deadline(SYSTEM_CLOCK, 1_000))
        assert [errors[queue].facts["topic"] for queue in queues] == ["orders", "billing"]
