"""Arguments of the wrong kind: the error says which one and what was meant, and nothing is sent."""

from __future__ import annotations

import asyncio
import datetime
import math
from collections.abc import Callable
from typing import Any

import pytest

from pyspark_rocketmq.client import (
    Admin,
    AsyncClient,
    AsyncProducer,
    AsyncPullConsumer,
    Client,
    ConsumeFromWhere,
    MessageQueue,
    OutgoingMessage,
    Producer,
    ProducerOptions,
    PullConsumer,
    PushConsumer,
    PushOptions,
)
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import ClientOptions

QUEUE = MessageQueue("orders", "broker-a", 0)
MESSAGE = OutgoingMessage("orders", b"1")
NOWHERE = "127.0.0.1:9"
"""A port at which no name server listens: whatever is sent fails with another error."""


@pytest.mark.parametrize("given", [None, [NOWHERE], {"nameServer": NOWHERE}, NOWHERE.encode()])
@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_name_servers_are_a_text_or_options(client: Callable[[Any], object], given: object) -> None:
    with pytest.raises(OptionError, match=r"the name servers must be ClientOptions, or .* one text"):
        client(given)


@pytest.mark.parametrize("given", ["5", 0, -1, math.nan, None])
@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_an_operation_needs_time(client: Callable[..., object], given: object) -> None:
    with pytest.raises(OptionError, match="operation_timeout_ms must be a number of milliseconds"):
        client(NOWHERE, operation_timeout_ms=given)


CALLS: list[tuple[Callable[[Any], Any], str]] = [
    (
        lambda client: client.min_offsets(QUEUE),
        "queues must be an iterable of MessageQueue, not a M",
    ),
    (lambda client: client.max_offsets(None), "queues must be an iterable of MessageQueue, not None"),
    (lambda client: client.max_offsets("orders"), "each queue must be a MessageQueue, not a str"),
    (lambda client: client.committed_offsets([QUEUE], "g"), "each queue must be a MessageQueue, not a str"),
    (
        lambda client: client.offsets_at([QUEUE]),
        "must be a mapping of .*, not a list",
    ),
    (
        lambda client: client.offsets_at({QUEUE: datetime.datetime(2026, 1, 1)}),  # noqa: DTZ001
        "times, in milliseconds since the epoch, must be whole numbers, not a datetime",
    ),
    (lambda client: client.offsets_at({QUEUE: 1.5e12}), r"must be whole numbers, not 1500000000000\.0"),
    (
        lambda client: client.commit_offsets("g", [QUEUE]),
        "offsets must be a mapping of MessageQueue",
    ),
    (lambda client: client.commit_offsets("g", {QUEUE: None}), "offsets must be whole numbers, not None"),
    (lambda client: client.commit_offsets("g", {QUEUE: "5"}), "offsets must be whole numbers, not a str"),
    (lambda client: client.commit_offsets("g", {QUEUE: -1}), "offsets must be 0 or more, not -1"),
    (lambda client: client.commit_offsets(None, {QUEUE: 1}), "group must be a text, not None"),
    (lambda client: client.commit_offsets(["g"], {QUEUE: 1}), "group must be a text, not a list"),
    (
        lambda client: client.max_offsets([MessageQueue("orders", None, 0)]),
        "broker_name of each queue must be a text, not None",
    ),
    (
        lambda client: client.max_offsets([MessageQueue(b"orders", "broker-a", 0)]),
        "topic of each queue must be a text, not a bytes",
    ),
    (lambda client: client.read_queues(["orders"]), "topic must be a text, not a list"),
    (lambda client: client.route(None), "topic must be a text, not None"),
]


@pytest.mark.parametrize(("call", "told"), CALLS)
def test_queues_offsets_and_times(call: Callable[[Any], object], told: str) -> None:
    with Client(NOWHERE) as client, pytest.raises(OptionError, match=told):
        call(client)


