"""A connection against peers that answer late, out of order, in pieces, wrongly, or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import threading
from pathlib import Path

import pytest
from tests.support.certificates import Authority
from tests.support.clocks import FakeClock
from tests.support.scripted_peer import Peer, ScriptedPeer, answer
from tests.support.wait import eventually, within

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Deadline
from pyspark_rocketmq.client.net.buffer_pool import BUFFERS, KEPT_BYTES
from pyspark_rocketmq.client.net.connection import Connection
from pyspark_rocketmq.client.net.endpoint import ConnectionOptions, TlsOptions
from pyspark_rocketmq.client.net.pool import ConnectionPool
from pyspark_rocketmq.client.net.receive_buffer import ReceiveBuffer
from pyspark_rocketmq.errors import (
    BrokerError,
    ConnectError,
    ConnectionLostError,
    RemoteProtocolError,
    RequestTimeoutError,
)
from pyspark_rocketmq.remoting.command import FLAG_ONE_WAY, Command
from pyspark_rocketmq.remoting.frame import Frame, encode_frame
from pyspark_rocketmq.remoting.header import GetMaxOffsetRequest
from pyspark_rocketmq.remoting.template import RequestTemplate

OPTIONS = ConnectionOptions(connect_timeout_ms=30_000, request_timeout_ms=30_000)


def request(queue_id: int = 0) -> GetMaxOffsetRequest:
    return GetMaxOffsetRequest(topic="orders", queue_id=queue_id, broker_name="broker-a")


def deadline(timeout_ms: int = 30_000) -> Deadline:
    return Deadline(SYSTEM_CLOCK, timeout_ms)


def echo(peer: Peer, frame: Frame) -> None:
    peer.send(answer(frame, body=frame.command.fields["queueId"].encode()))


class Narrow(ReceiveBuffer):
    """Takes 1,000 bytes a read."""

    def room(self) -> memoryview:
        return super().room()[:1_000]


@pytest.fixture
def connect():
    opened: list[Connection] = []

    def open_one(peer: ScriptedPeer) -> Connection:
        opened.append(Connection(peer.addr, OPTIONS))
        return opened[-1]

    yield open_one
    for connection in opened:
        connection.close()


def test_call_returns_the_answer(connect) -> None:
    with ScriptedPeer(echo) as peer:
        response = connect(peer).call(request(7))
        assert (response.code, bytes(response.body)) == (0, b"7")


def test_requests_that_are_sent_together_have_their_bodies_and_get_their_answers(connect) -> None:
    def script(peer: Peer, frame: Frame) -> None:
        peer.send(answer(frame, body=frame.command.fields["queueId"].encode() + bytes(frame.body)))

    def bodies(opaques: list[int]) -> list[bytes]:
        return [bytes(connection.wait(opaque, deadline()).body) for opaque in opaques]

    with ScriptedPeer(script) as peer:
        connection = connect(peer)
        sent = connection.submit_all([(request(1), b"a"), (request(2), b""), (request(3), b"c")])
        assert bodies(sent) == [b"1a", b"2", b"3c"]
        template = RequestTemplate(request(), "queue_id")
        assert bodies(connection.submit_many(template, [(4,), (5,)])) == [b"4", b"5"]
        sent = [connection.submit(request(6)), connection.submit(request(7), b"d")]
        assert bodies(sent) == [b"6", b"7d"]
        assert bytes(connection.call(request(8)).body) == b"8"
        assert bytes(connection.call(request(9), b"e").body) == b"9e"
        assert connection.in_flight == 0


def test_an_answer_that_has_arrived_is_known_before_it_is_taken(connect) -> None:
    with ScriptedPeer(echo) as peer:
        connection = connect(peer)
        first, second = connection.submit(request(1)), connection.submit(request(2))
        assert not connection.has_answer(first)
        connection.wait(second, deadline())  # answers come in the order of their requests here
        assert (connection.has_answer(first), connection.unclaimed) == (True, 1)
        connection.wait(first, deadline())
        assert (connection.has_answer(first), connection.unclaimed) == (False, 0)


def test_what_is_sent_one_way_has_no_answer(connect) -> None:
    seen: list[tuple[int, bytes]] = []

    def script(peer: Peer, frame: Frame) -> None:
        seen.append((frame.command.flag, bytes(frame.body)))
        if not frame.command.flag & FLAG_ONE_WAY:
            peer.send(answer(frame))

    with ScriptedPeer(script) as peer:
        connection = connect(peer)
        connection.post(request())
        connection.post(request(), b"x")
        assert connection.in_flight == 0
        connection.call(request())
    assert seen == [(FLAG_ONE_WAY, b""), (FLAG_ONE_WAY, b"x"), (0, b"")]


@pytest.mark.parametrize("codes", [(), (0,), (17,), (0, 17)])
@pytest.mark.parametrize("code", [0, 17])
def test_an_answer_is_required_to_have_one_of_some_codes(connect, code: int, codes: tuple[int, ...]) -> None:
    with ScriptedPeer(lambda peer, frame: peer.send(answer(frame, code=code, remark="why"))) as peer:
        response = connect(peer).call(request())
        assert response.remark == "why"
        if code in (codes or (0,)):
            assert response.require(*codes, topic="orders") is response
            return
        with pytest.raises(BrokerError, match="why") as caught:
            response.require(*codes, topic="orders")
        assert caught.value.code == code
        assert (caught.value.facts["addr"], caught.value.facts["topic"]) == (peer.addr, "orders")


@pytest.mark.parametrize("how", ["call", "submit", "post"])
def test_a_peer_that_takes_no_requests_is_given_up_in_time(how: str) -> None:
    large = bytes(12 << 20)  # more than both sides' buffers hold
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = Connection(f"127.0.0.1:{listener.getsockname()[1]}", OPTIONS)
        try:
            with pytest.raises(RequestTimeoutError, match="the peer takes no more requests"):
                getattr(connection, how)(request(), large, deadline=deadline(150))
            assert connection.in_flight == 0
        finally:
            connection.close()


def test_answers_in_reverse_order_find_their_requests(connect) -> None:
    held: list[Frame] = []

    def reverse(peer: Peer, frame: Frame) -> None:
        held.append(frame)
        if len(held) == 50:
            for one in reversed(held):
                echo(peer, one)

    with ScriptedPeer(reverse) as peer:
        connection = connect(peer)
        opaques = [connection.submit(request(i)) for i in range(50)]
        assert [bytes(connection.wait(opaque, deadline()).body) for opaque in opaques] == [
            b"%d" % i for i in range(50)
        ]
        assert connection.in_flight == 0


def test_one_answer_dribbled_byte_by_byte(connect) -> None:
    def dribble(peer: Peer, frame: Frame) -> None:
        peer.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in answer(frame, body=b"x" * 100):
            peer.send(bytes([byte]))

    with ScriptedPeer(dribble) as peer:
        assert bytes(connect(peer).call(request()).body) == b"x" * 100


def test_answers_larger_than_a_receive_buffer(connect) -> None:
    bodies = [bytes([i]) * size for i, size in enumerate((3, 900_000, 5_000_000, 10, 1_500_000))]

    def big(peer: Peer, frame: Frame) -> None:
        peer.send(answer(frame, body=bodies[int(frame.command.fields["queueId"])]))

    with ScriptedPeer(big) as peer:
        connection = connect(peer)
        opaques = [connection.submit(request(i)) for i in range(5)]
        assert [bytes(connection.wait(opaque, deadline()).body) for opaque in opaques] == bodies


def test_bodies_stay_intact_while_later_answers_arrive(connect) -> None:
    with ScriptedPeer(lambda peer, frame: peer.send(answer(frame, body=os.urandom(8) * 20_000))) as peer:
        connection = connect(peer)
        opaques = [connection.submit(request(i)) for i in range(60)]
        bodies = [connection.wait(opaque, deadline()).body for opaque in opaques]
        assert all(bytes(body) == bytes(body[:8]) * 20_000 for body in bodies)


def test_threads_share_a_connection(connect) -> None:
    with ScriptedPeer(echo) as peer:
        connection = connect(peer)
        wrong: list[object] = []

        def work(base: int) -> None:
            for i in range(base, base + 200):
                body = bytes(connection.call(request(i)).body)
                if body != b"%d" % i:
                    wrong.append((i, body))

        threads = [threading.Thread(target=work, args=(1000 * n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=30)
        assert not any(thread.is_alive() for thread in threads)
        assert wrong == []


def test_silent_peer_is_a_timeout_and_the_late_answer_is_dropped(connect) -> None:
    held: list[Frame] = []

    def late(peer: Peer, frame: Frame) -> None:
        held.append(frame)
        if len(held) == 2:
            echo(peer, held[0])
            echo(peer, held[1])

    with ScriptedPeer(late) as peer:
        connection = connect(peer)
        with pytest.raises(RequestTimeoutError, match="no answer within 100 ms") as info:
            connection.call(request(1), deadline=deadline(100))
        assert info.value.retriable
        assert connection.in_flight == 0
        assert bytes(connection.call(request(2)).body) == b"2"
        assert (connection.in_flight, connection.unclaimed) == (0, 0)


def test_answer_to_nothing_we_asked_is_ignored(connect) -> None:
    def noisy(peer: Peer, frame: Frame) -> None:
        stranger = Frame(type(frame.command)(code=0, opaque=999_999), memoryview(b""))
        peer.send(answer(stranger, body=b"stranger"))
        echo(peer, frame)

    with ScriptedPeer(noisy) as peer:
        assert bytes(connect(peer).call(request(3)).body) == b"3"


def test_peer_that_hangs_up_fails_everything_in_flight(connect) -> None:
    with ScriptedPeer(lambda peer, frame: peer.hang_up()) as peer:
        connection = connect(peer)
        opaque = connection.submit(request())
        with pytest.raises(ConnectionLostError, match="closed") as info:
            connection.wait(opaque, deadline())
        assert info.value.retriable
        assert info.value.stale_route
        assert info.value.facts["addr"] == peer.addr
        assert not connection.alive
        with pytest.raises(ConnectionLostError):
            connection.submit(request())


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        (0x7FFFFFFF).to_bytes(4, "big") + b"\x00\x00\x00\x02{}",
        b"\x00\x00\x00\x00\x00\x00\x00\x00",
        b"\x00\x00\x00\x0c\x05\x00\x00\x02{}aaaaaa",
        b"\x00\x00\x00\x06\x00\x00\x00\x02{]",
    ],
)
def test_peer_that_speaks_something_else(connect, garbage: bytes) -> None:
    with ScriptedPeer(lambda peer, frame: peer.send(garbage)) as peer:
        with pytest.raises(RemoteProtocolError) as info:
            connect(peer).call(request())
        assert info.value.facts["addr"] == peer.addr


def test_writer_goes_on_while_the_peer_answers_without_being_read(connect) -> None:
    """A peer that stops reading until its answers are taken would deadlock a client that only writes."""
    with ScriptedPeer(lambda peer, frame: peer.send(answer(frame, body=b"x" * 50_000))) as peer:
        connection = connect(peer)
        opaques = [connection.submit(request(i), body=b"y" * 20_000, deadline=deadline()) for i in range(400)]
        for opaque in opaques:
            assert len(connection.wait(opaque, deadline()).body) == 50_000


def test_requests_of_the_server_reach_the_handler(connect) -> None:
    seen: list[int] = []

    def notify(peer: Peer, frame: Frame) -> None:
        peer.send(
            encode_frame(Command(code=40, opaque=frame.command.opaque, flag=2, fields={"consumerGroup": "g"}))
        )
        echo(peer, frame)

    with ScriptedPeer(notify) as peer:
        connection = connect(peer)
        connection.on_request = lambda command, body: seen.append(command.code)
        assert bytes(connection.call(request(5)).body) == b"5"
        assert seen == [40]


def test_a_handler_that_takes_its_time_holds_up_no_answer(connect) -> None:
    """Another thread waits for an answer that arrived together with the server's request."""
    led, answered = threading.Event(), threading.Event()
    held_up: list[bool] = []

    def notify(peer: Peer, frame: Frame) -> None:
        assert led.wait(30)
        note = encode_frame(Command(code=40, opaque=1, flag=2, fields={"consumerGroup": "g"}))
        peer.send(note + answer(frame, body=b"5"))

    with ScriptedPeer(notify) as peer:
        connection = connect(peer)
        connection.on_request = lambda command, body: held_up.append(not answered.wait(30))
        opaque = connection.submit(request(5))
        leader = threading.Thread(target=connection.poll, args=(30.0,))
        leader.start()
        eventually(lambda: connection._leading)
        led.set()
        with contextlib.suppress(RequestTimeoutError):
            connection.wait(opaque, deadline(20_000))
            answered.set()
        leader.join(30)
        assert held_up == [False]


