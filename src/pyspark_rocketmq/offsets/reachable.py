"""Requests to many brokers in one pass, without waiting for brokers that are down.

`Client.ask` retries until every broker has answered. Planning cannot: one dead broker would delay the queues
of all others. Here, every broker has a separate thread. Once one has answered, the others have ``GRACE_MS``
left. A broker that failed is retried after a pause that doubles.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from pyspark_rocketmq.client.clock import Clock, Deadline
from pyspark_rocketmq.client.net.fork import ForkSafeLock, tell_after_fork
from pyspark_rocketmq.client.net.pipelining import Call
from pyspark_rocketmq.client.retry import DEFAULT_POLICY, ONCE_MORE
from pyspark_rocketmq.errors import BrokerNotFoundError, RequestTimeoutError, RocketMQError, RouteError
from pyspark_rocketmq.model import MessageQueue

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client

__all__ = ["GRACE_MS", "BrokerHealth", "ReachableBrokers"]

T = TypeVar("T")

GRACE_MS: Final = 400
"""How long to wait for the others once one broker has answered."""

_LONGEST_GRACE_MS: Final = 5_000
"""The same for a broker whose last answer was late: it is slow, not down."""

_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 10.0


@dataclass(slots=True)
class _Record:
    failures: int = 0
    asked_again_at: float = 0.0
    cause: RocketMQError | None = None
    busy: bool = False
    needs_ms: float = GRACE_MS


class BrokerHealth:
    """Which brokers are down, and when each is retried. Thread-safe.

    Parameters
    ----------
    clock : Clock
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = ForkSafeLock()
        self._records: dict[str, _Record] = {}
        tell_after_fork(self)

    def after_fork(self) -> None:
        """Drop pending requests of the parent process: they are never completed in the child."""
        self._records = {}

    def due(self, broker_names: frozenset[str]) -> frozenset[str]:
        """Return the brokers to send requests to now, and mark them as pending.

        While all brokers are down, no other broker is delayed, so each broker that is not pending is due.
        """
        now = self._clock.monotonic()
        with self._lock:
            records = {name: self._records.setdefault(name, _Record()) for name in broker_names}
            idle = {name for name, record in records.items() if not record.busy}
            due = {name for name in idle if now >= records[name].asked_again_at}
            if not any(records[name].failures == 0 for name in due):
                due = idle
            for name in due:
                records[name].busy = True
        return frozenset(due)

    def grace_ms(self, broker_name: str) -> float:
        """Return how long to wait for a broker after the first answer: longer if it is known to be slow."""
        with self._lock:
            return self._records[broker_name].needs_ms

    def record_answer(self, broker_name: str, after_ms: float) -> None:
        """Record a broker's answer."""
        with self._lock:
            self._records[broker_name] = _Record(needs_ms=min(max(GRACE_MS, 2 * after_ms), _LONGEST_GRACE_MS))

    def record_failure(self, broker_name: str, cause: RocketMQError) -> None:
        """Record that a broker did not answer, or reported that it cannot."""
        with self._lock:
            record = self._records[broker_name]
            pause_s = min(_FIRST_PAUSE_S * 2.0 ** min(record.failures, 10), _LONGEST_PAUSE_S)
            self._records[broker_name] = _Record(
                record.failures + 1, self._clock.monotonic() + pause_s, cause
            )

    def is_away(self, broker_name: str) -> bool:
        """Whether the last request to the broker failed."""
        with self._lock:
            return self._records[broker_name].failures > 0

    def why_away(self, broker_name: str) -> RocketMQError:
        """Return the error for a broker that was skipped."""
        with self._lock:
            cause = self._records[broker_name].cause
        error = BrokerNotFoundError(
            f"the broker does not answer; it is asked again later ({cause.message})"
            if cause is not None
            else "the broker has not answered an earlier request yet",
            **{**(cause.facts if cause is not None else {}), "broker_name": broker_name},
        )
        error.__cause__ = cause
        return error


