"""The dashboard's data of a RocketMQ cluster, polled every few seconds for all viewers together."""

from __future__ import annotations

import threading
from typing import Any, Final

from pyspark_rocketmq.client.admin import Admin
from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock
from pyspark_rocketmq.client.groups.group_lag import OnAway, count_messages, group_totals
from pyspark_rocketmq.errors import RocketMQError, RouteError
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
        """Return the cluster as plain values.

        A broker that does not answer is named in ``away``; the others are shown without it. A request that
        failed otherwise is reported as ``error``.
        """
        with self._lock:
            if self._clock.monotonic() - self._asked_s > _FRESH_S:
                self._state = self._ask()
                self._asked_s = self._clock.monotonic()
            return self._state

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _ask(self) -> dict[str, Any]:
        away: dict[str, str] = {}

        def on_away(name: str, cause: RocketMQError) -> None:
            away.setdefault(name, cause.message)

        told: dict[str, Any] = {"at": self._clock.now_ms(), "error": None}
        parts = {"brokers": self._brokers, "topics": self._topics, "groups": self._groups}
        told |= {name: [] for name in parts}
        for name, ask in parts.items():
            try:
                told[name] = ask(on_away)
            except RouteError as error:  # then no other request can succeed either
                told["error"] = str(error)
                break
            except RocketMQError as error:
                told["error"] = str(error)
        told["away"] = [{"broker": name, "cause": away[name]} for name in sorted(away)]
        if self._dead_letters is not None:
            counted = [topic["messages"] for topic in told["topics"] if topic["topic"] == self._dead_letters]
            told["deadLetters"] = {"topic": self._dead_letters, "messages": sum(counted)}
        return told

    def _brokers(self, on_away: OnAway) -> list[dict[str, Any]]:
        admin = Admin(self._client)
        infos = admin.runtime_infos(on_away=on_away)
        rows = []
        for name, data in sorted(admin.cluster_info().brokers.items()):
            facts = infos.get(name, {})
            rows.append(
                {
                    "broker": name,
                    "cluster": data.cluster,
                    "address": ", ".join(data.addresses.values()),
                    "version": facts.get("brokerVersionDesc", "") if name in infos else "does not answer",
                    "inPerSecond": _rate(facts.get("putTps")),
                    "outPerSecond": _rate(facts.get("getTransferredTps") or facts.get("getTransferedTps")),
                    "diskRatio": _rate(facts.get("commitLogDiskRatio")),
                }
            )
        return rows

    def _topics(self, on_away: OnAway) -> list[dict[str, Any]]:
        names = Admin(self._client).topics()[:_MOST_TOPICS]
        return [
            {"topic": topic, "queues": len(queues), "messages": sum(queues.values())}
            for topic, queues in count_messages(self._client, names, on_away=on_away).items()
        ]

    def _groups(self, on_away: OnAway) -> list[dict[str, Any]]:
        names = sorted(Admin(self._client).groups(on_away=on_away))[:_MOST_GROUPS]
        return [
            {"group": total.group, "topics": ", ".join(total.topics), "lag": total.lag}
            for total in group_totals(self._client, names, on_away=on_away)
        ]


def _rate(text: str | None) -> float | None:
    """Return the first number of a broker's report: its rate over the last ten seconds."""
    try:
        return float((text or "").split()[0])
    except (IndexError, ValueError):
        return None
