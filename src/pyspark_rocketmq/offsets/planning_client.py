"""A client that also makes the requests of planning, and does not wait for brokers that are down."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Final, Self, TypeVar

from pyspark_rocketmq.client import requests as broker
from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock
from pyspark_rocketmq.client.net.host import SYSTEM_HOST, Host
from pyspark_rocketmq.client.net.pipelining import Call
from pyspark_rocketmq.client.read.samples import (
    MessageTimes,
    message_sizes,
    message_times,
    served,
    stored_at,
)
from pyspark_rocketmq.client.retry import RandomSource
from pyspark_rocketmq.client.routes.whole_routes import look_up
from pyspark_rocketmq.errors import (
    BrokerError,
    BrokerNotFoundError,
    RocketMQError,
    RouteError,
    TopicNotFoundError,
)
from pyspark_rocketmq.model import MessageQueue, MessageSelector
from pyspark_rocketmq.offsets.reachable import ReachableBrokers
from pyspark_rocketmq.options import ClientOptions

__all__ = ["OPERATION_TIMEOUT_MS", "Ends", "PlanningClient"]

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)

OPERATION_TIMEOUT_MS: Final = 10_000
"""The timeout of one-time requests, such as for the start of a query."""

_REASON_S: Final = 5.0
"""How long the reason why a topic has no route is kept: it takes the lists of all brokers and topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The max offsets of queues, as far as a broker answers.

    Parameters
    ----------
    masters : Mapping
        Max offsets as masters report them.
    slaves : Mapping
        Max offsets at readable slaves, for queues whose master is down. A slave may lag: the messages that it
        has can be read; the messages that it lacks are not evidence of loss.
    held : Mapping
        Max offsets at masters of queues that are not read now, because they end before their position.
    failed : Mapping
        The error for each queue without an end from its master.
    """

    masters: Mapping[MessageQueue, int] = field(default_factory=dict)
    slaves: Mapping[MessageQueue, int] = field(default_factory=dict)
    held: Mapping[MessageQueue, int] = field(default_factory=dict)
    failed: Mapping[MessageQueue, RocketMQError] = field(default_factory=dict)

    @property
    def readable(self) -> dict[MessageQueue, int]:
        """The offset up to which each queue can be read now."""
        return {**self.slaves, **self.masters}

    @property
    def seen(self) -> dict[MessageQueue, int]:
        """The queues whose master answered."""
        return {**self.held, **self.masters}

    def holding(self, queues: Iterable[MessageQueue]) -> Self:
        """Return these ends without the queues that must not be read now."""
        held = {queue: self.masters[queue] for queue in queues}
        masters = {queue: end for queue, end in self.masters.items() if queue not in held}
        return replace(self, masters=masters, held=held)


class PlanningClient(Client):
    """The client for planning. Caches the topic list as long as routes; knows which brokers are down."""

    def __init__(
        self,
        options: ClientOptions,
        *,
        clock: Clock = SYSTEM_CLOCK,
        random: RandomSource | None = None,
        host: Host = SYSTEM_HOST,
    ) -> None:
        # Gives up early: streams retry by themselves, and a user waits for the start of a batch.
        super().__init__(
            options, clock=clock, random=random, host=host, operation_timeout_ms=OPERATION_TIMEOUT_MS
        )
        self._topics: tuple[str, ...] = ()
        self._topics_expire = -math.inf
        self._masters = ReachableBrokers(self)
        self._slaves = ReachableBrokers(self, slaves=True)
        self._told: frozenset[str] = frozenset()
        self._missing: dict[str, tuple[RouteError, float]] = {}

    def close(self) -> None:
        """Close every connection."""
        self._masters.close()
        self._slaves.close()
        super().close()

    def topics(self) -> tuple[str, ...]:
        """Return the topics that patterns are compared with: all but those of brokers and clusters."""
        if self.clock.monotonic() >= self._topics_expire:
            try:
                from pyspark_rocketmq.client.admin import Admin  # noqa: PLC0415 - for topic patterns only
                from pyspark_rocketmq.client.admin_calls import internal_topics  # noqa: PLC0415

                names, hidden = Admin(self).topics(include_system=True), internal_topics(self)
                self._topics = tuple(name for name in names if name not in hidden)
            except RouteError as error:  # as with routes: brokers work without name servers
                if not self._topics:
                    raise
                _LOG.warning("the topics stay as they were: %s", error)
            self._topics_expire = self.clock.monotonic() + self.options.route_refresh_ms / 1000
        return self._topics

    def invalidate_all(self) -> None:
        """Invalidate all routes and the list of topics: they are looked up again on next use."""
        self._topics_expire = -math.inf
        self.routes.invalidate_all()

    def read_queues_again(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues, as `read_queues`. Why a topic has none may be five seconds old."""
        now_s = self.clock.monotonic()
        self._missing = {name: each for name, each in self._missing.items() if now_s < each[1]}
        if topic in self._missing and self.find_route(topic) is None:
            raise self._missing[topic][0].with_facts()
        try:
            return self.read_queues(topic)
        except (TopicNotFoundError, BrokerNotFoundError) as error:
            why = error.with_facts().with_traceback(None)
            why.__cause__ = why.__context__ = None
            self._missing[topic] = (why, now_s + _REASON_S)
            raise

    def broker_names(self) -> frozenset[str]:
        """Return the brokers that are registered now; none if a proxy answers."""
        try:
            return self.name_servers.fetch_registered_brokers(deadline=self.deadline()) or frozenset()
        except RocketMQError as error:
            _LOG.debug("the brokers are not known: %s", error)
            return frozenset()

    def look_up(self, topics: Iterable[str], *, whole: bool = False) -> None:
        """Look up routes together; ``whole``: wait for brokers that had a topic and are unknown now."""
        look_up(self, topics, whole=whole)

    def ends(
        self,
        queues: Iterable[MessageQueue],
        *,
        patience_ms: float | None = None,
        slave_group: str | None = None,
    ) -> Ends:
        """Return the max offsets from one pass; a broker that is down does not delay the others.

        With ``slave_group``, slaves that this group can read from replace masters that are down.
        """
        queues = tuple(queues)
        found = self._masters.ask({q: broker.max_offset(q) for q in queues}, patience_ms=patience_ms)
        failed = {queue: end for queue, end in found.items() if isinstance(end, RocketMQError)}
        self._tell({q.broker_name for q in queues}, {q.broker_name: error for q, error in failed.items()})
        return Ends(
            masters={queue: end for queue, end in found.items() if not isinstance(end, RocketMQError)},
            slaves=self._slave_ends(failed, slave_group) if slave_group is not None and failed else {},
            failed=failed,
        )

    def begins(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the min offsets of the queues whose masters answer, from one pass, as `ends`."""
        found = self._masters.ask({queue: broker.min_offset(queue) for queue in queues})
        return {queue: begin for queue, begin in found.items() if not isinstance(begin, RocketMQError)}

    def _slave_ends(self, queues: Iterable[MessageQueue], group: str) -> dict[MessageQueue, int]:
        """Return the max offsets at readable slaves for queues whose master is down."""
        found = self._slaves.ask({q: broker.max_offset(q) for q in queues if self._has_slave(q)})
        ends = {queue: end for queue, end in found.items() if not isinstance(end, RocketMQError) and end > 0}
        # slaveReadEnable=false: such a slave returns its offsets, but rejects every pull.
        probes = {queue.broker_name: queue for queue in ends}
        looks = self._slaves.ask({queue: _look(queue, ends[queue] - 1, group) for queue in probes.values()})
        open_at = {queue.broker_name for queue, look in looks.items() if not isinstance(look, RocketMQError)}
        return {queue: end for queue, end in ends.items() if queue.broker_name in open_at}

    def _has_slave(self, queue: MessageQueue) -> bool:
        """Whether a slave may replace the master.

        Only if the route has no master: tasks first pull from a master in the route, and may wait for it. The
        queues of a static topic wait: they have no fixed broker.
        """
        try:
            route = self.route(queue.topic)
        except RocketMQError:
            return False
        data = None if route.static_queues else route.broker(queue.broker_name)
        return data is not None and data.master is None and bool(data.addresses)

    def _tell(self, asked: Set[str], away: Mapping[str, RocketMQError]) -> None:
        for name in sorted(away.keys() - self._told):
            if isinstance(away[name], BrokerError) and not away[name].outage:
                _LOG.warning("broker %s refuses to tell the ends of its queues: %s", name, away[name])
            else:
                _LOG.warning("broker %s does not answer; its queues wait: %s", name, away[name])
        self._told = self._told - asked | away.keys()

    def message_times(
        self, offsets: Mapping[MessageQueue, int], group: str
    ) -> dict[MessageQueue, MessageTimes]:
        """Return the times of the messages at these offsets."""
        return message_times(_Once(self._masters, self._slaves), offsets, group=group)

    def stored_at(
        self, offsets: Mapping[MessageQueue, int], group: str
    ) -> tuple[Mapping[MessageQueue, int], Mapping[MessageQueue, RocketMQError]]:
        """Return the store times (ms) of the messages at exactly these offsets, where they exist.

        Also return the errors of the queues whose brokers do not answer.
        """
        asked = _Partly(self._masters)
        return stored_at(asked, offsets, group=group), asked.failed

    def served(self, offsets: Mapping[MessageQueue, int], group: str) -> frozenset[MessageQueue]:
        """Return the queues of which brokers return messages from these offsets on, whatever a route says."""
        return served(self, offsets, group=group) if offsets else frozenset()

    def message_sizes(
        self, offsets: Mapping[MessageQueue, int], group: str, selector: MessageSelector
    ) -> dict[MessageQueue, int]:
        """Return the bytes per offset, estimated from a sample at these offsets."""
        return message_sizes(_Once(self._masters, self._slaves), offsets, group=group, selector=selector)


@dataclass(frozen=True, slots=True)
class _Once:
    """Sends optional requests in one pass and raises the first error."""

    masters: ReachableBrokers
    slaves: ReachableBrokers | None = None
    """The slaves that answer for masters that are down."""

    def ask(self, calls: Mapping[MessageQueue, Call[T]], /) -> dict[MessageQueue, T]:
        """Make one call per queue and return every answer, or raise."""
        found = self.masters.ask(calls)
        # A request that a master rejects, for example without a permission, is not sent to a slave.
        away = {
            q: error for q, error in found.items() if isinstance(error, RocketMQError) and error.retriable
        }
        if self.slaves is not None and away:
            stand_ins = self.slaves.ask({queue: calls[queue] for queue in away})
            found.update(stand_ins)
        answers: dict[MessageQueue, T] = {}
        for queue, answer in found.items():
            if isinstance(answer, RocketMQError):
                raise answer
            answers[queue] = answer
        return answers


@dataclass(frozen=True, slots=True)
class _Partly:
    """Sends requests in one pass and keeps the errors."""

    masters: ReachableBrokers
    failed: dict[MessageQueue, RocketMQError] = field(default_factory=dict)

    def ask(self, calls: Mapping[MessageQueue, Call[T]], /) -> dict[MessageQueue, T]:
        """Make one call per queue and return the answers that there are."""
        answers: dict[MessageQueue, T] = {}
        for queue, answer in self.masters.ask(calls).items():
            if isinstance(answer, RocketMQError):
                self.failed[queue] = answer
            else:
                answers[queue] = answer
        return answers


def _look(queue: MessageQueue, offset: int, group: str) -> Call[broker.PullAnswer]:
    return broker.pull(queue, offset, group=group, max_nums=1, selector=MessageSelector())
