"""A simulated name server."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.servers import Server

from pyspark_rocketmq.inventory import TopicConfig
from pyspark_rocketmq.testing.handlers.admin_requests import Registry

__all__ = ["NameServer"]


@dataclass(slots=True)
class NameServer:
    """What a name server was told, and when. It forgets everything when it restarts."""

    server: Server
    registry: Registry
    seen: dict[tuple[str, int], float]
    changed: dict[str, float] = field(default_factory=dict)
    """When it last heard of other topics of a broker than before."""

    def forget(self) -> None:
        """Restart."""
        self.registry.brokers.clear()
        self.seen.clear()

    def has(self, broker: str, config: TopicConfig) -> bool:
        """Whether these are the last settings of a topic that it had from a broker."""
        store = self.registry.stores.get(broker)
        return store is not None and store.topics.get(config.topic) == config

    def knows(self, broker: str, config: TopicConfig, since_s: float) -> bool:
        """Whether it runs, and has had a topic's settings at a broker since then."""
        return self.has(broker, config) and self.server.running and self.changed[broker] <= since_s