class ReachableBrokers:
    """Sends requests to the reachable brokers.

    Its threads end with their requests: at the latest after the client's request timeout, and soon after the
    client's connections are closed.

    Parameters
    ----------
    client : Client
    slaves : bool
        Use each broker's first slave that answers, never its master.
    """

    def __init__(self, client: Client, *, slaves: bool = False) -> None:
        self._client = client
        self._slaves = slaves
        self._health = BrokerHealth(client.clock)
        self._closed = False

    def close(self) -> None:
        """Close connections that pending requests may still open. Call it before the client closes."""
        self._closed = True

    def ask(
        self, calls: Mapping[MessageQueue, Call[T]], *, patience_ms: float | None = None
    ) -> dict[MessageQueue, T | RocketMQError]:
        """Make one call per queue; return its value or its error.

        Parameters
        ----------
        patience_ms : float, optional
            How long to retry, and wait for, each broker that is not known to be down, even if others have
            answered.
        """
        topics = {queue.topic for queue in calls}
        routes = self._client.routes.try_served(topics, deadline=self._client.deadline())
        found: dict[MessageQueue, T | RocketMQError] = {}
        by_broker: dict[str, dict[MessageQueue, Call[T]]] = {}
        for queue, call in calls.items():
            route = routes[queue.topic]
            if isinstance(route, RouteError):
                found[queue] = route
            else:  # a static topic's queue has no fixed broker
                by_broker.setdefault(route.asked_broker(queue), {})[queue] = call
        due = self._health.due(frozenset(by_broker))
        for name, own in by_broker.items():
            if name not in due:
                found |= dict.fromkeys(own, self._health.why_away(name))
        asked = [
            _Question(name, by_broker[name], None if self._health.is_away(name) else patience_ms)
            for name in sorted(due)
        ]
        answers = self._answer(asked[0]) if len(asked) == 1 else self._answers(asked)
        found.update(answers)
        return {queue: found[queue] for queue in calls}

    def _answer(self, question: _Question[T]) -> dict[MessageQueue, T | RocketMQError]:
        """Send a request to one broker, and record the outcome."""
        client = self._client
        begin = client.clock.monotonic()
        failure: RocketMQError | None = RequestTimeoutError("no answer", broker_name=question.broker_name)
        try:
            outcomes = client.requests.try_each(
                question.calls,
                deadline=self._deadline(question.patience_ms),
                policy=ONCE_MORE if question.patience_ms is None else DEFAULT_POLICY,
                slaves=self._slaves,
            )
            failure = _common_failure(outcomes)
        finally:
            if failure is None:
                self._health.record_answer(question.broker_name, (client.clock.monotonic() - begin) * 1000)
            else:
                self._health.record_failure(question.broker_name, failure)
        return outcomes

    def _answers(self, questions: Sequence[_Question[T]]) -> dict[MessageQueue, T | RocketMQError]:
        """Send requests to brokers in parallel. A late broker fails; its thread records its answer."""
        done: deque[tuple[_Question[T], dict[MessageQueue, T | RocketMQError] | Exception]] = deque()
        news = self._client.host.condition()

        def work(question: _Question[T]) -> None:
            outcomes: dict[MessageQueue, T | RocketMQError] | Exception
            try:
                outcomes = self._answer(question)
            except Exception as failure:  # noqa: BLE001 - the thread's outermost frame: raised by who waits
                outcomes = failure
            with news:
                done.append((question, outcomes))
                news.notify_all()
            if self._closed:  # it may have connected again meanwhile
                self._client.pool.close()

        for question in questions:
            try:
                self._client.host.start(partial(work, question), name=f"ask-{question.broker_name}")
            except RuntimeError:  # the machine has no thread left: then one after the other
                work(question)
        waiting = {question.broker_name: self._deadline(question.patience_ms) for question in questions}
        found: dict[MessageQueue, T | RocketMQError] = {}
        somebody_answered = False
        while waiting:
            with news:
                if not news.wait_for(lambda: bool(done), max(it.remaining_s for it in waiting.values())):
                    break
            question, outcomes = done.popleft()
            if isinstance(outcomes, Exception):
                raise outcomes
            del waiting[question.broker_name]
            found |= outcomes
            if not somebody_answered and _common_failure(outcomes) is None:
                somebody_answered = True
                waiting |= self._graces(other for other in questions if other.broker_name in waiting)
        for question in questions:
            if question.broker_name in waiting:
                late = RequestTimeoutError("no answer in time", broker_name=question.broker_name)
                found |= dict.fromkeys(question.calls, late)
        return found

    def _graces(self, questions: Iterable[_Question[T]]) -> dict[str, Deadline]:
        """Return how long to wait for brokers without ``patience_ms``."""
        return {
            each.broker_name: self._deadline(self._health.grace_ms(each.broker_name))
            for each in questions
            if each.patience_ms is None
        }

    def _deadline(self, timeout_ms: float | None) -> Deadline:
        return self._client.deadline(self._client.request_timeout_ms if timeout_ms is None else timeout_ms)


@dataclass(frozen=True, slots=True)
class _Question(Generic[T]):
    """The requests to one broker."""

    broker_name: str
    calls: Mapping[MessageQueue, Call[T]]
    patience_ms: float | None


def _common_failure(outcomes: Mapping[MessageQueue, object]) -> RocketMQError | None:
    """Return an error if all errors are transient: a broker that answers or rejects is not down."""
    errors = [it for it in outcomes.values() if isinstance(it, RocketMQError) and it.retriable]
    return errors[0] if len(errors) == len(outcomes) else None
