"""One queue of a push consumer: a thread that pulls it, and what of it is under way."""

# Facts (DefaultMQPushConsumerImpl.pullMessage, ProcessQueue, ConsumeMessageOrderlyService; 5.4.0)
# - A queue is not pulled while too much of it waits: 1,000 messages, 100 MiB, or a span of 2,000 offsets.
# - After OFFSET_ILLEGAL Java continues where the broker says.
# - Messages of a queue that was taken away are not consumed any more, and their ends are not committed.
# - Consumed in order, a queue's lock counts for 30 s after the broker gave or renewed it.
# - A suspended pull's time is looked at every 5 s only: its answer may come 5 s late.

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.client import requests as broker
from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.groups.push_decoding import PushDecoder
from pyspark_rocketmq.client.groups.push_options import PushOptions
from pyspark_rocketmq.client.read.pull_answer import check_pull
from pyspark_rocketmq.client.read.pull_filter import agree_on_selector
from pyspark_rocketmq.client.read.range_reader import Pulled, RangeEnd, read_chunks
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.client.requests import PullAnswer
from pyspark_rocketmq.errors import BrokerNotFoundError, RocketMQError
from pyspark_rocketmq.model import Message, MessageQueue, MessageSelector, OffsetRange, PullStatus
from pyspark_rocketmq.planning.offset_tracker import InFlight
from pyspark_rocketmq.record.decode.rows import Chunk

__all__ = ["Deliver", "PulledRun", "QueueWorker", "TakeRun"]

_LOG: Final = logging.getLogger(__name__)

_PAUSE_AFTER_ERROR_S: Final = 1.0
_SEND_BACK_AGAIN_S: Final = 5.0
_LOOK_AGAIN_S: Final = 0.05
_LOCK_LIVES_S: Final = 30.0
_SUSPEND_LAG_MS: Final = 5_000
_FOREVER: Final = (1 << 63) - 1
_FAR_BEHIND: Final = 4
"""From how many full pulls on it is worth to have several under way; of whole pulls only."""
_PULLS_IN_FLIGHT: Final = 8
_MOST_AT_ONCE: Final = 10_000
_STALL_MS: Final = 20_000

Deliver = Callable[["QueueWorker", Sequence[Message]], None]
"""Takes the messages of one pull, in order; may return before they are finished."""


@dataclass(frozen=True, slots=True)
class PulledRun:
    """What one pull found, undecoded: what takes runs is spared an object a message.

    Parameters
    ----------
    queue : MessageQueue
    from_offset : int
        What was asked for; names the run for `QueueWorker.finish_run`.
    offset_delta : int
        See `Chunk`.
    records : bytes or memoryview
    until_offset : int
        Records from there on belong to another run.
    """

    queue: MessageQueue
    from_offset: int
    offset_delta: int
    records: bytes | memoryview
    until_offset: int = _FOREVER

    def chunk(self, buffer: memoryview | None = None, start: int = 0) -> Chunk:
        """Return the records as a decoder takes them; in a larger buffer if they lie in one."""
        data = memoryview(self.records) if buffer is None else buffer
        end = start + len(self.records)
        return Chunk(data, start, end, self.from_offset, self.until_offset, self.offset_delta)


TakeRun = Callable[["QueueWorker", PulledRun], None]
"""Takes what a pull found instead of `Deliver`; ends with `QueueWorker.finish_run`, at any time."""


@dataclass(frozen=True, slots=True)
class _PutOff:
    """A message that is to be sent back to its broker, from a moment on."""

    message: Message
    due_s: float = 0.0


