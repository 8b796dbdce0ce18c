"""What gives a request more time: answers to earlier ones, and no other sign of life."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence

import pytest
from tests.support.clocks import FakeClock
from tests.support.scripted_peer import Peer, ScriptedPeer, answer

from pyspark_rocketmq.client import (
    AsyncClient,
    AsyncProducer,
    Client,
    OutgoingMessage,
    Producer,
    ProducerOptions,
)
from pyspark_rocketmq.client.aio.connection import AsyncConnection
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Deadline
from pyspark_rocketmq.client.net.connection import Connection
from pyspark_rocketmq.client.net.endpoint import ConnectionOptions
from pyspark_rocketmq.errors import RequestTimeoutError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.remoting.command import Command
from pyspark_rocketmq.remoting.frame import Frame, encode_frame
from pyspark_rocketmq.remoting.header import GetMaxOffsetRequest
from pyspark_rocketmq.testing import MockCluster

OPTIONS = ConnectionOptions(connect_timeout_ms=30_000, request_timeout_ms=30_000)
TIMEOUT_MS = 500

Outcome = bytes | Exception
CallAll = Callable[[str, int], Sequence[Outcome]]


def request(queue_id: int = 0) -> GetMaxOffsetRequest:
    return GetMaxOffsetRequest(topic="orders", queue_id=queue_id, broker_name="broker-a")


def renewable() -> Deadline:
    return Deadline(SYSTEM_CLOCK, TIMEOUT_MS, renewable=True)


def call_from_threads(addr: str, count: int) -> Sequence[Outcome]:
    """Send requests together; wait for each in a thread."""
    outcomes: list[Outcome] = [b""] * count
    connection = Connection(addr, OPTIONS)

    def wait(place: int, opaque: int, deadline: Deadline) -> None:
        try:
            outcomes[place] = bytes(connection.wait(opaque, deadline).body)
        except RequestTimeoutError as error:
            outcomes[place] = error

    try:
        sent = connection.submit_all([(request(number), b"") for number in range(count)])
        threads = [threading.Thread(target=wait, args=(*each, renewable())) for each in enumerate(sent)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        connection.close()
    return outcomes


def call_from_tasks(addr: str, count: int) -> Sequence[Outcome]:
    """As `call_from_threads`, from an event loop."""

    async def main() -> Sequence[Outcome]:
        connection = await AsyncConnection.open(addr, OPTIONS, SYSTEM_CLOCK)

        async def call(number: int) -> Outcome:
            try:
                return bytes((await connection.call(request(number), deadline=renewable())).body)
            except RequestTimeoutError as error:
                return error

        try:
            return await asyncio.gather(*(call(number) for number in range(count)))
        finally:
            await connection.close()

    return asyncio.run(main())


both = pytest.mark.parametrize("call_all", [call_from_threads, call_from_tasks])


def ask(peer: Peer, frame: Frame) -> None:
    """Send requests of the server's own, and no answer: until the client hangs up, or for a minute."""
    note = encode_frame(Command(code=40, opaque=frame.command.opaque, flag=2, fields={"consumerGroup": "g"}))
    for _ in range(1_200):
        peer.send(note)
        time.sleep(TIMEOUT_MS / 1_000 / 10)
    peer.send(answer(frame))


def drip(peer: Peer, frame: Frame) -> None:
    """Send an answer byte by byte: until the client hangs up, or for a minute."""
    for byte in answer(frame, b"x" * 1_000):
        peer.send(bytes([byte]))
        time.sleep(TIMEOUT_MS / 1_000 / 10)


@both
@pytest.mark.parametrize("script", [ask, drip])
def test_bytes_that_are_no_answer_to_an_earlier_request_give_no_time(call_all: CallAll, script) -> None:
    with ScriptedPeer(script) as peer:
        (outcome,) = call_all(peer.addr, 1)
        assert isinstance(outcome, RequestTimeoutError)


