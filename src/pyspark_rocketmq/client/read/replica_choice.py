"""Which replica of a queue's broker to pull from."""

# Facts: suggestWhichBrokerId (DefaultMessageStore.getMessage) names a slave while a reader lags far and
# slaves may be read, else the master.

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_rocketmq.client.net.pull_lanes import LANES, PullChannel
from pyspark_rocketmq.errors import BrokerNotFoundError, NameServerError, RocketMQError
from pyspark_rocketmq.model import MASTER_ID, BrokerData, MessageQueue
from pyspark_rocketmq.planning.pulling.pull_concurrency import PullDepth

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client

__all__ = ["ReplicaChoice"]


class ReplicaChoice:
    """The choice of one reader for one queue: the suggested replica, else the master, else any other.

    Parameters
    ----------
    client : Client
    queue : MessageQueue
    """

    def __init__(self, client: Client, queue: MessageQueue) -> None:
        self.suggested = MASTER_ID
        """The broker id to prefer at the next `connect`."""
        self.at_master = True
        """Whether the last `connect` led to the master."""
        self.slave: PullChannel | None = None
        """The slave to which the last `connect` led."""
        self.master_is_known = True
        """Whether the route of the last `connect` had a master."""
        self._client = client
        self._queue = queue
        self._refused_by: set[str] = set()

    def connect(self, depth: PullDepth) -> PullChannel:
        """Connect to the suggested broker id, else the master, else a replica that did not fail us yet.

        Parameters
        ----------
        depth : PullDepth
            A proxy bounds it.

        Raises
        ------
        TransportError, RouteError
        """
        broker = self._broker()
        by_preference = sorted(broker.addresses, key=lambda i: (i != self.suggested, i != MASTER_ID, i))
        candidates = [i for i in by_preference if broker.addresses[i] not in self._refused_by]
        if not candidates:
            self._refused_by.clear()
            candidates = by_preference
        addr = broker.addresses[candidates[0]]
        self.at_master = candidates[0] == MASTER_ID
        self.master_is_known = MASTER_ID in broker.addresses
        if broker.behind_proxy:
            depth.bound(LANES)
        try:
            channel = self._client.pull_channel(addr, broker)
        except RocketMQError:
            self._refused_by.add(addr)
            raise
        self.slave = None if self.at_master else channel
        return channel

    def refuse(self, addr: str) -> None:
        """Try the other replicas before this one, until `forgive`."""
        self._refused_by.add(addr)

    def master_may_lack(self, missed: bool) -> bool:
        """Whether a failure leaves open if the master lacks messages: it said so, or a slave failed.

        A slave's word neither starts nor restarts the patience with the master, if there is one to ask next.
        """
        return (missed or not self.at_master) and self.master_is_known

    def forgive(self) -> None:
        """Forget which replicas failed."""
        self._refused_by.clear()

    def _broker(self) -> BrokerData:
        """Find the broker by the topic's route, or, if it is not there, among all brokers.

        A topic has no route when it was deleted, but also while its brokers are down. So only a broker that
        is there may say that it does not have the queue (any more).
        """
        name: str | None = self._queue.broker_name
        try:
            route = self._client.find_route(self._queue.topic)
            if route is not None:
                name = route.owner(self._queue)  # a static topic's queue moves
            broker = None if route is None or name is None else route.broker(name)
            if broker is None and name is not None:
                broker = self._client.find_broker(name)
        except NameServerError as error:  # they were there when the range was planned: worth waiting for
            raise BrokerNotFoundError(error.message, **error.facts) from error
        if broker is None or not broker.addresses:
            raise BrokerNotFoundError("the broker is known to no name server (now)", queue=str(self._queue))
        return broker