def test_everything_that_has_arrived_is_looked_at_before_a_time_out(connect) -> None:
    """The deadline passes in the caller's own code; the answer lies after others, and takes several reads."""
    arrived = threading.Event()
    held: list[Frame] = []

    def reverse(peer: Peer, frame: Frame) -> None:
        held.append(frame)
        if len(held) == 8:
            for one in reversed(held):
                peer.send(answer(one, body=b"x" * 8_000))
            arrived.set()

    with ScriptedPeer(reverse) as peer:
        connection = connect(peer)
        connection._socket._buffer = Narrow()
        opaques = [connection.submit(request(i)) for i in range(8)]
        assert arrived.wait(30)
        for opaque in opaques:
            assert len(connection.wait(opaque, deadline(0)).body) == 8_000


def test_a_connection_that_was_idle_is_not_given_up_after_a_short_deadline() -> None:
    """Only a peer that is silent for the whole of a deadline that is long enough is taken for half-open."""
    clock = FakeClock(0.0, base=SYSTEM_CLOCK)
    with (
        ScriptedPeer(lambda peer, frame: None) as peer,
        contextlib.closing(Connection(peer.addr, OPTIONS, clock)) as connection,
    ):
        clock.now_s = 60.0
        with pytest.raises(RequestTimeoutError):
            connection.call(request(), deadline=Deadline(clock, 20))
        assert connection.alive
        with pytest.raises(RequestTimeoutError):
            connection.call(request(), deadline=Deadline(clock, 300))
        assert not connection.alive