@pytest.mark.parametrize(("call", "told"), CALLS)
def test_queues_offsets_and_times_in_an_event_loop(call: Callable[[Any], Any], told: str) -> None:
    async def ask() -> None:
        async with AsyncClient(NOWHERE) as client:
            await call(client)

    with pytest.raises(OptionError, match=told):
        asyncio.run(ask())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"request_timeout_ms": "3000"}, "request_timeout_ms must be a whole number from 1 on, not a str"),
        ({"connect_timeout_ms": 0}, "connect_timeout_ms must be a whole number from 1 on, not 0"),
        ({"route_refresh_ms": None}, "route_refresh_ms must be a whole number from 0 on, not None"),
        ({"tls": "false"}, "tls must be a bool, not a str"),
        ({"namespace": 5}, "namespace must be a text, not a int"),
        ({"access_key": "a", "secret_key": 123456}, "secretKey must be a text, not a int$"),
        ({"name_servers": (5,)}, "name_servers must be a tuple of host:port texts"),
    ],
)
def test_options_that_are_no_texts_are_checked_as_well(given: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        ClientOptions(**{"name_servers": (NOWHERE,)} | given)


def test_owners_are_those_of_queues() -> None:
    with Client(NOWHERE) as client, pytest.raises(OptionError, match="each queue must be a MessageQueue"):
        client.owners(["orders"])


@pytest.mark.parametrize("group", [None, ["g"], 5])
def test_a_group_is_created_by_a_name_or_its_settings(group: Any) -> None:
    with Client(NOWHERE) as client, pytest.raises(OptionError, match="group must be a text or a GroupConfig"):
        Admin(client).create_group(group)


def test_commits_without_retries_are_checked_too() -> None:
    with Client(NOWHERE) as client, pytest.raises(OptionError, match="offsets must be 0 or more, not -1"):
        client.try_commit_offsets("g", {QUEUE: -1})


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda _: Producer(NOWHERE), "client must be a Client: .*, not a str"),
        (AsyncProducer, "client must be an AsyncClient: .*, not a Client"),
        (lambda client: Producer(client, ProducerOptions()), "producer group must be a text, not a Prod"),
        (
            lambda client: Producer(client, options={"retries": 3}),
            "options must be a ProducerOptions, not a d",
        ),
        (lambda _: Admin(NOWHERE), "client must be a Client: .*, not a str"),
        (lambda _: PullConsumer("g", client=NOWHERE), "client must be a Client, not a str"),
        (lambda client: PullConsumer("g", client), "the name servers must be .*, not a Client"),
        (lambda client: PullConsumer(client, NOWHERE), "the consumer group must be a text, not a Client"),
        (lambda client: AsyncPullConsumer("g", client=client), "client must be an AsyncClient, not a Client"),
        (lambda _: ProducerOptions(send_timeout_ms=0), "send_timeout_ms must be a whole number from 1 on"),
        (lambda _: ProducerOptions(retries="3"), "retries must be a whole number from 0 on, not a str"),
    ],
)
def test_producers_and_consumers_are_made_of_a_client(make: Callable[[Any], object], told: str) -> None:
    with Client(NOWHERE) as client, pytest.raises(OptionError, match=told):
        make(client)


SENDS: list[tuple[Callable[[Any], Any], str]] = [
    (
        lambda producer: producer.send("orders"),
        r"a message must be an OutgoingMessage\(topic, body\), not a str",
    ),
    (lambda producer: producer.send(None), "a message must be .*, not None"),
    (lambda producer: producer.send([MESSAGE]), "a message must be .*, not a list"),
    (lambda producer: producer.send_one_way(b"1"), "a message must be .*, not a bytes"),
    (lambda producer: producer.send_batch(MESSAGE), "messages must be an iterable of Out.*, not an? Out"),
    (lambda producer: producer.send_batch([b"1"]), "a message must be .*, not a bytes"),
    (lambda producer: producer.send_batch(iter(())), "a batch needs at least one message"),
]


@pytest.mark.parametrize(("send", "told"), SENDS)
def test_messages(send: Callable[[Any], Any], told: str) -> None:
    async def send_in_an_event_loop() -> None:
        async with AsyncClient(NOWHERE) as client:
            await send(AsyncProducer(client))

    with Client(NOWHERE) as client, pytest.raises(OptionError, match=told):
        send(Producer(client))
    with pytest.raises(OptionError, match=told):
        asyncio.run(send_in_an_event_loop())


@pytest.mark.parametrize("given", [0, -1, math.nan, "5"])
def test_a_send_needs_time(given: Any) -> None:
    with Client(NOWHERE) as client, pytest.raises(OptionError, match="timeout_ms must be a number of"):
        Producer(client).send(MESSAGE, timeout_ms=given)


