"""Access of the RDD and DStream APIs to Spark's JVM. Classic Spark only."""

# Facts (Spark 4.3.0, read with javap and tried)
# - SparkContext.makeRDD(Seq[(T, Seq[String])]) creates one partition per element; "executor_<host>_<id>" is
#   the location of an executor.
# - ConstantInputDStream is the only input stream without receiver, files or queue. After a recovery from a
#   checkpoint, its RDD lacks its SparkContext (a transient field), which DStream.clearMetadata needs.
# - py4j sends a request for each part of a dotted name, and the JVM searches all jars for a class:
# milliseconds each. An iteration over a collection ends with a Java exception, which PySpark compares with
# every exception
#   class that it knows: tens of milliseconds.
# - While StreamingContext.start() recovers, the context is not yet "active", but its progress listener is
#   already registered with the SparkContext, and references the context.

from __future__ import annotations

import functools
import os
import pickle
import re
import sys
from collections.abc import Sequence
from typing import Any, Final

from py4j.java_gateway import JavaPackage, get_method
from py4j.protocol import Py4JError
from pyspark import RDD, SparkContext
from pyspark.serializers import CPickleSerializer, NoOpSerializer
from pyspark.streaming import StreamingContext, StreamingListener
from pyspark.streaming.util import TransformFunction

from pyspark_rocketmq.errors import OptionError, RocketMQError

__all__ = [
    "bytes_tag",
    "elements_of_seq",
    "elements_rdd",
    "empty_input",
    "env_part",
    "executors",
    "failures",
    "has_error",
    "has_job",
    "has_reported_error",
    "is_done",
    "keep_pending",
    "listen",
    "make_planned_stream",
    "outputs_of",
    "pending_times",
    "recovered_from_ms",
    "remember_ms",
    "report_input",
    "revive",
    "scala_map",
    "streaming_context",
    "unfinished_times",
    "use_this_python",
]

_DRIVER: Final = "driver"
_LISTENERS_MS: Final = 10_000
_PORT: Final = re.compile(r":\d+$")
"""Spark names an executor by its host alone until the executor's block manager has registered."""

_PROGRESS_LISTENER: Final = "org.apache.spark.streaming.ui.StreamingJobProgressListener"


class _Names:
    """Packages and classes of the JVM, each requested once."""

    def __init__(self, node: Any) -> None:
        self._node = node

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._node, name)
        if isinstance(found, JavaPackage):
            found = _Names(found)
        setattr(self, name, found)
        return found


@functools.lru_cache(maxsize=1)
def _names(jvm: Any) -> _Names:
    return _Names(jvm)


def jvm_of(sc: SparkContext) -> Any:
    """Return the packages and classes of the JVM.

    Raises
    ------
    OptionError
        There is no JVM (Spark Connect).
    """
    jvm = getattr(sc, "_jvm", None)
    if jvm is None:
        raise OptionError("RDDs and DStreams need classic Spark: use spark.read or spark.readStream")
    return _names(jvm)


def use_this_python(sc: SparkContext) -> None:
    """Use this interpreter for the workers on this machine, unless ``PYSPARK_PYTHON`` is set.

    PySpark would start ``python3``, which may be an interpreter without the job's packages.
    """
    if "PYSPARK_PYTHON" not in os.environ and (sc.master or "").startswith("local"):
        sc.pythonExec = sys.executable


def elements_of_seq(sc: SparkContext, seq: Any) -> list[Any]:
    """Return the elements of a Scala sequence."""
    return _elements_of(jvm_of(sc).scala.jdk.javaapi.CollectionConverters.asJava(seq))


def _elements_of(collection: Any) -> list[Any]:
    """Return the elements of a Java collection, without iterating over it."""
    array = collection.toArray()
    return [array[at] for at in range(len(array))]


def elements_rdd(sc: SparkContext, elements: Sequence[Any], locations: Sequence[Sequence[str]]) -> RDD[Any]:
    """Return an RDD with one partition per element, at the preferred locations."""
    use_this_python(sc)
    if not elements:
        return sc.emptyRDD()
    jvm = jvm_of(sc)
    pairs = jvm.java.util.ArrayList()
    for element, places in zip(elements, locations, strict=True):
        seq = jvm.PythonUtils.toSeq(list(places))
        pairs.add(jvm.scala.Tuple2(bytearray(pickle.dumps(element, pickle.HIGHEST_PROTOCOL)), seq))
    made = sc._jsc.sc().makeRDD(jvm.PythonUtils.toSeq(pairs), bytes_tag(sc))  # noqa: SLF001
    return RDD(made.toJavaRDD(), sc, CPickleSerializer())


