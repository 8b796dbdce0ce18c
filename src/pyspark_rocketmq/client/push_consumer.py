"""A member of a consumer group that is handed messages, as Java's ``DefaultMQPushConsumer``."""

# Facts (DefaultMQPushConsumerImpl, RebalanceImpl, RebalancePushImpl; 5.4.0)
# - Each member deals the queues out by itself, from the sorted list of members that a broker tells.
# - Members that share the queues read %RETRY%group too; broadcasting members read all queues.
# - Consumed in order, a queue is locked before its offset is asked for, and unlocked behind the last commit.

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Final, Self

from pyspark_rocketmq.client.core import Client
from pyspark_rocketmq.client.membership import Membership, create_client_id
from pyspark_rocketmq.client.push_delivery import Delivery, Listener, send_back
from pyspark_rocketmq.client.push_options import PushOptions
from pyspark_rocketmq.client.push_progress import FileProgress, GroupProgress, Progress, starting_offsets
from pyspark_rocketmq.client.push_worker import QueueWorker, TakeRun
from pyspark_rocketmq.errors import OptionError, RocketMQError, TopicNotFoundError
from pyspark_rocketmq.model import Message, MessageQueue, MessageSelector
from pyspark_rocketmq.options import ClientOptions
from pyspark_rocketmq.planning.assign import allocate

__all__ = ["PushConsumer"]

_LOG: Final = logging.getLogger(__name__)

_TICK_S: Final = 1.0
_LOCK_MS: Final = 20_000
_JOIN_S: Final = 5.0
_MANY: Final = 1e12
_RETRY_PREFIX: Final = "%RETRY%"
_PATIENCE: Final = 10
"""How often a missing retry topic is looked for before the next turn of ``rebalance_ms``."""


