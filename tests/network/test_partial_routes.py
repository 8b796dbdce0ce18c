"""Name servers that know a part: others are asked, and what a topic had is not left out silently."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import pytest
from tests.support.scripted_peer import Peer, ScriptedPeer, answer

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.client.routes.name_servers import merge_routes
from pyspark_rocketmq.client.routes.whole_routes import look_up
from pyspark_rocketmq.errors import BrokerNotFoundError, NameServerError
from pyspark_rocketmq.model import BrokerData, MessageQueue, Permission, QueueData, TopicRoute
from pyspark_rocketmq.offsets.offset_lookup import PlanningClient
from pyspark_rocketmq.offsets.queue_lookup import queues_to_read
from pyspark_rocketmq.options import ClientOptions, SourceOptions, parse_options
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.frame import Frame

pytestmark = pytest.mark.timeout(60)


class NameServer:
    """Knows brokers, each of which has one queue of its topics; a test may change them at any time."""

    def __init__(self, **brokers: tuple[str, ...]) -> None:
        self.brokers = brokers
        self.asked: Counter[int] = Counter()
        self.on_ask: Callable[[], None] = lambda: None

    def __call__(self, peer: Peer, frame: Frame) -> None:
        self.asked[frame.command.code] += 1
        self.on_ask()
        match frame.command.code:
            case RequestCode.GET_ROUTEINFO_BY_TOPIC:
                self._route(peer, frame)
            case RequestCode.GET_BROKER_CLUSTER_INFO:
                table = {name: self._broker(name) for name in self.brokers}
                info = {"brokerAddrTable": table, "clusterAddrTable": {"c": list(table)}}
                peer.send(answer(frame, json.dumps(info).encode()))

    def _broker(self, name: str) -> dict[str, object]:
        return {"brokerName": name, "cluster": "c", "brokerAddrs": {"0": "127.0.0.1:1"}}

    def _route(self, peer: Peer, frame: Frame) -> None:
        names = [name for name, topics in self.brokers.items() if frame.command.fields["topic"] in topics]
        if not names:
            peer.send(answer(frame, code=ResponseCode.TOPIC_NOT_EXIST))
            return
        queue = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        route = {
            "brokerDatas": [self._broker(name) for name in names],
            "queueDatas": [queue | {"brokerName": name} for name in names],
        }
        peer.send(answer(frame, json.dumps(route).encode()))


def client_of(
    *addresses: str, timeout_ms: int = 20_000, answer_ms: int = 5_000, refresh_ms: int = 30_000
) -> Client:
    options = ClientOptions(name_servers=addresses, connect_timeout_ms=answer_ms, route_refresh_ms=refresh_ms)
    return Client(options, operation_timeout_ms=timeout_ms)


def brokers_of(client: Client, topic: str = "orders") -> list[str]:
    return [queue.broker_name for queue in client.read_queues(topic)]


def test_what_a_restarted_name_server_does_not_know_yet_the_other_one_tells() -> None:
    restarted, other = NameServer(a=("orders",)), NameServer(a=("orders",), b=("orders",))
    with (
        ScriptedPeer(restarted) as first,
        ScriptedPeer(other) as second,
        client_of(first.addr, second.addr) as client,
    ):
        assert brokers_of(client) == ["a", "b"]


def test_a_name_server_without_an_answer_is_not_asked_at_every_look_up() -> None:
    with (
        ScriptedPeer(NameServer(a=("orders",))) as first,
        ScriptedPeer(lambda peer, frame: None) as silent,
        client_of(first.addr, silent.addr, answer_ms=1_000, refresh_ms=0) as client,
    ):
        for _ in range(5):
            assert brokers_of(client) == ["a"]
        assert silent.connections == 1


def test_a_name_server_that_waits_for_its_brokers_is_no_answer() -> None:
    """``needWaitForService=true``: nothing for 45 s rather than a part."""

    def waits(peer: Peer, frame: Frame) -> None:
        peer.send(answer(frame, code=ResponseCode.SYSTEM_ERROR, remark="name server not ready"))

    with ScriptedPeer(waits) as first, ScriptedPeer(NameServer(a=("orders",))) as second:
        with client_of(first.addr, second.addr) as client:
            assert brokers_of(client) == ["a"]
        with (
            client_of(first.addr) as client,
            pytest.raises(NameServerError, match="name server not ready"),
        ):
            client.read_queues("orders")


def test_a_broker_that_the_topic_had_is_waited_for() -> None:
    known = NameServer(a=("orders",), b=("orders",))
    with ScriptedPeer(known) as peer, client_of(peer.addr, refresh_ms=0) as client:
        look_up(client, ("orders",))
        whole, known.brokers = known.brokers, {"a": ("orders",)}

        def come_back() -> None:
            if known.asked[RequestCode.GET_BROKER_CLUSTER_INFO] == 2:
                known.brokers = whole

        known.on_ask = come_back
        look_up(client, ("orders",), whole=True)
        assert brokers_of(client) == ["a", "b"]


def test_a_broker_that_stays_away_is_an_error_and_not_a_part_of_the_topic() -> None:
    known = NameServer(a=("orders",), b=("orders",))
    with ScriptedPeer(known) as peer, client_of(peer.addr, timeout_ms=1_500, refresh_ms=0) as client:
        look_up(client, ("orders",), whole=True)
        known.brokers = {"a": ("orders",)}
        with pytest.raises(BrokerNotFoundError, match="part of the topic") as caught:
            look_up(client, ("orders",), whole=True)
        assert caught.value.facts["broker_name"] == "b"
        client.routes.forget("orders")
        look_up(client, ("orders",), whole=True)


def test_a_broker_that_is_up_and_does_not_have_the_topic_any_more_is_not_waited_for() -> None:
    known = NameServer(a=("orders",), b=("orders",))
    with ScriptedPeer(known) as peer, client_of(peer.addr, refresh_ms=0) as client:
        look_up(client, ("orders",))
        known.brokers = {"a": ("orders",), "b": ("payments",)}
        for _ in range(2):
            look_up(client, ("orders",), whole=True)
        assert known.asked[RequestCode.GET_BROKER_CLUSTER_INFO] == 1


def test_the_topics_of_a_pattern_are_looked_up_together() -> None:
    """The name server answers no route before it was asked for all."""
    topics = tuple(f"orders-{number}" for number in range(40))
    known = NameServer(a=topics)
    held: list[Frame] = []

    def together(peer: Peer, frame: Frame) -> None:
        if frame.command.code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
            peer.send(answer(frame, json.dumps({"topicList": topics}).encode()))
            return
        if frame.command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            known(peer, frame)
            return
        held.append(frame)
        if len(held) == len(topics):
            for each in held:
                known(peer, each)

    with ScriptedPeer(together) as peer:
        given = {"nameServer": peer.addr, "subscribePattern": "orders-.*"}
        options = parse_options(SourceOptions, given, environ={})
        client = PlanningClient(options.client)
        try:
            assert len(queues_to_read(client, options, whole=True)) == len(topics)
        finally:
            client.close()


def test_routes_are_merged() -> None:
    def route(owner: str | None, *brokers: tuple[str, dict[int, str], int]) -> TopicRoute:
        return TopicRoute(
            "t",
            tuple(BrokerData(name, "c", addresses) for name, addresses, _ in brokers),
            tuple(QueueData(name, count, count, Permission(6)) for name, _, count in brokers),
            {MessageQueue("t", "__syslo__global__", 0): owner},
        )

    first = route(None, ("a", {1: "slave"}, 1))
    second = route("b", ("a", {0: "master", 1: "old"}, 2), ("b", {0: "other"}, 3))
    merged = merge_routes([first, second])
    assert merged == route("b", ("a", {0: "master", 1: "slave"}, 1), ("b", {0: "other"}, 3))
    assert merge_routes([first]) is first
    assert merge_routes([]) is None


def test_of_two_owners_of_a_static_topics_queue_the_one_of_the_later_remap_counts() -> None:
    def route(owner: str, epoch: int) -> TopicRoute:
        return TopicRoute("t", (), (), {MessageQueue("t", "__syslo__global__", 0): owner}, epoch)

    early, late = route("a", 1), route("b", 2)
    assert merge_routes([early, late]) == merge_routes([late, early]) == late
