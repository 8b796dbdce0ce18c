"""The decoders of many messages at once give what the reference codec gives, or raise."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.records import records

from pyspark_rocketmq.errors import CorruptMessageError
from pyspark_rocketmq.model import Message, MessageQueue
from pyspark_rocketmq.record.decode.arrow import COLUMNS, BatchDecoder, Chunk, Column
from pyspark_rocketmq.record.decode.objects import MessageDecoder
from pyspark_rocketmq.record.message import decode_messages, encode_message

QUEUE = MessageQueue("orders", "broker-a", 3)
FOREVER = 2**63 - 1

OF_MESSAGE: dict[str, Callable[[Message], Any]] = {
    "topic": lambda message: message.topic,
    "brokerName": lambda message: message.broker_name,
    "queueId": lambda message: message.queue_id,
    "queueOffset": lambda message: message.queue_offset,
    "msgId": lambda message: message.msg_id,
    "keys": lambda message: message.keys,
    "tags": lambda message: message.tags,
    "body": lambda message: message.body,
    "bornTimestamp": lambda message: message.born_timestamp * 1000,
    "storeTimestamp": lambda message: message.store_timestamp * 1000,
    "properties": lambda message: sorted(message.properties.items()),
    "offsetMsgId": lambda message: message.offset_msg_id,
    "flag": lambda message: message.flag,
    "sysFlag": lambda message: message.sys_flag,
    "bornHost": lambda message: message.born_host,
    "storeHost": lambda message: message.store_host,
    "reconsumeTimes": lambda message: message.reconsume_times,
    "preparedTransactionOffset": lambda message: message.prepared_transaction_offset,
    "bodyCrc": lambda message: message.body_crc,
    "traceparent": lambda message: message.properties.get("traceparent"),
}


def values(batch: Any, name: str, source: str) -> list[Any]:
    column = batch.column(name)
    if source in ("bornTimestamp", "storeTimestamp"):
        return column.cast("int64").to_pylist()
    if source == "properties":
        return [sorted(pairs) for pairs in column.to_pylist()]
    return column.to_pylist()


def reference(answer: bytes, chunk: Chunk) -> list[Message]:
    messages = decode_messages(
        answer, topic="orders", broker_name="broker-a", queue_id=3, offset_delta=chunk.offset_delta
    )
    return [each for each in messages if chunk.from_offset <= each.queue_offset < chunk.until_offset]


def check(
    decoder: BatchDecoder, columns: Iterable[Column], chunks: list[Chunk], expected: list[Message]
) -> None:
    batches = decoder.decode(chunks)
    for batch in batches:
        assert batch.schema.equals(decoder.schema, check_metadata=True)
        assert batch.num_rows > 0
        batch.validate(full=True)
    for column in columns:
        actual = [value for batch in batches for value in values(batch, column.name, column.source)]
        assert actual == [OF_MESSAGE[column.source](message) for message in expected], column


@st.composite
def answers(draw: st.DrawFn) -> tuple[list[Chunk], list[Message]]:
    """Cut records into answers and offset ranges, and lay them into buffers, with anything between."""
    drawn = draw(records())
    delta = draw(st.sampled_from([0, 0, 10_000]))
    chunks: list[Chunk] = []
    expected: list[Message] = []
    data, waiting = bytearray(), []
    position, from_offset = 0, 0
    while position < len(drawn) or (waiting and draw(st.booleans())):
        count = draw(st.integers(0, 4))
        taken = drawn[max(0, position - draw(st.integers(0, 1))) : position + count]  # answers may overlap
        position += count
        answer = b"".join(record for record, _, _ in taken)
        last = taken[-1][2] + delta if taken else from_offset
        until_offset = max(from_offset, last - draw(st.sampled_from([0, 0, 0, 1, 2])))
        data += draw(st.sampled_from([b"", b"\xff" * 3]))
        waiting.append((len(data), len(data) + len(answer), from_offset, until_offset))
        data += answer
        expected += reference(answer, Chunk(memoryview(b""), 0, 0, from_offset, until_offset, delta))
        from_offset = until_offset
        if draw(st.booleans()) or position >= len(drawn):
            buffer = memoryview(bytes(data) + draw(st.sampled_from([b"", b"\xff"])))
            chunks += [Chunk(buffer, *span, delta) for span in waiting]
            data, waiting = bytearray(), []
    return chunks, expected


@examples(120)
@given(
    answers(),
    st.lists(st.sampled_from(list(COLUMNS)), min_size=1, unique=True),
    st.sampled_from([1, 2, 3, 10_000]),
    st.sampled_from([1, 700, 64 << 20]),
    st.booleans(),
)
def test_equals_the_reference(
    drawn: tuple[list[Chunk], list[Message]], names: list[str], rows: int, size: int, crc: bool
) -> None:
    chunks, expected = drawn
    columns = [Column(f"{name}_as", name) for name in names]
    decoder = BatchDecoder(columns, queue=QUEUE, check_crc=crc, max_batch_rows=rows, max_batch_bytes=size)
    check(decoder, columns, chunks, expected)


@examples(60)
@given(answers())
def test_all_columns_equal_the_reference(drawn: tuple[list[Chunk], list[Message]]) -> None:
    chunks, expected = drawn
    check(
        BatchDecoder(list(COLUMNS), queue=QUEUE), [Column(name, name) for name in COLUMNS], chunks, expected
    )


@examples(120)
@given(answers(), st.booleans())
def test_objects_equal_the_reference(drawn: tuple[list[Chunk], list[Message]], crc: bool) -> None:
    chunks, expected = drawn
    assert list(MessageDecoder(QUEUE, check_crc=crc).messages(chunks)) == expected


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Draw records with some bytes changed, or anything."""
    data = bytearray(b"".join(record for record, _, _ in draw(records(max_size=4))))
    for _ in range(draw(st.integers(0, 3)) if data else 0):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    return draw(st.sampled_from([bytes(data), bytes(data[: len(data) // 2])]) | st.binary(max_size=200))


OUT_OF_ORDER = b"".join(encode_message(b"x", topic="orders", queue_offset=offset) for offset in (2, 1))
EMPTY_BATCHES_OUT_OF_ORDER = b"".join(
    encode_message(b"", topic="orders", queue_offset=offset, sys_flag=0xC0) for offset in (2, 1)
)


def in_order(data: bytes, chunk: Chunk) -> list[Message]:
    """Return the reference's messages; raise as the decoders do where records or messages do not ascend."""
    messages = reference(data, chunk)
    starts = [0]
    while starts[-1] < len(data):
        starts.append(starts[-1] + int.from_bytes(data[starts[-1] :][:4], "big"))
    offsets = [int.from_bytes(data[start + 20 :][:8], "big") for start in starts[:-1]]
    for each in (offsets, [message.queue_offset for message in messages]):
        if any(one >= other for one, other in itertools.pairwise(each)):
            raise CorruptMessageError("the queue offsets do not ascend")
    return messages


def check_times(messages: Iterable[Message]) -> None:
    """Raise as the decoder of columns does, which hold microseconds: fewer times than a message."""
    if any(abs(ms) > (2**63 - 1) // 1000 for m in messages for ms in (m.born_timestamp, m.store_timestamp)):
        raise CorruptMessageError("no timestamp that Spark could hold")


@examples(150)
@given(damaged())
@example(encode_message(b"", topic="orders", store_timestamp=2**62))
@example(EMPTY_BATCHES_OUT_OF_ORDER)
@example(OUT_OF_ORDER)
def test_any_bytes_give_the_right_rows_or_raise(data: bytes) -> None:
    chunk = Chunk(memoryview(data), 0, len(data), 0, FOREVER)
    try:
        batches = BatchDecoder(list(COLUMNS), queue=QUEUE, check_crc=False).decode([chunk])
    except CorruptMessageError:
        with pytest.raises(CorruptMessageError):
            check_times(in_order(data, chunk))
        return
    expected = in_order(data, chunk)
    for name in COLUMNS:
        actual = [value for batch in batches for value in values(batch, name, name)]
        assert actual == [OF_MESSAGE[name](message) for message in expected]


@examples(150)
@given(damaged())
@example(EMPTY_BATCHES_OUT_OF_ORDER)
@example(OUT_OF_ORDER)
def test_any_bytes_give_the_right_objects_or_raise(data: bytes) -> None:
    chunk = Chunk(memoryview(data), 0, len(data), 0, FOREVER)
    try:
        messages = list(MessageDecoder(QUEUE).messages([chunk]))
    except CorruptMessageError:
        with pytest.raises(CorruptMessageError):
            in_order(data, chunk)
        return
    assert messages == in_order(data, chunk)
