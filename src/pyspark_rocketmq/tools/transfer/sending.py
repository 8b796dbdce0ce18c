"""Sends the messages of a file: those of one queue go to one queue, in their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from pyspark_rocketmq.client import Client, Producer
from pyspark_rocketmq.client.send.message_encoding import Outgoing, encode_many, encode_one
from pyspark_rocketmq.client.send.send_pipeline import SendOutcome, SendPipeline
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageQueue, OutgoingMessage
from pyspark_rocketmq.record.properties import PROPERTY_LITE_TOPIC
from pyspark_rocketmq.tools.transfer.message_files import FileMessage
from pyspark_rocketmq.tools.transfer.pace import Pace

__all__ = ["count_queues", "map_queues", "send_messages"]

_BATCH_MESSAGES: Final = 256
_BATCH_BYTES: Final = 256 * 1024
_ITEM_BYTES: Final = 200
"""More than a message takes in a batch besides its body and its properties."""


def count_queues(messages: Iterable[FileMessage]) -> dict[tuple[str, int], int]:
    """Return the number of messages of each queue, sorted, and check their order.

    Raises
    ------
    OptionError
        The offsets of a queue do not increase: the order in the queue is lost.
    """
    counts: dict[tuple[str, int], int] = {}
    last: dict[tuple[str, int], int] = {}
    for message in messages:
        broker_name, queue_id = message.queue
        if message.offset <= last.get(message.queue, -1):
            raise OptionError(
                "the offsets of a queue do not increase, so its order is lost: sort the file by queueOffset",
                queue=f"{broker_name}:{queue_id}",
                offset=message.offset,
            )
        last[message.queue] = message.offset
        counts[message.queue] = counts.get(message.queue, 0) + 1
    return dict(sorted(counts.items()))


def map_queues(
    sources: Iterable[tuple[str, int]], targets: Sequence[MessageQueue]
) -> dict[tuple[str, int], MessageQueue]:
    """Return the target of each queue: with as many queues, one each, else in turn.

    Parameters
    ----------
    sources : iterable of (str, int)
        Broker and id, sorted.
    targets : sequence of MessageQueue
        The writable queues, sorted, at least one.
    """
    return {source: targets[at % len(targets)] for at, source in enumerate(sources)}


def send_messages(
    client: Client,
    messages: Iterable[FileMessage],
    queues: Mapping[tuple[str, int], MessageQueue],
    pace: Pace,
) -> Iterator[int]:
    """Send messages and yield the numbers of those that brokers have stored meanwhile.

    At least once: after an error, some messages after those that were yielded may be stored.

    Raises
    ------
    SendError, RocketMQError
    """
    with Producer(client) as producer, SendPipeline(producer, ordered=True) as pipeline:
        for queue, batch in _batches(messages, queues, pace.rate):
            pace.wait(len(batch))
            yield _stored(pipeline.submit(_encode(batch, producer), queue, token=len(batch)))
        yield _stored(pipeline.flush())


def _batches(
    messages: Iterable[FileMessage], queues: Mapping[tuple[str, int], MessageQueue], rate: float
) -> Iterator[tuple[MessageQueue, list[OutgoingMessage]]]:
    """Yield the messages in batches of one queue each. A low rate makes batches small."""
    most = max(1, int(min(_BATCH_MESSAGES, rate / 10))) if rate else _BATCH_MESSAGES
    waiting: dict[MessageQueue, list[OutgoingMessage]] = {}
    sizes: dict[MessageQueue, int] = {}
    for message in messages:
        queue = queues[message.queue]
        outgoing = message.outgoing(queue.topic)
        size = _size(outgoing)
        alone = PROPERTY_LITE_TOPIC in outgoing.properties  # brokers ignore lite topics within a batch
        if queue in waiting and (alone or len(waiting[queue]) >= most or sizes[queue] + size > _BATCH_BYTES):
            yield queue, waiting.pop(queue)
            sizes[queue] = 0
        if alone:
            yield queue, [outgoing]
            continue
        waiting.setdefault(queue, []).append(outgoing)
        sizes[queue] = sizes.get(queue, 0) + size
    yield from waiting.items()


def _size(message: OutgoingMessage) -> int:
    texts = (*message.properties, *message.properties.values(), message.tags or "", *message.keys)
    return len(message.body) + sum(len(text.encode()) + 1 for text in texts) + _ITEM_BYTES


def _encode(batch: Sequence[OutgoingMessage], producer: Producer) -> Outgoing:
    if len(batch) > 1:
        return encode_many(batch, producer.ids)
    options = producer.options
    return encode_one(
        batch[0], producer.ids, compression=options.compression, compress_above=options.compress_above
    )


def _stored(outcomes: Sequence[SendOutcome]) -> int:
    """Return the number of stored messages, or raise the first failure."""
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    return sum(outcome.token for outcome in outcomes if isinstance(outcome.token, int))
