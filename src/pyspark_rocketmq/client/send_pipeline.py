"""Many sends in flight from one thread, bounded, with retries: what a sink needs of a producer."""

# Facts (seen on 5.4.0): sends of one connection run on several threads of the broker, so that two sends in
# flight to one queue may be stored in either order; a send that waited 200 ms in the broker's queue is
# answered SYSTEM_BUSY without being executed.

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.client.connection import Connection
from pyspark_rocketmq.client.outgoing import Outgoing
from pyspark_rocketmq.client.pipeline import Call
from pyspark_rocketmq.client.producer import Producer
from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.model import MessageQueue, SendResult

__all__ = ["SendOutcome", "SendPipeline"]


@dataclass(frozen=True, slots=True)
class SendOutcome:
    """What became of one submitted send: a result, or the error of its last try.

    ``token`` is what `SendPipeline.submit` was given.
    """

    token: object
    outgoing: Outgoing
    result: SendResult | None
    error: RocketMQError | None


@dataclass(slots=True)
class _Flight:
    """One send on its way, from submission to outcome."""

    token: object
    outgoing: Outgoing
    fixed: MessageQueue | None
    patience: Deadline | None = None  # from the first failure on
    failures: int = 0
    not_before: float = 0.0
    queue: MessageQueue | None = None
    call: Call[SendResult] | None = None
    connection: Connection | None = None
    opaque: int = 0
    attempt_deadline: Deadline | None = None


