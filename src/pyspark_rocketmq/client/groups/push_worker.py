"""One queue of a push consumer: a thread that pulls it, and its messages in flight."""

# Facts (DefaultMQPushConsumerImpl.pullMessage, ProcessQueue, ConsumeMessageOrderlyService; 5.4.0)
# - A queue is not pulled while 1,000 messages, 100 MiB, or a span of 2,000 offsets of it wait.
# - After OFFSET_ILLEGAL Java continues at the broker's offset.
# - Messages of a revoked queue are no longer consumed, and their offsets are not committed.
# - In ordered mode, a queue's lock is valid for 30 s after the broker granted or renewed it.
# - Brokers check the time of suspended pulls every 5 s: an answer may be 5 s late.

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.client import requests as broker
from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.clock import Since
from pyspark_rocketmq.client.groups.pulled_run import PulledRun
from pyspark_rocketmq.client.groups.push_decoding import PushDecoder
from pyspark_rocketmq.client.groups.push_options import PushOptions
from pyspark_rocketmq.client.groups.threads import Event, Worker
from pyspark_rocketmq.client.read.pull_answer import GroupResetError, check_pull
from pyspark_rocketmq.client.read.pull_filter import agree_on_selector
from pyspark_rocketmq.client.read.range_reader import Pulled, read_chunks
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.client.requests import PullAnswer
from pyspark_rocketmq.errors import BrokerNotFoundError, DataLossError, RocketMQError
from pyspark_rocketmq.model import Message, MessageQueue, MessageSelector, OffsetRange, PullStatus
from pyspark_rocketmq.planning.offset_tracker import InFlight

__all__ = ["Deliver", "QueueWorker", "TakeRun"]

_LOG: Final = logging.getLogger(__name__)

_PAUSE_AFTER_ERROR_S: Final = 1.0
_SEND_BACK_RETRY_S: Final = 5.0
_POLL_S: Final = 0.05
_LOCK_VALID_S: Final = 30.0
_SUSPEND_LAG_MS: Final = 5_000
_LAG_IN_PULLS: Final = 4
"""A lag of this number of full pulls is read with several pulls in flight; only by `TakeRun`."""
_PULLS_IN_FLIGHT: Final = 8
_MOST_CAUGHT_UP: Final = 10_000
_STALL_MS: Final = 20_000

Deliver = Callable[["QueueWorker", Sequence[Message]], None]
"""Takes the messages of one pull, in order; may return before they are finished."""


TakeRun = Callable[["QueueWorker", PulledRun], None]
"""Takes the records of a pull instead of `Deliver`; later calls `QueueWorker.finish_run` or `give_up`."""


@dataclass(frozen=True, slots=True)
class _Deferred:
    """A message for its broker, or if that refused it for the listener again, at this time or later."""

    message: Message
    due_s: float = 0.0
    refused: bool = False


