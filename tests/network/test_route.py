"""Name servers that are late, wrong, silent, or something else altogether."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator

import pytest
from tests.support.clocks import FakeClock
from tests.support.fakes import Highest
from tests.support.scripted_cluster import ScriptedCluster
from tests.support.scripted_peer import Peer, ScriptedPeer, answer
from tests.support.wait import eventually, within

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock, Deadline
from pyspark_rocketmq.client.net.endpoint import ConnectionOptions
from pyspark_rocketmq.client.net.host import SYSTEM_HOST, Outcome
from pyspark_rocketmq.client.net.pool import ConnectionPool
from pyspark_rocketmq.client.routes.name_servers import NameServers
from pyspark_rocketmq.client.routes.routing import RouteCache
from pyspark_rocketmq.errors import (
    BrokerNotFoundError,
    ConnectError,
    NameServerError,
    OptionError,
    RequestTimeoutError,
    RocketMQError,
    TopicNotFoundError,
)
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.frame import Frame
from pyspark_rocketmq.remoting.header import DeleteTopicFromNamesrvRequest
from pyspark_rocketmq.testing import MockBroker

ROUTE = json.dumps(
    {
        "brokerDatas": [{"brokerName": "broker-a", "cluster": "c", "brokerAddrs": {"0": "127.0.0.1:1"}}],
        "queueDatas": [{"brokerName": "broker-a", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}],
    }
).encode()


NameServersFactory = Callable[..., NameServers]

CLOCK = FakeClock()
"""Moves when a failure is followed by a pause: whatever answers may take its time."""


@pytest.fixture
def name_servers() -> Iterator[NameServersFactory]:
    with ConnectionPool(ConnectionOptions(connect_timeout_ms=30_000)) as pool:

        def make(*addresses: str, clock: Clock = CLOCK) -> NameServers:
            return NameServers(pool, addresses, clock=clock, random=Highest(), timeout_ms=400)

        yield make


def deadline() -> Deadline:
    return Deadline(CLOCK, 5_000)


def knows(peer: Peer, frame: Frame) -> None:
    peer.send(answer(frame, ROUTE))


def knows_nothing(peer: Peer, frame: Frame) -> None:
    peer.send(answer(frame, code=ResponseCode.TOPIC_NOT_EXIST))


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (lambda peer, frame: peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "does not speak"),
        (lambda peer, frame: peer.hang_up(), "closed the connection"),
        # An HTTP/2 server (gRPC): its SETTINGS frame, then it hangs up on what is no preface.
        (
            lambda peer, frame: (peer.send(bytes.fromhex("000012040000000000") + bytes(18)), peer.hang_up()),
            "Is this",
        ),
        (lambda peer, frame: peer.send(answer(frame, code=3, remark="not supported")), "as a broker would"),
    ],
    ids=["http", "hangs up", "grpc", "broker"],
)
def test_something_that_is_no_name_server(
    name_servers: NameServersFactory, script: Callable[[Peer, Frame], None], said: str
) -> None:
    with (
        ScriptedPeer(script) as peer,
        pytest.raises(NameServerError, match="Is this a name server") as caught,
    ):
        name_servers(peer.addr).routes(("orders",), deadline=deadline())
    assert said in str(caught.value)
    assert peer.addr in str(caught.value)


def test_one_that_is_silent_is_given_up_soon(name_servers: NameServersFactory) -> None:
    with ScriptedPeer(lambda peer, frame: None) as peer:
        servers = name_servers(peer.addr, clock=SYSTEM_CLOCK)
        silent = rf"{peer.addr}: .* did not answer within .* Is this a name server"
        with within(3), pytest.raises(NameServerError, match=silent):
            servers.routes(("orders",), deadline=Deadline(SYSTEM_CLOCK, 60_000))


def test_one_that_is_silent_takes_not_all_the_time_of_a_hasty_caller(
    name_servers: NameServersFactory,
) -> None:
    with ScriptedPeer(lambda peer, frame: None) as silent, ScriptedPeer(knows) as good:
        servers = name_servers(silent.addr, good.addr, clock=SYSTEM_CLOCK)
        hasty = Deadline(SYSTEM_CLOCK, 300)  # shorter than the time-out of a name server
        assert servers.routes(("orders",), deadline=hasty)["orders"] is not None


def test_nobody_listens(name_servers: NameServersFactory) -> None:
    with pytest.raises(
        NameServerError, match=r"127\.0\.0\.1:1: cannot connect.*127\.0\.0\.1:2: cannot connect"
    ):
        name_servers("127.0.0.1:1", "127.0.0.1:2").routes(("orders",), deadline=deadline())


@pytest.mark.parametrize("addr", ["ns..example.com:9876", f"{'n' * 64}.example.com:9876"])
def test_what_cannot_be_a_hosts_name_is_a_name_server_that_is_away(
    name_servers: NameServersFactory, addr: str
) -> None:
    """Python cannot encode such a name for DNS, and says so with an error that is none of the network's."""
    with pytest.raises(NameServerError, match=rf"{re.escape(addr)}: cannot connect"):
        name_servers(addr).routes(("orders",), deadline=deadline())
    with MockBroker({"orders": 2}) as mq:
        for addresses in ((mq.name_server, addr), (addr, mq.name_server)):
            found = name_servers(*addresses).routes(("orders",), deadline=deadline())["orders"]
            assert found is not None
            assert len(found.read_queues()) == 2


