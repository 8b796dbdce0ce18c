"""The columnar encoder says the same as the readable one, message by message."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.client.send.message_encoding import UniqueIds, encode_many
from pyspark_rocketmq.client.send.queue_selection import queue_for_key, queue_numbers
from pyspark_rocketmq.model import MessageQueue, OutgoingMessage
from pyspark_rocketmq.record.batch_items import iter_batch
from pyspark_rocketmq.record.encode.batches import (
    BatchLimits,
    ParcelKind,
    arrange,
    encode_parcels,
    kinds_of,
    unique_keys,
)
from pyspark_rocketmq.record.encode.outgoing_rows import MessageColumns, binary_of, prepare
from pyspark_rocketmq.record.properties import decode_properties

TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=("Cs",)), max_size=8)
NAME = st.sampled_from(["a", "b", "größe", "用户"])
MESSAGES = st.lists(
    st.builds(
        OutgoingMessage,
        topic=st.just("orders"),
        body=st.binary(min_size=1, max_size=60),
        tags=st.none() | TEXT,
        keys=TEXT,
        properties=st.dictionaries(NAME, TEXT, max_size=3),
        flag=st.integers(-(2**31), 2**31 - 1),
        sharding_key=st.none() | TEXT,
    ),
    min_size=1,
    max_size=20,
)


def columns(messages: list[OutgoingMessage]) -> MessageColumns:
    def texts(values: list[str | None]) -> pa.Array:
        return binary_of(pa.array(values, pa.string()))

    return MessageColumns(
        body=pa.array([m.body for m in messages], pa.binary()),
        tags=texts([m.tags for m in messages]),
        keys=texts([m.keys for m in messages]),
        sharding_key=texts([m.sharding_key for m in messages]),
        properties=pa.array(
            [list(m.properties.items()) for m in messages], pa.map_(pa.string(), pa.string())
        ),
        flag=pa.array([m.flag for m in messages], pa.int32()),
    )


def content(body: bytes) -> list[tuple[bytes, dict[str, str], int]]:
    found = []
    view = memoryview(body)
    for item in iter_batch(view):
        properties = decode_properties(view[item.properties_start : item.properties_end])
        assert len(properties.pop("UNIQ_KEY")) == 32
        found.append((bytes(view[item.body_start : item.body_end]), properties, item.flag))
    return found


@examples(80)
@given(MESSAGES, st.integers(0, 19), st.integers(1, 7), st.integers(90, 600))
def test_columns_encode_as_single_messages_do(
    messages: list[OutgoingMessage], skipped: int, max_rows: int, max_bytes: int
) -> None:
    messages = messages[skipped % len(messages) :]
    rows, refused = prepare(columns([*messages, *messages]))
    assert not refused
    rows = rows.take(np.arange(len(messages)))
    limits = BatchLimits(max_rows=max_rows, max_bytes=max_bytes)
    kinds = kinds_of(rows, limits)
    found = []
    for parcel in encode_parcels(
        rows, np.zeros(len(rows), np.int32), kinds, limits, unique=unique_keys("0" * 28, 3, len(rows))
    ):
        if parcel.batch:
            assert len(parcel) <= max_rows
            assert len(parcel.body) <= max_bytes
            found += content(parcel.body)
        else:
            properties = decode_properties(parcel.properties.encode())
            del properties["UNIQ_KEY"]
            found.append((parcel.body, properties, parcel.flag))
    assert found == content(encode_many(messages, UniqueIds(SYSTEM_CLOCK)).body)


@examples(80)
@given(st.lists(st.tuples(st.integers(-1, 3), st.sampled_from(ParcelKind)), max_size=40), st.booleans())
def test_arranging_drops_and_repeats_nothing_and_keeps_the_order_in_a_queue(
    rows: list[tuple[int, ParcelKind]], ordered: bool
) -> None:
    queues = np.array([queue for queue, _ in rows], np.int32)
    kinds = np.array([kind for _, kind in rows], np.int8)
    found = arrange(queues, kinds, ordered=ordered)
    order = list(range(len(rows))) if found is None else found.tolist()
    assert sorted(order) == list(range(len(rows)))
    for queue in set(queues.tolist()):
        of_queue = [row for row in order if queues[row] == queue]
        if ordered:
            assert of_queue == sorted(of_queue)
        assert order[order.index(of_queue[0]) :][: len(of_queue)] == of_queue
    if not ordered:
        places = [(queues[row], kinds[row]) for row in order]
        assert places == sorted(places)


@examples(80)
@given(st.lists(st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=30), max_size=20),
       st.integers(1, 9))  # fmt: skip
def test_a_column_of_keys_chooses_the_queues_that_each_key_does(keys: list[str], count: int) -> None:
    queues = [MessageQueue("t", "b", number) for number in range(count)]
    chosen = queue_numbers(binary_of(pa.array(keys, pa.string())), count)
    assert [queues[number] for number in chosen] == [queue_for_key(key, queues) for key in keys]
