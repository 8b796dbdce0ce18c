"""Membership in a consumer group: heartbeats, the list of members, queue locks."""

# Facts (MQClientInstance, RebalanceImpl, ConsumerManager, RebalanceLockManager; 5.4.0 and 4.9.7)
# - A consumer is registered by connection: when the connection closes, the broker removes the consumer and
#   notifies the others (NOTIFY_CONSUMER_IDS_CHANGED). A member sends a heartbeat to every server, slaves
#   included, every 30 s; a broker removes a member after 120 s without one.
# - The list of members is requested from one broker of the topic; code 1: no member is registered there.
# - A lock expires after 60 s at the broker; Java renews it every 20 s and relies on it for 30 s. Brokers keep
#   locks in memory: one that restarts gives them to whoever asks first.
# - The first heartbeat creates the group's topic %RETRY%group.

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Collection, Mapping
from typing import Final

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.net.connection import Connection
from pyspark_rocketmq.client.net.host import SYSTEM_HOST, Host
from pyspark_rocketmq.client.queue_requests import gravest
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

_LOG: Final = logging.getLogger(__name__)

_UNIQUE_BITS: Final = 48
_MEMBERS_MS: Final = 3_000
"""The timeout for listing the members, and for unregistering."""


def create_client_id(number: int, machine: Host = SYSTEM_HOST) -> str:
    """Return a member's id in Java's form, ``ip@pid#number``; ``number`` makes it unique in the process."""
    return f"{machine.address()}@{machine.process_id()}#{number & ((1 << _UNIQUE_BITS) - 1)}"


class Membership:
    """One member of one group, with a separate client. Thread-safe.

    Parameters
    ----------
    client : Client
        Not shared with another member: brokers distinguish members by connection.
    group, client_id : str
    subscriptions : Mapping
        The member's subscriptions by topic; they must be the same for all members of a group.
    broadcasting : bool
    start : str
        ``consumeFromWhere`` of the heartbeat.
    on_change : Callable
        Called from a connection's reader thread when members joined or left. Must return immediately.
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
        self._locked_by: dict[MessageQueue, weakref.ref[Connection]] = {}
        names = client.namespace
        self._heartbeat = encode_heartbeat(
            client_id,
            consumer_groups=(names.qualify(group),),
            subscriptions={names.qualify(topic): s for topic, s in self._subscriptions.items()},
            subscription_version=client.clock.now_ms(),
            consume_type="CONSUME_PASSIVELY",
            message_model="BROADCASTING" if broadcasting else "CLUSTERING",
            consume_from_where=start,
        )

    def send_heartbeat(self, addr: str, *, again: bool) -> bool:
        """Send a heartbeat to a broker's server: always with ``again``, else only on a new connection.

        Returns
        -------
        bool
            Whether the server did not know this member before.

        Raises
        ------
        RocketMQError
            The server cannot be reached, or rejects the heartbeat.
        """
        known = self._registered.get(addr)
        try:
            connection = self._client.connection(addr)
            new = known is None or known() is not connection
            if new or again:
                connection.on_request = self._take
                deadline = self._client.deadline(self._client.request_timeout_ms)
                connection.call(HeartbeatRequest(), self._heartbeat, deadline=deadline).require()
                self._registered[addr] = weakref.ref(connection)
        except RocketMQError:
            self._registered.pop(addr, None)
            raise
        return new

    def is_registered(self, addrs: Collection[str]) -> bool:
        """Whether one of the servers accepted its last heartbeat."""
        return not self._registered.keys().isdisjoint(addrs)

    def members(self, topic: str) -> tuple[str, ...]:
        """Return the ids of the group's members, sorted, as a broker of the topic reports them.

        Requests go only to brokers that accepted this member's heartbeat: other brokers may not know all
        members, and a broker that is down would delay the call.

        Raises
        ------
        RocketMQError
            No broker of the topic can answer or be reached.
        """
        request = GetConsumerListByGroupRequest(consumer_group=self._group)
        failure: RocketMQError = RouteError("no broker of the topic accepted a heartbeat yet", topic=topic)
        for addr in [addr for data in self._client.served_route(topic).brokers for addr in data]:
            if addr not in self._registered:
                continue
            try:
                deadline = self._client.deadline(min(_MEMBERS_MS, self._client.request_timeout_ms))
                answer = self._client.connection(addr).call(request, deadline=deadline)
                return decode_consumer_ids(answer.require(group=self._group).body)
            except RocketMQError as error:
                self._registered.pop(addr, None)  # its next heartbeat is sent immediately
                failure = error
        raise failure

    def lock(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, bool]:
        """Lock queues for this member for 60 s; return for each queue whether it is, or another member's.

        Queues of a broker that cannot be reached, or refuses, are not in the result: a warning tells it.
        """
        answers: dict[MessageQueue, bool] = {}
        for addr, some in self._by_master(queues).items():
            try:
                deadline = self._client.deadline(self._client.request_timeout_ms)
                connection = self._client.connection(addr)
                answer = connection.call(LockBatchMqRequest(), self._lock_body(some), deadline=deadline)
                found = decode_locked_queues(answer.require().body)
            except RocketMQError as error:
                text = "group %s: no lock of a queue, without which no ordered call begins: %s"
                told, about = (self._group, error), (addr, type(error))
                self._client.warnings.warn(_LOG, text, *told, about=about)
                continue
            plain = self._client.namespace.plain
            locked = {MessageQueue(plain(q.topic), q.broker_name, q.queue_id) for q in found}
            answers |= {queue: queue in locked for queue in some}
            self._locked_by |= dict.fromkeys(some, weakref.ref(connection))
        return answers

    def keeps_lock(self, queue: MessageQueue) -> bool:
        """Whether the connection that the queue was locked by is open: else its broker may have restarted."""
        reference = self._locked_by.get(queue)
        connection = None if reference is None else reference()
        if connection is None:
            return False
        connection.poll()  # no other thread may read now
        return connection.alive

    def unlock(self, queues: Collection[MessageQueue]) -> None:
        """Release locks, and wait for it: a broker may execute first what is sent after it, such as a lock.

        Where the broker has no address now, locks expire.

        Raises
        ------
        RocketMQError
            A broker does not answer; the others have released theirs.
        """
        failures: list[RocketMQError] = []
        for addr, some in self._by_master(queues).items():
            try:
                deadline = self._client.deadline(min(_MEMBERS_MS, self._client.request_timeout_ms))
                answer = self._client.connection(addr).call(
                    UnlockBatchMqRequest(), self._lock_body(some), deadline=deadline
                )
                answer.require(group=self._group)
            except RocketMQError as error:
                failures.append(error)
        if failures:
            raise gravest(failures)

    def leave(self, addr: str) -> None:
        """Unregister, so that others take over immediately. On failure, the closed connection does it."""
        if self._registered.pop(addr, None) is None:
            return
        request = UnregisterClientRequest(client_id=self.client_id, consumer_group=self._group)
        try:
            deadline = self._client.deadline(min(_MEMBERS_MS, self._client.request_timeout_ms))
            self._client.connection(addr).call(request, deadline=deadline).require()
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
        qualified = self._client.namespace.qualify
        named = [MessageQueue(qualified(q.topic), q.broker_name, q.queue_id) for q in queues]
        return encode_queue_lock(qualified(self._group), self.client_id, named)
