"""Creating a topic alters none; altering changes what is given, where the topic exists."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.clocks import FakeClock

from pyspark_rocketmq.client import Admin, Client
from pyspark_rocketmq.client.admin_calls import await_route
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.errors import OptionError, RequestTimeoutError, TopicExistsError, TopicNotFoundError
from pyspark_rocketmq.model import Permission
from pyspark_rocketmq.testing import MockCluster
from pyspark_rocketmq.tools.origins import Origin
from pyspark_rocketmq.tools.replay import make_readable

READ_WRITE = Permission.READ | Permission.WRITE


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with MockCluster(brokers=("broker-a", "broker-b")) as cluster:
        yield cluster


@pytest.fixture
def admin(client: Client) -> Admin:
    return Admin(client)


def sizes(admin: Admin, topic: str = "orders") -> dict[str, tuple[int, int]]:
    configs = admin.topic_configs(topic)
    return {name: (config.read_queues, config.write_queues) for name, config in configs.items()}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"queues": 8}, "read queues: 16, not 8"),
        ({"queues": 16, "read_queues": 20}, "read queues: 16, not 20"),
        ({"queues": 16, "perm": Permission.READ}, "permission: read, write, not read"),
        ({"queues": 16, "order": True}, "order: false, not true"),
        ({"queues": 16, "attributes": {"message.type": "FIFO"}}, "message.type: not set, not FIFO"),
    ],
)
def test_creating_a_topic_that_exists_otherwise_changes_nothing(admin, settings, told):
    admin.create_topic("orders", queues=16, brokers=["broker-a"])
    before = admin.topic_configs("orders")
    with pytest.raises(TopicExistsError, match=told) as caught:
        admin.create_topic("orders", **settings)
    assert "alter_topic" in str(caught.value)
    assert caught.value.facts["broker_name"] == "broker-a"
    assert admin.topic_configs("orders") == before


def test_creating_a_topic_again_adds_it_where_it_lacks(admin):
    admin.create_topic("orders", queues=4, attributes={"message.type": "FIFO"}, brokers=["broker-a"])
    admin.create_topic("orders", queues=4)
    assert sizes(admin) == {"broker-a": (4, 4), "broker-b": (4, 4)}
    admin.create_topic("orders", queues=4)
    assert admin.topic_configs("orders")["broker-a"].attributes == {"message.type": "FIFO"}


def test_only_the_brokers_where_it_is_to_be_created_are_compared(admin):
    admin.create_topic("orders", queues=3, brokers=["broker-a"])
    admin.create_topic("orders", queues=1, brokers=["broker-b"])
    assert sizes(admin) == {"broker-a": (3, 3), "broker-b": (1, 1)}


def test_what_is_not_altered_stays_at_each_broker(admin):
    admin.create_topic("orders", queues=4, read_queues=6, attributes={"message.type": "FIFO"}, order=True)
    admin.alter_topic("orders", queues=5, brokers=["broker-b"])
    assert sizes(admin) == {"broker-a": (6, 4), "broker-b": (6, 5)}
    admin.alter_topic("orders", perm=Permission.READ)
    assert sizes(admin) == {"broker-a": (6, 4), "broker-b": (6, 5)}
    for config in admin.topic_configs("orders").values():
        assert (config.perm, config.order, config.attributes) == (
            Permission.READ,
            True,
            {"message.type": "FIFO"},
        )


def test_fewer_queues_stay_readable_until_fewer_are_to_be_read(admin):
    admin.create_topic("orders", queues=4)
    admin.alter_topic("orders", queues=2)
    assert sizes(admin) == dict.fromkeys(("broker-a", "broker-b"), (4, 2))
    admin.alter_topic("orders", read_queues=2)
    assert sizes(admin) == dict.fromkeys(("broker-a", "broker-b"), (2, 2))
    admin.alter_topic("orders", queues=8)
    assert sizes(admin) == dict.fromkeys(("broker-a", "broker-b"), (8, 8))


def test_an_attribute_is_removed(admin):
    admin.create_topic("orders", attributes={"message.type": "FIFO", "queue.type": "BatchCQ"})
    admin.alter_topic("orders", attributes={"message.type": None})
    found = {name: config.attributes for name, config in admin.topic_configs("orders").items()}
    assert found == {name: {"queue.type": "BatchCQ"} for name in ("broker-a", "broker-b")}


def test_what_cannot_be_altered(admin):
    with pytest.raises(TopicNotFoundError):
        admin.alter_topic("orders", queues=2)
    admin.create_topic("orders", brokers=["broker-a"])
    with pytest.raises(OptionError, match="the broker does not have the topic") as caught:
        admin.alter_topic("orders", queues=2, brokers=["broker-a", "broker-b"])
    assert caught.value.facts["broker_name"] == "broker-b"
    assert sizes(admin) == {"broker-a": (8, 8)}


def test_making_dead_letters_readable_hides_none(admin, client):
    topic = Origin.DLQ.topic("billing")
    admin.create_topic(topic, queues=1, read_queues=3, perm=Permission.WRITE)
    make_readable(client, "billing", Origin.DLQ)
    found = [
        (config.read_queues, config.write_queues, config.perm)
        for config in admin.topic_configs(topic).values()
    ]
    assert found == [(3, 1, READ_WRITE)] * 2


def test_dead_letters_are_readable_when_the_route_says_so(admin, client, monkeypatch):
    topic = Origin.DLQ.topic("billing")
    admin.create_topic(topic, queues=1, perm=Permission.WRITE)
    before, find_many = client.routes.find_many((topic,), deadline=client.deadline()), client.routes.find_many
    late = [before, before, before]
    monkeypatch.setattr(
        client.routes, "find_many", lambda topics, **how: late.pop() if late else find_many(topics, **how)
    )
    make_readable(client, "billing", Origin.DLQ)
    assert not late
    assert len(client.read_queues(topic)) == 2


def test_a_route_that_an_older_registration_replaced_is_waited_for_until_its_broker_registers_again(
    mq,
) -> None:
    clock = FakeClock(0.0, base=SYSTEM_CLOCK)
    clock.on_sleep = lambda: setattr(clock, "now_s", clock.now_s + 1)
    with Client(mq.name_server, clock=clock) as client:
        begin_s = clock.monotonic()
        await_route(client, "orders", lambda _: clock.monotonic() > begin_s + 31)
        with pytest.raises(RequestTimeoutError, match=r"did not follow the change.*topic=orders"):
            await_route(client, "orders", lambda _: False)
