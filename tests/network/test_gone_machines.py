"""Machines that are gone, and do not even refuse a connection, delay only their own requests."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.support.deaf import deaf_address
from tests.support.threads import HostWithoutThreads

from pyspark_rocketmq.client import Admin, Client, ClientOptions, MessageQueue
from pyspark_rocketmq.client.broker_calls import calls_at_once, glance_deadline, glance_each
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.client.net.byte_stream import ByteStream
from pyspark_rocketmq.client.net.endpoint import ConnectionOptions, open_socket
from pyspark_rocketmq.client.net.pool import ConnectionPool
from pyspark_rocketmq.client.requests import max_offset
from pyspark_rocketmq.errors import ConnectError, RocketMQError, TransportError
from pyspark_rocketmq.options import parse_options
from pyspark_rocketmq.testing import MockCluster
from pyspark_rocketmq.tools.bundle.facts import broker_facts

pytestmark = pytest.mark.timeout(120)

NAMES = tuple(f"broker-{letter}" for letter in "abcde")
LIVING = NAMES[-1]
QUEUES = tuple(MessageQueue("orders", name, 0) for name in NAMES)
CALLS = {queue: max_offset(queue) for queue in QUEUES}

CONNECT_S = 1.0
SLACK_S = 0.9
"""Less than another attempt to connect takes."""


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    """A cluster of which one broker lives."""
    with contextlib.ExitStack() as resources:
        cluster = resources.enter_context(MockCluster({"orders": 1}, brokers=NAMES))
        for name in NAMES:
            if name != LIVING:
                cluster.stop_broker(name, unregister=False)
                cluster.advertise(name, resources.enter_context(deaf_address()))
        yield cluster


def options(mq: MockCluster, connect_s: float = CONNECT_S) -> ClientOptions:
    given = {"nameServer": mq.name_server, "connectTimeoutMs": str(round(connect_s * 1000))}
    return parse_options(ClientOptions, given, environ={})


def failed(outcomes: object) -> set[str]:
    assert isinstance(outcomes, dict)
    errors = {key: it for key, it in outcomes.items() if isinstance(it, TransportError)}
    return {str(error.facts["broker_name"]) for error in errors.values()}


def test_a_round_takes_the_time_of_one_of_them(mq: MockCluster) -> None:
    with Client(options(mq), operation_timeout_ms=round(1.5 * CONNECT_S * 1000)) as client:
        begin = SYSTEM_CLOCK.monotonic()
        outcomes = client.requests.try_each(CALLS, deadline=client.deadline())
        assert SYSTEM_CLOCK.monotonic() - begin < 1.5 * CONNECT_S + SLACK_S
        assert outcomes[QUEUES[-1]] == 0
        assert failed(outcomes) == {*NAMES} - {LIVING}


def test_one_that_takes_all_the_time_leaves_the_others_theirs(mq: MockCluster) -> None:
    """Callers for whom the answer is optional wait less than a connection may take."""
    away: dict[str, RocketMQError] = {}
    with Client(options(mq, connect_s=3.0)) as client:
        assert glance_each(client, CALLS, away.__setitem__) == {QUEUES[-1]: 0}
        assert away.keys() == {*NAMES} - {LIVING}


def test_the_same_call_at_all_brokers_takes_the_time_of_one(mq: MockCluster) -> None:
    calls = {(queue.broker_name, 0): call for queue, call in CALLS.items()}
    with Client(options(mq)) as client:
        info = Admin(client).cluster_info()
        begin = SYSTEM_CLOCK.monotonic()
        outcomes = calls_at_once(client, info, calls, glance_deadline(client))
        assert SYSTEM_CLOCK.monotonic() - begin < CONNECT_S + SLACK_S
        assert outcomes[LIVING, 0] == 0
        assert failed(outcomes) == {*NAMES} - {LIVING}


def test_a_bundle_asks_all_brokers_together(mq: MockCluster) -> None:
    with Client(options(mq), operation_timeout_ms=2_000) as client:
        begin = SYSTEM_CLOCK.monotonic()
        facts = broker_facts(client)
        assert SYSTEM_CLOCK.monotonic() - begin < 2 + SLACK_S
    assert facts.keys() == {*NAMES}
    assert "MockCluster" in facts[LIVING]
    assert all("cannot connect" in facts[name] or "no answer" in facts[name] for name in NAMES[:-1])


def test_a_first_commit_announces_the_group_at_all_brokers_together(mq: MockCluster) -> None:
    with Client(options(mq)) as client:
        begin = SYSTEM_CLOCK.monotonic()
        errors = client.try_commit_offsets("g", dict.fromkeys(QUEUES, 0))
        assert SYSTEM_CLOCK.monotonic() - begin < 2 * CONNECT_S + SLACK_S
        assert errors.keys() == {*QUEUES[:-1]}
        assert client.committed_offsets("g", QUEUES[-1:]) == {QUEUES[-1]: 0}


def test_callers_of_one_address_share_an_attempt() -> None:
    errors: list[ConnectError] = []

    def get() -> None:
        with pytest.raises(ConnectError) as caught:
            pool.get(addr)
        errors.append(caught.value)

    with deaf_address() as addr, ConnectionPool(ConnectionOptions(connect_timeout_ms=1_000)) as pool:
        begin = SYSTEM_CLOCK.monotonic()
        callers = [threading.Thread(target=get) for _ in range(4)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(30)
        assert SYSTEM_CLOCK.monotonic() - begin < CONNECT_S + SLACK_S
        assert len({id(error) for error in errors}) == 4
        with pytest.raises(ConnectError):  # the next one tries again
            pool.get(addr)


class SlowHost(HostWithoutThreads):
    """It connects when it is told to."""

    def __init__(self) -> None:
        super().__init__(refusals=0)
        self.connects, self.told = threading.Event(), threading.Event()
        self.streams: list[ByteStream] = []

    def connect(self, addr: str, options: ConnectionOptions) -> ByteStream:
        self.connects.set()
        assert self.told.wait(30)
        self.streams.append(super().connect(addr, options))
        return self.streams[-1]


def test_a_pool_that_is_closed_meanwhile_keeps_no_connection(mq: MockCluster) -> None:
    host = SlowHost()
    pool = ConnectionPool(ConnectionOptions(), host=host)
    with ThreadPoolExecutor(1) as threads:
        opening = threads.submit(pool.get, mq.name_server)
        assert host.connects.wait(30)
        pool.close()
        host.told.set()
        with pytest.raises(ConnectError, match="the pool was closed"):
            opening.result(30)
    assert pool.opened == ()
    assert [stream._sock.fileno() for stream in host.streams] == [-1]
    with pool:
        assert pool.get(mq.name_server).alive


@pytest.mark.parametrize("refusals", [1, len(NAMES)])
def test_a_machine_without_threads_asks_all_the_same(mq: MockCluster, refusals: int) -> None:
    host = HostWithoutThreads(refusals)
    with Client(options(mq, connect_s=0.2), host=host) as client:
        outcomes = client.requests.try_each(CALLS, deadline=client.deadline(3_000))
        assert outcomes[QUEUES[-1]] == 0
        assert failed(outcomes) == {*NAMES} - {LIVING}


def test_a_name_of_several_machines_takes_the_time_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up = socket.getaddrinfo

    def resolve(host: str, *args: Any, **named: Any) -> list[Any]:
        places = ("127.0.0.2", "127.0.0.1") if host == "brokers.example" else (host,)
        return [found for place in places for found in look_up(place, *args, **named)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    given = ConnectionOptions(connect_timeout_ms=round(CONNECT_S * 1000))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with deaf_address("127.0.0.2", port):
            begin = SYSTEM_CLOCK.monotonic()
            with contextlib.closing(open_socket(f"brokers.example:{port}", given)) as opened:
                assert SYSTEM_CLOCK.monotonic() - begin < CONNECT_S
                assert opened.getpeername() == listener.getsockname()
