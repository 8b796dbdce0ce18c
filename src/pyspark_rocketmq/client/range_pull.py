"""One offset range being pulled: from which broker, with which pulls in flight, through which trouble."""

# Facts (PullMessageProcessor, DefaultMessageStore.getMessage; RocketMQ 4.9 and 5.4)
# - nextBeginOffset is the only way forward; PULL_RETRY_IMMEDIATELY (20) from a slave may repeat the offset.
# - PULL_OFFSET_MOVED (21): OFFSET_TOO_SMALL = expired, OFFSET_OVERFLOW_BADLY = the log is shorter than
#   planned, OFFSET_RESET = an operator's reset of the group, told once, whatever offset was asked.
# - A slave refuses pulls unless slaveReadEnable is set: SYSTEM_BUSY with [REJECTREQUEST].
# - A new slave answers TOPIC_NOT_EXIST (17) until it has copied its master's topics, for up to a minute.
# - PULL_NOT_FOUND (19) may jump over a hole of the consume queue; a slave says it where it lags its master.

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.client.connection import Connection, Response
from pyspark_rocketmq.client.pull_filter import pull_template
from pyspark_rocketmq.client.retry import RetryPolicy
from pyspark_rocketmq.errors import (
    BrokerError,
    BrokerNotFoundError,
    FlowControlError,
    NameServerError,
    RequestTimeoutError,
    RocketMQError,
    ServiceNotAvailableError,
    TopicNotFoundError,
)
from pyspark_rocketmq.model import (
    MASTER_ID,
    BrokerData,
    LostRange,
    MessageSelector,
    OffsetRange,
)
from pyspark_rocketmq.planning.depth import PullDepth, Sent
from pyspark_rocketmq.planning.gaps import PullVerdict, decide_loss
from pyspark_rocketmq.planning.window import Ask, PullWindow, Taken
from pyspark_rocketmq.record.arrow import Chunk
from pyspark_rocketmq.record.layout import MIN_RECORD_SIZE
from pyspark_rocketmq.remoting.codes import ResponseCode
from pyspark_rocketmq.remoting.header import PullMessageResponse
from pyspark_rocketmq.remoting.template import RequestTemplate

if TYPE_CHECKING:
    from pyspark_rocketmq.client.core import Client

__all__ = ["RangePull", "ReadOptions"]