PULLS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda consumer: consumer.pull("orders", "*", 0), "queue must be a MessageQueue, not a str"),
    (lambda consumer: consumer.pull(QUEUE, None, 0), "the expression must be tags, such as .*, not None"),
    (
        lambda consumer: consumer.pull(QUEUE, "*", None),
        "the offset of a pull must be a whole number .*, not None",
    ),
    (
        lambda consumer: consumer.pull(QUEUE, "*", "0"),
        "the offset of a pull must be a whole number .*, not a str",
    ),
    (
        lambda consumer: consumer.pull(QUEUE, "*", -1),
        "the offset of a pull must be a whole .* from 0 on, not -1",
    ),
    (lambda consumer: consumer.pull(QUEUE, "*", 0, 1.5), r"max_nums must be a whole number .*, not 1\.5"),
    (
        lambda consumer: consumer.pull(QUEUE, "*", 0, 2**31),
        "max_nums must be a whole number from 1 to 2147483647",
    ),
    (lambda c: c.pull_block_if_not_found(QUEUE, "*", 0, suspend_ms="5"), "suspend_ms must be a whole number"),
]


@pytest.mark.parametrize(("pull", "told"), PULLS)
def test_pulls(pull: Callable[[Any], Any], told: str) -> None:
    async def pull_in_an_event_loop() -> None:
        async with AsyncPullConsumer("g", NOWHERE) as consumer:
            await pull(consumer)

    with PullConsumer("g", NOWHERE) as consumer, pytest.raises(OptionError, match=told):
        pull(consumer)
    with pytest.raises(OptionError, match=told):
        asyncio.run(pull_in_an_event_loop())


class AsyncListener:
    async def __call__(self, messages: object) -> None:
        """Take messages."""


async def listen(messages: object) -> None:
    """Take messages."""


@pytest.mark.parametrize(
    ("listener", "told"),
    [
        (None, "the listener must be a function of messages, not a NoneType"),
        ("print", "the listener must be a function of messages, not a str"),
        (listen, "the listener must not be async"),
        (AsyncListener(), "the listener must not be async"),
    ],
)
def test_a_listener_that_would_make_each_message_a_dead_letter(listener: Any, told: str) -> None:
    with PushConsumer("g", NOWHERE) as consumer:
        consumer.subscribe("orders")
        with pytest.raises(OptionError, match=told):
            consumer.start(listener)


def test_a_closed_consumer_is_not_started() -> None:
    consumer = PushConsumer("g", NOWHERE)
    consumer.subscribe("orders")
    consumer.close()
    with pytest.raises(OptionError, match="the consumer is closed"):
        consumer.start(lambda _: None)


@pytest.mark.parametrize(
    ("topic", "expression", "told"),
    [
        (["orders"], "*", "topic must be a text, not a list"),
        (None, "*", "topic must be a text, not None"),
        ("orders", None, "the expression must be tags, such as .*, not None"),
        ("orders", ["a"], "the expression must be tags, such as .*, not a list"),
    ],
)
def test_subscriptions(topic: Any, expression: Any, told: str) -> None:
    with PushConsumer("g", NOWHERE) as consumer, pytest.raises(OptionError, match=told):
        consumer.subscribe(topic, expression)


@pytest.mark.parametrize("group", [None, 5, ["g"]])
def test_a_group_is_a_text(group: Any) -> None:
    with pytest.raises(OptionError, match="the consumer group must be a text, not"):
        PushConsumer(group, NOWHERE)


IN_SECONDS = r"timestamp_ms is in milliseconds .*: 1767225600 is a time in seconds: write 1767225600000"


def test_a_time_in_seconds_is_no_start_of_a_group() -> None:
    with pytest.raises(OptionError, match=IN_SECONDS):
        PushOptions(start=ConsumeFromWhere.TIMESTAMP, timestamp_ms=1_767_225_600)
    with pytest.raises(OptionError, match="timestamp_ms must be a whole number from 0 on, not a datetime"):
        PushOptions(start=ConsumeFromWhere.TIMESTAMP, timestamp_ms=datetime.datetime(2026, 1, 1))  # type: ignore[arg-type] # noqa: DTZ001


def test_an_offset_is_not_searched_by_a_time_in_seconds() -> None:
    async def ask() -> None:
        async with AsyncPullConsumer("g", NOWHERE) as consumer:
            await consumer.search_offset(QUEUE, 1_767_225_600)

    with PullConsumer("g", NOWHERE) as consumer, pytest.raises(OptionError, match=IN_SECONDS):
        consumer.search_offset(QUEUE, 1_767_225_600)
    with pytest.raises(OptionError, match=IN_SECONDS):
        asyncio.run(ask())
