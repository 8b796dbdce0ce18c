"""Decides what a topic without a route means: an outage of its brokers, or a topic that does not exist.

Name servers forget the topics of a broker that is down, and a restarted name server knows no broker for up to
30 s.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pyspark_rocketmq.errors import BrokerNotFoundError, RouteError, TopicNotFoundError
from pyspark_rocketmq.model.names import suggest_names

__all__ = ["SeenBroker", "no_broker", "why_missing"]

_LATEST: Final = 3
"""The number of brokers that an error names."""

_MOST_COMPARED: Final = 5_000
"""Above this number of topics, near names are not searched: the comparison would take seconds."""


@dataclass(frozen=True, slots=True)
class SeenBroker:
    """A broker that was in a route, and when that was last looked up (ms since the epoch)."""

    broker_name: str
    addr: str | None
    at_ms: int

    def __str__(self) -> str:
        moment = datetime.fromtimestamp(self.at_ms / 1000).astimezone()
        place = f" ({self.addr})" if self.addr else ""
        return f"{self.broker_name}{place} at {moment.isoformat(' ', 'seconds')}"


def why_missing(
    topic: str,
    *,
    registered: Collection[str] | None,
    homes: Iterable[SeenBroker] = (),
    seen: Iterable[SeenBroker] = (),
    topics: Sequence[str] = (),
    name_server: str | None = None,
) -> RouteError:
    """Return the error for a topic without a route.

    Parameters
    ----------
    registered : collection of str or None
        The brokers that name servers know now; None if they do not tell (a proxy).
    homes, seen : iterable of SeenBroker
        The brokers that had the topic, and all brokers, as far as the caller saw them.
    topics : sequence of str
        The topics that exist, as asked after ``registered``.

    Returns
    -------
    BrokerNotFoundError
        No broker is registered, or one that had the topic is not, or they have registered since the route
        was looked up: an outage, which may end or is over.
    TopicNotFoundError
        Brokers are registered, and none has the topic.
    """
    facts = {"topic": topic, "name_server": name_server}
    if registered is not None and not registered:
        return no_broker(seen, **facts)
    away = [each for each in homes if registered is not None and each.broker_name not in registered]
    if away:
        return BrokerNotFoundError(
            f"brokers that had the topic are not registered at the name servers{_last_seen(away)}", **facts
        )
    if topic in topics:
        return BrokerNotFoundError("the topic had no route: its brokers have just registered", **facts)
    guess = suggest_names(topic, topics) if len(topics) <= _MOST_COMPARED else ""
    missing = "the topic does not exist: no name server has a route to it"
    return TopicNotFoundError(f"{missing}; {guess}" if guess else missing, **facts)


def no_broker(seen: Iterable[SeenBroker], **facts: object) -> BrokerNotFoundError:
    """Return the error for name servers that know no broker."""
    return BrokerNotFoundError(f"no broker is registered at the name servers{_last_seen(seen)}", **facts)


def _last_seen(brokers: Iterable[SeenBroker]) -> str:
    """Return the text for the brokers that were seen last, the latest first."""
    latest = sorted(brokers, key=lambda each: (-each.at_ms, each.broker_name))[:_LATEST]
    return f"; last seen: {', '.join(map(str, latest))}" if latest else ""