def bytes_tag(sc: SparkContext) -> Any:
    """Return Scala's ClassTag of byte arrays."""
    jvm = jvm_of(sc)
    return jvm.scala.reflect.ClassTag.apply(jvm.org.apache.spark.util.Utils.classForName("[B", True, False))


def env_part(sc: SparkContext, name: str) -> Any:
    """Return a field of Spark's SparkEnv, whose methods py4j cannot inspect."""
    cls = jvm_of(sc).org.apache.spark.util.Utils.classForName("org.apache.spark.SparkEnv", True, False)
    return _field_of(cls, name, sc._jsc.sc().env())  # noqa: SLF001


def executors(sc: SparkContext) -> list[str]:
    """Return the locations of the executors in a stable order; none in local mode."""
    summaries = elements_of_seq(sc, sc._jsc.sc().statusStore().executorList(True))  # noqa: SLF001
    seen = ((_PORT.sub("", s.hostPort()), s.id()) for s in summaries)
    found = sorted((host, number) for host, number in seen if number != _DRIVER)
    return [f"executor_{host}_{number}" for host, number in found]


def scala_map(sc: SparkContext, entries: dict[str, str]) -> Any:
    """Return an immutable Scala map."""
    return jvm_of(sc).PythonUtils.toScalaMap(entries)


# --- streaming ------------------------------------------------------------------------------


def empty_input(sc: SparkContext, jssc: Any) -> Any:
    """Return an input stream (a Java DStream) with one empty RDD per batch."""
    jvm = jvm_of(sc)
    scala = sc._jsc.sc()  # noqa: SLF001
    tag = bytes_tag(sc)
    stream = jvm.org.apache.spark.streaming.dstream.ConstantInputDStream(jssc.ssc(), scala.emptyRDD(tag), tag)
    return jvm.org.apache.spark.streaming.api.java.JavaDStream(stream, tag)


def make_planned_stream(ssc: StreamingContext, maker: Any) -> tuple[Any, int]:
    """Return a Java DStream whose RDDs a function creates, called with each batch's time, and its id.

    Spark pickles the function into every checkpoint.
    """
    sc = ssc.sparkContext
    use_this_python(sc)
    base = empty_input(sc, ssc._jssc)  # noqa: SLF001 - as PySpark accesses the JVM's context
    function = TransformFunction(sc, maker, NoOpSerializer())  # type: ignore[no-untyped-call]
    transformed = jvm_of(sc).org.apache.spark.streaming.api.python.PythonTransformedDStream(
        base.dstream(), function
    )
    return transformed.asJavaDStream(), int(base.dstream().id())


def listen(sc: SparkContext, context: Any, listener: StreamingListener) -> None:
    """Register a listener for batches."""
    java = jvm_of(sc).org.apache.spark.streaming.api.java
    context.addStreamingListener(
        java.JavaStreamingListenerWrapper(java.PythonStreamingListenerWrapper(listener))
    )


def failures(batch_info: Any) -> list[str]:
    """Return why outputs of a finished batch failed, from Spark's BatchInfo."""
    outputs = get_method(
        batch_info.outputOperationInfos(), "values"
    )()  # py4j's map has a `values` method, too
    return [reason for output in _elements_of(outputs) if (reason := output.failureReason())]


def outputs_of(sc: SparkContext, context: Any, stream_id: int) -> list[Any]:
    """Return the output operations that depend on an input stream."""

    def depends(stream: Any) -> bool:
        seen, left = set(), [stream]
        while left:
            if (found := left.pop()) not in seen:
                seen.add(found)
                left += elements_of_seq(sc, found.dependencies())
        return mine in seen

    graph = context.graph()
    mine = next(stream for stream in graph.getInputStreams() if stream.id() == stream_id)
    return [output for output in graph.getOutputStreams() if depends(output)]


def has_job(sc: SparkContext, outputs: Sequence[Any], time_ms: int) -> bool:
    """Whether one of the output operations runs at a batch's time: those of windows run once per slide."""
    time = jvm_of(sc).org.apache.spark.streaming.Time(time_ms)
    return any(output.isTimeValid(time) for output in outputs)


def pending_times(context: Any) -> frozenset[int]:
    """Return the times (ms) of the batches that a StreamingContext from a checkpoint runs again."""
    return frozenset(int(time.milliseconds()) for time in context.initialCheckpoint().pendingTimes())


def recovered_from_ms(context: Any) -> int:
    """Return the time of a StreamingContext's checkpoint: batches from then on run again."""
    return int(context.initialCheckpoint().checkpointTime().milliseconds())


