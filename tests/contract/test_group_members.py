"""Whom a broker counts as a group's members, and whom it tells: the simulation's brokers do the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tests.support.topics import TopicFactory
from tests.support.wait import eventually

from pyspark_rocketmq.client import Admin, Client, MessageSelector
from pyspark_rocketmq.client.groups.membership import Membership
from pyspark_rocketmq.devcluster import DevCluster

pytestmark = pytest.mark.timeout(180)

SOON_S = 60
"""Less than the 120 s after which a silent member is removed."""


class Members:
    """Members of a group, each with a client of its own, and how often each was told of a change."""

    def __init__(self, mq: DevCluster, topic: str, group: str, clients: ExitStack) -> None:
        self.told: Counter[str] = Counter()
        self.addr = ""
        self._mq = mq
        self._topic = topic
        self._group = group
        self._clients = clients

    def join(self, name: str) -> tuple[Client, Membership]:
        client = self._clients.enter_context(Client(self._mq.name_server))

        def record_change() -> None:
            self.told[name] += 1

        member = Membership(
            client,
            self._group,
            name,
            {self._topic: MessageSelector()},
            broadcasting=False,
            start="CONSUME_FROM_FIRST_OFFSET",
            on_change=record_change,
        )
        (queue,) = client.read_queues(self._topic)
        self.addr = client.queue_address(queue)
        member.send_heartbeat(self.addr, again=True)
        return client, member

    def become(self, seen_by: Membership, *names: str) -> None:
        """Wait until the broker lists these members."""
        eventually(lambda: seen_by.members(self._topic) == names, SOON_S, what=f"members: {names}")

    def hears(self, name: str, member: Membership, before: int) -> None:
        """Wait until a member was told again. It reads while it asks."""

        def told() -> bool:
            member.members(self._topic)
            return self.told[name] > before

        eventually(told, SOON_S, what=f"{name} hears of a change")


@pytest.fixture
def members(mq: DevCluster, topic: TopicFactory, group: str) -> Iterator[Members]:
    with ExitStack() as clients:
        yield Members(mq, topic(queues=1), group, clients)


def leave(client: Client, member: Membership, addr: str) -> None:
    member.leave(addr)


def vanish(client: Client, member: Membership, addr: str) -> None:
    client.close()


@pytest.mark.parametrize("end", [leave, vanish])
def test_a_member_is_told_at_once_who_comes_and_goes(
    members: Members, end: Callable[[Client, Membership, str], None]
) -> None:
    _, one = members.join("one")
    members.become(one, "one")
    before = members.told["one"]
    client, two = members.join("two")
    members.become(one, "one", "two")
    members.hears("one", one, before)
    before = members.told["one"]
    end(client, two, members.addr)
    members.become(one, "one")
    members.hears("one", one, before)


def test_who_joins_is_told_too(members: Members) -> None:
    _, one = members.join("one")
    members.hears("one", one, 0)


@pytest.mark.timeout(300)
def test_a_broker_that_is_killed_forgets_who_has_locked_a_queue(group: str) -> None:
    with DevCluster() as own, ExitStack() as clients:
        with Client(own.name_server) as admin:
            Admin(admin).create_topic("orders", queues=1)
            (queue,) = admin.read_queues("orders")
        _, one = Members(own, "orders", group, clients).join("one")
        _, two = Members(own, "orders", group, clients).join("two")
        assert (one.lock([queue]), two.lock([queue])) == ({queue: True}, {queue: False})
        assert one.keeps_lock(queue)
        own.broker().kill()
        eventually(lambda: not one.keeps_lock(queue), SOON_S, what="a lock that may be another member's")
        own.broker().start()
        eventually(lambda: two.lock([queue]) == {queue: True}, SOON_S, what="the lock for who asks first")
        assert one.lock([queue]) == {queue: False}
