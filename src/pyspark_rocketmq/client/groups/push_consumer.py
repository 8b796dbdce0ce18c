"""A member of a consumer group with a listener, as Java's ``DefaultMQPushConsumer``."""

# Facts (DefaultMQPushConsumerImpl, RebalanceImpl, RebalancePushImpl; 5.4.0)
# - Each member computes the assignment itself, from the sorted list of members that a broker returns.
# - Members that share the queues read %RETRY%group too; broadcasting members read all queues.
# - An ordered queue is locked before its offset is requested, and unlocked after the last commit.

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, Self

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock
from pyspark_rocketmq.client.groups.membership import Membership, create_client_id
from pyspark_rocketmq.client.groups.push_delivery import Delivery, Listener, require_listener
from pyspark_rocketmq.client.groups.push_lane import BrokerLane, LaneMember
from pyspark_rocketmq.client.groups.push_options import PushOptions
from pyspark_rocketmq.client.groups.push_progress import FileProgress, GroupProgress, Progress, StartOffsets
from pyspark_rocketmq.client.groups.push_worker import QueueWorker, TakeRun
from pyspark_rocketmq.client.groups.threads import Event, Worker, wait_for_work
from pyspark_rocketmq.client.net.host import SYSTEM_HOST, Host
from pyspark_rocketmq.client.read.pull_consumer import as_selector
from pyspark_rocketmq.client.retry import RandomSource, retry
from pyspark_rocketmq.errors import OptionError, RocketMQError, TopicNotFoundError
from pyspark_rocketmq.model import MessageQueue, MessageSelector, TopicRoute
from pyspark_rocketmq.model.arguments import require
from pyspark_rocketmq.model.names import RETRY_PREFIX, retry_topic
from pyspark_rocketmq.options import ClientOptions
from pyspark_rocketmq.planning.assign import allocate

__all__ = ["PushConsumer"]

_LOG: Final = logging.getLogger(__name__)

_JOIN_S: Final = 5.0
_OPERATION_MS: Final = 5_000
"""The timeout of one step at a broker, after which the next step runs."""

_MANY: Final = 1e12
_LOOKUPS: Final = 10
"""How often a missing retry topic is looked up before the next rebalance (``rebalance_ms``)."""