_BACK_OFF: Final = RetryPolicy(base_ms=50, max_ms=2_000)
_FIRST_GUESS_BYTES: Final = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How ranges are read.

    Parameters
    ----------
    consumer_group : str
        Sent with every pull; the broker creates it if it may.
    selector : MessageSelector
    fail_on_data_loss : bool
        Whether messages that are gone raise `DataLossError` or are counted and skipped.
    pull_batch_size : int
        The most messages asked for in one pull; brokers cap it (32 by default).
    pulls_in_flight : int, optional
        The most pulls in flight of one reader, over all its ranges; by default as many as `PullDepth` says.
        The first range has them for itself when later ones took them while its broker was away.
    max_bytes_in_flight : int
        Bound, by the size of former answers, on what the broker may have to hold for this reader.
    stall_timeout_ms : int
        How long a range may make no progress, through any number of retries, before the read fails.
    empty_pull_delay_ms : int
        How long to wait before planned messages that a broker does not have are asked for again; doubles
        with each time.
    missing_patience_ms : int
        How long planned messages may be missing at the end of a master's queue before they count as lost: a
        broker that restarts rebuilds its index. A slave may lag for long, and is never believed.
    """

    consumer_group: str
    selector: MessageSelector = MessageSelector()  # noqa: RUF009 - frozen
    fail_on_data_loss: bool = True
    pull_batch_size: int = 1024
    pulls_in_flight: int | None = None
    max_bytes_in_flight: int = 32 << 20
    stall_timeout_ms: int = 120_000
    empty_pull_delay_ms: int = 10
    missing_patience_ms: int = 10_000


_Payload: TypeAlias = tuple[Response, int] | None
"""An answer with records and its offset delta; None for one without."""


class RangePull:
    """The state of one range; driven by `queue_reader`.

    Parameters
    ----------
    client : Client
    offsets : OffsetRange
    options : ReadOptions
    depth : PullDepth
        Of the reader that drives it.
    """

    def __init__(self, client: Client, offsets: OffsetRange, options: ReadOptions, depth: PullDepth) -> None:
        self.offsets = offsets
        self.lost: list[LostRange] = []
        self.blocked = False
        """Set when a pull could not even be sent: the range is tried again when its turn comes."""
        self._client = client
        self._options = options
        self._depth = depth
        self._window: PullWindow[_Payload] = PullWindow(
            offsets,
            batch_size=options.pull_batch_size,
            filtered=not options.selector.takes_all,
            stride=client.pull_strides.get(offsets.broker_name),
        )
        self._connection: Connection | None = None
        self._template: RequestTemplate | None = None
        self._broker_id = MASTER_ID
        self._at_master = True
        self._refused_by: set[str] = set()
        self._slave_is_closed = False
        self._in_flight: dict[int, tuple[Ask, Sent]] = {}
        self._answer_bytes = _FIRST_GUESS_BYTES
        self._failures = 0
        self._progress = self._now()
        self._missing_since: float | None = None

    @property
    def done(self) -> bool:
        """Whether every offset has been accounted for."""
        return self._window.done

    @property
    def waits(self) -> bool:
        """Whether a pull is in flight."""
        return bool(self._in_flight)

    @property
    def load(self) -> int:
        """How many answers are in flight for this range, or here and waiting for an earlier one."""
        return len(self._in_flight) + self._window.held

    def fill(self, budget: int) -> int:
        """Send up to ``budget`` pulls; return how many were sent.

        Raises
        ------
        TransportError, RouteError
            The broker cannot be reached; see `recover`.
        """
        room = self._options.max_bytes_in_flight // self._answer_bytes - self.load
        if not self._in_flight:
            room = max(room, 1)
        asks = list(itertools.islice(iter(self._window.ask, None), max(0, min(budget, room))))
        if not asks:
            return 0
        try:
            connection = self._connection = self._connection or self._locate()
            template = self._template = self._template or self._pulls_at(connection)
            sent = self._depth.sent(self._now())
            values = [(ask.offset, ask.max_messages) for ask in asks]
            opaques = connection.submit_many(template, values)
            self._in_flight.update(zip(opaques, ((ask, sent) for ask in asks), strict=True))
        except RocketMQError:
            for ask in asks:
                self._window.refused(ask.offset)
            raise
        return len(asks)

    def receive(self) -> list[Chunk]:
        """Wait for answers and return the records whose turn has come (often none).

        Raises
        ------
        DataLossError
            Messages of the range are gone and ``fail_on_data_loss`` is set.
        RocketMQError
            Pass it to `recover`.
        """
        if not self._in_flight or self._connection is None:
            raise BrokerNotFoundError("no pull could be sent", queue=self.offsets.queue)
        deadline = Deadline(self._client.clock, self._client.request_timeout_ms)
        answers = self._connection.wait_some(self._in_flight, deadline)
        if answers:
            self._depth.answered(len(answers), self._in_flight[answers[-1][0]][1], self._now())
        for opaque, response in answers:
            self._digest(self._in_flight.pop(opaque)[0], response)
        return [_chunk(taken) for taken in self._take() if taken.payload is not None]

    def recover(self, error: RocketMQError) -> None:
        """Prepare to go on after ``error``, or raise it: not retriable, or no progress for too long."""
        stalled_ms = (self._now() - self._progress) * 1000
        error.facts.setdefault("queue", str(self.offsets.queue))
        error.facts.setdefault("offset", self._window.expected)
        if not self._at_master and isinstance(error, FlowControlError):
            self._slave_is_closed = "REJECTREQUEST" in (error.remark or "")
        if error.retriable and stalled_ms >= self._options.stall_timeout_ms and self._slave_is_closed:
            raise BrokerNotFoundError(
                "the queue's master is away, and its slave may not be read: slaveReadEnable=true in the "
                "brokers' settings lets slaves serve meanwhile",
                **error.facts,
            ) from error
        if not error.retriable or stalled_ms >= self._options.stall_timeout_ms:
            raise error
        self._failures += 1
        if self._connection is not None:
            self._refused_by.add(self._connection.addr)
            if isinstance(error, RequestTimeoutError):  # half-open, or a peer that is stuck
                self._client.drop(self._connection.addr)
        self.close()
        self._window.restart()
        if error.stale_route or self._failures > 1:  # a slave that may not be read only says that it is busy
            self._client.invalidate(self.offsets.topic)
        self._client.clock.sleep(self._back_off(error).pause_s(self._failures, self._client.random))
        self.blocked = False

    def _back_off(self, error: RocketMQError) -> RetryPolicy:
        if isinstance(error, BrokerError) and error.code == ResponseCode.PULL_NOT_FOUND:
            return replace(_BACK_OFF, base_ms=self._options.empty_pull_delay_ms)
        return _BACK_OFF

    def close(self) -> None:
        """Drop the pulls in flight."""
        if self._connection is not None:
            self._connection.abandon(*self._in_flight)
        self._in_flight.clear()
        self._connection = self._template = None
        self._client.pull_strides[self.offsets.broker_name] = self._window.stride

    def _now(self) -> float:
        return self._client.clock.monotonic()

    def _take(self) -> list[Taken[_Payload]]:
        taken = self._window.take()
        if taken:
            self._progress = self._now()
            self._failures = 0
            self._missing_since = None
            self._slave_is_closed = False
            self._refused_by.clear()
        return taken

    # --- where ---

    def _locate(self) -> Connection:
        """Connect to the suggested broker id, else the master, else a replica that did not fail us yet."""
        broker = self._broker()
        by_preference = sorted(broker.addresses, key=lambda i: (i != self._broker_id, i != MASTER_ID, i))
        candidates = [i for i in by_preference if broker.addresses[i] not in self._refused_by]
        if not candidates:
            self._refused_by.clear()
            candidates = by_preference
        addr = broker.addresses[candidates[0]]
        self._at_master = candidates[0] == MASTER_ID
        try:
            return self._client.connection(addr)
        except RocketMQError:
            self._refused_by.add(addr)
            raise

    def _pulls_at(self, connection: Connection) -> RequestTemplate:
        queue, options = self.offsets.queue, self._options
        return pull_template(
            self._client, connection, queue, selector=options.selector, group=options.consumer_group
        )

    def _broker(self) -> BrokerData:
        """Find the broker by the topic's route, or, if it is not there, among all brokers.

        A topic has no route when it was deleted, but also while its brokers are down. So only a broker that
        is there may say that it does not have the queue (any more).
        """
        name: str | None = self.offsets.broker_name
        try:
            try:
                route = self._client.route(self.offsets.topic)
                name = route.owner(self.offsets.queue)  # a static topic's queue moves
                broker = None if name is None else route.broker(name)
            except TopicNotFoundError:
                broker = None
            if broker is None and name is not None:
                broker = self._client.find_broker(name)
        except NameServerError as error:  # they were there when the range was planned: worth waiting for
            raise BrokerNotFoundError(error.message, **error.facts) from error
        if broker is None or not broker.addresses:
            raise BrokerNotFoundError(
                "the broker is known to no name server (now)", queue=str(self.offsets.queue)
            )
        return broker

    # --- what ---

    def _digest(self, ask: Ask, response: Response) -> None:
        match response.code:
            case ResponseCode.SUCCESS:
                self._found(ask, response)
            case ResponseCode.PULL_NOT_FOUND | ResponseCode.PULL_RETRY_IMMEDIATELY:
                self._nothing(ask, PullMessageResponse.parse(response.fields))
            case ResponseCode.PULL_OFFSET_MOVED:
                self._moved(ask, PullMessageResponse.parse(response.fields), response.remark)
            case _:
                self._window.refused(ask.offset)
                if not _queue_is_gone(response):
                    response.require(queue=str(self.offsets.queue), offset=ask.offset)
                elif not self._at_master:
                    raise ServiceNotAvailableError(
                        "the slave does not have the queue (yet)",
                        code=response.code,
                        remark=response.remark,
                        addr=response.addr,
                    )
                elif self._is_head(ask):
                    self._client.invalidate(self.offsets.topic)
                    self._give_up(PullVerdict.QUEUE_GONE, self.offsets.until_offset)

    def _found(self, ask: Ask, response: Response) -> None:
        next_offset, self._broker_id, offset_delta = _position(response.fields)
        size = response.end - response.start
        self._answer_bytes = max(size, (self._answer_bytes * 7 + size) // 8, MIN_RECORD_SIZE)
        messages = 1 if self._options.selector.takes_all else _count_records(response.body)
        self._window.answered(ask.offset, next_offset, messages, (response, offset_delta))

    def _nothing(self, ask: Ask, header: PullMessageResponse) -> None:
        """Handle an answer without records: a filter's scan, a jump, or the end of what this replica has."""
        if header.next_begin_offset > ask.offset:
            self._window.answered(ask.offset, header.next_begin_offset, 0, None)
            return
        self._window.refused(ask.offset)
        if not self._is_head(ask):
            return
        self._missing_since = self._missing_since or self._now()
        waited_ms = (self._now() - self._missing_since) * 1000
        if not self._at_master or waited_ms < self._options.missing_patience_ms:
            raise self._behind()
        self._give_up(PullVerdict.BEYOND_MAX, header.max_offset)

    def _moved(self, ask: Ask, header: PullMessageResponse, remark: str | None) -> None:
        self._window.refused(ask.offset)
        if not self._is_head(ask) or remark == "OFFSET_RESET":
            return  # asked again when its turn comes: a reset of the group is not of our offsets
        if header.next_begin_offset > ask.offset:
            self._give_up(PullVerdict.BELOW_MIN, header.next_begin_offset)
        elif self._at_master:
            self._give_up(PullVerdict.BEYOND_MAX, header.max_offset)
        else:
            raise self._behind()

    def _behind(self) -> ServiceNotAvailableError:
        """Return the error of a broker without messages that were planned; the master is asked next."""
        self._broker_id = MASTER_ID
        return ServiceNotAvailableError(
            "the broker does not have these messages (yet, or any more)",
            code=ResponseCode.PULL_NOT_FOUND,
            addr=self._connection and self._connection.addr,
        )

    def _is_head(self, ask: Ask) -> bool:
        """Whether this pull is the one that everything waits for: only then its refusal is judged."""
        return ask.offset == self._window.expected

    def _give_up(self, verdict: PullVerdict, bound: int) -> None:
        """Let the one function that decides about data loss raise, or say where to go on."""
        wanted = OffsetRange(self.offsets.queue, self._window.expected, self.offsets.until_offset)
        decision = decide_loss(wanted, verdict, bound, fail_on_data_loss=self._options.fail_on_data_loss)
        self.lost.append(decision.lost)
        self._window.skip_to(decision.offset)
        self._progress = self._now()