@both
def test_an_answer_to_a_later_request_does_not_hide_one_to_an_earlier(call_all: CallAll) -> None:
    """The second is answered within a time-out of the first, not of its begin; the third overtakes it."""
    frames: list[Frame] = []

    def script(peer: Peer, frame: Frame) -> None:
        frames.append(frame)
        if len(frames) == 3:
            time.sleep(0.6 * TIMEOUT_MS / 1_000)
            for each in (frames[0], frames[2]):
                peer.send(answer(each, each.command.fields["queueId"].encode()))
                time.sleep(0.1 * TIMEOUT_MS / 1_000)
            time.sleep(0.6 * TIMEOUT_MS / 1_000)
            peer.send(answer(frames[1], b"1"))

    with ScriptedPeer(script) as peer:
        assert call_all(peer.addr, 3) == [b"0", b"1", b"2"]


@both
def test_a_request_without_an_answer_ends_though_later_ones_are_answered(call_all: CallAll) -> None:
    def script(peer: Peer, frame: Frame) -> None:
        if frame.command.fields["queueId"] != "0":
            time.sleep(0.3 * TIMEOUT_MS / 1_000)
            peer.send(answer(frame))

    with ScriptedPeer(script) as peer:
        first, *others = call_all(peer.addr, 12)
        assert isinstance(first, RequestTimeoutError)
        assert set(others) == {b""}


def post(addr: str, body: bytes) -> None:
    connection = Connection(addr, OPTIONS)
    with contextlib.closing(connection):
        connection.post(request(), body, deadline=renewable())


def post_from_a_loop(addr: str, body: bytes) -> None:
    async def main() -> None:
        connection = await AsyncConnection.open(addr, OPTIONS, SYSTEM_CLOCK)
        try:
            await connection.post(request(), body, deadline=renewable())
        finally:
            await connection.close()

    asyncio.run(main())


@pytest.mark.parametrize("send", [post, post_from_a_loop])
def test_a_peer_that_takes_less_than_one_request_in_a_time_out_is_given_up(send) -> None:
    """It takes 32 KiB at a time, and the whole request in more than ten time-outs."""
    over = threading.Event()

    def sip(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            sock, _ = listener.accept()
            with sock:
                while not over.wait(0.1 * TIMEOUT_MS / 1_000) and sock.recv(32 << 10):
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 512 << 10)
        thread = threading.Thread(target=sip, args=(listener,))
        thread.start()
        try:
            with pytest.raises(RequestTimeoutError):
                send(f"127.0.0.1:{listener.getsockname()[1]}", bytes(15 << 20))
        finally:
            over.set()
            thread.join(30)


# Two time-outs pass while a connection is opened; all attempts have three.
SLOW_S = 20.0
OPTIONS_OF_SENDS = ProducerOptions(send_timeout_ms=10_000, retries=2)


def test_the_time_out_of_a_send_does_not_begin_before_its_connection() -> None:
    clock = FakeClock(0.0, base=SYSTEM_CLOCK)

    class Late(Producer):
        def connect(self, queue: MessageQueue) -> Connection:
            connection = super().connect(queue)
            clock.now_s += SLOW_S
            return connection

    with MockCluster({"orders": 1}) as mq, Client(mq.name_server, clock=clock) as client:
        producer = Late(client, options=OPTIONS_OF_SENDS)
        assert producer.send(OutgoingMessage("orders", b"x")).queue_offset == 0


def test_the_time_out_of_a_send_from_a_loop_does_not_begin_before_its_connection() -> None:
    clock = FakeClock(0.0, base=SYSTEM_CLOCK)

    class Late(AsyncProducer):
        async def _connect(self, queue: MessageQueue) -> AsyncConnection:
            connection = await super()._connect(queue)
            clock.now_s += SLOW_S
            return connection

    async def main(name_server: str) -> None:
        async with AsyncClient(name_server, clock=clock) as client:
            producer = Late(client, options=OPTIONS_OF_SENDS)
            assert (await producer.send(OutgoingMessage("orders", b"x"))).queue_offset == 0

    with MockCluster({"orders": 1}) as mq:
        asyncio.run(main(mq.name_server))