class PushConsumer:
    """Reads topics as a member of a consumer group, together with other members, including Java clients.

    The group's members share the queues. When members join or leave, each member computes the new assignment:
    immediately if a broker notifies it, otherwise within ``rebalance_ms``. Brokers and topics are
    independent: while one broker is down, the queues of the others are read, committed and reassigned as
    usual.

    Delivery promise: at least once. Offsets are committed after messages are finished: every ``commit_ms``,
    when a queue is released, and when the consumer is closed. After a crash, messages that were finished
    since the last commit are delivered again. Queues that are added to a topic later are read from their
    first message. Broadcasting: see `PushOptions`.

    Parameters
    ----------
    group : str
    name_server : str or ClientOptions
        ``"host:port;host:port"``.
    options : PushOptions
    clock, random, host : optional
        Injected by tests.

    Examples
    --------
    >>> with PushConsumer("billing", "127.0.0.1:9876") as consumer:  # doctest: +SKIP
    ...     consumer.subscribe("orders", "paid || refunded")
    ...     consumer.start(lambda messages: print([message.body for message in messages]))
    ...     input("Press Enter to stop")
    """

    def __init__(
        self,
        group: str,
        name_server: str | ClientOptions,
        options: PushOptions | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        random: RandomSource | None = None,
        host: Host = SYSTEM_HOST,
    ) -> None:
        if not require(group, str, "the consumer group", must="a text"):
            raise OptionError("a push consumer needs a group")
        self.group = group
        self.options = require(options or PushOptions(), PushOptions, "options")
        self._client = Client(
            name_server, clock=clock, random=random, host=host, operation_timeout_ms=_OPERATION_MS
        )
        self._process_id, self.client_id = self._identify()
        self._subscriptions: dict[str, MessageSelector] = {}
        self._lanes: dict[str, BrokerLane] = {}
        self._ended_lanes: list[BrokerLane] = []
        self._known_routes: dict[str, TopicRoute] = {}
        self._wake = Event(host)
        self._ends = Event(host)
        self._rebalance_now = True
        self._unassigned: set[str] = set()
        self._lookups_left = _LOOKUPS
        self._rebalance_at = 0.0
        self._membership: Membership | None = None
        self._lane_member: LaneMember | None = None
        self._delivery: Delivery | None = None
        self._take_run: TakeRun | None = None
        self._thread: Worker | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def subscribe(self, topic: str, expression: str | MessageSelector = "*") -> None:
        """Subscribe to a topic, or to messages that match: ``"*"``, ``"TagA || TagB"``, or an SQL selector.

        All members of a group must have the same subscriptions.

        Raises
        ------
        OptionError
            The consumer is already started.
        """
        if self._thread is not None:
            raise OptionError("subscribe before start", topic=topic)
        self._subscriptions[require(topic, str, "topic", must="a text")] = as_selector(expression)

    def start(self, listener: Listener) -> None:
        """Join the group. The consumer's threads call the listener until `close`.

        Raises
        ------
        OptionError
            There is no subscription, the consumer was already started or closed, the listener cannot be
            called, or an SQL expression cannot be parsed.
        TopicNotFoundError, BrokerNotFoundError, NameServerError
            A topic does not exist, no broker was registered within the client's operation timeout, or no name
            server answers.
        """
        if self._thread is not None or not self._subscriptions:
            raise OptionError("call start() once, after subscribe()", group=self.group)
        if self._ends.is_set():
            raise OptionError("the consumer is closed: create another one", group=self.group)
        require_listener(listener)
        if self._is_inherited:  # created before a fork: each process is a member
            self._process_id, self.client_id = self._identify()
        options = self.options
        progress: Progress = GroupProgress(self._client, self.group)
        if options.broadcasting:
            progress = FileProgress(options.progress_file)
        start_offsets = StartOffsets(self._client, progress, options, self.group)
        for topic, selector in self._subscriptions.items():
            route = retry(
                functools.partial(self._client.route, topic),
                deadline=self._client.deadline(),
                clock=self._client.clock,
                random=self._client.random,
            )
            if any(data.behind_proxy for data in route.brokers):
                raise OptionError(
                    "a push consumer needs the name servers' address, not that of a proxy: the brokers do "
                    "not see members that connect through a proxy",
                    group=self.group,
                    topic=topic,
                )
            self._client.check_selector(selector, topic, group=self.group)
            start_offsets.record_queues(topic, route.read_queues())
        if not options.broadcasting:
            self._subscriptions[retry_topic(self.group)] = MessageSelector()
        self._delivery = Delivery(self._client, self.group, options, listener)
        self._membership = Membership(
            self._client,
            self.group,
            self.client_id,
            self._subscriptions,
            broadcasting=options.broadcasting,
            start=options.start.value,
            on_change=self.rebalance,
        )
        self._lane_member = LaneMember(
            client=self._client,
            group=self.group,
            options=options,
            membership=self._membership,
            progress=progress,
            start_offsets=start_offsets,
            make_worker=self._make_worker,
            on_registered=self.rebalance,
        )
        self._thread = Worker(self._client.host, self._run, name=f"push-{self.group}")
        self._thread.start()

    def start_runs(self, take: TakeRun) -> None:
        """Join the group as `start` does, but deliver the undecoded results of pulls.

        For callers that store messages before they decode them. ``worker.finish_run(run)`` finishes a result;
        until then its offsets are not committed.
        """
        self._take_run = take
        self.start(lambda _: None)

    def stop_pulling(self) -> None:
        """Stop pulling, but stay in the group until `close`, so that pending messages can be finished."""
        if self._thread is not None and self._is_inherited:
            return
        self._ends.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_JOIN_S)
        for lane in list(self._lanes.values()):
            lane.stop_pulling()

    def rebalance(self) -> None:
        """Rebalance now, in the background."""
        self._rebalance_now = True
        self._wake.set()

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues that this member owns now, sorted, including those of ``%RETRY%group``."""
        return tuple(sorted(queue for lane in list(self._lanes.values()) for queue in lane.queues))

    def take_warning(self) -> str:
        """Return the latest warning about what is retried, if one was logged since the last call."""
        return self._client.warnings.take_latest()

    def close(self, timeout_s: float = 10.0) -> None:
        """Leave the group: wait for running listener calls, commit, and notify the other members.

        Parameters
        ----------
        timeout_s : float
            How long to wait for the listener. Messages that are not finished by then are delivered again.

        In the listener, this returns at once: a thread closes the consumer when the call has returned. In a
        forked child, it does nothing to a consumer that the parent started: its threads are there.
        """
        if self._thread is not None and self._is_inherited:
            return
        self._ends.set()
        self._wake.set()
        if self._delivery is None or not self._delivery.is_calling:
            self._close(timeout_s)
            return
        for lane in list(self._lanes.values()):
            lane.stop_pulling()  # no call follows this one
        close = functools.partial(self._close, timeout_s)
        Worker(self._client.host, close, name=f"push-{self.group}-close").start()

    def _close(self, timeout_s: float) -> None:
        if self._thread is not None:
            self._thread.join(timeout_s + _JOIN_S)
        lanes = list(self._lanes.values())
        for lane in lanes:
            lane.stop_pulling()
        workers = [worker for lane in lanes for worker in lane.workers]
        if self._delivery is not None:
            self._delivery.close(workers, timeout_s)
        for lane in lanes:
            lane.finish()
        leaving = self._client.deadline(_JOIN_S * 1000)
        for lane in lanes:
            lane.join(leaving.remaining_s)
        self._client.close()  # wakes up the workers that wait for messages, and lanes of brokers that hang
        for lane in (*lanes, *self._ended_lanes):
            lane.join(_JOIN_S)
        for lane in lanes:
            lane.stop_pulling()
            for worker in lane.workers:
                worker.join(_JOIN_S)
        self._client.close()  # a worker may have connected again meanwhile
        self._lanes.clear()

    @property
    def _is_inherited(self) -> bool:
        return self._process_id != self._client.host.process_id()

    def _identify(self) -> tuple[int, str]:
        host = self._client.host
        return host.process_id(), create_client_id(int(self._client.random.uniform(0, _MANY)), host)

    def _make_worker(
        self, queue: MessageQueue, position: int, on_deferred: Callable[[], None]
    ) -> QueueWorker:
        assert self._delivery is not None
        assert self._membership is not None
        return QueueWorker(
            self._client,
            self.group,
            queue,
            position,
            selector=self._subscriptions[queue.topic],
            options=self.options,
            deliver=self._delivery,
            take_run=self._take_run,
            on_deferred=on_deferred,
            keeps_lock=functools.partial(self._membership.keeps_lock, queue),
        )

    # --- the rebalancing thread: it requests routes and the list of members, nothing else ---

    def _run(self) -> None:
        while not self._ends.is_set():
            try:
                self._rebalance_if_due()
            except Exception as error:  # noqa: BLE001 - the thread's outermost frame
                self._warn("rebalancing", error)
            wait_for_work(self._wake, self.options.rebalance_ms)

    def _rebalance_if_due(self) -> None:
        now = self._client.clock.monotonic()
        if self._rebalance_now or now >= self._rebalance_at:
            self._rebalance_now = False
            self._rebalance_at = now + self.options.rebalance_ms / 1000
            self._unassigned = set(self._subscriptions)
        routes = self._routes()
        self._place_lanes(routes)
        for topic, route in routes.items():
            if topic in self._unassigned:
                try:
                    self._assign_topic(topic, route)
                except RocketMQError as error:  # the member keeps its queues of the topic
                    self._warn(topic, error)

    def _routes(self) -> dict[str, TopicRoute]:
        """Return the routes of the topics that have one."""
        routes: dict[str, TopicRoute] = {}
        for topic in self._subscriptions:
            try:
                routes[topic] = self._client.route(topic)
            except TopicNotFoundError as error:
                if topic.startswith(RETRY_PREFIX) and self._lookups_left > 0:
                    self._lookups_left -= 1  # the first heartbeat creates it, if brokers may create groups
                    continue
                if topic in self._unassigned and not topic.startswith(RETRY_PREFIX):
                    self._warn(topic, error)
                self._unassigned.discard(topic)  # until the next rebalance
            except RocketMQError as error:
                self._warn(topic, error)
        return routes

    def _warn(self, name: str, error: Exception) -> None:
        text, trace = "group %s: %s; this is retried", not isinstance(error, RocketMQError)
        self._client.warnings.warn(_LOG, text, self.group, error, about=(name, type(error)), trace=trace)

    def _place_lanes(self, routes: Mapping[str, TopicRoute]) -> None:
        """Start a lane for each broker of the topics, which all get heartbeats; end unused lanes."""
        self._known_routes |= routes  # the brokers of a route that is missing now may still run
        addrs: dict[str, dict[str, None]] = {name: {} for name in self._lanes}
        for route in self._known_routes.values():
            for data in route.brokers:
                addrs.setdefault(data.broker_name, {}).update(dict.fromkeys(data))
        for name, servers in addrs.items():
            self._lane(name).set_addresses(servers)
        for name, lane in list(self._lanes.items()):
            if lane.unused:
                lane.finish()
                self._ended_lanes = [one for one in self._ended_lanes if not one.ended]
                self._ended_lanes.append(self._lanes.pop(name))

    def _lane(self, name: str) -> BrokerLane:
        if name not in self._lanes:
            assert self._lane_member is not None
            self._lanes[name] = BrokerLane(name, self._lane_member)
        try:
            self._lanes[name].start()
        except RuntimeError as error:  # the machine has no thread left now
            self._warn(name, error)
        return self._lanes[name]

    def _assign_topic(self, topic: str, route: TopicRoute) -> None:
        """Compute this member's queues of a topic and assign them to the lanes of their brokers."""
        membership = self._membership
        assert membership is not None
        everything = route.read_queues()
        mine = set(everything)
        if not self.options.broadcasting:
            if not membership.is_registered([addr for data in route.brokers for addr in data]):
                return  # the first broker that accepts a heartbeat calls `rebalance`
            members = membership.members(topic)
            if self.client_id not in members:  # a restarted broker gets the member with the next heartbeat
                for lane in self._lanes.values():
                    lane.request_heartbeat()
                return
            mine = set(allocate(self.options.allocate, everything, members, self.client_id))
        for name in sorted({*self._lanes, *(queue.broker_name for queue in mine)}):
            self._lane(name).assign(topic, {queue for queue in mine if queue.broker_name == name})
        self._unassigned.discard(topic)