def _queue_is_gone(response: Response) -> bool:
    """Tell whether the broker has no such topic or queue; 4.9 has no code of its own for the latter."""
    match response.code:
        case ResponseCode.TOPIC_NOT_EXIST | ResponseCode.INVALID_PARAMETER:
            return True
        case ResponseCode.SYSTEM_ERROR:
            return (response.remark or "").startswith("queueId[")
        case _:
            return False


def _position(fields: Mapping[str, str]) -> tuple[int, int, int]:
    """Return next begin offset, suggested broker id and offset delta: all that an answer with records needs.

    A third of the cost of `PullMessageResponse.parse`, which says what is wrong with the others.
    """
    try:
        return (
            int(fields["nextBeginOffset"]),
            int(fields.get("suggestWhichBrokerId", MASTER_ID)),
            int(fields.get("offsetDelta", 0)),
        )
    except (KeyError, ValueError):
        header = PullMessageResponse.parse(fields)
        return header.next_begin_offset, header.suggest_which_broker_id, header.offset_delta


def _chunk(taken: Taken[_Payload]) -> Chunk:
    assert taken.payload is not None
    response, offset_delta = taken.payload
    return Chunk(
        response.buffer, response.start, response.end, taken.from_offset, taken.until_offset, offset_delta
    )


def _count_records(body: memoryview) -> int:
    """Count the records of an answer by their sizes; a malformed one is the decoder's to report."""
    count = position = 0
    while position + MIN_RECORD_SIZE <= len(body):
        size = int.from_bytes(body[position : position + 4], "big", signed=True)
        count += 1
        position += max(size, MIN_RECORD_SIZE)
    return count
