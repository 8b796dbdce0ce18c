"""Streams of receivers: the object that Spark calls once per batch, and pickles into checkpoints."""

from __future__ import annotations

import itertools
import logging
import sys
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import RDD, SparkContext
from pyspark.streaming import DStream, StreamingContext, StreamingListener

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Deadline
from pyspark_rocketmq.dstream.jvm import (
    failures,
    has_job,
    has_reported_error,
    is_done,
    jvm_of,
    keep_pending,
    listen,
    make_planned_stream,
    outputs_of,
    remember_ms,
    report_input,
    revive,
    streaming_context,
    unfinished_times,
)
from pyspark_rocketmq.dstream.pace import Pace, pace_of
from pyspark_rocketmq.dstream.rdd_registry import keep_live, pass_batches
from pyspark_rocketmq.dstream.receiver.block import reading_of
from pyspark_rocketmq.dstream.receiver.cores import check_cores, hold_cores, local_cores
from pyspark_rocketmq.dstream.receiver.received_rdd import ReceivedRDD
from pyspark_rocketmq.dstream.receiver.receivers import RocketMQReceiver
from pyspark_rocketmq.dstream.receiver.server import ReceiverInfo, ReceiverServer
from pyspark_rocketmq.dstream.receiver.store import BlockStore
from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.planning.rate import FinishedBatch, RateEstimate

__all__ = [
    "ReceiverMaker",
    "RocketMQReceiverStream",
    "receiver_infos",
    "receiver_rate",
    "stop_receivers",
]

_LOG: Final = logging.getLogger(__name__)

_MOST: Final = "spark.streaming.receiver.maxRate"
_WAL: Final = "spark.streaming.receiver.writeAheadLog.enable"
_NO_DIRECTORY: Final = (
    f"a reliable receiver, and {_WAL}, keep a log beside the checkpoints: call ssc.checkpoint(directory) "
    "before you create the stream"
)
_LOOK_S: Final = 0.3
_CLOSE_S: Final = 20.0
_CLEAN_EVERY_S: Final = 10.0
_LOG_KEPT_MS: Final = 60_000
"""How much longer than Spark the log keeps a batch: a newer checkpoint may be truncated."""

_RUNS: Final[dict[int, _Run]] = {}
"""The streams of this driver's running StreamingContext, by Spark's id."""


class ReceiverMaker:
    """Creates the RDD of each batch of received blocks. Spark calls and pickles it.

    Parameters
    ----------
    receiver : RocketMQReceiver
    receivers : int
        Number of running receivers.
    """

    def __init__(self, receiver: RocketMQReceiver, receivers: int) -> None:
        self.receiver = receiver
        self.receivers = receivers
        self.stream_id = -1
        self.estimate = RateEstimate()
        self.joined: dict[int, tuple[int, ...]] = {}
        """By the time of a batch, those of the batches before it that were never run: it has their blocks."""
        self._run: _Run | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "joined": dict(self.joined), "_run": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({"joined": {}, **state})  # missing in checkpoints of earlier releases

    def __call__(self, time: datetime, rdd: RDD[Any]) -> ReceivedRDD:
        """Return the RDD of the batch of a time."""
        if self._run is None:
            self._run = _Run(self, rdd.context)
        revive(rdd.context, rdd)
        return self._run.batch(round(time.timestamp() * 1000))