class PushConsumer:
    """Reads topics as a member of a consumer group, side by side with others, Java's too.

    The group's members share the queues; when members come or go, each computes the same deal anew, at once
    where a broker tells of it and within ``rebalance_ms`` otherwise.

    Delivery promise: at least once. Offsets are committed behind finished messages only, every ``commit_ms``
    and when a queue is given up or the consumer is closed: what was finished since the last commit comes
    again after a crash. Broadcasting: as `PushOptions` says.

    Parameters
    ----------
    group : str
    name_server : str or ClientOptions
        ``"host:port;host:port"``.
    options : PushOptions

    Examples
    --------
    >>> with PushConsumer("billing", "127.0.0.1:9876") as consumer:  # doctest: +SKIP
    ...     consumer.subscribe("orders", "paid || refunded")
    ...     consumer.start(lambda messages: print([message.body for message in messages]))
    ...     input("Enter ends it")
    """

    def __init__(
        self, group: str, name_server: str | ClientOptions, options: PushOptions | None = None
    ) -> None:
        if not group:
            raise OptionError("a push consumer needs a group")
        self.group = group
        self.options = options or PushOptions()
        self._client = Client(name_server)
        self.client_id = create_client_id(int(self._client.random.uniform(0, _MANY)))
        self._subscriptions: dict[str, MessageSelector] = {}
        self._workers: dict[MessageQueue, QueueWorker] = {}
        self._leaving: list[QueueWorker] = []
        self._committed: dict[MessageQueue, int] = {}
        self._wake = threading.Event()
        self._ends = threading.Event()
        self._rebalance_now = True
        self._patience = _PATIENCE
        self._due: dict[str, float] = {}
        self._membership: Membership | None = None
        self._progress: Progress = GroupProgress(self._client, group)
        self._delivery: Delivery | None = None
        self._take_run: TakeRun | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def subscribe(self, topic: str, expression: str | MessageSelector = "*") -> None:
        """Read a topic, or what of it an expression selects: ``"*"``, ``"TagA || TagB"``, or an SQL selector.

        All members of a group must subscribe to the same.

        Raises
        ------
        OptionError
            The consumer has been started.
        """
        if self._thread is not None:
            raise OptionError("subscribe before start", topic=topic)
        selector = MessageSelector.by_tag(expression) if isinstance(expression, str) else expression
        self._subscriptions[topic] = selector

    def start(self, listener: Listener) -> None:
        """Join the group; the listener is called from threads of the consumer until `close`.

        Raises
        ------
        OptionError
            Nothing is subscribed, the consumer has been started before, or an SQL expression does not parse.
        TopicNotFoundError, NameServerError
            A topic, or every name server, is not there.
        """
        if self._thread is not None or not self._subscriptions:
            raise OptionError("a push consumer is started once, with a subscription", group=self.group)
        for topic, selector in self._subscriptions.items():
            self._client.read_queues(topic)
            self._client.check_selector(selector, topic, group=self.group)
        options = self.options
        if options.broadcasting:
            self._progress = FileProgress(options.progress_file)
        else:
            self._subscriptions[f"{_RETRY_PREFIX}{self.group}"] = MessageSelector()
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
        self._thread = threading.Thread(target=self._run, name=f"push-{self.group}", daemon=True)
        self._thread.start()

    def start_runs(self, take: TakeRun) -> None:
        """Join the group as `start` does, but hand out what each pull found undecoded.

        For those who store messages before they look at them. What is taken ends with
        ``worker.finish_run(run)``; until then its offsets are not committed.
        """
        self._take_run = take
        self.start(lambda _: None)

    def send_back(self, message: Message, queue: MessageQueue) -> bool:
        """Put a message off that came in a run of a queue; return whether the broker took it."""
        return send_back(self._client, self.group, self.options, message, queue)

    def stop_pulling(self) -> None:
        """Pull no more and stay in the group until `close`: what is under way can still be finished."""
        self._ends.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_JOIN_S)
        for worker in self._workers.values():
            worker.stop()

    def rebalance(self) -> None:
        """Compare the queues with the group's members now, in the background."""
        self._rebalance_now = True
        self._wake.set()

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues that this member has now, sorted; with those of ``%RETRY%group``."""
        return tuple(sorted(self._workers))

    def close(self, timeout_s: float = 10.0) -> None:
        """Leave the group: wait for the calls of the listener under way, commit, and tell the others.

        Parameters
        ----------
        timeout_s : float
            How long to wait for the listener; what it has not finished by then comes again.
        """
        self._ends.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout_s + _JOIN_S)
        workers = [*self._workers.values(), *self._leaving]
        for worker in workers:
            worker.stop()
        if self._delivery is not None:
            self._delivery.close(workers, timeout_s)
        if self._membership is not None:
            self._quietly(self._commit)
            if self.options.ordered:
                self._membership.unlock(list(self._workers))
            self._membership.leave()
        self._client.close()  # wakes up the workers that wait for messages
        for worker in workers:
            worker.join(_JOIN_S)
        self._client.close()  # a worker may have connected once more meanwhile
        self._workers.clear()

    # --- the member's own thread ---

    def _run(self) -> None:
        while not self._ends.is_set():
            try:
                self._turn()
            except RocketMQError as error:
                _LOG.warning("group %s: %s; trying again", self.group, error)
                self._rebalance_now = True
            except Exception:  # noqa: BLE001 - the thread's outermost frame
                _LOG.exception("group %s: trying again", self.group)
            self._wake.wait(_TICK_S)
            self._wake.clear()

    def _turn(self) -> None:
        membership = self._membership
        assert membership is not None
        everywhere = self._is_due("heartbeat", self.options.heartbeat_ms)
        for error in membership.beat(everywhere=everywhere):
            _LOG.warning("group %s: no heartbeat: %s", self.group, error)
        if self._is_due("commit", self.options.commit_ms):
            self._commit()
        if self.options.ordered and self._is_due("lock", _LOCK_MS):
            self._renew_locks(membership)
        self._let_go(membership)
        if self._rebalance_now or self._is_due("rebalance", self.options.rebalance_ms):
            self._rebalance_now = False
            self._rebalance(membership)

    def _is_due(self, what: str, every_ms: int) -> bool:
        now = self._client.clock.monotonic()
        if now < self._due.get(what, now):
            return False
        self._due[what] = now + every_ms / 1000
        return True

    # --- whose queues ---

    def _rebalance(self, membership: Membership) -> None:
        broken = [queue for queue, worker in self._workers.items() if worker.broken]
        self._give_up(broken, membership)
        for topic in self._subscriptions:
            try:
                everything = self._client.read_queues(topic)
            except TopicNotFoundError:
                if not topic.startswith(_RETRY_PREFIX):
                    raise
                if self._patience > 0:  # it comes with the first heartbeat, if brokers may create groups
                    self._patience -= 1
                    self._rebalance_now = True
                continue
            mine = set(everything)
            if not self.options.broadcasting:
                members = membership.members(topic)
                if self.client_id not in members:
                    self._rebalance_now = True  # a broker that restarted learns by the next heartbeat
                    self._due.pop("heartbeat", None)
                    continue
                mine = set(allocate(self.options.allocate, everything, members, self.client_id))
            has = {queue for queue in self._workers if queue.topic == topic}
            self._give_up(has - mine, membership)
            self._take_on(mine - has, membership)

    def _give_up(self, queues: Collection[MessageQueue], membership: Membership) -> None:
        if not queues:
            return
        workers = [self._workers.pop(queue) for queue in queues]
        for worker in workers:
            if self.options.ordered:
                worker.stop()  # the call under way still counts: nobody else gets the queue before its end
            else:
                worker.drop()
        self._leaving += workers
        self._let_go(membership)

    def _let_go(self, membership: Membership) -> None:
        """Commit and unlock queues that were given up, when no listener works on them in order any more."""
        done = [worker for worker in self._leaving if worker.idle or not self.options.ordered]
        if not done:
            return
        self._write({worker.queue: worker.position for worker in done})
        if self.options.ordered:
            membership.unlock([worker.queue for worker in done])
        self._leaving = [worker for worker in self._leaving if worker not in done]
        for worker in done:
            self._committed.pop(worker.queue, None)

    def _take_on(self, queues: set[MessageQueue], membership: Membership) -> None:
        leaving = {worker.queue for worker in self._leaving}
        wanted = sorted(queues - leaving)
        if not wanted:
            return
        in_order = self.options.ordered and not self.options.broadcasting
        if in_order:
            wanted = sorted(membership.lock(wanted) & set(wanted))
            if len(wanted) < len(queues):
                self._rebalance_now = True  # the owner before has not let go yet
        # Behind the lock: until then the owner before may have committed.
        begins = starting_offsets(self._client, self._progress, wanted, self.options, self.group)
        delivery = self._delivery
        assert delivery is not None
        for queue in wanted:
            worker = QueueWorker(
                self._client,
                self.group,
                queue,
                begins[queue],
                selector=self._subscriptions[queue.topic],
                options=self.options,
                deliver=delivery,
                take_run=self._take_run,
            )
            worker.note_lock(held=True)
            self._workers[queue] = worker
            worker.start()

    def _renew_locks(self, membership: Membership) -> None:
        if self.options.broadcasting or not self._workers:
            return
        held = membership.lock(list(self._workers))
        for queue, worker in self._workers.items():
            if queue in held:
                worker.note_lock(held=True)

    # --- offsets ---

    def _commit(self) -> None:
        self._write({queue: worker.position for queue, worker in list(self._workers.items())})

    def _write(self, offsets: dict[MessageQueue, int]) -> None:
        news = {queue: offset for queue, offset in offsets.items() if self._committed.get(queue) != offset}
        if news:
            self._progress.write(news)
            self._committed |= news

    def _quietly(self, step: Callable[[], None]) -> None:
        try:
            step()
        except RocketMQError as error:
            _LOG.warning("group %s: %s", self.group, error)