def test_connections_without_a_request_keep_no_large_buffer(connect) -> None:
    with ScriptedPeer(lambda peer, frame: peer.send(answer(frame, body=b"x" * 300_000))) as peer:
        connections = [connect(peer) for _ in range(8)]
        for connection in connections:
            opaques = [connection.submit(request(i)) for i in range(30)]
            held = [connection.wait(opaque, deadline()) for opaque in opaques]
            assert all(len(each.body) == 300_000 for each in held)
        assert all(len(connection._socket._buffer._held[0]) <= 128 * 1024 for connection in connections)
        assert BUFFERS.kept_bytes <= KEPT_BYTES


def test_a_long_poll_holds_no_large_buffer(connect) -> None:
    def first_only(peer: Peer, frame: Frame) -> None:
        if frame.command.fields["queueId"] == "0":
            peer.send(answer(frame, body=b"x" * 900_000))

    with ScriptedPeer(first_only) as peer:
        connection = connect(peer)
        opaque, _ = connection.submit(request(0)), connection.submit(request(1))
        assert len(connection.wait(opaque, deadline()).body) == 900_000
        connection.poll(0.2)
        assert len(connection._socket._buffer._held[0]) <= 128 * 1024


def test_garbage_after_a_whole_read_is_told_at_once(connect) -> None:
    def stranger_and_garbage(peer: Peer, frame: Frame) -> None:
        stranger = Frame(type(frame.command)(code=0, opaque=999_999), memoryview(b""))
        rest = 1_000 - len(answer(stranger))
        peer.send(answer(stranger, body=b"x" * rest) + b"HTTP/1.1 400 Bad Request")

    with ScriptedPeer(stranger_and_garbage) as peer:
        connection = connect(peer)
        connection._socket._buffer = Narrow()
        with within(10), pytest.raises(RemoteProtocolError):
            connection.call(request(), deadline=deadline(60_000))