class _Run(StreamingListener):
    """A stream's state in this process: its receivers, its blocks, and Spark's events about its batches."""

    def __init__(self, maker: ReceiverMaker, sc: SparkContext) -> None:
        super().__init__()
        self._maker, self._sc = maker, sc
        self.receivers: int = maker.receivers
        self._closed = threading.Event()
        _wait_for_former()
        self._context = streaming_context(sc)
        self._outputs = outputs_of(sc, self._context, maker.stream_id)
        interval_ms = int(self._context.graph().batchDuration().milliseconds())
        self._pace = pace_of(sc.getConf().get, interval_ms)
        most = float(sc.getConf().get(_MOST) or 0)
        self._most = most if most > 0 else None
        self._finished, self._failed = set[int](), set[int]()
        self._made: dict[int, ReceivedRDD] = {}
        self._clean_at = 0.0
        self._checkpoints: tuple[Any, Any] | None = None
        self._log_directory = self._directory()
        check_cores(sc, maker.receivers, asked=sum(run.receivers for run in _RUNS.values()))
        self._store = BlockStore(
            sc,
            maker.stream_id,
            sc._getJavaStorageLevel(maker.receiver.storageLevel),  # noqa: SLF001
            self._log_directory,
            recover=bool(self._context.isCheckpointPresent()),
        )
        self._server = ReceiverServer(
            *(sc, maker.receiver, maker.receivers, self._store, self._rate),
            name=f"rocketmq-stream-{maker.stream_id}",
        )
        listen(sc, self._context, self)
        _RUNS[maker.stream_id] = self
        self._server.start(self._may_begin)
        threading.Thread(target=self._watch, name="receivers-watch", daemon=True).start()

    @property
    def infos(self) -> list[ReceiverInfo]:
        return self._server.infos

    def batch(self, time_ms: int) -> ReceivedRDD:
        """Allocate the received blocks to a batch, create its RDD, and report it to Spark."""
        if self._server.failure is not None:
            raise self._server.failure
        if unrun := self._take_unrun(time_ms):
            self._maker.joined[time_ms] = unrun
        done = is_done(self._context, time_ms)  # only windows ask for it: its outputs do not run again
        stored = self._store.batch(time_ms, self._maker.joined.get(time_ms, ()), allocate=not done)
        made = ReceivedRDD(stored, reading_of(self._maker.receiver.parsed()))
        self._made[time_ms] = made
        if done or not has_job(self._sc, self._outputs, time_ms):
            self._finished.add(time_ms)  # it is part of later windows only, which are remembered longer
        keep_live(made)
        about = f"{stored.blocks} blocks of {self.receivers} receivers"
        stream_id = self._maker.stream_id
        report_input(self._sc, self._context, stream_id, time_ms, messages=stored.messages, about=about)
        return made

    def _take_unrun(self, time_ms: int) -> tuple[int, ...]:
        """Forget the batches before that Spark could not generate the jobs of; return their times."""
        if remember_ms(self._context, self._maker.stream_id) > self._pace.pid.batch_interval_ms:
            return ()  # windows have them
        unfinished = unfinished_times(self._context)

        def find() -> int | None:
            newest = max(list(self._made), default=time_ms)  # other threads delete from it
            ran = newest in self._finished or newest in self._failed or newest in unfinished
            return None if ran or newest >= time_ms else newest

        unrun = find()
        if unrun is None or not has_reported_error(self._sc, self._context) or find() != unrun:
            return ()
        del self._made[unrun]
        return (*self._maker.joined.pop(unrun, ()), unrun)

    def onBatchCompleted(self, batchCompleted: Any) -> None:
        """Record a batch's rate, and drop blocks that no batch needs any more."""
        info = batchCompleted.batchInfo()
        time_ms = int(info.batchTime().milliseconds())
        made = self._made.get(time_ms)
        if made is None:
            return
        done = FinishedBatch(
            ended_at_ms=info.processingEndTime(),
            messages=made.received,
            processing_ms=info.processingDelay(),
            scheduling_ms=info.schedulingDelay(),
        )
        self._maker.estimate = self._maker.estimate.after(done, self._pace.pid)
        if failures(info) and self._log_directory is not None:
            _LOG.warning("the batch of %d failed: its blocks, and all after it, stay in the log", time_ms)
            self._failed.add(time_ms)
            keep_pending(self._sc, self._context, time_ms)
            return
        self._finished.add(time_ms)
        ends = itertools.takewhile(lambda known: known in self._finished, sorted(list(self._made)))  # noqa: C414 - other threads add to it
        through = max(ends, default=None)
        if through is not None:
            self._forget(through - remember_ms(self._context, self._maker.stream_id))

    def stop(self, timeout_s: float) -> bool:
        """Stop the receivers, wait until batches contain all that they stored; return whether they do."""
        deadline = Deadline(SYSTEM_CLOCK, timeout_s * 1000)
        self._server.ask_to_stop()
        while (left := not self._server.stopped or self._store.unallocated) and not deadline.expired:
            SYSTEM_CLOCK.sleep(0.05)
            self._server.ask_to_stop()  # a job may have been started meanwhile
        return not left

    @property
    def stopped(self) -> bool:
        """Whether the StreamingContext, or Spark, was stopped."""
        try:
            stopped = str(self._context.getState()) == "STOPPED"
            return stopped or bool(self._context.sparkContext().isStopped())
        except (Py4JError, OSError):  # the JVM is gone
            return True

    def wait_closed(self, timeout_s: float) -> bool:
        """Wait until no part of the stream runs: then its log may have a new owner."""
        return self._closed.wait(timeout_s)

    # --- inside ---

    def _directory(self) -> str | None:
        """Return the folder of the logs; None if blocks are in memory only."""
        if not _has_log(self._sc, self._maker.receiver):
            return None
        checkpoints = self._context.checkpointDir()
        if checkpoints is None:
            raise OptionError(_NO_DIRECTORY)
        path = jvm_of(self._sc).org.apache.hadoop.fs.Path(checkpoints)
        files = path.getFileSystem(self._sc._jsc.hadoopConfiguration())  # noqa: SLF001
        self._checkpoints = (path, files)
        if files.getUri().getScheme() == "file" and local_cores(self._sc.master) is None:
            _LOG.warning(
                "the write-ahead log goes to the driver's own disk (%s): executors on other machines cannot "
                "read it, and it is lost with the machine",
                checkpoints,
            )
        return f"{checkpoints}/rocketmq-receiver-{self._maker.stream_id}"

    def _may_begin(self) -> bool:
        """Whether receivers may start: with a log, once a checkpoint can recover the stream."""
        try:
            recovered = self._log_directory is None or bool(self._context.isCheckpointPresent())
            return recovered or self._newest_checkpoint_ms() is not None
        except Py4JError:
            return False

    def _newest_checkpoint_ms(self) -> int | None:
        if self._checkpoints is None:
            return None
        path, files = self._checkpoints
        if not files.exists(path):
            return None
        names = [str(status.getPath().getName()) for status in files.listStatus(path)]
        times = [int(n.removeprefix("checkpoint-")) for n in names if n.removeprefix("checkpoint-").isdigit()]
        return max(times, default=None)

    def _forget(self, before_ms: int) -> None:
        for time_ms in [known for known in list(self._made) if known < before_ms]:
            del self._made[time_ms]
            self._finished.discard(time_ms)
            self._maker.joined.pop(time_ms, None)
        self._store.forget(before_ms)
        now = SYSTEM_CLOCK.monotonic()
        if self._log_directory is None or now < self._clean_at:
            return
        self._clean_at = now + _CLEAN_EVERY_S
        if (newest := self._newest_checkpoint_ms()) is not None:
            self._store.clean_log(min(before_ms, newest) - _LOG_KEPT_MS)

    def _rate(self) -> float | None:
        return receiver_rate(self._pace, self._most, self._maker.estimate, self.receivers)

    def _watch(self) -> None:
        """End with the StreamingContext."""
        while not self.stopped:
            SYSTEM_CLOCK.sleep(_LOOK_S)
        self._server.close(_CLOSE_S)
        try:
            self._store.close()
        except Py4JError as error:  # the SparkContext was stopped, too
            _LOG.info("the blocks of the stream went with Spark: %s", str(error).splitlines()[0][:200])
        _RUNS.pop(self._maker.stream_id, None)
        self._closed.set()


