"""The driver's side of receivers: stores their blocks in the JVM, and keeps their tasks running."""

from __future__ import annotations

import hmac
import logging
import secrets
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from py4j.protocol import Py4JError
from pyspark import SparkContext

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock
from pyspark_rocketmq.client.net.receive_buffer import MAX_FRAME_BYTES
from pyspark_rocketmq.dstream.jvm import elements_rdd, executors, jvm_of
from pyspark_rocketmq.dstream.receiver.link import (
    FRAME,
    HELLO_SIZE,
    NONCE_SIZE,
    REPLY,
    FrameKind,
    ReceiverSpec,
    ReplyStatus,
    proof,
)
from pyspark_rocketmq.dstream.receiver.receivers import RocketMQReceiver
from pyspark_rocketmq.dstream.receiver.task import ReceiverRunner
from pyspark_rocketmq.errors import RocketMQError

__all__ = ["BlockSink", "FailureRow", "ReceiverInfo", "ReceiverServer"]

_LOG: Final = logging.getLogger(__name__)

_HELLO_S: Final = 10.0
_MOST_FAILURES: Final = 10
"""How often a task may end without storing anything in between, before the stream fails."""
_FAILURE_COUNTS_S: Final = 3_600.0
_LONGEST_PAUSE_S: Final = 30.0
_ACCEPT_AGAIN_S: Final = 1.0
_POOL: Final = "rocketmq-receivers"


@dataclass(slots=True)
class ReceiverInfo:
    """The status of a receiver, as in Spark's Streaming tab.

    Parameters
    ----------
    number : int
    active : bool
        Whether its task runs and its consumer is a member of the group.
    location : str
        The host of the task.
    blocks, messages : int
        Number of stored blocks and messages.
    skipped : int
        Messages for which ``deserialize`` returned None, since the task started.
    restarts, failures : int
        Number of restarts of the receiver, and of failures of its task.
    last_error : str
        Of its task, its restarts or its blocks, or what its consumer retries, such as refused pulls.
    """

    number: int
    active: bool = False
    location: str = ""
    blocks: int = 0
    messages: int = 0
    skipped: int = 0
    restarts: int = 0
    failures: int = 0
    last_error: str = ""


class FailureRow:
    """Counts consecutive failures. A success resets the count, and a failure counts for one hour only.

    A receiver of a quiet topic that dies once a day must not end its stream after ten days.
    """

    def __init__(self) -> None:
        self._times: list[float] = []

    def add(self, now_s: float, *, after_success: bool) -> int:
        """Record a failure; return the number of consecutive failures."""
        kept = [] if after_success else [at for at in self._times if now_s - at < _FAILURE_COUNTS_S]
        self._times = [*kept, now_s]
        return len(self._times)


class BlockSink(Protocol):
    """Stores blocks."""

    def buffer(self, size: int) -> Any:
        """Return a buffer in the JVM for a block of a size."""
        ...

    def put(self, buffer: Any, messages: int) -> bool:
        """Store a filled buffer. False or a Py4JError: the block is not stored."""
        ...


