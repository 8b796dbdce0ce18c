"""Measure how fast this client reads and writes RocketMQ with one thread, without Spark."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.client.read.queue_reader import DecodeOptions, read_batches
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.client.send.message_encoding import encode_many
from pyspark_rocketmq.client.send.producer import Producer
from pyspark_rocketmq.client.send.send_pipeline import SendOutcome, SendPipeline
from pyspark_rocketmq.model import MessageQueue, OffsetRange, OutgoingMessage

__all__ = ["Measured", "await_visible", "measure_reading", "measure_writing"]

_GROUP: Final = "CID_pyspark_rocketmq_bench"
_BATCH: Final = 100
_VISIBLE_MS: Final = 30_000
_LOOK_S: Final = 0.05

Done = Callable[[int], None]
"""Called with the number of messages since the last call."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of a measurement.

    Parameters
    ----------
    what : str
    messages : int
    body_bytes : int
        The total size of all bodies.
    seconds, cpu_seconds : float
        Elapsed time, and this process's CPU time.
    """

    what: str
    messages: int
    body_bytes: int
    seconds: float
    cpu_seconds: float

    @property
    def messages_per_second(self) -> float:
        """Messages per second of elapsed time."""
        return self.messages / self.seconds if self.seconds else 0.0

    @property
    def mebibytes_per_second(self) -> float:
        """MiB of bodies per second of elapsed time."""
        return self.body_bytes / 2**20 / self.seconds if self.seconds else 0.0

    @property
    def cpu_us_per_message(self) -> float:
        """CPU time of this process per message, in microseconds."""
        return self.cpu_seconds * 1e6 / self.messages if self.messages else 0.0


def measure_writing(client: Client, topic: str, *, messages: int, body_bytes: int, done: Done) -> Measured:
    """Send messages in batches, with several sends in flight, and wait for every response.

    Raises
    ------
    RocketMQError
        A send failed.
    """
    producer = Producer(client)
    body = os.urandom(body_bytes)
    start, cpu = time.perf_counter(), time.process_time()
    with SendPipeline(producer) as pipeline:
        for first in range(0, messages, _BATCH):
            count = min(_BATCH, messages - first)
            batch = [OutgoingMessage(topic, body) for _ in range(count)]
            _check(pipeline.submit(encode_many(batch, producer.ids)), done)
        _check(pipeline.flush(), done)
    return Measured(
        "write", messages, messages * body_bytes, time.perf_counter() - start, time.process_time() - cpu
    )


def measure_reading(client: Client, topic: str, *, messages: int, done: Done) -> Measured:
    """Read at most ``messages`` of a topic's newest messages, into Arrow batches of their bodies.

    Raises
    ------
    RocketMQError
    """
    ranges = list(_newest(client, topic, messages))
    options, decode = (
        ReadOptions(consumer_group=_GROUP, fail_on_data_loss=False),
        DecodeOptions(columns=["body"]),
    )
    rows = size = 0
    start, cpu = time.perf_counter(), time.process_time()
    for batch in read_batches(client, ranges, options, decode):
        rows += batch.num_rows
        size += batch.column("body").nbytes
        done(batch.num_rows)
    return Measured("read", rows, size, time.perf_counter() - start, time.process_time() - cpu)


def await_visible(client: Client, topic: str, messages: int) -> None:
    """Wait until readers of a topic see this number of messages, or for half a minute."""
    queues = client.read_queues(topic)
    deadline = Deadline(client.clock, _VISIBLE_MS)
    while sum(client.max_offsets(queues).values()) < messages and not deadline.expired:
        client.clock.sleep(_LOOK_S)


def _newest(client: Client, topic: str, messages: int) -> Iterator[OffsetRange]:
    """Yield ranges at the queues' ends with ``messages`` offsets in total, or all if there are fewer."""
    queues = client.read_queues(topic)
    mins, maxs = client.min_offsets(queues), client.max_offsets(queues)
    held: dict[MessageQueue, int] = {queue: maxs[queue] - mins[queue] for queue in queues}
    left = messages
    # Small queues first, so that the larger ones make up for what these lack.
    for at, queue in enumerate(sorted(queues, key=lambda queue: held[queue])):
        take = min(held[queue], -(-left // (len(queues) - at)))
        left -= take
        if take > 0:
            yield OffsetRange(queue, maxs[queue] - take, maxs[queue])


def _check(outcomes: list[SendOutcome], done: Done) -> None:
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
        done(outcome.outgoing.count)