class QueueWorker:
    """Pulls a queue in one thread, as long as the member has it.

    Parameters
    ----------
    client : Client
    group : str
    queue : MessageQueue
    position : int
        Where to begin.
    selector : MessageSelector
    options : PushOptions
    deliver : Callable
    take_run : Callable, optional
        Takes whole pulls in its place; limits in messages then count pulls.
    on_put_off : Callable
        Called when messages wait to be sent back; must return at once.
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
        on_put_off: Callable[[], None] = lambda: None,
    ) -> None:
        self.queue = queue
        self._client = client
        self._group = group
        self._selector = selector
        self._options = options
        self._deliver = deliver
        self._take_run = take_run
        self._on_put_off = on_put_off
        self._put_off: dict[int, _PutOff] = {}
        self._decoder = PushDecoder(client, group, queue, selector, options)
        self._next = position
        self._in_flight = InFlight(position)
        self._state = threading.Condition()
        self._stopped = threading.Event()
        self._dropped = False
        self._locked_until = 0.0
        self._calling = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"push-{queue}", daemon=True)

    def start(self) -> None:
        """Begin to pull."""
        self._thread.start()

    def stop(self) -> None:
        """Pull no more, and begin no further call of the listener; what is under way still counts."""
        self._stopped.set()
        with self._state:
            self._state.notify_all()

    def drop(self) -> None:
        """Stop because the queue is another member's now: what is under way does not count any more."""
        with self._state:
            self._dropped = True
        self.stop()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread."""
        self._thread.join(timeout_s)

    @property
    def stopped(self) -> bool:
        """Whether no further message may go to the listener."""
        return self._stopped.is_set()

    @property
    def broken(self) -> bool:
        """Whether the thread ended without being stopped."""
        return not self.stopped and not self._thread.is_alive()

    @property
    def position(self) -> int:
        """The next offset to commit: everything below is finished, or was taken back by the broker."""
        with self._state:
            return min([self._in_flight.position, *self._put_off])

    def finish(self, messages: Sequence[Message]) -> None:
        """Record that messages are finished."""
        self._finish(message.queue_offset for message in messages)

    def finish_run(self, run: PulledRun) -> None:
        """Record that all messages of a pull are finished."""
        self._finish([run.from_offset])

    def _finish(self, offsets: Iterable[int]) -> None:
        with self._state:
            if not self._dropped:
                self._in_flight.finish(offsets)
                self._state.notify_all()

    # --- deferred ---

    def put_off(self, messages: Sequence[Message]) -> None:
        """Have messages sent back to the broker; until it has taken them their offsets are not committed.

        Returns at once: a broker that does not answer holds no thread of a listener.
        """
        with self._state:
            if self._dropped:
                return
            for message in messages:
                self._put_off[message.queue_offset] = _PutOff(message)
        self._on_put_off()

    def to_send_back(self) -> list[Message]:
        """Return the messages that are to be sent back now, in the order of their offsets."""
        now = self._client.clock.monotonic()
        with self._state:
            return [put_off.message for _, put_off in sorted(self._put_off.items()) if put_off.due_s <= now]

    def record_sent_back(self, message: Message) -> None:
        """Record that the broker has accepted a message for redelivery."""
        with self._state:
            self._put_off.pop(message.queue_offset, None)
            self._state.notify_all()

    def record_not_sent_back(self, message: Message, *, refused: bool) -> None:
        """Record that it has not: this is retried or, if refused permanently, the listener gets it again.

        As Java's client, which then counts the tries itself.
        """
        due_s = self._client.clock.monotonic() + _SEND_BACK_AGAIN_S
        with self._state:
            if self._dropped or self.stopped:
                return
            if not refused or self._take_run is not None:
                self._put_off[message.queue_offset] = _PutOff(message, due_s)
                return
            del self._put_off[message.queue_offset]
            self._in_flight.add([(message.queue_offset, len(message.body))], next_offset=self._next)
        self._deliver(self, [message._replace(reconsume_times=message.reconsume_times + 1)])

    def pause(self, seconds: float) -> bool:
        """Wait, but not longer than until the worker is stopped; return whether it was."""
        return self._stopped.wait(seconds)

    # --- consumed in order ---

    @property
    def idle(self) -> bool:
        """Whether no thread works on the queue in order: it may be unlocked for the next owner."""
        with self._state:
            runs = len(self._in_flight) if self._take_run is not None else 0
        return not runs and not self._calling.locked()

    def note_lock(self, *, held: bool) -> None:
        """Record the broker's answer to a lock request."""
        self._locked_until = self._client.clock.monotonic() + _LOCK_LIVES_S if held else 0.0

    def in_order(self, call: Callable[[], None]) -> None:
        """Call while no other member may have the queue, unless the worker is stopped first."""
        with self._calling:
            while not self.stopped:
                if self._options.broadcasting or self._client.clock.monotonic() < self._locked_until:
                    call()
                    return
                self.pause(_LOOK_AGAIN_S)

    # --- pulling ---

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._wait_for_room()
                if not self._stopped.is_set():
                    self._pull()
            except RocketMQError as error:
                if self._stopped.is_set():  # the consumer closes the connections under its workers
                    return
                _LOG.warning("a pull of %s failed and is repeated: %s", self.queue, error)
                if error.stale_route:
                    self._client.invalidate(self.queue.topic)
                self.pause(_PAUSE_AFTER_ERROR_S)
            except Exception:  # noqa: BLE001 - the thread's outermost frame; the consumer starts another one
                _LOG.exception("pulling %s ended", self.queue)
                return

    def _wait_for_room(self) -> None:
        with self._state:
            while not self.stopped and self._is_full():
                self._state.wait(1.0)

    def _is_full(self) -> bool:
        limits, waiting, put_off = self._options, self._in_flight, self._put_off
        span = max(waiting.span, self._next - min(put_off) if put_off else 0)
        return (
            len(waiting) + len(put_off) >= limits.max_queued
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
        run = None if take is None else self._run_of(answer)
        messages = self._decoder.messages(answer, self._next) if take is None else []
        next_offset = answer.header.next_begin_offset
        if answer.status is PullStatus.OFFSET_ILLEGAL:
            _LOG.warning("%s has no offset %d: going on at %d", self.queue, self._next, next_offset)
        elif answer.status is PullStatus.NO_MATCHED_MSG and next_offset == self._next:
            self.pause(_PAUSE_AFTER_ERROR_S)  # a slave that lags answers without progress
        with self._state:
            if self.stopped:
                return
            self._next = next_offset
            sizes = [(message.queue_offset, len(message.body)) for message in messages]
            if run is not None:
                sizes.append((run.from_offset, len(run.records)))
            self._in_flight.add(sizes, next_offset=next_offset)
        if messages:
            self._deliver(self, messages)
        if run is not None and take is not None:
            take(self, run)
            if answer.header.max_offset - next_offset > _FAR_BEHIND * options.pull_batch_size:
                self._catch_up(take, answer.header.max_offset)

    def _is_master(self, addr: str) -> bool:
        try:
            return addr == self._client.queue_address(self.queue)
        except BrokerNotFoundError:
            return False

    def _catch_up(self, take: TakeRun, end: int) -> None:
        """Read on with several pulls under way, as batches do, until where the queue ended a moment ago."""
        options = ReadOptions(
            consumer_group=self._group,
            selector=self._selector,
            fail_on_data_loss=False,  # as after OFFSET_ILLEGAL: continue after the lost messages
            pull_batch_size=self._options.pull_batch_size,
            pulls_in_flight=_PULLS_IN_FLIGHT,
            stall_timeout_ms=_STALL_MS,
        )
        wanted = OffsetRange(self.queue, self._next, min(end, self._next + _MOST_AT_ONCE))
        for event in read_chunks(self._client, [wanted], options):
            for lost in event.pull.lost if isinstance(event, RangeEnd) else ():
                _LOG.warning("%d messages lost (%s): %s", len(lost.offsets), lost.condition, lost.offsets)
            for chunk in event.chunks if isinstance(event, Pulled) else ():
                self._wait_for_room()
                records = bytes(memoryview(chunk.buffer)[chunk.start : chunk.end])
                begin, until = chunk.from_offset, chunk.until_offset
                with self._state:
                    if self.stopped:
                        return
                    self._next = until
                    self._in_flight.add([(begin, len(records))], next_offset=until)
                take(self, PulledRun(self.queue, begin, chunk.offset_delta, records, until))
        with self._state:
            if not self.stopped:
                self._next = wanted.until_offset
                self._in_flight.add([], next_offset=self._next)

    def _run_of(self, answer: PullAnswer) -> PulledRun | None:
        if answer.status is not PullStatus.FOUND:
            return None
        # A copy: the run may wait for long, and must not hold a connection's whole buffer.
        return PulledRun(self.queue, self._next, answer.header.offset_delta, bytes(answer.records))
