"""A message is found by its offset message id at the broker of the id, however its address is written."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.clocks import FakeClock

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.client.read.message_search import message_by_id
from pyspark_rocketmq.errors import BrokerError
from pyspark_rocketmq.model import BrokerData
from pyspark_rocketmq.record.ids import encode_host, offset_message_id
from pyspark_rocketmq.record.message import encode_message
from pyspark_rocketmq.remoting.codes import ResponseCode
from pyspark_rocketmq.remoting.failure import error_for
from pyspark_rocketmq.remoting.namespace import NO_NAMESPACE, Namespace

POSITION = 4_711


def client_of(address: str, store_host: str, namespace: Namespace = NO_NAMESPACE) -> Client:
    """Return a client of one broker, which has no index, and one message at `POSITION`."""
    topic = namespace.qualify("orders")
    record = encode_message(b"body", topic=topic, commit_log_offset=POSITION, store_host=store_host)
    clock = FakeClock()

    def call(request: object, *, deadline: Deadline) -> SimpleNamespace:
        return SimpleNamespace(require=lambda **_: SimpleNamespace(body=record))

    def connection(addr: str) -> SimpleNamespace:
        assert addr == address
        return SimpleNamespace(call=call)

    brokers = (
        BrokerData("elsewhere", "cluster", {0: "broker.example:10911"}),
        BrokerData("b", "c", {0: address}),
    )
    return cast(
        "Client",
        SimpleNamespace(
            route=lambda _: SimpleNamespace(queues=(), brokers=brokers),
            deadline=lambda timeout_ms=1_000: Deadline(clock, timeout_ms),
            connection=connection,
            request_timeout_ms=1_000,
            clock=clock,
            random=Random(1),
            namespace=namespace,
        ),
    )


@pytest.mark.parametrize(
    ("address", "store_host"),
    [
        ("10.0.0.1:10911", "10.0.0.1:10911"),
        ("::1:10911", "[::1]:10911"),
        ("[::1]:10911", "[::1]:10911"),
        ("[0:0:0:0:0:0:0:1]:10911", "[::1]:10911"),
    ],
)
def test_a_message_is_found_where_its_id_says(address: str, store_host: str) -> None:
    wanted = offset_message_id(encode_host(store_host), POSITION)
    found = message_by_id(client_of(address, store_host), "orders", wanted.lower())
    assert found is not None
    assert (found.body, found.broker_name) == (b"body", "b")
    other = offset_message_id(encode_host("10.0.0.2:10911"), POSITION)
    assert message_by_id(client_of(address, store_host), "orders", other) is None


def test_a_message_in_a_namespace_is_found_with_the_users_name_of_its_topic() -> None:
    address = "10.0.0.1:10911"
    wanted = offset_message_id(encode_host(address), POSITION)
    found = message_by_id(client_of(address, address, Namespace("ns")), "orders", wanted)
    assert found is not None
    assert found.topic == "orders"


def refusing(*refusals: BrokerError) -> Client:
    """Return a client of one broker that refuses the first looks at positions."""
    client = cast("Any", client_of("10.0.0.1:10911", "10.0.0.1:10911"))
    answer, left = client.connection("10.0.0.1:10911").call, list(refusals)

    def call(request: object, *, deadline: Deadline) -> object:
        if left:
            raise left.pop(0)
        return answer(request, deadline=deadline)

    client.connection = lambda _: SimpleNamespace(call=call)
    return cast("Client", client)


WANTED = offset_message_id(encode_host("10.0.0.1:10911"), POSITION)


def test_a_broker_that_is_busy_is_asked_again() -> None:
    found = message_by_id(refusing(error_for(ResponseCode.SYSTEM_BUSY, "busy")), "orders", WANTED)
    assert found is not None


@pytest.mark.parametrize(
    ("code", "remark"),
    [(ResponseCode.NO_PERMISSION, None), (ResponseCode.SYSTEM_ERROR, "AclException: no such account")],
)
def test_a_refusal_is_not_taken_for_a_message_that_does_not_exist(code: int, remark: str | None) -> None:
    with pytest.raises(BrokerError):
        message_by_id(refusing(error_for(code, remark)), "orders", WANTED)


def test_a_position_without_a_message_is_none() -> None:
    missing = error_for(ResponseCode.SYSTEM_ERROR, "can not find message by the offset, 4711")
    assert message_by_id(refusing(missing), "orders", WANTED) is None
