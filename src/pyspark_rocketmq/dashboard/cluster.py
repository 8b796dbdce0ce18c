"""The dashboard's data of a RocketMQ cluster, polled every few seconds for all viewers together."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any, Final

from pyspark_rocketmq.client.admin import Admin
from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock
from pyspark_rocketmq.client.groups.group_lag import OnAway, count_messages, group_totals
from pyspark_rocketmq.client.routes.known_brokers import KnownBrokers
from pyspark_rocketmq.errors import BrokerNotFoundError, RocketMQError, RouteError
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
        self._known = KnownBrokers(clock)
        self._state: dict[str, Any] = {}
        self._asked_s = float("-inf")
        self._there: dict[str, int] = {}
        """How many topics and groups there are, with those that are not shown."""

    def state(self) -> dict[str, Any]:
        """Return the cluster as plain values.

        A broker that does not answer, or refuses to, is named in ``away`` with the cause; the others are
        shown without it. A request that failed otherwise is reported as ``error``. The first 200 topics and
        40 groups are shown, of those that are ``there``.
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
            away.setdefault(name, str(cause))

        told: dict[str, Any] = {"at": self._clock.now_ms(), "error": None}
        parts: dict[str, Callable[[OnAway], Any]] = {
            "brokers": self._brokers,
            "topics": self._topics,
            "groups": self._groups,
        }
        told |= {name: [] for name in parts}
        if self._dead_letters is not None:
            told["deadLetters"] = {"topic": self._dead_letters, "messages": None}
            parts["deadLetters"] = self._count_dead_letters
        for name, ask in parts.items():
            try:
                told[name] = ask(on_away)
            except RouteError as error:  # then no other request can succeed either
                told["error"] = str(error)
                break
            except RocketMQError as error:
                told["error"] = str(error)
        told["there"] = dict(self._there)
        told["away"] = [{"broker": name, "cause": away[name]} for name in sorted(away)]
        return told

    def _brokers(self, on_away: OnAway) -> list[dict[str, Any]]:
        admin = Admin(self._client)
        brokers = admin.cluster_info().brokers
        for name in self._known.find_missing(brokers):
            on_away(name, BrokerNotFoundError("no name server knows it any more: it is down, or was removed"))
        infos = admin.runtime_infos(on_away=on_away)
        rows = []
        for name, data in sorted(brokers.items()):
            facts = infos.get(name, {})
            rows.append(
                {
                    "broker": name,
                    "cluster": data.cluster,
                    "address": ", ".join(data.addresses.values()),
                    "version": facts.get("brokerVersionDesc", "unknown"),
                    "inPerSecond": _rate(facts.get("putTps")),
                    "outPerSecond": _rate(facts.get("getTransferredTps") or facts.get("getTransferedTps")),
                    "diskRatio": _rate(facts.get("commitLogDiskRatio")),
                }
            )
        return rows

    def _topics(self, on_away: OnAway) -> list[dict[str, Any]]:
        names = Admin(self._client).topics()
        self._there["topics"] = len(names)
        names = names[:_MOST_TOPICS]
        return [
            {"topic": topic, "queues": len(queues), "messages": sum(queues.values())}
            for topic, queues in count_messages(self._client, names, on_away=on_away).items()
        ]

    def _groups(self, on_away: OnAway) -> list[dict[str, Any]]:
        names = sorted(Admin(self._client).groups(on_away=on_away))
        self._there["groups"] = len(names)
        return [
            {"group": total.group, "topics": ", ".join(total.topics), "lag": total.lag}
            for total in group_totals(self._client, names[:_MOST_GROUPS], on_away=on_away)
        ]

    def _count_dead_letters(self, on_away: OnAway) -> dict[str, Any]:
        """Return the number of dead letters. Their topic may be none of `_topics`, as ``%DLQ%group``."""
        assert self._dead_letters is not None
        counted = count_messages(self._client, (self._dead_letters,), on_away=on_away)[self._dead_letters]
        return {"topic": self._dead_letters, "messages": sum(counted.values())}


def _rate(text: str | None) -> float | None:
    """Return the first number of a broker's report: its rate over the last ten seconds.

    A broker divides: what it reports may be NaN, which is no JSON.
    """
    try:
        rate = float((text or "").split()[0])
    except (IndexError, ValueError):
        return None
    return rate if math.isfinite(rate) else None
