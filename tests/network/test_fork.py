"""Children that are forked while the parent's threads are busy: Spark's workers, multiprocessing."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator

import pytest
from tests.support.scripted_cluster import ScriptedCluster, stored
from tests.support.scripted_peer import Peer, answer
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client, OutgoingMessage, Producer, PushConsumer
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.client.net.buffer_pool import BUFFERS
from pyspark_rocketmq.client.shared import _shared, shared_client
from pyspark_rocketmq.errors import ConnectionLostError
from pyspark_rocketmq.offsets.reachable import BrokerHealth
from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.remoting.frame import Frame
from pyspark_rocketmq.testing import MockBroker

pytestmark = pytest.mark.timeout(60)


def serve(peer: Peer, frame: Frame, name: str) -> None:
    del name
    if frame.command.code == RequestCode.SEND_MESSAGE_V2:
        peer.send(stored(frame))
    else:
        peer.send(answer(frame, offset="0"))


@contextlib.contextmanager
def held(*locks: object) -> Iterator[None]:
    """Have another thread hold locks."""
    taken, free = threading.Event(), threading.Event()

    def hold() -> None:
        with contextlib.ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            taken.set()
            free.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert taken.wait(30)
    try:
        yield
    finally:
        free.set()
        thread.join(30)


def in_child(work: Callable[[], bool], *, timeout_s: float = 15.0) -> int:
    """Run ``work`` in a forked child; 0 if it came true, 1 if not, 2 if it raised."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            code = 0 if work() else 1
        finally:
            os._exit(code)
    status = [0, 0]

    def ended() -> bool:
        status[:] = os.waitpid(child, os.WNOHANG)
        return status[0] == child

    try:
        eventually(ended, timeout_s, what="the child's end")
    except AssertionError:
        os.kill(child, 9)
        os.waitpid(child, 0)
        raise
    return os.waitstatus_to_exitcode(status[1])


def test_a_child_of_a_process_whose_threads_hold_every_lock() -> None:
    with ScriptedCluster(serve) as cluster, Client(cluster.name_server) as client:
        producer = Producer(client)
        producer.send(OutgoingMessage("orders", b"parent"))
        shared = shared_client(client.options)
        connection = client.connection(cluster.addresses["broker-a"])
        locks = (
            *(client.routes._lock, client.pool._lock, client._groups._lock, producer._selector._lock),
            *(BUFFERS._lock, _shared.lock, connection._turn, connection._socket._lock),
        )

        def work() -> bool:
            client.invalidate("orders")
            producer.send(OutgoingMessage("orders", b"child"))
            client.commit_offsets("g", dict.fromkeys(client.read_queues("orders"), 0))
            with pytest.raises(ConnectionLostError, match="parent"):
                connection.wait(1, client.deadline(100))
            own = shared_client(client.options)
            client.close()
            return own is not shared and own.read_queues("orders") == client.read_queues("orders")

        with held(*locks):
            assert in_child(work) == 0
        producer.send(OutgoingMessage("orders", b"parent again"))
        assert client.connection(cluster.addresses["broker-a"]) is connection
        shared.close()


def test_a_child_that_is_forked_during_a_look_up() -> None:
    asked, release = threading.Event(), threading.Event()

    class Slow(ScriptedCluster):
        """The first look-up waits."""

        def _serve_name_server(self, peer: Peer, frame: Frame) -> None:
            if not asked.is_set():
                asked.set()
                release.wait(30)
            super()._serve_name_server(peer, frame)

    with Slow(serve) as cluster, Client(cluster.name_server) as client:
        looking = threading.Thread(target=client.read_queues, args=("orders",))
        looking.start()
        assert asked.wait(30)
        try:
            assert in_child(lambda: len(client.read_queues("orders")) == 2) == 0
        finally:
            release.set()
            looking.join(30)
        assert len(client.read_queues("orders")) == 2


def test_brokers_that_a_thread_of_the_parent_asks_are_asked_by_the_child() -> None:
    health = BrokerHealth(SYSTEM_CLOCK)
    assert health.due(frozenset({"broker-a"})) == {"broker-a"}
    with held(health._lock):
        assert in_child(lambda: health.due(frozenset({"broker-a"})) == {"broker-a"}) == 0


def test_a_child_is_no_member_of_the_group_of_a_consumer_that_its_parent_started() -> None:
    got: list[bytes] = []
    with MockBroker({"orders": 2}) as mq, PushConsumer("g", mq.name_server) as consumer:
        consumer.subscribe("orders")
        consumer.start(lambda messages: got.extend(message.body for message in messages))
        eventually(lambda: len(consumer.queues) == 3, what="the queues, and that of retries")

        def close() -> bool:
            consumer.stop_pulling()
            consumer.close()
            return True

        assert in_child(close, timeout_s=4.0) == 0
        mq.send(OutgoingMessage("orders", b"parent"))
        eventually(lambda: got == [b"parent"], what="the message")
        assert len(consumer.queues) == 3


def test_processes_that_start_one_inherited_consumer_are_different_members() -> None:
    with MockBroker({"orders": 2}) as mq, PushConsumer("g", mq.name_server) as consumer:
        consumer.subscribe("orders")
        inherited = consumer.client_id

        def start() -> bool:
            with consumer:
                consumer.start(lambda _: None)
                eventually(lambda: len(consumer.queues) == 3, what="the queues, and that of retries")
            return consumer.client_id != inherited

        assert in_child(start) == 0
        assert consumer.client_id == inherited