def test_an_error_of_a_handler_is_not_swallowed(connect) -> None:
    def notify(peer: Peer, frame: Frame) -> None:
        note = encode_frame(Command(code=40, opaque=1, flag=2, fields={"consumerGroup": "g"}))
        peer.send(note + answer(frame, body=b"5"))

    def fail(command: Command, body: memoryview) -> None:
        raise IndexError

    with ScriptedPeer(notify) as peer:
        connection = connect(peer)
        connection.on_request = fail
        with pytest.raises(IndexError):
            connection.call(request(5))


def test_one_tls_context_serves_all_connections_until_its_files_change(tmp_path: Path) -> None:
    """Reading the system's authorities takes some 70 ms; certificates are renewed while a process runs."""
    assert TlsOptions().context() is TlsOptions().context()
    assert TlsOptions().context() is not TlsOptions(verify=False).context()
    authority = Authority.create(tmp_path)
    options = TlsOptions(ca_file=str(authority.root.cert))
    before = options.context()
    assert options.context() is before
    shutil.copy(Authority.create(tmp_path, "renewed").root.cert, authority.root.cert)
    assert options.context() is not before


def test_nobody_listens(closed_port: str) -> None:
    with pytest.raises(ConnectError, match="cannot connect") as info:
        Connection(closed_port, OPTIONS)
    assert info.value.facts["addr"] == closed_port


@pytest.mark.parametrize("addr", ["localhost", "localhost:", ":9876", "localhost:port", "localhost:99999"])
def test_not_an_address(addr: str) -> None:
    with pytest.raises(ConnectError, match="expected host:port"):
        Connection(addr, OPTIONS)