def unfinished_times(context: Any) -> list[int]:
    """Return the times (ms) of the batches whose jobs wait or run. One that failed may stay among them."""
    text = str(context.scheduler().getPendingTimes().mkString(","))  # one call: there may be thousands
    return [int(time.removesuffix(" ms")) for time in text.split(",") if time]


def keep_pending(sc: SparkContext, context: Any, time_ms: int) -> None:
    """Let a recovery from a checkpoint run a failed batch again.

    # Facts (Spark 4.0 to 4.3, JobScheduler.handleJobCompletion): a batch stays pending if the last of its
    outputs failed. If another one did, Spark forgets the batch, and its checkpoints no longer have it.
    """
    if context.checkpointDir() is None:
        return
    scheduler, streaming = context.scheduler(), jvm_of(sc).org.apache.spark.streaming
    time, no_jobs = streaming.Time(time_ms), jvm_of(sc).PythonUtils.toSeq([])
    job_set = streaming.scheduler.JobSet(time, no_jobs, scala_map(sc, {}))
    if _field(scheduler, "jobSets").putIfAbsent(time, job_set) is None:
        _field(scheduler, "jobGenerator").onBatchCompletion(time)  # writes a checkpoint that has it


def has_error(context: Any) -> bool:
    """Whether jobs could not be generated, or failed, as far as Spark's scheduler knows."""
    return _field(context.waiter(), "error") is not None


def _field(owner: Any, name: str) -> Any:
    """Return what a private field of a Java object holds."""
    return _field_of(owner.getClass(), name, owner)


def _field_of(cls: Any, name: str, owner: Any) -> Any:
    field = cls.getDeclaredField(name)
    field.setAccessible(True)
    return field.get(owner)


def has_reported_error(sc: SparkContext, context: Any) -> bool:
    """Whether jobs could not be generated, or failed, since the context was started.

    When it returns, listeners know of all batches that have ended. Without an answer of theirs, it is False.
    """
    if not has_error(context):
        return False
    try:
        sc._jsc.sc().listenerBus().waitUntilEmpty(_LISTENERS_MS)  # noqa: SLF001
    except Py4JError:  # they are too busy
        return False
    return True


def is_done(context: Any, time_ms: int) -> bool:
    """Whether a batch was done before the context was recovered. Its windows may need it again."""
    if not context.isCheckpointPresent():
        return False
    return time_ms < recovered_from_ms(context) and time_ms not in pending_times(context)


def remember_ms(context: Any, stream_id: int) -> int:
    """Return how long Spark may request a stream's batch again (longer with windows)."""
    streams = context.graph().getInputStreams()
    mine = next((stream for stream in streams if stream.id() == stream_id), None)
    duration = None if mine is None else mine.rememberDuration()
    return 0 if duration is None else int(duration.milliseconds())


def report_input(
    sc: SparkContext, context: Any, stream_id: int, time_ms: int, *, messages: int, about: str
) -> None:
    """Report a batch to Spark's input info tracker: the Streaming tab shows it."""
    streaming = jvm_of(sc).org.apache.spark.streaming
    context.scheduler().inputInfoTracker().reportInfo(
        streaming.Time(time_ms),
        streaming.scheduler.StreamInputInfo(stream_id, messages, scala_map(sc, {"Description": about})),
    )


def revive(sc: SparkContext, rdd: RDD[Any]) -> None:
    """Restore the SparkContext of an `empty_input`'s RDD, which a checkpoint does not contain."""
    field = (
        jvm_of(sc)
        .org.apache.spark.util.Utils.classForName("org.apache.spark.rdd.RDD", True, False)
        .getDeclaredField("_sc")
    )
    field.setAccessible(True)
    if field.get(rdd._jrdd.rdd()) is None:  # noqa: SLF001
        field.set(rdd._jrdd.rdd(), sc._jsc.sc())  # noqa: SLF001


def streaming_context(sc: SparkContext) -> Any:
    """Return the Scala StreamingContext that runs or is starting on a SparkContext.

    Raises
    ------
    RocketMQError
        No such context exists.
    """
    jvm = jvm_of(sc)
    cls = jvm.org.apache.spark.util.Utils.classForName(_PROGRESS_LISTENER, True, False)
    found = sc._jsc.sc().listenerBus().findListenersByClass(jvm.scala.reflect.ClassTag.apply(cls))  # noqa: SLF001
    if found.isEmpty():
        raise RocketMQError("no StreamingContext runs on this SparkContext")
    return _field_of(cls, "ssc", found.last())