class QueueWorker:
    """Pulls a queue in one thread, as long as the member owns it.

    Parameters
    ----------
    client : Client
    group : str
    queue : MessageQueue
    position : int
        The first offset to pull.
    selector : MessageSelector
    options : PushOptions
    deliver : Callable
    take_run : Callable, optional
        Takes whole pulls instead; limits in messages then count pulls.
    on_deferred : Callable
        Called when messages wait to be sent back. Must return immediately.
    keeps_lock : Callable
        Whether the broker that locked the queue has run since then, as far as is known.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        queue: MessageQueue,
        position: int,
        *,
        selector: MessageSelector,
        options: PushOptions,
        deliver: Deliver,
        take_run: TakeRun | None = None,
        on_deferred: Callable[[], None] = lambda: None,
        keeps_lock: Callable[[], bool] = lambda: True,
    ) -> None:
        self.queue = queue
        self._client = client
        self._group = group
        self._selector = selector
        self._options = options
        self._deliver = deliver
        self._take_run = take_run
        self._on_deferred = on_deferred
        self._keeps_lock = keeps_lock
        self._deferred: dict[int, _Deferred] = {}
        self._decoder = PushDecoder(client, group, queue, selector, options)
        self._next = position
        self._in_flight = InFlight(position)
        self._given_up: set[int] = set()
        self._state = client.host.condition()
        self._stopped = Event(client.host)
        self._dropped = False
        self._locked: Since | None = None
        self._turn = client.host.condition()
        self._calling = False
        self._thread = Worker(client.host, self._run, name=f"push-{queue}")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop pulling and calling the listener; running calls still count."""
        self._stopped.set()
        with self._state:
            self._state.notify_all()

    def drop(self) -> None:
        """Stop because the queue is another member's now: running calls no longer count."""
        with self._state:
            self._dropped = True
        self.stop()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread."""
        self._thread.join(timeout_s)

    @property
    def stopped(self) -> bool:
        """Whether no further message may be passed to the listener."""
        return self._stopped.is_set()

    @property
    def broken(self) -> bool:
        """Whether the thread ended without being stopped."""
        return not self.stopped and not self._thread.alive

    @property
    def position(self) -> int:
        """The next offset to commit: all messages below are finished, or accepted by the broker again."""
        with self._state:
            return min([self._in_flight.position, *self._deferred])

    def finish(self, messages: Sequence[Message]) -> None:
        """Record that messages are finished."""
        self._finish(message.queue_offset for message in messages)

    def finish_run(self, run: PulledRun) -> None:
        """Record that all messages of a pull are finished."""
        self._finish([run.from_offset])

    def give_up(self, run: PulledRun) -> None:
        """Record that a pull is not in work and stays unfinished: the queue's next owner gets it."""
        with self._state:
            self._given_up.add(run.from_offset)

    def _finish(self, offsets: Iterable[int]) -> None:
        with self._state:
            if not self._dropped:
                self._in_flight.finish(offsets)
                self._state.notify_all()

    # --- deferred ---

    def defer(self, messages: Sequence[Message]) -> None:
        """Send messages back to the broker, later. Until it accepts them, their offsets are not committed.

        Returns at once: no broker blocks a listener's thread. Do not `finish` them then: they may come again.
        """
        with self._state:
            if self._dropped:
                return
            for message in messages:
                self._deferred[message.queue_offset] = _Deferred(message)
            if self._take_run is None:  # a run is finished as a whole
                self._in_flight.finish(message.queue_offset for message in messages)
        self._on_deferred()

    def messages_to_send_back(self) -> list[Message]:
        """Return the messages to be sent back now, by offset; deliver those again that the broker refused."""
        now = self._client.clock.monotonic()
        with self._state:
            due = [each for _, each in sorted(self._deferred.items()) if each.due_s <= now]
        for each in due:
            if each.refused:
                self._deliver_again(each.message)
        return [each.message for each in due if not each.refused]

    def record_sent_back(self, message: Message) -> None:
        """Record that the broker has accepted a message for redelivery."""
        with self._state:
            self._deferred.pop(message.queue_offset, None)
            self._state.notify_all()

    def record_not_sent_back(self, message: Message, *, refused: bool) -> None:
        """Record that the broker has not accepted a message.

        It is sent again later; if the broker refused it, the listener gets it then, counted, as in Java.
        """
        due_s = self._client.clock.monotonic() + _SEND_BACK_RETRY_S
        with self._state:
            if self._dropped or self.stopped:
                return
            again = refused and self._take_run is None
            message = message._replace(reconsume_times=message.reconsume_times + again)
            self._deferred[message.queue_offset] = _Deferred(message, due_s, again)

    def _deliver_again(self, message: Message) -> None:
        with self._state:
            if self._dropped or self.stopped:
                return
            del self._deferred[message.queue_offset]
            self._in_flight.add([(message.queue_offset, len(message.body))], next_offset=self._next)
        try:
            self._deliver(self, [message])
        except RuntimeError as error:  # no thread can be started
            text, about = "a message of %s is delivered later: %s", (self.queue, type(error))
            self._client.warnings.warn(_LOG, text, self.queue, error, about=about)
            again = _Deferred(message, self._client.clock.monotonic() + _SEND_BACK_RETRY_S, refused=True)
            with self._state:
                self._deferred[message.queue_offset] = again
                self._in_flight.finish([message.queue_offset])

    def pause(self, seconds: float) -> bool:
        """Wait, or until the worker is stopped; return whether it was stopped."""
        return self._stopped.wait(seconds)

    # --- ordered mode ---

    @property
    def idle(self) -> bool:
        """Whether no ordered call runs: the queue may be unlocked for the next owner."""
        with self._state:
            runs = len(self._in_flight) - len(self._given_up) if self._take_run is not None else 0
        return not runs and not self._calling

    def record_lock(self, *, held: bool, asked: Since) -> None:
        """Record the broker's answer to a lock request.

        The lock counts from the request on: an answer may be taken long after the broker gave it.
        """
        self._locked = asked if held else None

    def call_in_order(self, call: Callable[[], None]) -> bool:
        """Call a function while the queue's lock is valid; return False if the worker is stopped first."""
        with self._turn:
            self._calling = True
            try:
                while not self.stopped:
                    if self._options.broadcasting or self._is_locked():
                        call()
                        return True
                    self.pause(_POLL_S)
                return False
            finally:
                self._calling = False

    def _is_locked(self) -> bool:
        locked = self._locked
        return locked is not None and locked.seconds < _LOCK_VALID_S and self._keeps_lock()

    # --- pulling ---

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._wait_for_room()
                if not self._stopped.is_set():
                    self._pull()
            except GroupResetError as reset:
                _LOG.warning("%s: %s", self.queue, reset)
                self._continue_at(reset.offset)
            except RocketMQError as error:
                if self._stopped.is_set():  # the consumer closed the connections
                    return
                text, about = "a pull of %s failed and is retried: %s", (self.queue, type(error))
                self._client.warnings.warn(_LOG, text, self.queue, error, about=about)
                if error.stale_route:
                    self._client.invalidate(self.queue.topic)
                self.pause(_PAUSE_AFTER_ERROR_S)
            except Exception as error:  # noqa: BLE001 - the thread's outermost frame; another worker follows
                ended, told = "pulling %s ended", (self.queue, type(error))
                self._client.warnings.warn(_LOG, ended, self.queue, about=told, trace=True)
                self.pause(_PAUSE_AFTER_ERROR_S)  # it may meet the same
                return

    def _wait_for_room(self) -> None:
        with self._state:
            while not self.stopped and self._is_full():
                self._state.wait(1.0)

    def _is_full(self) -> bool:
        limits, waiting, deferred = self._options, self._in_flight, self._deferred
        span = max(waiting.span, self._next - min(deferred) if deferred else 0)
        return (
            len(waiting) + len(deferred) >= limits.max_queued
            or waiting.bytes >= limits.max_queued_bytes
            or (not limits.ordered and span >= limits.max_span)
        )

    def _pull(self) -> None:
        client, options = self._client, self._options
        addr = client.queue_address(self.queue, master_only=False)
        connection = client.connection(addr)
        call = broker.pull(
            self.queue,
            self._next,
            group=self._group,
            max_nums=options.pull_batch_size,
            selector=agree_on_selector(client, connection, self.queue.topic, self._selector, self._group),
            suspend_ms=options.suspend_ms,
        )
        patience_ms = options.suspend_ms + _SUSPEND_LAG_MS + client.request_timeout_ms
        answer = call.on(connection, deadline=client.deadline(patience_ms))
        check_pull(answer, self.queue, self._next, self._selector, lambda: self._is_master(addr))
        take = self._take_run
        run = None if take is None else self._to_run(answer)
        messages = self._decoder.messages(answer, self._next) if take is None else []
        next_offset = answer.header.next_begin_offset
        if answer.status is PullStatus.OFFSET_ILLEGAL:
            _LOG.warning("%s has no offset %d: continuing at %d", self.queue, self._next, next_offset)
        elif answer.status is PullStatus.NO_MATCHED_MSG and next_offset == self._next:
            self.pause(_PAUSE_AFTER_ERROR_S)  # a slave that lags answers without progress
        taken = [(message.queue_offset, len(message.body)) for message in messages]
        taken += [] if run is None else [(run.from_offset, len(run.records))]
        if not self._continue_at(next_offset, taken):
            return
        if messages:
            self._deliver(self, messages)
        if run is not None and take is not None:
            take(self, run)
            if answer.header.max_offset - next_offset > _LAG_IN_PULLS * options.pull_batch_size:
                with contextlib.suppress(DataLossError):  # the next pull tells: a queue may be hidden only
                    self._catch_up(take, min(answer.header.max_offset, next_offset + _MOST_CAUGHT_UP))

    def _continue_at(self, next_offset: int, taken: Iterable[tuple[int, int]] = ()) -> bool:
        """Record what was pulled, and where to pull next; return whether the worker is not stopped."""
        with self._state:
            if not self.stopped:
                self._next = next_offset
                self._in_flight.add(taken, next_offset=next_offset)
            return not self.stopped

    def _is_master(self, addr: str) -> bool:
        try:
            return addr == self._client.queue_address(self.queue)
        except BrokerNotFoundError:
            return False

    def _catch_up(self, take: TakeRun, end: int) -> None:
        """Read up to an offset, with several pulls in flight. What is missing is an error."""
        options = ReadOptions(
            consumer_group=self._group,
            selector=self._selector,
            follow_resets=True,
            pull_batch_size=self._options.pull_batch_size,
            pulls_in_flight=_PULLS_IN_FLIGHT,
            stall_timeout_ms=_STALL_MS,
        )
        for event in read_chunks(self._client, [OffsetRange(self.queue, self._next, end)], options):
            for chunk in event.chunks if isinstance(event, Pulled) else ():
                self._wait_for_room()
                records = bytes(memoryview(chunk.buffer)[chunk.start : chunk.end])
                if not self._continue_at(chunk.until_offset, [(chunk.from_offset, len(records))]):
                    return
                begin, delta = chunk.from_offset, chunk.offset_delta
                take(self, PulledRun(self.queue, begin, delta, records, chunk.until_offset))
        self._continue_at(end)

    def _to_run(self, answer: PullAnswer) -> PulledRun | None:
        if answer.status is not PullStatus.FOUND:
            return None
        # A copy: the run may wait for a long time and must not keep a connection's whole buffer alive.
        records, header = bytes(answer.records), answer.header
        return PulledRun(self.queue, self._next, header.offset_delta, records, header.next_begin_offset)
