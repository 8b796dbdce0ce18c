"""TLS as a client should have it: verified unless told otherwise, never a wrong byte, never a hang."""

from __future__ import annotations

import contextlib
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.certificates import Authority, Certificate
from tests.support.clocks import FakeClock
from tests.support.proxy import Proxy, Trouble, flip
from tests.support.scripted_cluster import ScriptedCluster, stored
from tests.support.scripted_peer import Peer, ScriptedPeer, answer
from tests.support.wait import within

from pyspark_rocketmq.client import (
    Client,
    ClientOptions,
    OffsetRange,
    OutgoingMessage,
    Producer,
    ProducerOptions,
)
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Deadline
from pyspark_rocketmq.client.net.connection import Connection
from pyspark_rocketmq.client.net.endpoint import ConnectionOptions, TlsOptions
from pyspark_rocketmq.client.read.queue_reader import DecodeOptions, read_batches
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.client.send.message_encoding import UniqueIds, encode_one
from pyspark_rocketmq.client.send.send_pipeline import SendPipeline
from pyspark_rocketmq.errors import NameServerError, RocketMQError
from pyspark_rocketmq.options import parse_options
from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.remoting.frame import Frame
from pyspark_rocketmq.remoting.header import GetMaxOffsetRequest
from pyspark_rocketmq.testing import MockBroker

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def authority(home: Path) -> Authority:
    return Authority.create(home)


@pytest.fixture(scope="module")
def server(authority: Authority) -> Certificate:
    return authority.issue("server")


def options(name_server: str, **more: object) -> ClientOptions:
    given = {"tls": True, "connect_timeout_ms": 30_000, "request_timeout_ms": 30_000} | more
    return ClientOptions(name_servers=(name_server,), **given)


def refused(options: ClientOptions) -> Client:
    """A client of servers that do not answer it: time passes only when it pauses before another attempt."""
    return Client(options, clock=FakeClock())


@contextlib.contextmanager
def broker(context: ssl.SSLContext) -> Iterator[MockBroker]:
    with MockBroker({"orders": 1}, tls=context) as mq:
        yield mq


def test_a_verified_server(authority: Authority, server: Certificate) -> None:
    with (
        broker(server.server_context()) as mq,
        Client(options(mq.name_server, tls_ca_file=str(authority.root.cert))) as client,
    ):
        big = [b"%d" % number * 30_000 for number in range(40)]
        for body in big:
            Producer(client).send(OutgoingMessage("orders", body))
        batches = read_batches(
            client,
            [OffsetRange(mq.queue("orders"), 0, 40)],
            ReadOptions(consumer_group="g"),
            DecodeOptions(columns=("body",)),
        )
        assert [body for batch in batches for body in batch.column(0).to_pylist()] == big


@pytest.mark.parametrize("case", ["unknown authority", "another authority", "wrong name", "expired"])
def test_certificates_that_do_not_verify(
    home: Path, authority: Authority, server: Certificate, case: str
) -> None:
    trust = {"tls_ca_file": str(authority.root.cert)}
    shown = server
    match case:
        case "unknown authority":
            trust = {}
        case "another authority":
            trust = {"tls_ca_file": str(Authority.create(home, "another").root.cert)}
        case "wrong name":
            shown = authority.issue("elsewhere", alt_name="DNS:example.invalid")
        case "expired":
            shown = authority.issue("old", days=-1)
    with (
        broker(shown.server_context()) as mq,
        refused(options(mq.name_server, **trust)) as client,
        pytest.raises(NameServerError, match="certificate verify failed"),
    ):
        client.read_queues("orders")


def test_a_name_to_verify_instead_of_the_address(authority: Authority) -> None:
    named = authority.issue("named", alt_name="DNS:mq.internal")
    given = {"tlsCaFile": str(authority.root.cert), "tlsServerName": "mq.internal", "tls": "true"}
    with broker(named.server_context()) as mq:
        trusting = parse_options(ClientOptions, {"nameServer": mq.name_server, **given}, environ={})
        with Client(trusting) as client:
            assert len(client.read_queues("orders")) == 1


def test_verification_can_be_turned_off_for_tests(server: Certificate) -> None:
    with (
        broker(server.server_context()) as mq,
        Client(options(mq.name_server, tls_verify=False)) as client,
    ):
        assert len(client.read_queues("orders")) == 1


def test_a_server_that_asks_for_a_certificate(authority: Authority, server: Certificate) -> None:
    mine = authority.issue("client")
    context = server.server_context(client_ca=authority.root.cert)
    trust = {"tls_ca_file": str(authority.root.cert)}
    with broker(context) as mq:
        own = {"tls_cert_file": str(mine.cert), "tls_key_file": str(mine.key)}
        with Client(options(mq.name_server, **trust, **own)) as client:
            assert len(client.read_queues("orders")) == 1
        with refused(options(mq.name_server, **trust)) as client, pytest.raises(NameServerError):
            client.read_queues("orders")


@pytest.mark.parametrize("name", ["mq..internal", ".internal"])
def test_what_cannot_be_a_servers_name(server: Certificate, name: str) -> None:
    with (
        broker(server.server_context()) as mq,
        refused(options(mq.name_server, tls_server_name=name)) as client,
        pytest.raises(NameServerError, match="no TLS session"),
    ):
        client.read_queues("orders")


