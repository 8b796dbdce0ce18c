"""Pulls one offset range: chooses the broker, keeps pulls in flight, and handles failures."""

# Facts (PullMessageProcessor, DefaultMessageStore.getMessage; RocketMQ 4.9 and 5.4)
# - PULL_OFFSET_MOVED (21): OFFSET_TOO_SMALL = expired, OFFSET_OVERFLOW_BADLY = the log is shorter than
#   planned, OFFSET_RESET = an operator's reset of the group, reported once, whatever the requested offset.
# - A slave refuses pulls unless slaveReadEnable is set: SYSTEM_BUSY with [REJECTREQUEST].
# - A new slave answers TOPIC_NOT_EXIST (17) until it has copied its master's topics, for up to a minute.
# - A slave lags, and deletes files on its own: whatever it does not have, its master may have.

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, assert_never

from pyspark_rocketmq.client.net.connection import Response
from pyspark_rocketmq.client.net.pull_lanes import PullChannel, PullLanes
from pyspark_rocketmq.client.read import pull_answer
from pyspark_rocketmq.client.read.pull_answer import PullPayload, Records, Removed, Scanned
from pyspark_rocketmq.client.read.pull_filter import pull_template
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.client.read.replica_choice import ReplicaChoice
from pyspark_rocketmq.client.retry import RetryPolicy
from pyspark_rocketmq.errors import (
    BrokerError,
    BrokerNotFoundError,
    FlowControlError,
    RemoteProtocolError,
    RequestTimeoutError,
    RocketMQError,
    ServiceNotAvailableError,
)
from pyspark_rocketmq.model import MASTER_ID, LostRange, OffsetRange
from pyspark_rocketmq.planning.data_loss import PullVerdict, decide_loss
from pyspark_rocketmq.planning.pulling.patience import Patience
from pyspark_rocketmq.planning.pulling.pull_concurrency import PullDepth, Sent
from pyspark_rocketmq.planning.pulling.pull_window import Ask, PullWindow
from pyspark_rocketmq.record.decode.arrow import Chunk
from pyspark_rocketmq.record.decode.holes import find_holes
from pyspark_rocketmq.remoting.codes import ResponseCode
from pyspark_rocketmq.remoting.header import PullMessageResponse
from pyspark_rocketmq.remoting.template import RequestTemplate

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client

__all__ = ["RangePull"]

_BACK_OFF: Final = RetryPolicy(base_ms=50, max_ms=2_000)