def _wait_for_former() -> None:
    """Wait for the end of a former StreamingContext's receivers: they hold cores, and their logs."""
    for stream_id, former in list(_RUNS.items()):
        if former.stopped and not former.wait_closed(2 * _CLOSE_S):
            raise RocketMQError("the receivers of a former StreamingContext do not end", stream=stream_id)


def _has_log(sc: SparkContext, receiver: RocketMQReceiver) -> bool:
    return receiver.reliable or (sc.getConf().get(_WAL, "false") or "false").lower() == "true"


def _check_log_directory(ssc: StreamingContext, receiver: RocketMQReceiver) -> None:
    """Reject a stream whose log has no folder, unless ``StreamingContext.getOrCreate`` sets one later."""
    missing = _has_log(ssc.sparkContext, receiver) and ssc._jssc.ssc().checkpointDir() is None  # noqa: SLF001
    if missing and not _in_get_or_create():
        raise OptionError(_NO_DIRECTORY)


def _in_get_or_create() -> bool:
    """Whether the caller is the function that creates a context: PySpark sets its directory afterwards."""
    maker = StreamingContext.getOrCreate.__func__.__code__  # type: ignore[attr-defined]
    frame = sys._getframe()  # noqa: SLF001 - PySpark passes no information to the function
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code is maker:
            return True
    return False


