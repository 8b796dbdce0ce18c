"""Creating a topic alters none; altering changes what is given, where the topic exists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from tests.support.clocks import FakeClock

from pyspark_rocketmq.client import Admin, Client
from pyspark_rocketmq.client.admin_calls import await_route
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.errors import OptionError, RequestTimeoutError, TopicExistsError, TopicNotFoundError
from pyspark_rocketmq.inventory import TopicConfig
from pyspark_rocketmq.model import Permission
from pyspark_rocketmq.options import ClientOptions
from pyspark_rocketmq.testing import MockCluster
from pyspark_rocketmq.testing.store import BrokerStore
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


def test_a_text_is_the_name_of_one_broker(admin):
    admin.create_topic("orders", queues=4, brokers="broker-a")
    admin.alter_topic("orders", queues=5, brokers="broker-a")
    assert {name: config.write_queues for name, config in admin.topic_configs("orders").items()} == {
        "broker-a": 5
    }


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.create_topic("orders", brokers=["broker-a", "broker-z"]),
        lambda admin: admin.create_group("billing", brokers="broker-z"),
        lambda admin: admin.broker_config("broker-z"),
        lambda admin: admin.set_broker_config("broker-z", {"brokerPermission": "4"}),
        lambda admin: admin.broker_runtime_info("broker-z"),
    ],
)
def test_a_wrong_name_of_a_broker_is_refused_at_once(
    mq: MockCluster, call: Callable[[Admin], object]
) -> None:
    clock = FakeClock()
    with Client(ClientOptions(name_servers=(mq.name_server,)), clock=clock) as client:
        begin_s = clock.monotonic()
        with pytest.raises(OptionError, match=r"no such broker.*broker-z.*broker-a.*broker-b"):
            call(Admin(client))
        assert clock.monotonic() == begin_s
        assert Admin(client).topics() == ()


@pytest.mark.parametrize("queues", [-1, 65_537])
def test_a_number_of_queues_that_no_client_can_read_is_refused(admin, queues):
    with pytest.raises(OptionError, match=f"must be a whole number from 0 to 65536, not {queues}"):
        admin.create_topic("orders", queues=queues)
    admin.create_topic("orders", queues=4)
    with pytest.raises(OptionError, match=f"must be a whole number from 0 to 65536, not {queues}"):
        admin.alter_topic("orders", queues=queues)
    assert {config.write_queues for config in admin.topic_configs("orders").values()} == {4}


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


class Registrations:
    """What name servers know of a mock cluster's topics, if they ignore versions that they have seen (5.5).

    Parameters
    ----------
    mq : MockCluster
    monkeypatch : MonkeyPatch
    """

    def __init__(self, mq: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.crossed = 0
        """How many of the next changes get the version of another topic that is registered first."""
        self.count = 0
        self._put = BrokerStore.create_topic
        self._versions = dict.fromkeys(mq.brokers, 0)
        self._seen = dict.fromkeys(mq.brokers, 0)
        self._shown = {name: BrokerStore(name) for name in mq.brokers}
        monkeypatch.setattr(mq._registry, "stores", self._shown)

        def create_topic(store: BrokerStore, config: TopicConfig) -> None:
            self._change(store, config)

        monkeypatch.setattr(BrokerStore, "create_topic", create_topic)

    def _change(self, store: BrokerStore, config: TopicConfig) -> None:
        if store.topics.get(config.topic) == config:
            return
        self._put(store, config)
        self._versions[store.name] += 1
        if self.crossed:
            self.crossed -= 1
            self._versions[store.name] += 1
            self._seen[store.name] = self._versions[store.name]
        self.register(store.name, config)

    def register(self, name: str, *configs: TopicConfig) -> None:
        self.count += 1
        known = self._shown[name].topics
        for config in configs:
            if self._seen[name] != self._versions[name] or config.topic not in known:
                known[config.topic] = config
        self._seen[name] = self._versions[name]


@pytest.fixture
def registrations(mq, monkeypatch) -> Registrations:
    return Registrations(mq, monkeypatch)


@pytest.fixture
def hurried(mq) -> Iterator[Client]:
    """A client of which each pause takes a second more."""
    clock = FakeClock(0.0, base=SYSTEM_CLOCK)
    clock.on_sleep = lambda: setattr(clock, "now_s", clock.now_s + 1)
    with Client(mq.name_server, clock=clock) as client:
        yield client


@pytest.mark.parametrize("crossed", [0, 1, 3])
def test_a_change_that_name_servers_ignore_is_registered_again(mq, registrations, hurried, crossed):
    admin = Admin(hurried)
    admin.create_topic("orders", queues=4, brokers=["broker-a"])
    registrations.crossed = crossed
    before = registrations.count
    admin.alter_topic("orders", queues=8, perm=Permission.READ)
    (shown,) = admin.topic_route("orders").queues
    assert (shown.read_queues, shown.write_queues, shown.perm) == (8, 8, Permission.READ)
    registered = registrations.count - before
    assert registered == 1 if not crossed else registered > 1
    config = admin.topic_configs("orders")["broker-a"]
    assert config == TopicConfig("orders", 8, 8, Permission.READ)
    registrations.register("broker-a", config)  # as every 30 s


def test_permissions_that_a_broker_takes_away_are_not_waited_for(mq, registrations, hurried):
    admin = Admin(hurried)
    admin.create_topic("orders", queues=4, brokers=["broker-a"])
    shown = registrations._shown["broker-a"].topics
    register = registrations.register

    def without_write(name, config):
        register(name, config)
        shown[config.topic] = replace(shown[config.topic], perm=config.perm & Permission.READ)

    registrations.register = without_write
    admin.alter_topic("orders", queues=8)
    assert admin.topic_route("orders").queues[0].perm == Permission.READ
    assert registrations.count == 2


def test_a_topic_that_is_deleted_while_its_change_is_waited_for_is_not_put_again(mq, registrations, hurried):
    admin = Admin(hurried)
    admin.create_topic("orders", queues=4, brokers=["broker-a"])
    registrations.crossed = 1
    wait, gone = hurried.clock.on_sleep, []

    def delete():
        wait()
        if not gone:
            gone.append(mq.delete_topic("orders"))

    hurried.clock.on_sleep = delete
    with pytest.raises(RequestTimeoutError):
        admin.alter_topic("orders", queues=8)
    assert admin.topic_configs("orders") == {}


def test_dead_letters_that_name_servers_ignore_become_readable(mq, registrations, hurried):
    topic = Origin.DLQ.topic("billing")
    Admin(hurried).create_topic(topic, queues=1, perm=Permission.WRITE)
    registrations.crossed = 2  # one at each broker
    make_readable(hurried, "billing", Origin.DLQ)
    assert len(hurried.read_queues(topic)) == 2


def test_a_route_that_does_not_follow_is_waited_for_past_the_next_registration(hurried) -> None:
    begin_s = hurried.clock.monotonic()
    await_route(hurried, "orders", lambda _: hurried.clock.monotonic() > begin_s + 31)
    with pytest.raises(RequestTimeoutError, match=r"did not follow the change.*topic=orders"):
        await_route(hurried, "orders", lambda _: False)
