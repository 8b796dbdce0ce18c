"""Being a member of a consumer group: heartbeats, who else is one, locks of queues."""

# Facts (MQClientInstance, RebalanceImpl, ConsumerManager, RebalanceLockManager; 5.4.0 and 4.9.7)
# - A consumer is registered by connection: when that ends the broker forgets it at once and tells the others
#   (NOTIFY_CONSUMER_IDS_CHANGED). It must beat at every broker, slaves too, every 30 s; a broker forgets the
#   silent after 120 s.
# - The list of members is asked of one broker of the topic; code 1 means nobody is registered there.
# - A lock lives for 60 s at the broker; Java renews it every 20 s and trusts it for 30 s.
# - A heartbeat makes the group's topic %RETRY%group.

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Callable, Collection, Mapping
from typing import Final

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.net.connection import Connection
from pyspark_rocketmq.errors import RocketMQError, RouteError
from pyspark_rocketmq.model import MessageQueue, MessageSelector
from pyspark_rocketmq.remoting.body import (
    decode_consumer_ids,
    decode_locked_queues,
    encode_heartbeat,
    encode_queue_lock,
)
from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.remoting.command import Command
from pyspark_rocketmq.remoting.header import (
    GetConsumerListByGroupRequest,
    HeartbeatRequest,
    LockBatchMqRequest,
    UnlockBatchMqRequest,
    UnregisterClientRequest,
)

__all__ = ["Membership", "create_client_id"]

_UNIQUE_BITS: Final = 48
_MEMBERS_MS: Final = 3_000
"""How long a broker may take to tell the members, or to let one go."""


def create_client_id(number: int) -> str:
    """Return a member's id in Java's form, ``ip@pid#number``; ``number`` makes it unique in the process."""
    try:
        host = socket.gethostbyname(socket.gethostname())
    except OSError:
        host = "127.0.0.1"
    return f"{host}@{os.getpid()}#{number & ((1 << _UNIQUE_BITS) - 1)}"


class Membership:
    """One member of one group, over a client of its own; safe for threads.

    Parameters
    ----------
    client : Client
        Not shared with another member: brokers tell members apart by connection.
    group, client_id : str
    subscriptions : Mapping
        What the member reads, by topic; every member of a group must read the same.
    broadcasting : bool
    start : str
        ``consumeFromWhere`` as the heartbeat tells it.
    on_change : Callable
        Called, from a thread that reads a connection, when members came or went: must return at once.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        client_id: str,
        subscriptions: Mapping[str, MessageSelector],
        *,
        broadcasting: bool,
        start: str,
        on_change: Callable[[], None],
    ) -> None:
        self.client_id = client_id
        self._client = client
        self._group = group
        self._subscriptions = dict(subscriptions)
        self._on_change = on_change
        self._registered: dict[str, weakref.ref[Connection]] = {}
        names = client.namespace
        self._heartbeat = encode_heartbeat(
            client_id,
            consumer_groups=(names.qualified(group),),
            subscriptions={names.qualified(topic): s for topic, s in self._subscriptions.items()},
            subscription_version=client.clock.now_ms(),
            consume_type="CONSUME_PASSIVELY",
            message_model="BROADCASTING" if broadcasting else "CLUSTERING",
            consume_from_where=start,
        )

    def beat(self, addr: str, *, again: bool) -> bool:
        """Register at a broker's server: again, or only where the connection is a new one.

        Returns
        -------
        bool
            Whether the server did not know this member before.

        Raises
        ------
        RocketMQError
            The server cannot be reached, or refuses.
        """
        known = self._registered.get(addr)
        try:
            connection = self._client.connection(addr)
            new = known is None or known() is not connection
            if new or again:
                connection.on_request = self._take
                deadline = self._client.deadline(self._client.request_timeout_ms)
                connection.call(HeartbeatRequest(), self._heartbeat, deadline=deadline).require(addr=addr)
                self._registered[addr] = weakref.ref(connection)
        except RocketMQError:
            self._registered.pop(addr, None)
            raise
        return new

    def is_registered(self, addrs: Collection[str]) -> bool:
        """Whether one of the servers took the last heartbeat that it was sent."""
        return not self._registered.keys().isdisjoint(addrs)

    def members(self, topic: str) -> tuple[str, ...]:
        """Return the ids of the group's members, sorted, as a broker of the topic knows them.

        Only brokers that took this member's heartbeat are asked: of the others none knows all members, and
        one that is away would hold up those that are not.

        Raises
        ------
        RocketMQError
            No broker of the topic knows, or can be reached.
        """
        request = GetConsumerListByGroupRequest(consumer_group=self._group)
        failure: RocketMQError = RouteError("no broker of the topic took a heartbeat yet", topic=topic)
        for addr in [addr for data in self._client.route(topic).brokers for addr in data]:
            if addr not in self._registered:
                continue
            try:
                deadline = self._client.deadline(min(_MEMBERS_MS, self._client.request_timeout_ms))
                answer = self._client.connection(addr).call(request, deadline=deadline)
                return decode_consumer_ids(answer.require(group=self._group).body)
            except RocketMQError as error:
                self._registered.pop(addr, None)  # its next heartbeat comes at once
                failure = error
        raise failure

    def lock(self, queues: Collection[MessageQueue]) -> frozenset[MessageQueue]:
        """Lock queues for this member for 60 s; return those that are locked now.

        Of a broker that cannot be reached none is.
        """
        locked: set[MessageQueue] = set()
        for addr, some in self._by_master(queues).items():
            try:
                deadline = self._client.deadline(self._client.request_timeout_ms)
                answer = self._client.connection(addr).call(
                    LockBatchMqRequest(), self._lock_body(some), deadline=deadline
                )
                found = decode_locked_queues(answer.require(addr=addr).body)
            except RocketMQError:
                continue
            plain = self._client.namespace.plain
            locked |= {MessageQueue(plain(q.topic), q.broker_name, q.queue_id) for q in found}
        return frozenset(locked)

    def unlock(self, queues: Collection[MessageQueue]) -> None:
        """Give locks back; at a broker that cannot be reached they end by themselves."""
        for addr, some in self._by_master(queues).items():
            try:
                self._client.connection(addr).post(UnlockBatchMqRequest(), self._lock_body(some))
            except RocketMQError:
                continue

    def leave(self, addr: str) -> None:
        """Unregister: the other members take over at once. Where that fails the closed connection tells."""
        if self._registered.pop(addr, None) is None:
            return
        request = UnregisterClientRequest(client_id=self.client_id, consumer_group=self._group)
        try:
            deadline = self._client.deadline(min(_MEMBERS_MS, self._client.request_timeout_ms))
            self._client.connection(addr).call(request, deadline=deadline).require(addr=addr)
        except RocketMQError:
            return

    def _take(self, command: Command, _: memoryview) -> None:
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            self._on_change()

    def _by_master(self, queues: Collection[MessageQueue]) -> dict[str, list[MessageQueue]]:
        placed: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            try:
                addr = self._client.queue_address(queue)
            except RocketMQError:
                continue
            placed.setdefault(addr, []).append(queue)
        return placed

    def _lock_body(self, queues: Collection[MessageQueue]) -> bytes:
        qualified = self._client.namespace.qualified
        named = [MessageQueue(qualified(q.topic), q.broker_name, q.queue_id) for q in queues]
        return encode_queue_lock(qualified(self._group), self.client_id, named)
