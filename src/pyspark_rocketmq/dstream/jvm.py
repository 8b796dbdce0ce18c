"""What the RDD and DStream APIs ask of Spark's JVM; classic Spark only."""

# Facts (Spark 4.3.0, read with javap and tried)
# - SparkContext.makeRDD(Seq[(T, Seq[String])]) makes one partition an element; "executor_<host>_<id>" is the
#   location of an executor.
# - ConstantInputDStream is the one input stream without receiver, files or queue. Its RDD comes back from a
#   checkpoint without its SparkContext (a transient field), which DStream.clearMetadata needs.
# - py4j asks the JVM for each part of a dotted name, and the JVM looks through all jars for a class of it:
#   milliseconds each. The end of an iteration over a collection is a Java exception, for which PySpark asks
#   as many classes as it knows exceptions: tens of milliseconds.
# - While StreamingContext.start() recovers, the context is not "active" yet, but its progress listener is
#   registered with the SparkContext already, and knows it.

from __future__ import annotations

import functools
import os
import pickle
import sys
from collections.abc import Sequence
from typing import Any, Final

from py4j.java_gateway import JavaPackage, get_method
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
    "listen",
    "pending_times",
    "planned_stream",
    "remember_ms",
    "report_input",
    "revive",
    "scala_map",
    "streaming_context",
    "use_this_python",
]

_DRIVER: Final = "driver"
_PROGRESS_LISTENER: Final = "org.apache.spark.streaming.ui.StreamingJobProgressListener"


class _Names:
    """Packages and classes of the JVM, each asked for once."""

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
        There is none: Spark Connect.
    """
    jvm = getattr(sc, "_jvm", None)
    if jvm is None:
        raise OptionError("RDDs and DStreams need classic Spark: use spark.read or spark.readStream")
    return _names(jvm)


def use_this_python(sc: SparkContext) -> None:
    """Have the workers of this machine be this very interpreter, unless ``PYSPARK_PYTHON`` names one.

    PySpark would start ``python3``, which may be another one that lacks the job's packages.
    """
    if "PYSPARK_PYTHON" not in os.environ and (sc.master or "").startswith("local"):
        sc.pythonExec = sys.executable


def elements_of_seq(sc: SparkContext, seq: Any) -> list[Any]:
    """Return what a Scala sequence holds."""
    return _elements_of(jvm_of(sc).scala.jdk.javaapi.CollectionConverters.asJava(seq))


def _elements_of(collection: Any) -> list[Any]:
    """Return what a Java collection holds, without iterating over it."""
    array = collection.toArray()
    return [array[at] for at in range(len(array))]


def elements_rdd(sc: SparkContext, elements: Sequence[Any], locations: Sequence[Sequence[str]]) -> RDD[Any]:
    """Return an RDD with one partition for each element, and where Spark should put them."""
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
    """Return a field of Spark's SparkEnv, whose methods py4j cannot look through."""
    cls = jvm_of(sc).org.apache.spark.util.Utils.classForName("org.apache.spark.SparkEnv", True, False)
    field = cls.getDeclaredField(name)
    field.setAccessible(True)
    return field.get(sc._jsc.sc().env())  # noqa: SLF001


def executors(sc: SparkContext) -> list[str]:
    """Return the locations of the executors in a stable order; none in local mode."""
    summaries = elements_of_seq(sc, sc._jsc.sc().statusStore().executorList(True))  # noqa: SLF001
    seen = ((s.hostPort().rpartition(":")[0], s.id()) for s in summaries)
    found = sorted((host, number) for host, number in seen if number != _DRIVER)
    return [f"executor_{host}_{number}" for host, number in found]


def scala_map(sc: SparkContext, entries: dict[str, str]) -> Any:
    """Return an immutable Scala map."""
    return jvm_of(sc).PythonUtils.toScalaMap(entries)


# --- streaming ------------------------------------------------------------------------------


