"""Answers with a record that breaks the layout, read again message by message.

Such a record hides those after it in the answer. A broker finds each message by its index: asked for one at a
time, it hands out those after it, too. The one at fault is then known by its offset, however the answers were
cut. What was damaged only on its way comes whole the second time.
"""

# Facts (DefaultMessageStore.getMessage; 4.9 and 5.4): with maxMsgNums=1 an answer holds one record, and
# nextBeginOffset is right after it. With a filter the record may be any at or after the offset.

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark_rocketmq.client import requests as broker
from pyspark_rocketmq.errors import CorruptMessageError
from pyspark_rocketmq.model import MessageQueue, MessageSelector, PullStatus
from pyspark_rocketmq.record.decode.rows import Chunk
from pyspark_rocketmq.record.decode.scan import keeps_layout
from pyspark_rocketmq.record.message import encode_message

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client

__all__ = ["read_again"]


def read_again(
    client: Client, queue: MessageQueue, chunks: list[Chunk], *, selector: MessageSelector, group: str
) -> list[Chunk]:
    """Return the same answers, those that break the layout message by message.

    A message that does so by itself is replaced by one that is marked unreadable.

    Raises
    ------
    CorruptMessageError
        The broker does not return a message again.
    RocketMQError
        The broker does not answer.
    """
    mended: list[Chunk] = []
    for chunk in chunks:
        if keeps_layout(chunk, queue):
            mended.append(chunk)
        else:
            mended += _one_by_one(client, queue, chunk, selector, group)
    return mended


def _one_by_one(
    client: Client, queue: MessageQueue, chunk: Chunk, selector: MessageSelector, group: str
) -> Iterator[Chunk]:
    # Tags are compared by the reader: here they could only hide which message it is.
    asked = MessageSelector() if selector.expression_type == "TAG" else selector
    offset = chunk.from_offset
    while offset < chunk.until_offset:
        call = broker.pull(queue, offset, group=group, max_nums=1, selector=asked)
        answer = client.ask({queue: call})[queue]
        after = answer.header.next_begin_offset
        if after <= offset:
            raise CorruptMessageError(
                "an answer breaks the layout of records, and its messages do not come again one by one",
                queue=str(queue),
                queue_offset=offset,
                status=answer.status.name,
            )
        # What is not found is a hole, which the reader judges: all offsets of the answer are handed on.
        records = bytes(answer.records) if answer.status is PullStatus.FOUND else b""
        until = min(after, chunk.until_offset)
        one = Chunk(memoryview(records), 0, len(records), offset, until, answer.header.offset_delta or 0)
        yield one if keeps_layout(one, queue) else _unreadable(queue, after - 1, one)
        offset = after


def _unreadable(queue: MessageQueue, offset: int, chunk: Chunk) -> Chunk:
    record = memoryview(encode_message(b"", topic=queue.topic, queue_offset=offset))
    return Chunk(record, 0, len(record), chunk.from_offset, chunk.until_offset, unreadable=True)
