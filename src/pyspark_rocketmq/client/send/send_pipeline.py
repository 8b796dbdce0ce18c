"""Many concurrent sends from one thread, bounded, with retries: the producer of the sink."""

# Facts (seen on 5.4.0): sends of one connection run on several threads of the broker, so that two sends in
# flight to one queue may be stored in either order; a send that waited 200 ms in the broker's queue is
# answered SYSTEM_BUSY without being executed.

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeAlias

from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.client.net.connection import Connection
from pyspark_rocketmq.client.net.pipelining import Call
from pyspark_rocketmq.client.send.message_encoding import Outgoing
from pyspark_rocketmq.client.send.producer import Producer
from pyspark_rocketmq.client.send.send_requests import check_accepted, final_error, may_be_stored
from pyspark_rocketmq.errors import OptionError, RocketMQError, SendError, TransportError
from pyspark_rocketmq.model import MessageQueue, SendResult

__all__ = ["Replace", "SendOutcome", "SendPipeline"]


@dataclass(frozen=True, slots=True)
class SendOutcome:
    """The outcome of one submitted send: a result, the error of its last attempt, or "not sent".

    Parameters
    ----------
    token : object
        The token passed to `SendPipeline.submit`.
    sent : bool
        False, in ordered mode, for a send that was never attempted because an earlier send to its queue
        failed (see ``error``). It is not stored, and can be submitted again without duplicates.
    """

    token: object
    outgoing: Outgoing
    result: SendResult | None
    error: RocketMQError | None
    sent: bool = True


Replace: TypeAlias = Callable[[SendOutcome], "Sequence[Outgoing] | None"]
"""Returns the replacement of a failed send: no sends, other sends, or None to report the failure."""


@dataclass(slots=True)
class _Flight:
    """One send, from submission to outcome."""

    token: object
    outgoing: Outgoing
    fixed: MessageQueue | None
    patience: Deadline | None = None  # from the first failure on
    failures: int = 0
    refusals: int = 0  # of those: what is no outage
    unsure: bool = False  # an attempt may be stored
    not_before: float = 0.0
    queue: MessageQueue | None = None
    call: Call[SendResult] | None = None
    connection: Connection | None = None
    opaque: int = 0
    attempt_deadline: Deadline | None = None

    @property
    def has_answer(self) -> bool:
        """Whether the answer is here: to take it waits for nothing."""
        return self.connection is not None and self.connection.has_answer(self.opaque)