def empty_input(sc: SparkContext, jssc: Any) -> Any:
    """Return an input stream (a Java DStream) that has one empty RDD a batch."""
    jvm = jvm_of(sc)
    scala = sc._jsc.sc()  # noqa: SLF001
    tag = bytes_tag(sc)
    stream = jvm.org.apache.spark.streaming.dstream.ConstantInputDStream(jssc.ssc(), scala.emptyRDD(tag), tag)
    return jvm.org.apache.spark.streaming.api.java.JavaDStream(stream, tag)


def planned_stream(ssc: StreamingContext, maker: Any) -> tuple[Any, int]:
    """Return a Java DStream whose RDDs a function makes, called with each batch's time, and its id.

    Spark pickles the function into every checkpoint.
    """
    sc = ssc.sparkContext
    use_this_python(sc)
    base = empty_input(sc, ssc._jssc)  # noqa: SLF001 - PySpark's own way to the JVM's context
    function = TransformFunction(sc, maker, NoOpSerializer())  # type: ignore[no-untyped-call]
    transformed = jvm_of(sc).org.apache.spark.streaming.api.python.PythonTransformedDStream(
        base.dstream(), function
    )
    return transformed.asJavaDStream(), int(base.dstream().id())


def listen(sc: SparkContext, context: Any, listener: StreamingListener) -> None:
    """Have a listener told of batches."""
    java = jvm_of(sc).org.apache.spark.streaming.api.java
    context.addStreamingListener(
        java.JavaStreamingListenerWrapper(java.PythonStreamingListenerWrapper(listener))
    )


def failures(batch_info: Any) -> list[str]:
    """Return why outputs of a finished batch failed, from Spark's BatchInfo."""
    outputs = get_method(batch_info.outputOperationInfos(), "values")()  # py4j's map has one of its own
    return [reason for output in _elements_of(outputs) if (reason := output.failureReason())]


def pending_times(context: Any) -> frozenset[int]:
    """Return the times of the batches that a StreamingContext from a checkpoint runs again, in ms."""
    return frozenset(int(time.milliseconds()) for time in context.initialCheckpoint().pendingTimes())


def remember_ms(context: Any, stream_id: int) -> int:
    """Return how long Spark may ask for a stream's batch again, which windows make longer."""
    streams = context.graph().getInputStreams()
    mine = next((stream for stream in streams if stream.id() == stream_id), None)
    duration = None if mine is None else mine.rememberDuration()
    return 0 if duration is None else int(duration.milliseconds())


def report_input(
    sc: SparkContext, context: Any, stream_id: int, time_ms: int, *, messages: int, about: str
) -> None:
    """Tell Spark's input info tracker what a batch has: the Streaming tab shows it."""
    streaming = jvm_of(sc).org.apache.spark.streaming
    context.scheduler().inputInfoTracker().reportInfo(
        streaming.Time(time_ms),
        streaming.scheduler.StreamInputInfo(stream_id, messages, scala_map(sc, {"Description": about})),
    )


def revive(sc: SparkContext, rdd: RDD[Any]) -> None:
    """Give the RDD of an `empty_input` its SparkContext back, which it lost in a checkpoint."""
    field = (
        jvm_of(sc)
        .org.apache.spark.util.Utils.classForName("org.apache.spark.rdd.RDD", True, False)
        .getDeclaredField("_sc")
    )
    field.setAccessible(True)
    if field.get(rdd._jrdd.rdd()) is None:  # noqa: SLF001
        field.set(rdd._jrdd.rdd(), sc._jsc.sc())  # noqa: SLF001


def streaming_context(sc: SparkContext) -> Any:
    """Return the Scala StreamingContext that runs, or is being started, on a SparkContext.

    Raises
    ------
    RocketMQError
        There is none.
    """
    jvm = jvm_of(sc)
    cls = jvm.org.apache.spark.util.Utils.classForName(_PROGRESS_LISTENER, True, False)
    found = sc._jsc.sc().listenerBus().findListenersByClass(jvm.scala.reflect.ClassTag.apply(cls))  # noqa: SLF001
    if found.isEmpty():
        raise RocketMQError("no StreamingContext runs on this SparkContext")
    field = cls.getDeclaredField("ssc")
    field.setAccessible(True)
    return field.get(found.last())