class RangePull:
    """The state of one range; driven by `range_reader`.

    `ask` may send pulls at any time. `advance` is called for the first range only, and also raises errors of
    `ask`.

    Parameters
    ----------
    client : Client
    offsets : OffsetRange
    options : ReadOptions
    depth : PullDepth
        The pull depth of its reader.
    """

    def __init__(self, client: Client, offsets: OffsetRange, options: ReadOptions, depth: PullDepth) -> None:
        self.offsets = offsets
        self.lost: list[LostRange] = []
        self.gaps = 0
        """The number of offsets that never had a message in this topic, not counting filtered ones."""
        self._client = client
        self._options = options
        self._depth = depth
        self._hint = client.pull_hints.of(offsets.queue, options.selector)
        self._filtered = not options.selector.takes_all
        self._window: PullWindow[PullPayload] = PullWindow(
            offsets, batch_size=options.pull_batch_size, filtered=self._filtered, stride=self._hint.stride
        )
        self._channel: PullChannel | None = None
        self._template: RequestTemplate | None = None
        self._replica = ReplicaChoice(client, offsets.queue)
        self._slave_is_closed = False
        self._holes_are_natural: bool | None = None
        self._in_flight: dict[int, tuple[Ask, Sent]] = {}
        self._failure: RocketMQError | None = None
        self._patience = Patience()
        self._resume_at = 0.0

    @property
    def done(self) -> bool:
        """Whether every offset has been accounted for."""
        return self._window.done

    @property
    def in_flight(self) -> int:
        """The number of pulls in flight."""
        return len(self._in_flight)

    @property
    def bytes_due(self) -> int:
        """The bytes that answers may have that are in flight, or that wait for an earlier one."""
        return self._window.held_bytes + len(self._in_flight) * self._hint.expected_bytes

    def ask(self, pulls: int, room_bytes: int) -> int:
        """Send pulls, up to a number and to the expected bytes of their answers; return how many were sent.

        Sends none until `advance` has handled a failure, while it spares a busy broker or an answer is slow.
        """
        if self._failure is not None or self._patience.awaits_late_answer or self._now() < self._resume_at:
            return 0
        try:
            return self._send(min(pulls, room_bytes // self._hint.expected_bytes))
        except RocketMQError as error:
            self._failure = error
            return 0

    def advance(self) -> list[Chunk]:
        """Wait for answers, or recover from a failure; return the next records in order (often none).

        For a range that is not `done`.

        Raises
        ------
        DataLossError
            Messages of the range are gone and ``fail_on_data_loss`` is set.
        RocketMQError
            A failure that is not worth a retry, or no progress for ``stall_timeout_ms``.
        """
        try:
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure
            return self._receive()
        except RocketMQError as error:
            chunks = self._take()  # came with what failed, or before it
            self._recover(error)
            if chunks:
                self._patience.record_progress()  # what the consumer does with them is no part of the failure
            return chunks

    def account_for(self, chunks: Sequence[Chunk], decoded: int) -> None:
        """Determine the outcome of the offsets of these chunks, of which ``decoded`` had a message.

        A hole in a filtered answer cannot be told from what the filter left out.

        Raises
        ------
        DataLossError
            Messages were removed and ``fail_on_data_loss`` is set.
        RocketMQError
            Whether the topic has holes by nature could not be found out.
        """
        missing = sum(chunk.until_offset - chunk.from_offset for chunk in chunks) - decoded
        if self._filtered or not missing:
            return
        if self._has_natural_holes(self._client.operation_timeout_ms):
            self.gaps += missing
            return
        for start, end in find_holes(chunks, self.offsets.topic):
            self._lose(OffsetRange(self.offsets.queue, start, end))

    def close(self) -> None:
        """Drop the pulls in flight."""
        if self._channel is not None:
            self._channel.abandon(*self._in_flight)
        self._in_flight.clear()
        self._channel = self._template = None
        self._hint.stride = self._window.stride

    def _now(self) -> float:
        return self._client.clock.monotonic()

    # --- pulls ---

    def _send(self, pulls: int) -> int:
        asks = list(itertools.islice(iter(self._window.ask, None), max(0, pulls)))
        if not asks:
            return 0
        # If this fails, `_recover` has the window ask for them again.
        channel = self._channel = self._channel or self._replica.connect(self._depth)
        selector, group = self._options.selector, self._options.consumer_group
        template = self._template = self._template or pull_template(
            self._client, channel, self.offsets.queue, selector=selector, group=group
        )
        sent = self._depth.record_sent(self._now())
        opaques = channel.submit_many(template, [(ask.offset, ask.max_messages) for ask in asks])
        self._in_flight.update(zip(opaques, ((ask, sent) for ask in asks), strict=True))
        return len(asks)

    def _receive(self) -> list[Chunk]:
        if not self._in_flight:
            self._client.clock.sleep(max(0.0, self._resume_at - self._now()))
            self._send(1)
        assert self._channel is not None, "a range that is not done always has something to ask for"
        deadline = self._client.deadline(self._client.request_timeout_ms, renewable=True)
        answers = self._channel.wait_some(self._in_flight, deadline)
        self._patience.record_answer()
        self._depth.record_answer(len(answers), self._in_flight[answers[-1][0]][1], self._now())
        busy = [response for _, response in answers if pull_answer.is_busy(response)]
        asks = {self._in_flight.pop(opaque)[0]: response for opaque, response in answers}
        try:
            for ask, response in asks.items():
                if not pull_answer.is_busy(response):
                    self._digest(ask, response)
        finally:
            for ask in asks:  # those without a result, also after an error: they are not in flight any more
                self._window.record_refusal(ask.offset)
        if busy:
            if len(busy) == len(answers) and not self._in_flight:  # not the right broker (any more)?
                busy[0].require(queue=str(self.offsets.queue), offset=self._window.expected)
            self._leave_alone(busy[0])
        return self._take()

    def _leave_alone(self, refusal: Response) -> None:
        """Send a busy broker no new pulls for a limited time; pulls in flight continue."""
        if self._now() >= self._resume_at:  # else it refused what was asked for before the pause
            self._patience.record_failure(self._now(), missed=False)
            self._resume_at = self._now() + _BACK_OFF.pause_s(self._patience.failures, self._client.random)
        if self._is_stalled():
            refusal.require(queue=str(self.offsets.queue), offset=self._window.expected)

    def _take(self) -> list[Chunk]:
        chunks: list[Chunk] = []
        for taken in self._window.take():
            self._record_progress()
            match taken.payload:
                case Records():
                    chunks.append(taken.payload.chunk(taken.from_offset, taken.until_offset))
                case Removed():
                    self._lose(OffsetRange(self.offsets.queue, taken.from_offset, taken.until_offset))
                case Scanned():
                    self.gaps += 0 if self._filtered else taken.until_offset - taken.from_offset
                case _:
                    assert_never(taken.payload)
        return chunks

    # --- trouble ---

    def _record_progress(self) -> None:
        self._patience.record_progress()
        self._slave_is_closed = False
        self._replica.forgive()

    def _recover(self, error: RocketMQError) -> None:
        """Prepare to continue after ``error``, or raise it: not retriable, or no progress for too long."""
        arriving = error.arriving if isinstance(error, RequestTimeoutError) else None
        if self._patience.record_late_answer(self._now(), arriving) and not self._is_stalled():
            return  # the pulls stay in flight
        missed = isinstance(error, BrokerError) and error.code == ResponseCode.PULL_NOT_FOUND
        self._patience.record_failure(self._now(), missed=self._replica.master_may_lack(missed))
        if not self._replica.at_master and isinstance(error, FlowControlError):
            self._slave_is_closed = pull_answer.slave_is_closed(error.remark)
        error.facts.setdefault("queue", str(self.offsets.queue))
        error.facts.setdefault("offset", self._window.expected)
        stalled = self._is_stalled()
        if error.retriable and stalled and self._slave_is_closed:
            raise BrokerNotFoundError(
                "the queue's master is down, and its slave must not be read: slaveReadEnable=true in the "
                "brokers' settings lets slaves serve meanwhile",
                **error.facts,
            ) from error
        if stalled or not error.retriable:
            raise error
        if self._channel is not None:
            self._replica.refuse(self._channel.addr)
            if isinstance(error, RequestTimeoutError) and not isinstance(self._channel, PullLanes):
                self._client.drop(self._channel.addr)  # half-open, or a peer that is stuck
        self.close()
        self._window.restart()
        # A master that became a slave only says that it is busy.
        if error.stale_route or self._patience.failures > 1:
            self._client.invalidate(self.offsets.topic)
        back_off = replace(_BACK_OFF, base_ms=self._options.empty_pull_delay_ms) if missed else _BACK_OFF
        self._client.clock.sleep(back_off.pause_s(self._patience.failures, self._client.random))

    def _is_stalled(self) -> bool:
        return self._patience.stalled_ms(self._now()) >= self._options.stall_timeout_ms

    # --- answers ---

    def _digest(self, ask: Ask, response: Response) -> None:
        match response.code:
            case ResponseCode.SUCCESS:
                self._found(ask, response)
            case ResponseCode.PULL_NOT_FOUND | ResponseCode.PULL_RETRY_IMMEDIATELY:
                self._nothing(ask, response)
            case ResponseCode.PULL_OFFSET_MOVED:
                self._handle_move(ask, response)
            case _ if not pull_answer.queue_is_gone(response):
                response.require(queue=str(self.offsets.queue), offset=ask.offset)
            case _ if not self._replica.at_master:
                raise ServiceNotAvailableError(
                    "the slave does not have the queue (yet)",
                    code=response.code,
                    remark=response.remark,
                    addr=response.addr,
                )
            case _:
                self._window.postpone(ask.offset)
                if self._is_head(ask):
                    self._client.invalidate(self.offsets.topic)
                    self._give_up(PullVerdict.QUEUE_GONE, self.offsets.until_offset)

    def _found(self, ask: Ask, response: Response) -> None:
        next_offset, self._replica.suggested, offset_delta = pull_answer.position(response.fields)
        if next_offset <= ask.offset:
            raise RemoteProtocolError(
                f"a broker returned messages and a next offset ({next_offset}) that does not follow them",
                addr=response.addr,
                queue=str(self.offsets.queue),
                offset=ask.offset,
            )
        records = Records(response, offset_delta, next_offset)
        if not self._replica.at_master and not self._filtered:
            chunk = records.chunk(ask.offset, min(next_offset, self.offsets.until_offset))
            if find_holes([chunk], self.offsets.topic) and not self._has_natural_holes():
                raise self._not_here()
        size = response.end - response.start
        self._hint.learn(size)
        n = pull_answer.count_records(response.body) if self._filtered else 1
        self._window.record_answer(ask.offset, next_offset, messages=n, payload=records, payload_bytes=size)

    def _nothing(self, ask: Ask, response: Response) -> None:
        """Handle an answer without records: a filter's scan, a jump, or the end of what this replica has."""
        header = PullMessageResponse.parse(response.fields)
        if header.next_begin_offset <= ask.offset:
            self._window.postpone(ask.offset)
            if self._is_head(ask):
                self._missing(header)
            return
        payload: PullPayload = Scanned()
        if not (self._filtered and pull_answer.scans_for_filter(response)) and not self._has_natural_holes():
            if not self._replica.at_master:
                raise self._not_here()
            payload = Removed()
        self._window.record_answer(ask.offset, header.next_begin_offset, messages=0, payload=payload)

    def _handle_move(self, ask: Ask, response: Response) -> None:
        header = PullMessageResponse.parse(response.fields)
        self._window.postpone(ask.offset)
        reset = pull_answer.is_reset(response, header, ask.offset)
        if reset and self._options.follow_resets:
            raise pull_answer.GroupResetError(header.next_begin_offset)
        if not self._is_head(ask):
            return  # asked again when its turn comes
        if reset:
            self._leave_alone(response)  # a reset of the group is not of our offsets
        elif header.next_begin_offset <= ask.offset:
            self._missing(header)
        elif self._replica.at_master:
            self._give_up(PullVerdict.BELOW_MIN, header.next_begin_offset)
        else:
            raise self._not_here()

    def _missing(self, header: PullMessageResponse) -> None:
        """Wait for offsets at or after the queue's end, at its master. After some time they count as lost."""
        missing_ms = self._patience.missing_ms(self._now())
        if not self._replica.at_master or missing_ms < self._options.missing_patience_ms:
            raise self._not_here()
        self._give_up(PullVerdict.BEYOND_MAX, header.max_offset)

    def _not_here(self) -> ServiceNotAvailableError:
        """Return the error for a slave that lacks planned messages; the next request goes to the master."""
        self._replica.suggested = MASTER_ID
        return ServiceNotAvailableError(
            "the broker does not have these messages (yet, or any more)",
            code=ResponseCode.PULL_NOT_FOUND,
            addr=self._channel and self._channel.addr,
        )

    def _is_head(self, ask: Ask) -> bool:
        """Whether this is the pull that all others wait for: only its rejection is judged."""
        return ask.offset == self._window.expected

    # --- losses ---

    def _has_natural_holes(self, timeout_ms: int | None = None) -> bool:
        """Whether offsets without a message are no loss in this topic. Requested once."""
        if self._holes_are_natural is None:
            client, fail, slave = self._client, self._options.fail_on_data_loss, self._replica.slave
            given = self.offsets.queue, client.deadline(timeout_ms or client.request_timeout_ms), fail, slave
            self._holes_are_natural = pull_answer.has_natural_holes(client, *given)
        return self._holes_are_natural

    def _give_up(self, verdict: PullVerdict, bound: int) -> None:
        """Let `data_loss` decide: it raises an error, or returns where to continue."""
        wanted = OffsetRange(self.offsets.queue, self._window.expected, self.offsets.until_offset)
        decision = decide_loss(wanted, verdict, bound, fail_on_data_loss=self._options.fail_on_data_loss)
        self.lost.append(decision.lost)
        self._window.skip_to(decision.offset)
        self._record_progress()

    def _lose(self, removed: OffsetRange) -> None:
        """Let `data_loss` decide: it raises an error, or the removed offsets are counted."""
        fail = self._options.fail_on_data_loss
        decision = decide_loss(removed, PullVerdict.REMOVED, removed.until_offset, fail_on_data_loss=fail)
        self.lost.append(decision.lost)
