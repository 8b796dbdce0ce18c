"""What a topic without a route means."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import BrokerNotFoundError, TopicNotFoundError
from pyspark_rocketmq.planning.topics.missing_topic import SeenBroker, why_missing

A = SeenBroker("broker-a", "127.0.0.1:1", 1_700_000_000_000)
B = SeenBroker("broker-b", None, 1_700_000_009_000)


def test_no_registered_broker_is_an_outage_even_of_a_topic_never_seen() -> None:
    error = why_missing("orders", registered=(), topics=("orders",), name_server="ns:1")
    assert isinstance(error, BrokerNotFoundError)
    assert str(error) == "no broker is registered at the name servers [topic=orders, name_server=ns:1]"


def test_the_brokers_seen_last_are_named_the_latest_first() -> None:
    error = why_missing("orders", registered=frozenset(), seen=(A, B))
    shown = error.message.split("; last seen: ")[1]
    assert shown.startswith("broker-b at 2023-11-1")
    assert ", broker-a (127.0.0.1:1) at 2023-11-1" in shown


def test_a_topic_whose_broker_is_away_may_come_back() -> None:
    error = why_missing("orders", registered={"broker-b"}, homes=(A,), seen=(A, B), topics=("order",))
    assert isinstance(error, BrokerNotFoundError)
    assert "broker-a" in error.message
    assert "broker-b" not in error.message
    assert error.facts["topic"] == "orders"


@pytest.mark.parametrize("homes", [(), (A,)], ids=["a topic never seen", "a known topic"])
def test_a_topic_whose_broker_registers_between_two_requests_exists(homes: tuple[SeenBroker, ...]) -> None:
    error = why_missing("orders", registered={"broker-a"}, homes=homes, topics=("orders",))
    assert isinstance(error, BrokerNotFoundError)
    assert str(error) == "the topic had no route: its brokers have just registered [topic=orders]"


@pytest.mark.parametrize(
    ("topics", "hint"),
    [
        (("orders", "payments"), "; did you mean orders?"),
        (("payments",), "no name server has a route to it"),
        (tuple(f"orders{n}" for n in range(6_000)), "no name server has a route to it"),
    ],
    ids=["a near name", "no near name", "too many to compare"],
)
def test_near_names_are_told_while_brokers_are_registered(topics: tuple[str, ...], hint: str) -> None:
    error = why_missing("order", registered={"broker-a"}, homes=(A,), seen=(A,), topics=topics)
    assert isinstance(error, TopicNotFoundError)
    assert error.message.endswith(hint)


def test_a_proxy_that_does_not_tell_its_brokers() -> None:
    error = why_missing("orders", registered=None, homes=(A,), seen=(A,))
    assert isinstance(error, TopicNotFoundError)
