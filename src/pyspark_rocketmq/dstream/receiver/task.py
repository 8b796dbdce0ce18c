"""A receiver's task: it consumes, collects blocks, has the driver store them, and acknowledges."""

from __future__ import annotations

import itertools
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock
from pyspark_rocketmq.client.groups.pulled_run import PulledRun
from pyspark_rocketmq.client.groups.push_consumer import PushConsumer
from pyspark_rocketmq.client.groups.push_worker import QueueWorker
from pyspark_rocketmq.client.net.receive_buffer import MAX_FRAME_BYTES
from pyspark_rocketmq.dstream.receiver.block import (
    count_records,
    encode_objects,
    encode_runs,
    reading_of,
    run_messages,
)
from pyspark_rocketmq.dstream.receiver.collect import Collected, Collector, Given, InTurn, RateLimiter
from pyspark_rocketmq.dstream.receiver.group_options import push_options
from pyspark_rocketmq.dstream.receiver.link import FrameKind, Link, ReceiverSpec, Reply, ReplyStatus
from pyspark_rocketmq.dstream.receiver.receivers import RocketMQReceiver
from pyspark_rocketmq.errors import ConnectionLostError, RocketMQError
from pyspark_rocketmq.model import Message
from pyspark_rocketmq.options import MessageModel, ReceiverOptions
from pyspark_rocketmq.record.java_objects import JAVA_OBJECT_HINT, JAVA_OBJECT_START

__all__ = ["ReceiverRunner", "ReceiverTask"]

_LOG: Final = logging.getLogger(__name__)

_ALIVE_S: Final = 0.5
_PUT_OFF_AGAIN_S: Final = 1.0
_STOPPED_LOOK_S: Final = 0.1
_RATE_LOOK_S: Final = 1.0


