"""The dashboard's data of a RocketMQ cluster, polled every few seconds for all viewers together."""

from __future__ import annotations

import threading
from typing import Any, Final

from pyspark_rocketmq.client.admin import Admin
from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock
from pyspark_rocketmq.client.groups.group_lag import group_lag, group_topics, held_messages
from pyspark_rocketmq.errors import NameServerError, RocketMQError
from pyspark_rocketmq.options import ClientOptions

__all__ = ["ClusterView"]

_FRESH_S: Final = 5.0
_OPERATION_TIMEOUT_MS: Final = 2_000
_MOST_GROUPS: Final = 40
_MOST_TOPICS: Final = 200


class ClusterView:
    """Topics, groups and brokers, at most a few seconds old. Read-only.

    Parameters
    ----------
    options : ClientOptions
    dead_letters : str, optional
        A topic whose messages are counted separately, as dead letters.
    clock : Clock
    """

    def __init__(
        self, options: ClientOptions, *, dead_letters: str | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._client = Client(options, operation_timeout_ms=_OPERATION_TIMEOUT_MS, clock=clock)
        self._dead_letters = dead_letters
        self._clock = clock
        self._lock = threading.Lock()
        self._state: dict[str, Any] = {}
        self._asked_s = float("-inf")

    def state(self) -> dict[str, Any]:
        """Return the cluster as plain values. A request that failed is reported as ``error``."""
        with self._lock:
            if self._clock.monotonic() - self._asked_s > _FRESH_S:
                self._state = self._ask()
                self._asked_s = self._clock.monotonic()
            return self._state

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _ask(self) -> dict[str, Any]:
        told: dict[str, Any] = {"at": self._clock.now_ms(), "error": None}
        parts = {"brokers": self._brokers, "topics": self._topics, "groups": self._groups}
        told |= {name: [] for name in parts}
        for name, ask in parts.items():
            try:
                told[name] = ask()
            except NameServerError as error:  # then no other request can succeed either
                told["error"] = str(error)
                break
            except RocketMQError as error:
                told["error"] = str(error)
        if self._dead_letters is not None:
            counted = [topic["messages"] for topic in told["topics"] if topic["topic"] == self._dead_letters]
            told["deadLetters"] = {"topic": self._dead_letters, "messages": sum(counted)}
        return told

    def _brokers(self) -> list[dict[str, Any]]:
        admin = Admin(self._client)
        rows = []
        for name, data in sorted(admin.cluster_info().brokers.items()):
            facts = admin.broker_runtime_info(name)
            rows.append(
                {
                    "broker": name,
                    "cluster": data.cluster,
                    "address": ", ".join(data.addresses.values()),
                    "version": facts.get("brokerVersionDesc", ""),
                    "inPerSecond": _rate(facts.get("putTps")),
                    "outPerSecond": _rate(facts.get("getTransferredTps") or facts.get("getTransferedTps")),
                    "diskRatio": _rate(facts.get("commitLogDiskRatio")),
                }
            )
        return rows

    def _topics(self) -> list[dict[str, Any]]:
        held = held_messages(self._client, Admin(self._client).topics()[:_MOST_TOPICS])
        return [
            {"topic": topic, "queues": len(queues), "messages": sum(queues.values())}
            for topic, queues in held.items()
        ]

    def _groups(self) -> list[dict[str, Any]]:
        client, rows = self._client, []
        for group in sorted(Admin(client).groups())[:_MOST_GROUPS]:
            topics = group_topics(client, group)
            if topics:
                lag = sum(row.lag for row in group_lag(client, group, topics))
                rows.append({"group": group, "topics": ", ".join(topics), "lag": lag})
        return rows


def _rate(text: str | None) -> float | None:
    """Return the first number of a broker's report: its rate over the last ten seconds."""
    try:
        return float((text or "").split()[0])
    except (IndexError, ValueError):
        return None