def receiver_rate(pace: Pace, most: float | None, estimate: RateEstimate, receivers: int) -> float | None:
    """Return how many messages per second each receiver may receive; None is no limit.

    Parameters
    ----------
    pace : Pace
        ``initial_rate`` applies to each receiver, as in Spark; the estimate applies to the stream.
    most : float, optional
        ``spark.streaming.receiver.maxRate``.
    estimate : RateEstimate
    receivers : int
    """
    limits = [] if most is None else [most]
    if pace.backpressure and estimate.rate is not None:
        limits.append(estimate.rate / receivers)
    elif pace.backpressure and pace.initial_rate is not None:
        limits.append(float(pace.initial_rate))
    return min(limits, default=None)


class RocketMQReceiverStream(DStream[Any]):
    """A stream of received `Message` objects, or of the results of ``deserialize``.

    Delivery promise: that of `RocketMQReceiver`; with a log, that of `ReliableRocketMQReceiver`. Messages of
    a queue are in order while the queue has one owner.

    Created by ``RocketMQUtils.receiverStream``, ``createInputDStream`` and ``createReliableInputDStream``.

    Parameters
    ----------
    ssc : StreamingContext
    receiver : RocketMQReceiver
    receivers : int
        Number of receiver tasks. Each is a member of the group and occupies a core.

    Raises
    ------
    OptionError
        No core would be left for batches.
    """

    def __init__(self, ssc: StreamingContext, receiver: RocketMQReceiver, receivers: int = 1) -> None:
        if receivers < 1:
            raise OptionError("a stream needs a receiver", receivers=receivers)
        _check_log_directory(ssc, receiver)
        hold_cores(ssc, receivers)
        maker = ReceiverMaker(receiver, receivers)
        java, maker.stream_id = make_planned_stream(ssc, maker)
        super().__init__(java, ssc, ssc.sparkContext.serializer)

    def transform(self, func: Callable[..., RDD[Any]]) -> Any:
        """Apply a function to each batch's RDD, a `ReceivedRDD`."""
        return super().transform(pass_batches(func))

    def foreachRDD(self, func: Callable[..., None]) -> None:
        """Call a function with each batch's RDD, a `ReceivedRDD`."""
        super().foreachRDD(pass_batches(func))


def receiver_infos() -> list[ReceiverInfo]:
    """Return the status of the running receivers of this driver, stream by stream."""
    return [info for _, run in sorted(_RUNS.items()) for info in run.infos]


def stop_receivers(timeout_s: float) -> None:
    """Stop all receivers of this driver, and wait until batches contain everything that they stored.

    Raises
    ------
    RocketMQError
        The timeout passed first.
    """
    late = [stream_id for stream_id, run in list(_RUNS.items()) if not run.stop(timeout_s)]
    if late:
        raise RocketMQError(
            "receivers did not stop in time, or no batch came", streams=late, timeout_s=timeout_s
        )