def test_a_key_with_a_password_is_refused_and_no_terminal_is_asked_for_it(
    home: Path, authority: Authority, server: Certificate
) -> None:
    """OpenSSL would ask at the process's terminal, and wait there without an end."""
    mine, locked = authority.issue("locked"), home / "password.key"
    locking = ("openssl", "rsa", "-aes256", "-passout", "pass:planted-4711", "-in", mine.key, "-out", locked)
    subprocess.run(locking, check=True, capture_output=True, timeout=60)
    own = {"tls_cert_file": str(mine.cert), "tls_key_file": str(locked)}
    with (
        broker(server.server_context()) as mq,
        refused(options(mq.name_server, tls_verify=False, **own)) as client,
        pytest.raises(NameServerError, match="the private key has a password"),
    ):
        client.read_queues("orders")


def test_plain_and_tls_do_not_meet(authority: Authority, server: Certificate) -> None:
    with (
        broker(server.server_context()) as mq,
        refused(ClientOptions(name_servers=(mq.name_server,))) as plain,
        pytest.raises(NameServerError, match="TLS"),
    ):
        plain.read_queues("orders")
    with (
        MockBroker({"orders": 1}) as mq,
        refused(options(mq.name_server, tls_ca_file=str(authority.root.cert))) as client,
        pytest.raises(NameServerError),
    ):
        client.read_queues("orders")


def test_a_handshake_into_nothing_ends(authority: Authority, server: Certificate) -> None:
    trust = {"tls_ca_file": str(authority.root.cert)}
    with (
        broker(server.server_context()) as mq,
        Proxy(mq.name_server, Trouble(stall_after=0)) as proxy,
        Client(options(proxy.addr, connect_timeout_ms=500, **trust)) as client,
        within(6),
        pytest.raises(NameServerError),
    ):
        client.read_queues("orders")


def test_sends_whose_answers_are_here_are_not_sent_again(authority: Authority, server: Certificate) -> None:
    """Each answer is a TLS record of its own; the deadlines pass in the caller's code, as in a slow task."""
    arrived = threading.Event()
    held: list[tuple[Peer, Frame]] = []

    def reverse(peer: Peer, frame: Frame, name: str) -> None:
        held.append((peer, frame))
        if len(held) == 8:
            for other, one in reversed(held):
                other.send(stored(one))
            arrived.set()

    clock = FakeClock(0.0, base=SYSTEM_CLOCK)
    trust = str(authority.root.cert)
    patient = ProducerOptions(send_timeout_ms=50_000)  # no pause of this machine is as long as the clock's
    with (
        ScriptedCluster(reverse, queues=1, tls=server.server_context()) as cluster,
        Client(options(cluster.name_server, tls_ca_file=trust), clock=clock) as client,
        SendPipeline(Producer(client, options=patient), max_in_flight=8) as pipeline,
    ):
        for number in range(8):
            pipeline.submit(encode_one(OutgoingMessage("orders", b"%d" % number), UniqueIds(clock)))
        assert arrived.wait(30)
        clock.now_s = 60.0
        outcomes = pipeline.flush()
        assert [outcome.error for outcome in outcomes] == [None] * 8
        assert cluster.asked[RequestCode.SEND_MESSAGE_V2] == 8


def test_one_answer_of_many_records_is_read_as_a_whole(authority: Authority, server: Certificate) -> None:
    arrived = threading.Event()

    def large(peer: Peer, frame: Frame) -> None:
        peer.send(answer(frame, body=b"x" * 40_000))
        arrived.set()

    tls = TlsOptions(ca_file=str(authority.root.cert))
    with ScriptedPeer(large, server.server_context()) as peer:
        connection = Connection(peer.addr, ConnectionOptions(tls=tls))
        try:
            opaque = connection.submit(GetMaxOffsetRequest(topic="t", queue_id=0, broker_name="b"))
            assert arrived.wait(30)
            assert len(connection.wait(opaque, Deadline(SYSTEM_CLOCK, 0)).body) == 40_000
        finally:
            connection.close()


def test_changed_bytes_never_get_through(authority: Authority, server: Certificate) -> None:
    """Unlike without TLS (see ``test_adverse``), where offsets and properties have no checksum."""
    with broker(server.server_context()) as mq:
        bodies = [b"%d" % number for number in range(200)]
        for body in bodies:
            mq.send(OutgoingMessage("orders", body, properties={"a": "b"}))
        real = mq.address("broker-a")
        outcomes = []
        for position in range(2_600, 16_000, 1_900):
            with Proxy(real, Trouble(change=flip(position)), Trouble()) as proxy:
                mq.advertise("broker-a", proxy.addr)
                trust = options(
                    mq.name_server, tls_ca_file=str(authority.root.cert), request_timeout_ms=1_000
                )
                with Client(trust) as client:
                    batches = read_batches(
                        client,
                        [OffsetRange(mq.queue("orders"), 0, len(bodies))],
                        ReadOptions(consumer_group="g", stall_timeout_ms=60_000),
                        DecodeOptions(columns=("body", "properties")),
                    )
                    try:
                        rows = [row for batch in batches for row in batch.to_pylist()]
                    except RocketMQError as error:
                        outcomes.append(type(error).__name__)
                    else:
                        assert [row["body"] for row in rows] == bodies
                        assert all(dict(row["properties"])["a"] == "b" for row in rows)
                        outcomes.append(str(proxy.connections))
        assert "2" in outcomes, outcomes  # the change was noticed, and the connection replaced