@pytest.mark.parametrize("addr", ["broker..example:10911", "127.0.0.1:²", f"127.0.0.1:{'1' * 5_000}"])
def test_a_route_to_what_is_no_address_is_a_broker_that_is_away(addr: str) -> None:
    with MockBroker({"orders": 1}) as mq:
        mq.advertise("broker-a", addr)
        with (
            Client(mq.name_server, clock=FakeClock()) as client,
            pytest.raises(ConnectError, match=r"cannot connect|not an address") as caught,
        ):
            client.max_offsets((mq.queue("orders"),))
    assert caught.value.facts["addr"] == addr


def test_an_empty_list(name_servers: NameServersFactory) -> None:
    with pytest.raises(OptionError, match="nameServer"):
        name_servers()


def test_the_one_that_answered_is_asked_first(name_servers: NameServersFactory) -> None:
    with ScriptedPeer(lambda peer, frame: peer.hang_up()) as bad, ScriptedPeer(knows) as good:
        servers = name_servers(bad.addr, good.addr)
        for _ in range(3):
            assert servers.routes(("orders",), deadline=deadline())["orders"] is not None
        assert bad.connections == 1


def test_a_topic_that_only_the_second_knows(name_servers: NameServersFactory) -> None:
    with ScriptedPeer(knows_nothing) as first, ScriptedPeer(knows) as second:
        servers = name_servers(first.addr, second.addr)
        assert servers.routes(("orders",), deadline=deadline())["orders"] is not None


def test_nobody_knows_the_topic_and_one_is_down(name_servers: NameServersFactory) -> None:
    with ScriptedPeer(knows_nothing) as first:
        servers = name_servers(first.addr, "127.0.0.1:1")
        assert servers.routes(("orders",), deadline=deadline()) == {"orders": None}


def test_a_request_for_every_name_server_reaches_every_one(name_servers: NameServersFactory) -> None:
    request = DeleteTopicFromNamesrvRequest(topic="orders")
    with ScriptedPeer(knows) as first, ScriptedPeer(knows) as second:
        assert len(name_servers(first.addr, second.addr).call_each(request, deadline=deadline())) == 2
        with pytest.raises(NameServerError, match="cannot connect"):
            name_servers(first.addr, "127.0.0.1:1").call_each(request, deadline=deadline())


def test_routes_are_asked_for_in_one_go(name_servers: NameServersFactory) -> None:
    """The peer answers nothing until it has all requests."""
    waiting: list[Frame] = []

    def script(peer: Peer, frame: Frame) -> None:
        waiting.append(frame)
        if len(waiting) == 50:
            for each in reversed(waiting):
                peer.send(answer(each, ROUTE))

    topics = [f"topic-{number}" for number in range(50)]
    with ScriptedPeer(script) as peer:
        found = name_servers(peer.addr).routes(topics, deadline=deadline())
    assert [route.topic for route in found.values() if route] == topics


