"""Answers with a record that breaks the layout, read again message by message.

Such a record hides those after it in the answer. A broker finds each message by its index: asked for one at a
time, it hands out those after it, too. The one at fault is then known by its offset, however the answers were
cut. What was damaged only on its way comes whole the second time.
"""

# Facts (DefaultMessageStore.getMessage; 4.9 and 5.4): with maxMsgNums=1 an answer holds one record, and
# nextBeginOffset is right after it. With a filter the record may be any at or after the offset.

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark_rocketmq.client.read.range_reader import Pulled, read_chunks
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.model import MessageQueue, MessageSelector, OffsetRange
from pyspark_rocketmq.record.decode.rows import Chunk
from pyspark_rocketmq.record.decode.scan import keeps_layout
from pyspark_rocketmq.record.message import encode_message

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client

__all__ = ["read_again"]


def read_again(client: Client, queue: MessageQueue, chunks: list[Chunk], options: ReadOptions) -> list[Chunk]:
    """Return the same answers, those that break the layout message by message.

    A message that does so by itself is replaced by one that is marked unreadable.

    Raises
    ------
    RocketMQError
        As `read_chunks`, but lost messages are holes, which the caller judges.
    """
    mended: list[Chunk] = []
    for chunk in chunks:
        if keeps_layout(chunk, queue):
            mended.append(chunk)
        else:
            mended += _one_by_one(client, queue, chunk, options)
    return mended


def _one_by_one(client: Client, queue: MessageQueue, chunk: Chunk, options: ReadOptions) -> Iterator[Chunk]:
    # Tags are compared by the reader: here they could only hide which message it is.
    selector = MessageSelector() if options.selector.expression_type == "TAG" else options.selector
    alone = replace(options, selector=selector, pull_batch_size=1, fail_on_data_loss=False)
    offset = chunk.from_offset
    for event in read_chunks(client, [OffsetRange(queue, offset, chunk.until_offset)], alone):
        for one in event.chunks if isinstance(event, Pulled) else ():
            yield from _hole(offset, one.from_offset)
            yield one if keeps_layout(one, queue) else _unreadable(queue, one)
            offset = one.until_offset
    yield from _hole(offset, chunk.until_offset)


def _hole(begin: int, end: int) -> Iterator[Chunk]:
    """Hand on offsets that are lost by now."""
    if begin < end:
        yield _empty(begin, end)


def _empty(begin: int, end: int) -> Chunk:
    return Chunk(memoryview(b""), 0, 0, begin, end)


def _unreadable(queue: MessageQueue, chunk: Chunk) -> Chunk:
    """Return what stands for the answer's record; nothing, if the record is after the chunk's offsets."""
    offset = max(chunk.until_offset, chunk.answer_until) - 1
    if offset >= chunk.until_offset:
        return _empty(chunk.from_offset, chunk.until_offset)
    record = memoryview(encode_message(b"", topic=queue.topic, queue_offset=offset))
    return Chunk(record, 0, len(record), chunk.from_offset, chunk.until_offset, unreadable=True)