class SendPipeline:
    """Sends without waiting for each response, at most ``max_in_flight`` concurrently.

    Delivery promise: at least once for every outcome with a result. In ordered mode, the sends to one queue
    are stored in the order of submission, even with retries, because only one of them is in flight. If a send
    fails permanently, sends that wait for it are not sent, nor are others to that queue until `submit`,
    `collect` or `flush` has returned the failure.

    Not thread-safe. `submit`, `collect` and `flush` return outcomes, in no particular order.

    Parameters
    ----------
    producer : Producer
    max_in_flight : int
        Maximum number of sends without an outcome, which limits the memory of their bodies. Brokers reject
        sends that wait 200 ms: some tens of batches are enough.
    ordered : bool
        One send in flight per queue; every submission must have a queue or key.
    outage_timeout_ms : int
        How long a send is retried, in addition to the producer's ``retries``, while its errors are
        ``outage``.
    replace : Callable, optional
        Called for each send that failed permanently. If it returns sends, they replace it in the queue's
        order (none: the queue continues with the next send), and the failure is not an outcome.
    gather : int
        How many sends to wait for before they leave together, which costs less than one by one; at most a
        quarter of ``max_in_flight``. `flush` sends the last ones. In ordered mode none is waited for, but
        those whose queues are free leave together.
    before_send : Callable, optional
        Called before each request, also of a retry. If it raises, the caller must close the pipeline.

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
        replace: Replace | None = None,
        gather: int = 1,
        before_send: Callable[[], None] = lambda: None,
    ) -> None:
        if max_in_flight < 1:
            raise OptionError("max_in_flight must be at least 1", max_in_flight=max_in_flight)
        self._producer = producer
        self._client = producer.client
        self._max_in_flight = max_in_flight
        self._ordered = ordered
        self._outage_timeout_ms = outage_timeout_ms
        self._replace = replace
        self._before_send = before_send
        self._together = max(1, min(gather, max_in_flight // 4))
        self._gather = 1 if ordered else self._together
        self._ready: deque[_Flight] = deque()  # for room
        self._in_flight: deque[_Flight] = deque()
        self._waiting: list[_Flight] = []  # for the end of their back-off
        self._lanes: dict[MessageQueue, deque[_Flight]] = {}  # ordered: only the first of each is in flight
        self._failed_lanes: dict[MessageQueue, RocketMQError] = {}  # whose failure is not returned yet
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
        """The number of sends without an outcome."""
        return self._unfinished

    def submit(
        self,
        outgoing: Outgoing,
        queue: MessageQueue | None = None,
        *,
        key: str | None = None,
        loose: bool = False,
        token: object = None,
    ) -> list[SendOutcome]:
        """Send, after waiting for capacity; return the outcomes available so far.

        Parameters
        ----------
        queue, key : optional
            The destination. Without either, queues are selected round-robin, and a retry uses another queue;
            in ordered mode only with ``loose``: such a send waits for no other, and none for it.
        token : object
            Returned with the outcome.

        Raises
        ------
        OptionError
            None of the three is set in ordered mode.
        PermissionDeniedError, BrokerNotFoundError, TopicNotFoundError, NameServerError
            A key's queue cannot be selected; the send was not accepted.
        """
        if key is not None and queue is None:
            queue = self._producer.choose(outgoing.topic, key=key)
        if self._ordered and queue is None and not loose:
            raise OptionError("an ordered send needs a queue or a key", topic=outgoing.topic)
        while self._unfinished >= self._max_in_flight:
            self._step()
        self._unfinished += 1
        self._admit(_Flight(token, outgoing, queue))
        if len(self._ready) >= self._gather:
            self._launch_ready()
        return self.collect()

    def collect(self) -> list[SendOutcome]:
        """Return the available outcomes without waiting."""
        outcomes, self._outcomes = self._outcomes, []
        self._failed_lanes.clear()
        return outcomes

    def flush(self) -> list[SendOutcome]:
        """Wait until every send has an outcome. Each send has a separate deadline."""
        self._launch_ready()
        while self._unfinished:
            self._step()
        return self.collect()

    def drain(self) -> list[SendOutcome]:
        """Wait for the responses to sends in flight without further sends; return the outcomes.

        For a caller that gives up: waiting sends and retries are dropped.
        """
        while self._in_flight:
            flight = self._in_flight.popleft()
            try:
                self._report(SendOutcome(flight.token, flight.outgoing, self._answer(flight), None))
            except RocketMQError as error:
                self._report(SendOutcome(flight.token, flight.outgoing, None, error))
        self.close()
        return self.collect()

    def close(self) -> None:
        """Drop the sends without an outcome. Whether they are stored is unknown."""
        for flight in self._in_flight:
            if flight.connection is not None:
                flight.connection.abandon(flight.opaque)
        self._in_flight.clear()
        self._ready.clear()
        self._waiting.clear()
        self._lanes.clear()
        self._unfinished = 0

    # --- one step ---

    def _step(self) -> None:
        """Advance at least one send: launch one whose back-off ended, or read the oldest response."""
        now = self._client.clock.monotonic() if self._waiting else 0.0
        due = [flight for flight in self._waiting if flight.not_before <= now]
        if due:
            self._waiting = [flight for flight in self._waiting if flight.not_before > now]
            for flight in due:
                self._launch([flight])
        elif self._in_flight:
            self._land(self._in_flight.popleft())
            while self._in_flight and self._in_flight[0].has_answer:
                self._land(self._in_flight.popleft())
        elif self._ready:
            self._launch_ready()
        else:
            self._client.clock.sleep(min(flight.not_before for flight in self._waiting) - now)
        if len(self._ready) >= self._gather:
            self._launch_ready()

    def _admit(self, flight: _Flight) -> None:
        """Queue a new send until there is capacity or, in ordered mode, until earlier sends are done."""
        if not self._ordered or flight.fixed is None:
            self._ready.append(flight)
        elif (cause := self._failed_lanes.get(flight.fixed)) is not None:
            self._hold_back(flight, cause)
        else:
            lane = self._lanes.setdefault(flight.fixed, deque())
            lane.append(flight)
            if len(lane) == 1:
                self._ready.append(flight)

    def _launch_ready(self) -> None:
        while self._ready and (room := self._max_in_flight - len(self._in_flight)) > 0:
            count = min(room, self._together, len(self._ready))
            self._launch([self._ready.popleft() for _ in range(count)])

    def _launch(self, flights: Sequence[_Flight]) -> None:
        """Send, together what goes to one broker."""
        together: dict[Connection, list[_Flight]] = {}
        known: dict[object, Connection] = {}  # by broker, and by queue of a static topic
        for flight in flights:
            try:
                flight.queue = self._producer.choose(flight.outgoing.topic, flight.fixed)
                flight.call = self._producer.call_for(flight.outgoing, flight.queue)
                place = flight.queue if flight.queue.logical else flight.queue.broker_name
                if place not in known:
                    known[place] = self._find_connection(flight.queue, together)
                flight.connection = known[place]
            except RocketMQError as error:
                self._handle_failure(flight, error)
            else:
                together.setdefault(flight.connection, []).append(flight)
        for connection, group in together.items():
            self._launch_on(connection, group)

    def _find_connection(self, queue: MessageQueue, found: Collection[Connection]) -> Connection:
        """Return the connection to a queue's master: one of those found for this launch, or the client's."""
        if found:
            addr = self._client.queue_address(queue)
            for connection in found:
                if connection.addr == addr:
                    return connection
        return self._producer.connect(queue)

    def _launch_on(self, connection: Connection, flights: Sequence[_Flight]) -> None:
        self._before_send()
        deadline = self._client.deadline(self._producer.options.send_timeout_ms, renewable=True)
        calls = [(flight.call.request, flight.call.body) for flight in flights if flight.call is not None]
        try:
            opaques = connection.submit_all(calls, deadline=deadline)
        except RocketMQError as error:
            if len(flights) > 1 and not isinstance(error, TransportError):  # of one of them
                for flight in flights:
                    self._launch_on(connection, [flight])
                return
            for flight in flights:
                self._handle_failure(flight, error)
            return
        for flight, opaque in zip(flights, opaques, strict=True):
            flight.opaque, flight.attempt_deadline = opaque, deadline
            self._in_flight.append(flight)

    def _land(self, flight: _Flight) -> None:
        """Wait for the response to one send; responses to others arrive meanwhile."""
        try:
            result = self._answer(flight)
        except RocketMQError as error:
            self._handle_failure(flight, error)
        else:
            self._report(SendOutcome(flight.token, flight.outgoing, result, None))
            self._next_in_lane(flight)

    def _answer(self, flight: _Flight) -> SendResult:
        assert flight.connection is not None
        assert flight.call is not None
        assert flight.attempt_deadline is not None
        try:
            response = flight.connection.wait(flight.opaque, flight.attempt_deadline)
            return check_accepted(flight.outgoing, flight.call.parse(response), self._producer.options)
        except RocketMQError:
            flight.connection.abandon(flight.opaque)
            raise

    def _handle_failure(self, flight: _Flight, error: RocketMQError) -> None:
        """Retry the send after a pause, or settle its failure."""
        flight.failures += 1
        flight.unsure |= may_be_stored(error)
        if error.stale_route or flight.failures > 1:
            self._client.invalidate(flight.outgoing.topic)
        if flight.queue is not None:
            self._producer.note_failure(flight.queue, error)
        pause_s = self._producer.policy.pause_s(flight.failures, self._client.random)
        flight.patience = flight.patience or self._client.deadline(self._outage_timeout_ms)
        flight.refusals += not error.outage
        waits = error.outage and flight.patience.remaining_s > pause_s
        tried = flight.failures if error.outage else flight.refusals
        if error.retriable and (waits or not self._producer.policy.exhausted(tried)):
            flight.not_before = self._client.clock.monotonic() + pause_s
            self._waiting.append(flight)
            return
        self._give_up(flight, final_error(flight.outgoing, error, flight.queue, unsure=flight.unsure))

    def _give_up(self, flight: _Flight, error: RocketMQError) -> None:
        """Replace the send, or report the failure and hold back later sends to its queue."""
        outcome = SendOutcome(flight.token, flight.outgoing, None, error)
        others = None if self._replace is None else self._replace(outcome)
        if others is not None:
            self._unfinished += len(others) - 1
            flights = [_Flight(flight.token, other, flight.fixed) for other in others]
            if self._ordered and flight.fixed is not None:
                self._next_in_lane(flight, before_it=flights)
            else:
                self._ready.extend(flights)
            return
        self._report(outcome)
        if self._ordered and flight.fixed is not None:
            self._failed_lanes[flight.fixed] = error
            for held in list(self._lanes.pop(flight.fixed))[1:]:
                self._hold_back(held, error)

    def _next_in_lane(self, over: _Flight, *, before_it: Sequence[_Flight] = ()) -> None:
        """Launch the queue's next send after one has ended."""
        if not self._ordered or over.fixed is None:
            return
        lane = self._lanes[over.fixed]
        lane.popleft()
        lane.extendleft(reversed(before_it))
        if lane:
            self._ready.append(lane[0])
        else:
            del self._lanes[over.fixed]

    def _hold_back(self, flight: _Flight, cause: RocketMQError) -> None:
        error = SendError(
            f"not sent, because an earlier send to its queue failed: {cause.message}",
            failed=flight.outgoing.count,
            topic=flight.outgoing.topic,
            queue=flight.fixed,
        )
        error.__cause__ = cause
        self._report(SendOutcome(flight.token, flight.outgoing, None, error, sent=False))

    def _report(self, outcome: SendOutcome) -> None:
        self._unfinished -= 1
        self._outcomes.append(outcome)
