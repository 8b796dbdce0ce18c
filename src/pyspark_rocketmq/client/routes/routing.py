"""The cache of topics' routes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from pyspark_rocketmq.client.clock import Clock, Deadline
from pyspark_rocketmq.client.net.fork import ForkSafeLock, tell_after_fork
from pyspark_rocketmq.client.net.host import SYSTEM_HOST, Host, Outcome
from pyspark_rocketmq.client.routes.name_servers import NameServers
from pyspark_rocketmq.errors import (
    BrokerError,
    BrokerNotFoundError,
    NameServerError,
    RequestTimeoutError,
    RocketMQError,
    RouteError,
)
from pyspark_rocketmq.model import TopicRoute
from pyspark_rocketmq.model.arguments import require
from pyspark_rocketmq.model.names import is_system_topic
from pyspark_rocketmq.planning.topics.missing_topic import SeenBroker, no_broker, why_missing
from pyspark_rocketmq.remoting.namespace import NO_NAMESPACE, Namespace

__all__ = ["RouteCache", "users_topics"]

_REMEMBERED_S: Final = 600.0
"""A broker that no name server has known for this long counts as retired."""


class RouteCache:
    """Routes by topic, cached for ``ttl_ms``. Concurrent lookups of one topic share one request.

    An expired route is still used if no name server answers: brokers work without name servers.

    Parameters
    ----------
    name_servers : NameServers
    clock : Clock
    ttl_ms : int
        Option ``routeRefreshMs``.
    host : Host
    namespace : Namespace
        The names that errors propose are those of this namespace.
    """

    def __init__(
        self,
        name_servers: NameServers,
        *,
        clock: Clock,
        ttl_ms: int = 30_000,
        host: Host = SYSTEM_HOST,
        namespace: Namespace = NO_NAMESPACE,
    ) -> None:
        self._name_servers = name_servers
        self._clock = clock
        self._host = host
        self._ttl_s = ttl_ms / 1000
        self._namespace = namespace
        self._lock = ForkSafeLock()
        tell_after_fork(self)
        self._known: dict[str, tuple[TopicRoute, float]] = {}
        self._stale: set[str] = set()
        self._ever_known: set[str] = set()
        self._had: dict[str, dict[str, float]] = {}
        self._seen: dict[str, SeenBroker] = {}
        self._looking: dict[str, Outcome[TopicRoute | None]] = {}

    def after_fork(self) -> None:
        """Drop pending lookups of the parent process: they are never completed in the child."""
        self._looking = {}

    def get(self, topic: str, *, deadline: Deadline) -> TopicRoute:
        """Return the topic's route.

        Raises
        ------
        TopicNotFoundError
            Brokers are registered, and none has the topic.
        BrokerNotFoundError
            No broker is registered, or none of those that had the topic: they are down, or the name servers
            have restarted.
        NameServerError
            No name server answers, and no route is cached.
        """
        route = self.find_many((topic,), deadline=deadline)[topic]
        if route is None:
            raise self.why_missing(topic, deadline=deadline)
        return route

    def no_broker(self) -> BrokerNotFoundError:
        """Return the error for name servers that know no broker, with the brokers that were in routes."""
        with self._lock:
            seen = tuple(self._seen.values())
        return no_broker(seen, name_server=";".join(self._name_servers.addresses))

    def why_missing(
        self, topic: str, *, deadline: Deadline, registered: frozenset[str] | None = None
    ) -> RouteError:
        """Ask the name servers why a topic has no route, and return the error that says it.

        Parameters
        ----------
        topic : str
        deadline : Deadline
        registered : frozenset of str, optional
            The brokers that are registered, if the caller has just asked for them.

        Raises
        ------
        NameServerError
        """
        return self._why_missing((topic,), deadline, registered)[topic]

    def _why_missing(
        self, missing: Collection[str], deadline: Deadline, registered: frozenset[str] | None = None
    ) -> dict[str, RouteError]:
        with self._lock:
            seen = dict(self._seen)
            homes = {
                topic: [seen[name] for name in self._had.get(topic, ()) if name in seen] for topic in missing
            }
        topics: tuple[str, ...] = ()
        try:
            if registered is None:
                registered = self._name_servers.fetch_registered_brokers(deadline=deadline)
            # Only then may a topic be missing. The list may be long, and a known topic is looked up often.
            if registered and any(
                registered.issuperset(each.broker_name for each in own) for own in homes.values()
            ):
                names = self._name_servers.topics(deadline=deadline)
                topics = users_topics(names, registered, self._namespace)
        except BrokerError:  # a managed endpoint may forbid these requests
            registered = None
        return {
            topic: why_missing(
                topic,
                registered=registered,
                homes=own,
                seen=seen.values(),
                topics=topics,
                name_server=";".join(self._name_servers.addresses),
            )
            for topic, own in homes.items()
        }

    def get_served(self, topics: Iterable[str], *, deadline: Deadline) -> dict[str, TopicRoute]:
        """Return the routes of topics that are in use: as `get`, but patient.

        Whoever holds a queue of a topic uses this: the topic existed.

        Raises
        ------
        BrokerNotFoundError
            No broker is registered, or a topic that had a route has none now: name servers forget it while
            its only broker restarts. Or the name servers are down, too.
        TopicNotFoundError, NameServerError
        """
        routes: dict[str, TopicRoute] = {}
        for topic, found in self.try_served(topics, deadline=deadline).items():
            if isinstance(found, RouteError):
                raise found
            routes[topic] = found
        return routes

    def try_served(self, topics: Iterable[str], *, deadline: Deadline) -> dict[str, TopicRoute | RouteError]:
        """Return for each topic in use its route, or the error that `get_served` raises."""
        names = tuple(dict.fromkeys(topics))
        try:
            found = self.find_many(names, deadline=deadline)
        except NameServerError as error:
            known = {topic: self.remembered(topic) for topic in names}
            return {topic: route or self._why_gone(topic, error) for topic, route in known.items()}
        missing = [topic for topic, route in found.items() if route is None]
        why: Mapping[str, RouteError] = {}
        try:
            if missing:
                why = self._why_missing(missing, deadline)
        except NameServerError as error:
            why = dict.fromkeys(missing, error)
        return {topic: route or self._why_gone(topic, why[topic]) for topic, route in found.items()}

    def _why_gone(self, topic: str, error: RouteError) -> RouteError:
        """Return the error for a topic in use: one that had a route may get it back."""
        with self._lock:
            known = topic in self._ever_known
        if not known or isinstance(error, BrokerNotFoundError):
            return error
        gone = BrokerNotFoundError(
            f"the topic's route is gone: its brokers are down, or it was deleted ({error.message})",
            **{"topic": topic} | error.facts,
        )
        gone.__cause__ = error
        return gone

    def fresh(self, topic: str) -> TopicRoute | None:
        """Return the topic's route if it is cached and good, without requests."""
        with self._lock:
            known = self._known.get(topic)
            if known is None or topic in self._stale or self._clock.monotonic() >= known[1]:
                return None
            return known[0]

    def remembered(self, topic: str) -> TopicRoute | None:
        """Return the topic's last known route, without requests."""
        with self._lock:
            known = self._known.get(topic)
        return None if known is None else known[0]

    def find_many(self, topics: Iterable[str], *, deadline: Deadline) -> dict[str, TopicRoute | None]:
        """Return the routes of several topics, None for those that have none."""
        names = tuple(dict.fromkeys(require(topic, str, "topic", must="a text") for topic in topics))
        routes: dict[str, TopicRoute | None] = {}
        mine: dict[str, Outcome[TopicRoute | None]] = {}
        others: dict[str, Outcome[TopicRoute | None]] = {}
        with self._lock:
            now = self._clock.monotonic()
            for topic in names:
                known = self._known.get(topic)
                if known is not None and topic not in self._stale and now < known[1]:
                    routes[topic] = known[0]
                elif topic in self._looking:
                    others[topic] = self._looking[topic]
                else:
                    mine[topic] = self._looking[topic] = Outcome(self._host)
        if mine:
            routes.update(self._look_up(mine, deadline))
        for topic, outcome in others.items():
            try:
                routes[topic] = outcome.get(deadline.remaining_s)
            except TimeoutError as cause:
                raise RequestTimeoutError("no route in time", topic=topic) from cause
            except RocketMQError as error:
                raise error.with_facts() from error.__cause__  # the others that wait get it, too
        return routes

    def invalidate(self, topic: str) -> None:
        """Invalidate the topic's route: it is looked up again on next use."""
        with self._lock:
            self._stale.add(topic)

    def invalidate_all(self) -> None:
        """Invalidate every route: it is looked up again on next use."""
        with self._lock:
            self._stale.update(self._known)

    def forget(self, topic: str) -> None:
        """Remove the topic from the cache: it was deleted intentionally."""
        with self._lock:
            self._known.pop(topic, None)
            self._ever_known.discard(topic)
            self._had.pop(topic, None)

    def missing_brokers(self, topic: str) -> frozenset[str]:
        """Return the brokers that had the topic in the last ten minutes but are not in its route now.

        They or the name servers are restarting, or they were retired: time, and
        `NameServers.fetch_registered_brokers`, show which.
        """
        with self._lock:
            oldest = self._clock.monotonic() - _REMEMBERED_S
            had = {name for name, seen in self._had.get(topic, {}).items() if seen >= oldest}
            known = self._known.get(topic)
        return frozenset(had.difference(data.broker_name for data in known[0].queues) if known else had)

    def forget_brokers(self, topic: str, broker_names: Iterable[str]) -> None:
        """Remove the topic from these brokers' history."""
        with self._lock:
            for name in broker_names:
                self._had.get(topic, {}).pop(name, None)

    def _look_up(
        self, mine: dict[str, Outcome[TopicRoute | None]], deadline: Deadline
    ) -> dict[str, TopicRoute | None]:
        """Send the request and pass the outcome to all callers that wait for it."""
        try:
            found = self._name_servers.routes(tuple(mine), deadline=deadline)
        except NameServerError as error:
            with self._lock:
                found = {topic: self._known[topic][0] for topic in mine if topic in self._known}
            if len(found) < len(mine):
                self._settle(mine, error)
                raise
        except RocketMQError as error:
            self._settle(mine, error)
            raise
        except BaseException:  # a Ctrl-C is this thread's: the others look again
            self._settle(mine, RequestTimeoutError("the look-up of the route was interrupted"))
            raise
        now, moment = self._clock.monotonic(), self._clock.now_ms()
        with self._lock:
            for topic, route in found.items():
                self._stale.discard(topic)
                self._known.pop(topic, None)
                if route is not None:
                    self._known[topic] = (route, now + self._ttl_s)
                    self._ever_known.add(topic)
                    self._had.setdefault(topic, {}).update((data.broker_name, now) for data in route.queues)
                    self._seen |= {
                        data.broker_name: SeenBroker(data.broker_name, next(iter(data), None), moment)
                        for data in route.brokers
                    }
        self._settle(mine, found)
        return found

    def _settle(
        self,
        mine: dict[str, Outcome[TopicRoute | None]],
        outcome: dict[str, TopicRoute | None] | RocketMQError,
    ) -> None:
        with self._lock:
            for topic in mine:
                del self._looking[topic]
        for topic, waiting in mine.items():
            if isinstance(outcome, RocketMQError):
                waiting.fail(outcome)
            else:
                waiting.settle(outcome[topic])


def users_topics(
    names: Iterable[str], brokers: Collection[str], namespace: Namespace = NO_NAMESPACE
) -> tuple[str, ...]:
    """Return the plain names of those topics on a server that are of the namespace and of users."""
    return tuple(
        namespace.plain(name)
        for name in names
        if namespace.holds(name) and not is_system_topic(name) and name not in brokers
    )
