"""Our RDD, direct stream and receivers: read a whole topic and sum the lengths of all bodies."""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.streaming import StreamingContext

from benchmarks.workers import received
from benchmarks.workers.rounds import Done, serve
from benchmarks.workers.spark import session
from pyspark_rocketmq.client import Client
from pyspark_rocketmq.dstream import ReceivedRDD, RocketMQDStream, RocketMQRDD, RocketMQUtils
from pyspark_rocketmq.model import Message, OffsetRange

_TIMEOUT_S = 300
_INTERVAL_S = 0.1
_RECEIVED_INTERVAL_S = 0.5
_GROUP = "bench"

Add = Callable[[RocketMQRDD | ReceivedRDD], tuple[int, int]]
"""Counts messages and the bytes of their bodies."""


def main() -> None:
    """Read the topic once per round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name_server")
    parser.add_argument("topic")
    parser.add_argument("what", choices=["rdd", "direct", "receiver", "reliable"])
    parser.add_argument("elements", choices=["messages", "handler", "batches"])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--receivers", type=int, default=1)
    args = parser.parse_args()
    handler = _length if args.elements == "handler" else None
    add = {"messages": _of_messages, "handler": _of_lengths, "batches": _of_batches}[args.elements]
    options = {"nameServer": args.name_server}
    spark = session(cores=args.cores)
    try:

        def rdd() -> Done:
            made = RocketMQUtils.createRDD(
                spark.sparkContext,
                _GROUP,
                _ranges(args.name_server, args.topic),
                options,
                messageHandler=handler,
            )
            return Done(*add(made))

        def direct() -> Done:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "DStream is deprecated", FutureWarning)
                ssc = StreamingContext(spark.sparkContext, _INTERVAL_S)
            stream = RocketMQUtils.createMQPullStream(
                ssc, _GROUP, args.topic, autoCommit=False, options=options, messageHandler=handler
            )
            return _first_batch(ssc, stream, add)

        def from_receivers() -> Done:
            with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="bench-") as folder:
                warnings.filterwarnings("ignore", "DStream is deprecated", FutureWarning)
                ssc = StreamingContext(spark.sparkContext, _RECEIVED_INTERVAL_S)
                return _received(ssc, args, folder, add)

        serve({"rdd": rdd, "direct": direct}.get(args.what, from_receivers))
    finally:
        spark.stop()


def _first_batch(
    ssc: StreamingContext, stream: RocketMQDStream, add: Callable[[RocketMQRDD], tuple[int, int]]
) -> Done:
    """Run a stream until its first batch, which has all messages, is finished."""
    sums: list[tuple[int, int]] = []
    took: list[float] = []
    done = threading.Event()

    def output(rdd: RocketMQRDD) -> None:
        if not sums and rdd.offsetRanges.planned:
            begin = time.monotonic()
            sums.append(add(rdd))
            took.append(time.monotonic() - begin)
            done.set()

    stream.foreachRDD(output)
    ssc.start()
    try:
        if not done.wait(_TIMEOUT_S):
            raise TimeoutError(f"no batch within {_TIMEOUT_S} s")
    finally:
        ssc.stop(stopSparkContext=False)
    return Done(*sums[0], {"steady_rate": sums[0][0] / took[0]})


def _received(ssc: StreamingContext, args: argparse.Namespace, folder: str, add: Add) -> Done:
    """Run receivers with their own group until all existing messages are in finished batches."""
    wanted = sum(len(found) for found in _ranges(args.name_server, args.topic))
    properties = {
        "nameServer": args.name_server,
        "topic": args.topic,
        "consumerGroup": f"bench-{uuid.uuid4().hex}",
        "startFrom": "earliest",
    }
    sums = received.ROUND["now"] = received.Sums(wanted, add)
    if args.what == "reliable":
        ssc.checkpoint(folder)
        stream = RocketMQUtils.createReliableInputDStream(ssc, properties, receivers=args.receivers)
    else:
        stream = RocketMQUtils.createInputDStream(
            ssc, properties, "MEMORY_AND_DISK", receivers=args.receivers
        )

    stream.foreachRDD(received.take)
    ssc.start()
    try:
        if not sums.done.wait(_TIMEOUT_S):
            raise TimeoutError(f"{sums.parts} of {wanted} within {_TIMEOUT_S} s")
        RocketMQUtils.stopReceivers()
    finally:
        ssc.stop(stopSparkContext=False)
    messages, size = (sum(part) for part in zip(*sums.parts, strict=True))
    # A few messages come again when a queue moves to a receiver that joins.
    return Done(wanted, size * wanted // messages, {"steady_rate": sums.steady_rate()})


def _ranges(name_server: str, topic: str) -> list[OffsetRange]:
    with Client(name_server) as client:
        ends = client.max_offsets(client.read_queues(topic))
    return [OffsetRange(queue, 0, end) for queue, end in ends.items()]


def _length(message: Message) -> int:
    return len(message.body)


def _of_messages(rdd: RocketMQRDD | ReceivedRDD) -> tuple[int, int]:
    return _summed(rdd.map(_length).mapPartitions(_sum))


def _of_lengths(rdd: RocketMQRDD) -> tuple[int, int]:
    return _summed(rdd.mapPartitions(_sum))


def _of_batches(rdd: RocketMQRDD | ReceivedRDD) -> tuple[int, int]:
    return _summed(rdd.recordBatches(["body"]).mapPartitions(_sum_batches))


def _sum(lengths: Iterable[int]) -> Iterator[tuple[int, int]]:
    count = size = 0
    for length in lengths:
        count += 1
        size += length
    yield count, size


def _sum_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int]]:
    for batch in batches:
        yield batch.num_rows, pc.sum(pc.binary_length(batch.column("body"))).as_py()


def _summed(parts: object) -> tuple[int, int]:
    messages, size = (sum(part) for part in zip(*parts.collect(), strict=True))
    return messages, size


if __name__ == "__main__":
    main()
