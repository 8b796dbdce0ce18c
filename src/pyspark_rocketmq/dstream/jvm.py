"""What the RDD and DStream APIs ask of Spark's JVM; classic Spark only."""

# Facts (Spark 4.3.0, read with javap and tried)
# - SparkContext.makeRDD(Seq[(T, Seq[String])]) makes one partition an element; "executor_<host>_<id>" is the
#   location of an executor.
# - ConstantInputDStream is the one input stream without receiver, files or queue. Its RDD comes back from a
#   checkpoint without its SparkContext (a transient field), which DStream.clearMetadata needs.
# - While StreamingContext.start() recovers, the context is not "active" yet, but its progress listener is
#   registered with the SparkContext already, and knows it.

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, Final

from pyspark import RDD, SparkContext
from pyspark.serializers import CPickleSerializer

from pyspark_rocketmq.errors import OptionError, RocketMQError

__all__ = ["elements_rdd", "empty_input", "executors", "revive", "scala_map", "streaming_context"]

_DRIVER: Final = "driver"
_PROGRESS_LISTENER: Final = "org.apache.spark.streaming.ui.StreamingJobProgressListener"


def jvm_of(sc: SparkContext) -> Any:
    """Return the gateway to the JVM.

    Raises
    ------
    OptionError
        There is none: Spark Connect.
    """
    jvm = getattr(sc, "_jvm", None)
    if jvm is None:
        raise OptionError("RDDs and DStreams need classic Spark: use spark.read or spark.readStream")
    return jvm


def elements_rdd(sc: SparkContext, elements: Sequence[Any], locations: Sequence[Sequence[str]]) -> RDD[Any]:
    """Return an RDD with one partition for each element, and where Spark should put them."""
    if not elements:
        return sc.emptyRDD()
    jvm = jvm_of(sc)
    pairs = jvm.java.util.ArrayList()
    for element, places in zip(elements, locations, strict=True):
        seq = jvm.PythonUtils.toSeq(list(places))
        pairs.add(jvm.scala.Tuple2(bytearray(pickle.dumps(element, pickle.HIGHEST_PROTOCOL)), seq))
    made = sc._jsc.sc().makeRDD(jvm.PythonUtils.toSeq(pairs), _bytes_tag(sc))  # noqa: SLF001
    return RDD(made.toJavaRDD(), sc, CPickleSerializer())


def _bytes_tag(sc: SparkContext) -> Any:
    jvm = jvm_of(sc)
    return jvm.scala.reflect.ClassTag.apply(jvm.org.apache.spark.util.Utils.classForName("[B", True, False))


def executors(sc: SparkContext) -> list[str]:
    """Return the locations of the executors in a stable order; none in local mode."""
    summaries = jvm_of(sc).scala.jdk.javaapi.CollectionConverters.asJava(
        sc._jsc.sc().statusStore().executorList(True)  # noqa: SLF001
    )
    found = sorted((s.hostPort().rpartition(":")[0], s.id()) for s in summaries if s.id() != _DRIVER)
    return [f"executor_{host}_{number}" for host, number in found]


def scala_map(sc: SparkContext, entries: dict[str, str]) -> Any:
    """Return an immutable Scala map."""
    return jvm_of(sc).PythonUtils.toScalaMap(entries)


# --- streaming ------------------------------------------------------------------------------


def empty_input(sc: SparkContext, jssc: Any) -> Any:
    """Return an input stream (a Java DStream) that has one empty RDD a batch."""
    jvm = jvm_of(sc)
    scala = sc._jsc.sc()  # noqa: SLF001
    tag = _bytes_tag(sc)
    stream = jvm.org.apache.spark.streaming.dstream.ConstantInputDStream(jssc.ssc(), scala.emptyRDD(tag), tag)
    return jvm.org.apache.spark.streaming.api.java.JavaDStream(stream, tag)


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
