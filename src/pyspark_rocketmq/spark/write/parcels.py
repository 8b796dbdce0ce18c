"""From Spark's record batches to pieces that are encoded together, and from encoded parcels to sends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from pyspark_rocketmq.client.send.message_encoding import Outgoing
from pyspark_rocketmq.record.batch_items import iter_batch
from pyspark_rocketmq.record.encode.batches import Parcel

__all__ = ["outgoing_of", "pieces_of", "split_batch"]

_PIECE_BYTES: Final = 32 * 1024 * 1024
"""Approximate bytes of rows that are encoded together: limits a task's memory besides Spark's batch."""

_PIECE_ROWS: Final = 1 << 16
"""One block of unique keys."""


def pieces_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split one of Spark's record batches into slices of bounded size."""
    if not batch.num_rows:
        return
    rows = max(1, min(_PIECE_ROWS, _PIECE_BYTES * batch.num_rows // max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def outgoing_of(topic: str, parcel: Parcel, *, sys_flag: int = 0) -> Outgoing:
    """Return a parcel as a send to a topic, with more bits of sysFlag."""
    return Outgoing(
        topic=topic,
        body=parcel.body,
        properties=parcel.properties,
        sys_flag=parcel.sys_flag | sys_flag,
        flag=parcel.flag,
        count=len(parcel),
        batch=parcel.batch,
        msg_ids=(parcel.msg_id,) if parcel.msg_id else (),
    )


def split_batch(batch: Outgoing) -> Iterator[Outgoing]:
    """Split a batch into single messages."""
    view = memoryview(batch.body)
    for item in iter_batch(view):
        yield Outgoing(
            topic=batch.topic,
            body=bytes(view[item.body_start : item.body_end]),
            properties=str(view[item.properties_start : item.properties_end], "utf-8"),
            sys_flag=batch.sys_flag,
            flag=item.flag,
        )
