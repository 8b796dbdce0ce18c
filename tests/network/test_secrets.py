"""Planted secrets: they must not come out in texts, logs, errors, pickled errors, or on the wire in clear."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Iterator

import pytest
from tests.support.scripted_peer import Peer, ScriptedPeer, answer

from pyspark_rocketmq.client import (
    Admin,
    Client,
    ClientOptions,
    OutgoingMessage,
    Producer,
    ProducerOptions,
    PullConsumer,
)
from pyspark_rocketmq.client.net.connection import Connection
from pyspark_rocketmq.client.net.endpoint import ConnectionOptions
from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.options import SinkOptions, SourceOptions, parse_options
from pyspark_rocketmq.remoting.acl import Credentials
from pyspark_rocketmq.remoting.frame import Frame
from pyspark_rocketmq.remoting.header import GetMaxOffsetRequest
from pyspark_rocketmq.testing import HangUp, MockBroker, Refuse

SECRET, TOKEN = "planted-Secret-4711", "planted-Token-0815"
CREDENTIALS = Credentials("planted-user", SECRET, TOKEN)
GIVEN = {
    "nameServer": "127.0.0.1:9876",
    "topic": "orders",
    "accessKey": "planted-user",
    "secretKey": SECRET,
    "securityToken": TOKEN,
}


def shows(text: object) -> list[str]:
    """Return the secrets that a text gives away."""
    return [secret for secret in (SECRET, TOKEN) if secret in str(text)]


def everything_of(error: BaseException) -> str:
    """Return all that a log, a debugger or a pickle shows of an error and its causes."""
    parts = ["".join(traceback.format_exception(error))]
    chain: BaseException | None = error
    seen: set[int] = set()
    while chain is not None and id(chain) not in seen:
        seen.add(id(chain))
        parts += [str(chain), repr(chain), repr(vars(chain)), repr(chain.args)]
        if isinstance(chain, RocketMQError):
            parts.append(pickle.dumps(chain).decode("latin-1"))
        chain = chain.__cause__ or chain.__context__
    return "\n".join(parts)


@pytest.fixture(autouse=True)
def no_log_tells(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG)
    yield
    assert shows(caplog.text) == []


@pytest.mark.parametrize("kind", [SourceOptions, SinkOptions, ClientOptions])
def test_options_show_no_secret(kind: type) -> None:
    given = {name: value for name, value in GIVEN.items() if kind is not ClientOptions or name != "topic"}
    parsed = parse_options(kind, given, environ={})
    assert shows(repr(parsed)) == []
    assert "planted-user" not in repr(parsed)


@pytest.mark.parametrize(
    "change",
    [
        {"secretKey": None},
        {"accessKey": None},
        {"accessKey": None, "secretKey": None},
        {"secretkey": "other " + SECRET},
        {"nosuchoption": "x"},
        {"tls": "perhaps"},
        {"secretKey": ""},
    ],
)
def test_option_errors_show_no_secret(change: dict[str, str | None]) -> None:
    with pytest.raises(OptionError) as caught:
        parse_options(SourceOptions, GIVEN | change, environ={})
    assert shows(everything_of(caught.value)) == []


def test_clients_show_no_secret() -> None:
    options = ConnectionOptions(credentials=CREDENTIALS)
    client_options = ClientOptions(
        name_servers=("127.0.0.1:1",), access_key="planted-user", secret_key=SECRET, security_token=TOKEN
    )
    with (
        MockBroker({"orders": 1}) as mq,
        Client(client_options) as client,
        PullConsumer("g", client=client) as consumer,
    ):
        connection = Connection(mq.address("broker-a"), options)
        for thing in (CREDENTIALS, options, connection, client, consumer, Producer(client), Admin(client)):
            assert shows(f"{thing} {thing!r}") == []
        connection.close()


@pytest.mark.parametrize(
    "fault",
    [
        Refuse(16, "check signature failed."),
        Refuse(1, "org.apache.rocketmq.acl.common.AclException: no"),
        Refuse(2),
        Refuse(13, "illegal"),
        HangUp(),
        None,
    ],
)
def test_errors_of_signed_requests_show_no_secret(fault: object) -> None:
    wrong = Credentials("planted-user", "another-secret")
    with MockBroker({"orders": 1}, credentials=wrong if fault is None else CREDENTIALS) as mq:
        if fault is not None:
            mq.inject(fault, times=None, broker="broker-a")
        options = ClientOptions(
            name_servers=(mq.name_server,),
            access_key="planted-user",
            secret_key=SECRET,
            security_token=TOKEN,
            request_timeout_ms=500,
        )
        with Client(options, operation_timeout_ms=500) as client:
            queue = mq.queue("orders")
            producer = Producer(client, options=ProducerOptions(send_timeout_ms=300, retries=1))
            for call in (
                lambda: client.max_offsets((queue,)),
                lambda: client.commit_offsets("g", {queue: 1}),
                lambda: producer.send(OutgoingMessage("orders", b"x")),
                lambda: PullConsumer("g", client=client).pull(queue, "*", 0),
                lambda: Admin(client).create_topic("other"),
            ):
                with pytest.raises(RocketMQError) as caught:
                    call()
                assert shows(everything_of(caught.value)) == []


def test_what_travels() -> None:
    """The secret never does; the token must, which is why the documentation asks for TLS with it."""
    seen = bytearray()

    def record(peer: Peer, frame: Frame) -> None:
        seen.extend(repr(frame.command).encode())
        peer.send(answer(frame, offset="0"))

    with ScriptedPeer(record) as peer:
        connection = Connection(peer.addr, ConnectionOptions(credentials=CREDENTIALS))
        connection.call(GetMaxOffsetRequest(topic="orders", queue_id=0, broker_name="broker-a"))
        connection.close()
    assert shows(seen.decode()) == [TOKEN]
    assert b"Signature" in seen


def test_secrets_without_a_utf8_form() -> None:
    """Encoding fails, and the error does not carry the text."""
    broken = SECRET + "\ud800"
    with MockBroker({"orders": 1}) as mq:
        for credentials in (Credentials("user", broken), Credentials("user", "x", TOKEN + "\ud800")):
            connection = Connection(mq.address("broker-a"), ConnectionOptions(credentials=credentials))
            with pytest.raises(RocketMQError) as caught:
                connection.call(GetMaxOffsetRequest(topic="orders", queue_id=0, broker_name="broker-a"))
            assert shows(everything_of(caught.value)) == []
            connection.close()