class ReceiverServer:
    """Runs the receivers of one stream, each as a Spark job with one task, and stores their blocks.

    A task that ends is started again, possibly on another executor, after a delay that grows up to 30 s.

    Parameters
    ----------
    sc : SparkContext
    receiver : RocketMQReceiver
    count : int
        Number of receivers.
    sink : BlockSink
    rate : Callable
        Returns how many messages per second each receiver may receive now; None is no limit.
    name : str
        The stream's name, for Spark's list of jobs.
    """

    def __init__(
        self,
        sc: SparkContext,
        receiver: RocketMQReceiver,
        count: int,
        sink: BlockSink,
        rate: Callable[[], float | None],
        *,
        name: str,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.infos = [ReceiverInfo(number) for number in range(count)]
        self.failure: RocketMQError | None = None
        self._sc, self._receiver, self._sink, self._rate, self._name = sc, receiver, sink, rate, name
        self._clock = clock
        self._jvm = jvm_of(sc)
        self._scala = sc._jsc.sc()  # noqa: SLF001 - kept: PySpark drops it when the context is stopped
        self._secret = secrets.token_bytes(32)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._channels: dict[int, Any] = {}
        conf = sc.getConf()
        self._host = conf.get("spark.driver.host", "127.0.0.1") or "127.0.0.1"
        bound = conf.get("spark.driver.bindAddress", self._host)
        self._server = self._jvm.java.nio.channels.ServerSocketChannel.open()
        self._server.bind(self._jvm.java.net.InetSocketAddress(bound, 0))
        self._port = int(self._server.socket().getLocalPort())
        delay = conf.get("spark.streaming.receiverRestartDelay", "2000") or "2000"
        self._is_speculated = _is_speculated(sc)
        self._runner = ReceiverRunner(receiver, receiver.parsed(), int(delay) / 1000)
        interval = self._jvm.org.apache.spark.network.util.JavaUtils.timeStringAsMs(
            conf.get("spark.streaming.blockInterval", "200ms")
        )
        self._interval_ms = int(interval)
        self._keepers = [
            threading.Thread(target=self._keep, args=(number,), name=f"receiver-{number}", daemon=True)
            for number in range(count)
        ]

    def start(self, when: Callable[[], bool]) -> None:
        """Listen, and start the receivers once a condition is true, which is polled."""
        threading.Thread(target=self._accept, name="receivers", daemon=True).start()

        def begin() -> None:
            while not when():
                if self._stopping.wait(0.1):
                    return
            for keeper in self._keepers:
                keeper.start()

        threading.Thread(target=begin, name="receivers-begin", daemon=True).start()

    @property
    def stopping(self) -> bool:
        """Whether receivers are stopped or stopping."""
        return self._stopping.is_set()

    def ask_to_stop(self) -> None:
        """Have the receivers store their pending messages, leave the group, and end.

        Those that are not connected wait for a core, possibly for long: their jobs are canceled.
        """
        self._stopping.set()
        with self._lock:
            waiting = [number for number in range(len(self.infos)) if number not in self._channels]
        self._cancel(waiting)

    @property
    def stopped(self) -> bool:
        """Whether no task is running."""
        return not any(keeper.is_alive() for keeper in self._keepers)

    def close(self, timeout_s: float) -> None:
        """Accept no more blocks: unacknowledged messages are delivered again. Cancel running tasks."""
        self.ask_to_stop()
        with self._lock:
            channels = list(self._channels.values())
        for channel in (self._server, *channels):
            _quietly(channel.close)
        deadline = self._clock.monotonic() + timeout_s
        for keeper in self._keepers:
            if keeper.is_alive():
                keeper.join(max(0.0, deadline - self._clock.monotonic()))
        self._cancel(range(len(self._keepers)))

    # --- the jobs ---

    def _cancel(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            if self._keepers[number].is_alive():
                _quietly(partial(self._scala.cancelJobGroup, self._group(number)))

    def _group(self, number: int) -> str:
        return f"{self._name}-{number}"

    def _keep(self, number: int) -> None:
        info = self.infos[number]
        row = FailureRow()
        while not self._stopping.is_set():
            before = info.blocks
            try:
                self._job(number)
                reason = "its task ended"
            except Py4JError as error:
                reason = str(getattr(error, "java_exception", error)).splitlines()[0][:500]
            except Exception as error:  # noqa: BLE001 - the thread's outermost frame; logged and retried
                reason = repr(error)
            info.active = False
            if self._stopping.is_set():
                return
            info.failures += 1
            info.last_error = reason
            in_vain = row.add(self._clock.monotonic(), after_success=info.blocks != before)
            if in_vain > _MOST_FAILURES:
                self.failure = RocketMQError(
                    f"receiver {number} of {self._name} failed {in_vain} times in a row: {reason}"
                )
                return
            if not self._stopping.wait(min(0.5 * 2 ** (in_vain - 1), _LONGEST_PAUSE_S)):
                _LOG.warning("receiver %d of %s is started again: %s", number, self._name, reason)

    def _job(self, number: int) -> None:
        spec = ReceiverSpec(number, self._host, self._port, self._secret, self._interval_ms)
        there = executors(self._sc)
        self._sc.setJobGroup(self._group(number), f"receiver {number} of {self._name}")
        self._sc.setLocalProperty("spark.scheduler.pool", _POOL)
        rdd = elements_rdd(self._sc, [spec], [[there[number % len(there)]] if there else []])
        once = rdd.barrier() if self._is_speculated else rdd  # barrier tasks are never run twice
        once.mapPartitionsWithIndex(self._runner).collect()

    # --- the connections ---

    def _accept(self) -> None:
        while True:
            try:
                self._accept_one()
            except (Py4JError, RuntimeError) as error:
                if not self._is_open():
                    return
                reason = str(error).splitlines()[0][:200]
                _LOG.warning("the driver has no file or thread for a receiver of %s: %s", self._name, reason)
                self._clock.sleep(_ACCEPT_AGAIN_S)

    def _accept_one(self) -> None:
        channel = self._server.accept()
        link = threading.Thread(target=self._serve, args=(channel,), name="receiver-link", daemon=True)
        try:
            link.start()
        except Exception:  # the receiver connects again
            _quietly(channel.close)
            raise

    def _is_open(self) -> bool:
        try:
            return bool(self._server.isOpen())
        except Py4JError:  # the JVM is gone
            return False

    def _serve(self, channel: Any) -> None:
        number: int | None = None
        try:
            number = self._admit(channel)
            while number is not None:
                self._answer(channel, self.infos[number])
        except (Py4JError, RocketMQError) as error:
            if not self._stopping.is_set():
                _LOG.info("a receiver of %s is gone: %s", self._name, str(error).splitlines()[0][:200])
        finally:
            _quietly(channel.close)
            with self._lock:
                if number is not None and self._channels.get(number) is channel:
                    del self._channels[number]
                    self.infos[number].active = False

    def _admit(self, channel: Any) -> int | None:
        """Return the number of the connected receiver; None if it does not know the secret."""
        timer = threading.Timer(_HELLO_S, lambda: _quietly(channel.close))
        timer.daemon = True
        timer.start()
        try:
            nonce = secrets.token_bytes(NONCE_SIZE)
            self._write(channel, nonce)
            hello = self._read(channel, HELLO_SIZE)
        finally:
            timer.cancel()
        number = int.from_bytes(hello[:4], "big")
        known = number < len(self.infos) and hmac.compare_digest(
            hello[4:], proof(self._secret, nonce, number)
        )
        if not known:
            _LOG.warning("a client that is no receiver of %s connected to the driver", self._name)
            return None
        with self._lock:
            former, self._channels[number] = self._channels.get(number), channel
        if former is not None:
            _quietly(former.close)
        return number

    def _answer(self, channel: Any, info: ReceiverInfo) -> None:
        kind, length, messages, skipped = FRAME.unpack(self._read(channel, FRAME.size))
        if length > MAX_FRAME_BYTES:
            raise RocketMQError("a receiver's block is too large", size=length)
        info.skipped = skipped
        status = ReplyStatus.STOP if self._stopping.is_set() else ReplyStatus.STORED
        if kind == FrameKind.BLOCK:
            status = self._store(channel, length, messages, info)
        else:
            text = self._read(channel, length).decode(errors="replace")
            if kind == FrameKind.STARTED:
                info.active, info.location = True, text
            elif kind == FrameKind.RESTART or text:  # the consumer's log is on another machine
                info.restarts += kind == FrameKind.RESTART
                info.last_error = text
                what = "restarts" if kind == FrameKind.RESTART else "warns"
                _LOG.warning("receiver %d of %s %s: %s", info.number, self._name, what, text)
        rate = self._rate()
        self._write(channel, REPLY.pack(status, -1.0 if rate is None else rate))

    def _store(self, channel: Any, length: int, messages: int, info: ReceiverInfo) -> ReplyStatus:
        buffer = self._sink.buffer(length)
        self._fill(channel, buffer, length)
        try:
            stored = self._sink.put(buffer, messages)
        except Py4JError as error:
            reason = str(getattr(error, "java_exception", error)).splitlines()[0][:500]
            _LOG.warning("a block of %s was not stored: %s", self._name, reason)
            info.last_error = reason
            stored = False
        if not stored:
            return ReplyStatus.REFUSED
        info.blocks += 1
        info.messages += messages
        return ReplyStatus.STORED

    def _read(self, channel: Any, size: int) -> bytes:
        if size == 0:
            return b""
        buffer = self._jvm.java.nio.ByteBuffer.allocate(size)
        self._fill(channel, buffer, size)
        return bytes(buffer.array())

    @staticmethod
    def _fill(channel: Any, buffer: Any, missing: int) -> None:
        while missing > 0:
            count = int(channel.read(buffer))
            if count < 0:
                raise RocketMQError("the connection ended")
            missing -= count

    def _write(self, channel: Any, data: bytes) -> None:
        channel.write(self._jvm.java.nio.ByteBuffer.wrap(bytearray(data)))


def _is_speculated(sc: SparkContext) -> bool:
    """Whether Spark runs a task once more because it takes long: receivers do, and would be replaced."""
    conf = sc.getConf()
    after = conf.get("spark.speculation.task.duration.threshold")
    if after is None or (conf.get("spark.speculation") or "false").lower() != "true":
        return False
    if (conf.get("spark.dynamicAllocation.enabled") or "false").lower() == "true":  # Spark: no barriers then
        _LOG.warning(
            "spark.speculation starts each receiver again after %s, and messages repeat: unset "
            "spark.speculation.task.duration.threshold, or spark.dynamicAllocation.enabled",
            after,
        )
        return False
    return True


def _quietly(step: Callable[[], Any]) -> None:
    try:
        step()
    except (Py4JError, OSError):  # it is gone, or the whole JVM is
        return
