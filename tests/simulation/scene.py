"""A fault, and what it acts on."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.simulation.cluster import Cluster
from tests.simulation.history import History
from tests.simulation.network import Network
from tests.simulation.servers import Server

from pyspark_rocketmq.model import MessageQueue

__all__ = ["Fault", "Scene"]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong.

    Parameters
    ----------
    at_s : float
    kind : str
    lasts_s : float
    dice : int
        Chooses where and how, among what is there at that moment.
    """

    at_s: float
    kind: str
    lasts_s: float
    dice: int

    def __str__(self) -> str:
        return f"{self.kind}, for {self.lasts_s:.1f} s"


@dataclass(frozen=True, slots=True)
class Scene:
    """What a fault acts on."""

    cluster: Cluster
    network: Network
    history: History
    topic: str
    processes: tuple[str, ...]
    finished: Callable[[], Mapping[MessageQueue, int]]
    """Returns where the query has come to, for what may be deleted."""
    deletes: bool
    """Whether messages may be deleted that were not read."""
    jump: Callable[[int], None]
    """Sets the clock of the query's driver: how far it is ahead (ms)."""
    fault: Fault
    chance: random.Random

    def server(self) -> Server:
        """Draw a server."""
        return self.chance.choice(self.cluster.all_servers)

    def broker(self) -> str:
        """Draw a broker."""
        return self.chance.choice(self.cluster.brokers)

    def queue(self) -> MessageQueue:
        """A broker's queue; of a static topic, a physical one."""
        return self.chance.choice(
            [
                MessageQueue(self.topic, name, queue_id)
                for name, store in self.cluster.stores.items()
                if self.topic in store.topics
                for queue_id in range(store.topics[self.topic].read_queues)
            ]
        )