@pytest.mark.parametrize("taken", [1, None], ids=["in part", "whole"])
def test_a_connection_that_breaks_while_another_thread_sends(connect, taken: int | None) -> None:
    """Whoever reads finds the peer gone at the moment at which a request is handed to the socket."""

    class Breaking:
        def __init__(self, connection: Connection) -> None:
            self._connection, self._stream = connection, connection._socket._stream

        def send(self, data: memoryview) -> int:
            self._connection._fail(ConnectionLostError("the peer is gone"))
            return taken or len(data)

        def __getattr__(self, name: str) -> object:
            return getattr(self._stream, name)

    with ScriptedPeer(echo) as peer:
        connection = connect(peer)
        connection._socket._stream = Breaking(connection)
        with pytest.raises(ConnectionLostError):
            connection.call(request())


def test_close_wakes_whoever_waits(connect) -> None:
    with ScriptedPeer(lambda peer, frame: None) as peer:
        connection = connect(peer)
        opaque = connection.submit(request())
        closer = threading.Timer(0.1, connection.close)
        closer.start()
        with pytest.raises(ConnectionLostError, match="was closed"):
            connection.wait(opaque, deadline())
        closer.join()


def test_pool_replaces_a_connection_that_the_server_closed() -> None:
    hung_up = threading.Event()

    def once(peer: Peer, frame: Frame) -> None:
        echo(peer, frame)
        if not hung_up.is_set():
            peer.hang_up()
            hung_up.set()

    with ScriptedPeer(once) as peer, ConnectionPool(OPTIONS) as pool:
        first = pool.get(peer.addr)
        first.call(request())
        assert hung_up.wait(30)
        with pytest.raises(ConnectionLostError):  # until the end of the connection has arrived here
            first.wait(first.submit(request()), deadline())
        assert bytes(pool.get(peer.addr).call(request(9)).body) == b"9"
        assert peer.connections == 2


def test_dead_connections_to_old_addresses_are_closed() -> None:
    """A broker that moved is not asked for by its old address again."""
    with (
        ScriptedPeer(echo) as moved,
        ScriptedPeer(echo) as stays,
        ScriptedPeer(echo) as new,
        ConnectionPool(OPTIONS) as pool,
    ):
        old = pool.get(moved.addr)
        other = pool.get(stays.addr)
        old.call(request())
        moved.hang_up()
        eventually(lambda: (old.poll(), not old.alive)[1])
        pool.get(new.addr)
        assert old._socket._stream._sock.fileno() == -1
        assert set(pool._connections) == {stays.addr, new.addr}
        assert pool.get(stays.addr) is other


@pytest.mark.parametrize("suspended", [False, True])
def test_dead_connections_for_pulls_at_old_addresses_are_closed(suspended) -> None:
    """A proxy that started elsewhere, as a pod does, is not asked for by its old address again."""
    with (
        ScriptedPeer(echo) as moved,
        ScriptedPeer(echo) as stays,
        ScriptedPeer(echo) as new,
        ConnectionPool(OPTIONS) as pool,
    ):
        pool.pull_lanes(moved.addr, suspended=suspended).call(request())
        pool.pull_lanes(stays.addr).call(request())
        old, other = (lanes._lanes[0].connection for lanes in pool._lanes.values())
        moved.hang_up()
        eventually(lambda: (old.poll(), not old.alive)[1])
        pool.pull_lanes(new.addr).call(request())
        assert old._socket._stream._sock.fileno() == -1
        assert other.alive
        assert bytes(pool.pull_lanes(stays.addr).call(request(9)).body) == b"9"
        assert (stays.connections, new.connections) == (1, 1)


def test_a_connection_that_broke_keeps_no_buffer(connect) -> None:
    def half(peer: Peer, frame: Frame) -> None:
        peer.send(answer(frame, body=b"x" * 3_000_000)[:2_000_000])
        peer.hang_up()

    with ScriptedPeer(half) as peer:
        connection = connect(peer)
        with pytest.raises(ConnectionLostError):
            connection.call(request())
        assert len(connection._socket._buffer._held[0]) == 0


def test_child_process_gets_connections_of_its_own() -> None:
    with ScriptedPeer(echo) as peer, ConnectionPool(OPTIONS) as pool:
        mine = pool.get(peer.addr)
        mine.call(request())
        child = os.fork()
        if child == 0:  # the child must neither read the parent's socket nor end its connection
            code = 1
            try:
                own = pool.get(peer.addr)
                code = 0 if own is not mine and bytes(own.call(request(4)).body) == b"4" else 2
                pool.close()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert pool.get(peer.addr) is mine
        assert bytes(mine.call(request(6)).body) == b"6"
        assert peer.connections == 2