class ReceiverTask:
    """One receiver, from the start to the end of its task.

    Parameters
    ----------
    receiver : RocketMQReceiver
    options : ReceiverOptions
        The receiver's options, including those from the driver's environment.
    spec : ReceiverSpec
    restart_delay_s : float
    clock : Clock
    """

    def __init__(
        self,
        receiver: RocketMQReceiver,
        options: ReceiverOptions,
        spec: ReceiverSpec,
        *,
        restart_delay_s: float = 2.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.number = spec.number
        self.stopped = True
        self._receiver = receiver
        self._spec = spec
        self._options = options
        self._restart_delay_s = restart_delay_s
        self._clock = clock
        self._limiter = RateLimiter(clock)
        self._collector = Collector()
        self._in_turn = InTurn(self._collector.add)
        self._consumer: PushConsumer | None = None
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._restart: str | None = None
        self._starts = 0
        self._storing = False
        self._of_message = threading.local()
        self._skipped = 0
        self._told_at = 0.0
        receiver.attach(self)

    def run(self) -> None:
        """Receive until the driver stops the receiver or is gone.

        Raises
        ------
        ConnectionLostError
            The driver is gone, or has replaced this task with another one.
        """
        with Link(self._spec, self._options.ttl_ms / 1000) as link:
            going = self._obey(link.tell(FrameKind.STARTED, socket.gethostname().encode()))
            while going:
                self._start()
                try:
                    going = self._serve(link)
                    self._drain(link)
                finally:
                    self._stop()
                if self._restart is not None:
                    reason, self._restart = self._restart, None
                    going = self._obey(link.tell(FrameKind.RESTART, reason.encode(), skipped=self._skipped))
                    if going:
                        self._clock.sleep(self._restart_delay_s)

    # --- what receivers call ---

    def open_consumer(self) -> None:
        """Join the group and start to collect.

        Raises
        ------
        RocketMQError
            A topic does not exist, or no name server answers.
        """
        options = self._options
        consumer = PushConsumer(options.consumer_group, options.client, push_options(options))
        for topic in options.topics:
            consumer.subscribe(topic, options.selector)
        self._consumer = consumer
        consumer.start_runs(self._take)

    def close_consumer(self) -> None:
        """Commit what is acknowledged and leave the group."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def store(self, element: Any) -> None:
        """See `RocketMQReceiver.store`."""
        elements = _elements(element)
        own: list[Any] | None = getattr(self._of_message, "elements", None)
        if own is not None:
            own += elements
            return
        start = self._starts
        self._wait_turn(len(elements), start)
        self._collector.add(given := Given(elements, threading.Event()))
        while not given.stored.wait(_STOPPED_LOOK_S):
            self._check_started(start)

    def _wait_turn(self, elements: int, start: int) -> None:
        """Wait as long as the rate limit requires."""
        self._check_started(start)
        turn = self._limiter.reserve(elements)
        while (left := self._limiter.wait_s(turn)) > 0:
            self._clock.sleep(min(left, _STOPPED_LOOK_S))
            self._check_started(start)

    def _check_started(self, start: int) -> None:
        if not self._storing or self._starts != start:
            raise RocketMQError("the receiver stopped before it stored the elements", receiver=self.number)

    def ask_to_restart(self, message: str, error: BaseException | None) -> None:
        """See `RocketMQReceiver.restart`."""
        self._restart = message if error is None else f"{message}: {error}"
        self._collector.full.set()

    # --- the task's thread ---

    def _start(self) -> None:
        self._in_turn.clear()
        self._collector.clear()
        self._limiter.clear()
        self._starts += 1
        self._storing = True
        self.stopped = False
        try:
            self._receiver.onStart()
        except Exception as error:  # noqa: BLE001 - the user's code, or no server; logged and retried
            _LOG.exception("receiver %d did not start", self.number)
            self.ask_to_restart("the receiver did not start", error)

    def _stop(self) -> None:
        self.stopped = True
        self._storing = False
        try:
            self._receiver.onStop()
        except Exception:  # noqa: BLE001 - the user's code, or no server; the receiver ends or restarts
            _LOG.exception("onStop of receiver %d failed", self.number)
        self.close_consumer()  # else it kept its queues if onStop failed or does not call super().onStop()
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        self._pools.clear()

    def _serve(self, link: Link) -> bool:
        """Store blocks until the receiver restarts (True) or the driver stops it (False)."""
        while self._restart is None:
            self._collector.full.wait(self._spec.block_interval_ms / 1000)
            self._store(link, self._collector.take())
            if self._clock.monotonic() - self._told_at >= _ALIVE_S:
                self._told_at = self._clock.monotonic()
                warning = self._consumer.take_warning() if self._consumer is not None else ""
                if not self._obey(link.tell(FrameKind.ALIVE, warning.encode(), skipped=self._skipped)):
                    return False
        return True

    def _drain(self, link: Link) -> None:
        """Store the rest after pulling has ended, unless a block was rejected."""
        self._storing = False  # a deserialize call may wait for threads that wait for this one to store
        if self._restart is not None:
            return
        if self._consumer is not None:
            self._consumer.stop_pulling()
        for pool in self._pools.values():
            pool.shutdown(wait=True, cancel_futures=True)
        while (taken := self._collector.take()) and self._restart is None:
            self._store(link, taken)

    def _store(self, link: Link, taken: list[Collected | Given]) -> None:
        """Have the driver store what was taken: pulled records and objects in separate blocks."""
        for _, alike in itertools.groupby(taken, lambda each: each.objects is None):
            if self._restart is None:
                self._store_block(link, list(alike))

    def _store_block(self, link: Link, taken: list[Collected | Given]) -> None:
        """Have the driver store a block, and acknowledge its messages; on failure, restart the receiver."""
        block, messages = _block(taken)
        if block is not None and len(block) > MAX_FRAME_BYTES:
            self._store_in_parts(link, taken, len(block))
            return
        tries = 0
        while block is not None:
            reply = link.tell(FrameKind.BLOCK, block, messages=messages, skipped=self._skipped)
            self._obey(reply)
            if reply.status is not ReplyStatus.REFUSED:
                break
            tries += 1
            if tries > self._options.max_retry:
                self.ask_to_restart(f"a block of {messages} messages could not be stored", None)
                return
            self._clock.sleep(0.2 * tries)
        for each in taken:
            if isinstance(each, Given):
                each.stored.set()
            else:
                each.worker.finish_run(each.run)

    def _store_in_parts(self, link: Link, taken: list[Collected | Given], size: int) -> None:
        """Store what is too large for one block, in two; the elements of one pull are one block."""
        if len(taken) == 1:
            self.ask_to_restart(
                f"the elements of one pull, or of one store(), take {size} bytes, more than the "
                f"{MAX_FRAME_BYTES} of a block: make smaller ones, or pull fewer messages at a time",
                None,
            )
            return
        half = len(taken) // 2
        for part in (taken[:half], taken[half:]):
            if self._restart is None:
                self._store_block(link, part)

    def _obey(self, reply: Reply) -> bool:
        """Receive at the driver's rate; return whether to receive at all."""
        self._limiter.rate = reply.rate
        return reply.status is not ReplyStatus.STOP

    # --- the consumer's threads ---

    def _take(self, worker: QueueWorker, run: PulledRun) -> None:
        """Take a run. A run with a message that cannot be decoded never finishes: the receiver restarts."""
        try:
            self._hand_on(worker, run)
        except RocketMQError as error:
            worker.give_up(run)
            self.ask_to_restart("messages could not be handed on", error)

    def _hand_on(self, worker: QueueWorker, run: PulledRun) -> None:
        messages = count_records(run)
        turn = self._limiter.reserve(messages)
        while (wait_s := self._limiter.wait_s(turn)) > 0:
            if worker.pause(min(wait_s, _RATE_LOOK_S)):
                worker.give_up(run)
                return
        add, makes_objects = self._collector.add, self._receiver.makes_objects
        if makes_objects:
            step = partial(self._deserialize, worker, run, messages, add)
        else:
            step = partial(add, Collected(worker, run, messages))
        if self._options.ordered:
            if not worker.call_in_order(step):
                worker.give_up(run)
        elif not makes_objects:
            step()
        else:
            hand_on = partial(self._in_turn.leave, worker, self._in_turn.enter(worker))
            try:
                self._pool(run.queue.topic).submit(self._deserialize_in_pool, worker, run, messages, hand_on)
            except RuntimeError:  # it was shut down: the receiver is being stopped
                return

    def _pool(self, topic: str) -> ThreadPoolExecutor:
        if topic not in self._pools:
            threads = self._receiver.threads.get(topic, self._options.threads)
            self._pools.setdefault(topic, ThreadPoolExecutor(threads, f"deserialize-{topic}"))
        return self._pools[topic]

    def _deserialize_in_pool(
        self, worker: QueueWorker, run: PulledRun, messages: int, hand_on: Callable[[Collected], None]
    ) -> None:
        try:
            self._deserialize(worker, run, messages, hand_on)
        except Exception as error:  # noqa: BLE001 - the thread's outermost frame
            _LOG.exception("receiver %d restarts", self.number)
            self.ask_to_restart("messages could not be handed on", error)

    def _deserialize(
        self, worker: QueueWorker, run: PulledRun, messages: int, hand_on: Callable[[Collected], None]
    ) -> None:
        objects: list[Any] = []
        skipped = 0
        for message in run_messages(run, reading_of(self._options)):
            while not worker.stopped:
                try:
                    made = self._made_of(message.body)
                except BaseException:  # noqa: BLE001 - the user's code, sys.exit(), too; retried later, as in Java
                    _LOG.exception(
                        "a message of %s could not be deserialized: it comes again%s",
                        *(run.queue, _hint(message.body)),
                    )
                    if self._defer(message, worker):
                        break
                    worker.pause(_PUT_OFF_AGAIN_S)
                    continue
                objects += made
                skipped += not made
                break
        if worker.stopped:
            worker.give_up(run)
            return
        self._skipped += skipped
        hand_on(Collected(worker, run, messages, tuple(objects)))

    def _made_of(self, body: bytes) -> Sequence[Any]:
        """Return the elements of a message: those that ``deserialize`` stored, then those it returned."""
        stored: list[Any] = []
        self._of_message.elements = stored
        try:
            returned = self._receiver.deserialize(body)
            return (*stored, *_elements(returned)) if returned is not None else tuple(stored)
        finally:
            self._of_message.elements = None

    def _defer(self, message: Message, worker: QueueWorker) -> bool:
        """Have a message redelivered later. Ordered: retried in place. Broadcasting: no redelivery."""
        if self._options.message_model is MessageModel.BROADCASTING:
            self._skipped += 1
            return True
        if self._options.ordered:
            return False
        worker.defer([message])
        return True


def _elements(element: Any) -> tuple[Any, ...]:
    return tuple(element) if isinstance(element, Iterator) else (element,)


def _hint(body: bytes) -> str:
    return f". {JAVA_OBJECT_HINT}" if body.startswith(JAVA_OBJECT_START) else ""


def _block(taken: list[Collected | Given]) -> tuple[bytes | None, int]:
    """Return the block of elements of one kind, and its messages or objects; None if all were skipped."""
    if taken[0].objects is None:
        runs = [each for each in taken if isinstance(each, Collected)]
        return encode_runs([each.run for each in runs]), sum(each.messages for each in runs)
    objects = [made for each in taken for made in each.objects or ()]
    return (encode_objects(objects) if objects else None), len(objects)


@dataclass(frozen=True, slots=True)
class ReceiverRunner:
    """The function of a receiver's job. Picklable for Spark.

    Parameters
    ----------
    receiver : RocketMQReceiver
    options : ReceiverOptions
    restart_delay_s : float
    """

    receiver: RocketMQReceiver
    options: ReceiverOptions
    restart_delay_s: float

    def __call__(self, _: int, specs: Iterable[ReceiverSpec]) -> Iterator[Any]:
        """Run each receiver to its end; yields nothing."""
        for spec in specs:
            task = ReceiverTask(self.receiver, self.options, spec, restart_delay_s=self.restart_delay_s)
            try:
                task.run()
            except ConnectionLostError as error:  # the stream ends, or starts another task for the receiver
                _LOG.warning("receiver %d ends: %s", spec.number, error)
        return iter(())
