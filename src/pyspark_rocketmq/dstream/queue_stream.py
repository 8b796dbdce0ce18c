"""A stream of the elements of a queue in the driver, for a user-defined consumer."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NoReturn

from pyspark import RDD
from pyspark.streaming import DStream, StreamingContext

from pyspark_rocketmq.dstream.jvm import make_planned_stream, report_input, streaming_context
from pyspark_rocketmq.errors import OptionError

__all__ = ["queue_stream"]


class QueueMaker:
    """Creates the RDD of each batch from the elements that the queue has at its time. Spark calls it.

    Parameters
    ----------
    waiting : queue.Queue or queue.SimpleQueue
    most : int, optional
        Maximum elements per batch.
    """

    def __init__(self, waiting: queue.Queue[Any] | queue.SimpleQueue[Any], most: int | None) -> None:
        self._waiting = waiting
        self._most = most
        self.stream_id = -1

    def __getstate__(self) -> NoReturn:
        raise OptionError(
            "a queue of the program cannot be in a checkpoint: leave out ssc.checkpoint, or take "
            "createMQPullStream, whose batches come back after a restart"
        )

    def __call__(self, time: datetime, rdd: RDD[Any]) -> RDD[Any]:
        """Take the elements present when the batch begins: later elements are in the next batch."""
        sc = rdd.context
        count = self._waiting.qsize()
        found = list(
            itertools.islice(self._elements(), count if self._most is None else min(count, self._most))
        )
        report_input(
            *(sc, streaming_context(sc), self.stream_id, round(time.timestamp() * 1000)),
            messages=len(found),
            about="a queue of the program",
        )
        return sc.parallelize(found)

    def _elements(self) -> Iterator[Any]:
        while True:
            try:
                yield self._waiting.get_nowait()
            except queue.Empty:  # another consumer takes from it, too
                return


def queue_stream(
    ssc: StreamingContext, waiting: queue.Queue[Any] | queue.SimpleQueue[Any], most: int | None
) -> DStream[Any]:
    """Return the stream of a queue; see ``RocketMQUtils.queueStream``.

    Raises
    ------
    OptionError
        The argument is no queue, or batches would be empty.
    """
    if not (hasattr(waiting, "get_nowait") and hasattr(waiting, "qsize")):
        raise OptionError("a stream needs a queue.Queue or queue.SimpleQueue", given=type(waiting).__name__)
    if most is not None and most < 1:
        raise OptionError("a batch must have room for an element", maxPerBatch=most)
    maker = QueueMaker(waiting, most)
    java, maker.stream_id = make_planned_stream(ssc, maker)
    return DStream(java, ssc, ssc.sparkContext.serializer)