def test_lookups_of_one_topic_share_a_request(name_servers: NameServersFactory) -> None:
    release = threading.Event()
    asked: list[Frame] = []

    def script(peer: Peer, frame: Frame) -> None:
        asked.append(frame)
        release.wait(30)
        peer.send(answer(frame, ROUTE))

    with ScriptedPeer(script) as peer:
        cache = RouteCache(name_servers(peer.addr), clock=CLOCK)
        found: list[object] = []
        threads = [
            threading.Thread(target=lambda: found.append(cache.get("orders", deadline=deadline())))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        release.set()
        for thread in threads:
            thread.join(30)
    assert len(found) == 8
    assert len(asked) == 1


def test_a_failed_lookup_fails_everybody_and_is_not_remembered(name_servers: NameServersFactory) -> None:
    answers = [NameServerError, None]

    def script(peer: Peer, frame: Frame) -> None:
        if answers.pop(0):
            peer.send(answer(frame, code=3))
        else:
            peer.send(answer(frame, ROUTE))

    with ScriptedPeer(script) as peer:
        cache = RouteCache(name_servers(peer.addr), clock=CLOCK)
        with pytest.raises(NameServerError):
            cache.get("orders", deadline=deadline())
        assert cache.get("orders", deadline=deadline()).topic == "orders"


def test_each_thread_that_waits_for_a_lookup_has_an_error_of_its_own(
    name_servers: NameServersFactory,
) -> None:
    cache = RouteCache(name_servers("127.0.0.1:1"), clock=CLOCK)
    cache._looking["orders"] = outcome = Outcome(SYSTEM_HOST)
    outcome.fail(NameServerError("no name server answers"))
    errors = []
    for _ in range(2):
        with pytest.raises(NameServerError, match="no name server answers") as raised:
            cache.get("orders", deadline=deadline())
        raised.value.facts["attempts"] = len(errors) + 1
        errors.append(raised.value)
    assert [error.facts["attempts"] for error in errors] == [1, 2]


def test_an_old_route_is_better_than_none(name_servers: NameServersFactory) -> None:
    with ScriptedPeer(knows) as peer:
        cache = RouteCache(name_servers(peer.addr), clock=CLOCK, ttl_ms=0)
        route = cache.get("orders", deadline=deadline())
    assert cache.get("orders", deadline=deadline()) == route
    with pytest.raises(NameServerError):
        cache.get("never-seen", deadline=deadline())


def test_a_route_is_fresh_until_it_expires_or_is_invalidated(name_servers: NameServersFactory) -> None:
    clock = FakeClock()
    with ScriptedPeer(knows) as peer:
        cache = RouteCache(name_servers(peer.addr), clock=clock, ttl_ms=30_000)
        assert cache.fresh("orders") is None
        route = cache.get("orders", deadline=deadline())
        assert cache.fresh("orders") is route
        clock.now_s += 29
        assert cache.fresh("orders") is route
        clock.now_s += 1
        assert cache.fresh("orders") is None
        route = cache.get("orders", deadline=deadline())
        cache.invalidate("orders")
        assert cache.fresh("orders") is None
        assert cache.get("orders", deadline=deadline()) is cache.fresh("orders")


def test_a_topic_that_vanished_may_come_back() -> None:
    def refuse(peer: Peer, frame: Frame, name: str) -> None:
        raise AssertionError

    with ScriptedCluster(refuse) as cluster, Client(cluster.name_server) as client:
        client.read_queues("orders")
        gone = cluster.routes.pop("orders")
        client.invalidate("orders")
        with pytest.raises(TopicNotFoundError):
            client.read_queues("orders")
        with pytest.raises(BrokerNotFoundError, match="gone"):
            client.routes.get_served(("orders",), deadline=deadline())
        cluster.routes["orders"] = gone
        assert client.routes.get_served(("orders",), deadline=deadline())
        client.routes.forget("orders")
        del cluster.routes["orders"]
        with pytest.raises(TopicNotFoundError):
            client.routes.get_served(("orders",), deadline=deadline())


def test_a_ctrl_c_in_one_thread_is_not_raised_in_others_that_wait_for_its_look_up(monkeypatch) -> None:
    """In a notebook, the thread of the cell is interrupted, and other threads share its client."""
    with MockBroker({"orders": 1}) as mq, Client(mq.name_server) as client:
        look_up, waits, ends = client.name_servers.routes, threading.Event(), threading.Event()
        errors: list[BaseException | None] = []

        def interrupt(*_: object, **__: object) -> None:
            waits.set()
            assert ends.wait(10)
            raise KeyboardInterrupt

        def ask() -> None:
            try:
                client.route("orders")
            except (KeyboardInterrupt, RocketMQError) as error:
                errors.append(error)

        def waiting() -> bool:
            return any(outcome._turn._waiters for outcome in client.routes._looking.values())

        monkeypatch.setattr(client.name_servers, "routes", interrupt)
        threads = [threading.Thread(target=ask) for _ in range(2)]
        threads[0].start()
        assert waits.wait(10)
        threads[1].start()
        eventually(waiting, 10)
        monkeypatch.setattr(client.name_servers, "routes", look_up)
        ends.set()
        for thread in threads:
            thread.join(10)
        mine, other = sorted(errors, key=lambda error: isinstance(error, RocketMQError))
        assert isinstance(mine, KeyboardInterrupt)
        assert isinstance(other, RequestTimeoutError)
        assert other.retriable
        assert client.route("orders")


def test_a_fresh_route_is_not_asked_for_again() -> None:
    with ScriptedCluster(lambda peer, frame, name: None) as cluster, Client(cluster.name_server) as client:
        for _ in range(5):
            client.read_queues("orders")
        assert cluster.asked[RequestCode.GET_ROUTEINFO_BY_TOPIC] == 1
        client.invalidate("orders")
        client.read_queues("orders")
        assert cluster.asked[RequestCode.GET_ROUTEINFO_BY_TOPIC] == 2
