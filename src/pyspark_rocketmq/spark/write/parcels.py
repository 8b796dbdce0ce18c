"""From encoded parcels of rows to sends."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark_rocketmq.client.send.message_encoding import Outgoing
from pyspark_rocketmq.record.batch_items import iter_batch
from pyspark_rocketmq.record.encode.batches import Parcel

__all__ = ["outgoing_of", "split_batch"]


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