class SendPipeline:
    """Sends without waiting for each answer, at most ``max_in_flight`` at once.

    Delivery promise: at least once for every outcome with a result. In ordered mode the sends to one queue
    are stored in the order of their submission, also over retries, because only one of them is in flight; if
    one fails for good, those that wait behind it are not sent and get its error too.

    For one thread. Outcomes come back from `submit`, `collect` and `flush`, in no particular order.

    Parameters
    ----------
    producer : Producer
    max_in_flight : int
        The bound on sends that have no outcome yet, hence on the memory of their bodies. Brokers refuse sends
        that wait 200 ms: some tens of batches are enough.
    ordered : bool
        One send in flight a queue; every submission then names its queue or key.
    outage_timeout_ms : int
        How long a send is tried again, beyond the producer's ``retries``, while its errors say ``outage``.

    Examples
    --------
    >>> with SendPipeline(producer, max_in_flight=16) as pipeline:  # doctest: +SKIP
    ...     for batch in batches:
    ...         check(pipeline.submit(encode_many(batch, producer.ids)))
    ...     check(pipeline.flush())
    """

    def __init__(
        self,
        producer: Producer,
        *,
        max_in_flight: int = 32,
        ordered: bool = False,
        outage_timeout_ms: int = 0,
    ) -> None:
        if max_in_flight < 1:
            raise OptionError("max_in_flight must be at least 1", max_in_flight=max_in_flight)
        self._producer = producer
        self._client = producer.client
        self._max_in_flight = max_in_flight
        self._ordered = ordered
        self._outage_timeout_ms = outage_timeout_ms
        self._in_flight: deque[_Flight] = deque()
        self._waiting: list[_Flight] = []  # for the end of their back-off
        self._lanes: dict[MessageQueue, deque[_Flight]] = {}  # ordered: only the first of each is in flight
        self._unfinished = 0
        self._outcomes: list[SendOutcome] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def unfinished(self) -> int:
        """How many sends have no outcome yet."""
        return self._unfinished

    def submit(
        self,
        outgoing: Outgoing,
        queue: MessageQueue | None = None,
        *,
        key: str | None = None,
        token: object = None,
    ) -> list[SendOutcome]:
        """Send, after waiting for room; return the outcomes that are there by then.

        Parameters
        ----------
        queue, key : optional
            Where to; without either the queues take turns, and a retry goes elsewhere.
        token : object
            Comes back with the outcome.

        Raises
        ------
        OptionError
            Ordered mode without queue and key.
        PermissionDeniedError, BrokerNotFoundError, TopicNotFoundError, NameServerError
            A key's queue cannot be chosen; the send was not taken.
        """
        if key is not None and queue is None:
            queue = self._producer.choose(outgoing.topic, key=key)
        if self._ordered and queue is None:
            raise OptionError("an ordered send needs a queue or a key", topic=outgoing.topic)
        while self._unfinished >= self._max_in_flight:
            self._step()
        self._unfinished += 1
        flight = _Flight(token, outgoing, queue)
        if self._ordered and queue is not None:
            lane = self._lanes.setdefault(queue, deque())
            lane.append(flight)
            if len(lane) == 1:
                self._launch(flight)
        else:
            self._launch(flight)
        return self.collect()

    def collect(self) -> list[SendOutcome]:
        """Return the outcomes that are known, without waiting."""
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def flush(self) -> list[SendOutcome]:
        """Wait until every send has an outcome; each send has its own deadline."""
        while self._unfinished:
            self._step()
        return self.collect()

    def close(self) -> None:
        """Forget the sends without an outcome: whether they are stored is unknown."""
        for flight in self._in_flight:
            if flight.connection is not None:
                flight.connection.abandon(flight.opaque)
        self._in_flight.clear()
        self._waiting.clear()
        self._lanes.clear()
        self._unfinished = 0

    # --- one step ---

    def _step(self) -> None:
        """Bring at least one send forward: launch one whose back-off ended, or take the oldest answer."""
        now = self._client.clock.monotonic()
        due = [flight for flight in self._waiting if flight.not_before <= now]
        if due:
            self._waiting = [flight for flight in self._waiting if flight.not_before > now]
            for flight in due:
                self._launch(flight)
        elif self._in_flight:
            self._land(self._in_flight.popleft())
        else:
            self._client.clock.sleep(min(flight.not_before for flight in self._waiting) - now)

    def _launch(self, flight: _Flight) -> None:
        try:
            flight.queue = self._producer.choose(flight.outgoing.topic, flight.fixed)
            flight.call = self._producer.call_for(flight.outgoing, flight.queue)
            flight.connection = self._producer.connect(flight.queue)
            flight.attempt_deadline = self._client.deadline(self._producer.options.send_timeout_ms)
            flight.opaque = flight.connection.submit(
                flight.call.request, flight.call.body, deadline=flight.attempt_deadline
            )
        except RocketMQError as error:
            self._failed(flight, error)
        else:
            self._in_flight.append(flight)

    def _land(self, flight: _Flight) -> None:
        """Wait for the answer to one send; the answers to others arrive meanwhile."""
        assert flight.connection is not None
        assert flight.call is not None
        assert flight.attempt_deadline is not None
        try:
            response = flight.connection.wait(flight.opaque, flight.attempt_deadline)
            result = self._producer.accepted(flight.outgoing, flight.call.parse(response))
        except RocketMQError as error:
            flight.connection.abandon(flight.opaque)
            self._failed(flight, error)
        else:
            self._finish(flight, result, None)

    def _failed(self, flight: _Flight, error: RocketMQError) -> None:
        """Let the send try again after a pause, or give it its error."""
        flight.failures += 1
        if error.stale_route or flight.failures > 1:
            self._client.invalidate(flight.outgoing.topic)
        if flight.queue is not None:
            self._producer.note_failure(flight.queue, error)
        pause_s = self._producer.policy.pause_s(flight.failures, self._client.random)
        if flight.patience is None:
            flight.patience = self._client.deadline(self._outage_timeout_ms)
        waits = error.outage and flight.patience.remaining_s > pause_s
        if error.retriable and (waits or not self._producer.policy.exhausted(flight.failures)):
            flight.not_before = self._client.clock.monotonic() + pause_s
            self._waiting.append(flight)
            return
        final = self._producer.final_error(flight.outgoing, error, flight.queue)
        if final is not error:
            final.__cause__ = error
        self._finish(flight, None, final)

    def _finish(self, flight: _Flight, result: SendResult | None, error: RocketMQError | None) -> None:
        self._unfinished -= 1
        self._outcomes.append(SendOutcome(flight.token, flight.outgoing, result, error))
        if not self._ordered or flight.fixed is None:
            return
        lane = self._lanes[flight.fixed]
        lane.popleft()
        while error is not None and lane:
            held = lane.popleft()
            self._unfinished -= 1
            self._outcomes.append(SendOutcome(held.token, held.outgoing, None, error))
        if lane:
            self._launch(lane[0])
        else:
            del self._lanes[flight.fixed]
