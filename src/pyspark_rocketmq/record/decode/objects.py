"""Decodes pull answers to `Message` objects, for the APIs that return one object per message.

``scan`` does what can be done for all messages together, as for record batches. One pass in Python then
creates the objects. ``record.message`` is the readable twin, which takes four times as long: a property test
shows that both give the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from pyspark_rocketmq.model import Message, MessageQueue
from pyspark_rocketmq.options.choices import ObjectPolicy
from pyspark_rocketmq.record.decode.corrupt import Corrupt
from pyspark_rocketmq.record.decode.rows import Chunk, Rows
from pyspark_rocketmq.record.decode.scan import scan
from pyspark_rocketmq.record.decode.spans import Spans
from pyspark_rocketmq.record.ids import format_host
from pyspark_rocketmq.record.layout import MAX_BODY_BYTES
from pyspark_rocketmq.record.properties import (
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQUE_KEY,
    decode_properties,
)

__all__ = ["MessageDecoder"]

_UNPACKED_BYTES: Final = 16 << 20
"""How much is unpacked at a time: compressed bodies may unpack to any multiple of an answer."""
_UNSIGNED: Final = (1 << 64) - 1


class MessageDecoder:
    """Decodes the pull answers of one queue to objects.

    Parameters
    ----------
    queue : MessageQueue
        Where the answers come from; what the messages are said to belong to, see `decode_messages`.
    on_corrupt : {"fail", "skip"}
        How a message that cannot be decoded is handled: an error, or no object.
    check_crc : bool
        Compare each stored body with its checksum, too.
    body_limit : int
        What one decompressed body may take, in bytes.
    """

    __slots__ = ("_body_limit", "_check_crc", "_queue", "corrupt")

    def __init__(
        self,
        queue: MessageQueue,
        *,
        on_corrupt: ObjectPolicy = "fail",
        check_crc: bool = False,
        body_limit: int = MAX_BODY_BYTES,
    ) -> None:
        self._queue = queue
        self.corrupt: Final = Corrupt(queue, on_corrupt)
        """Which messages did not decode, and were skipped."""
        self._check_crc = check_crc
        self._body_limit = body_limit

    def messages(self, chunks: Sequence[Chunk]) -> Iterator[Message]:
        """Decode the records of pull answers.

        Parameters
        ----------
        chunks : sequence of Chunk
            In the order of their offsets; the more records a call gets, the cheaper each is.

        Yields
        ------
        Message
            Those that the chunks count, in order, each once. They hold copies.

        Raises
        ------
        CorruptMessageError
            Names the queue and, if it can be read, the offset of the first such message.
        """
        self.corrupt.forget()
        for rows in scan(
            chunks,
            self.corrupt,
            with_body=True,
            check_crc=self._check_crc,
            body_limit=self._body_limit,
            part_bytes=_UNPACKED_BYTES,
        ):
            marked = self.corrupt.settle(rows.offset)
            yield from self._of(rows if marked is None else rows[np.flatnonzero(~marked)])

    def _of(self, rows: Rows) -> Iterator[Message]:
        topic, broker_name, queue_id = self._queue.topic, self._queue.broker_name, self._queue.queue_id
        buffers = [data.data for data in rows.buffers]
        stores, store_of = _different(rows, "store_host", rows.store_host)
        store_hosts, prefixes = list(map(format_host, stores)), [host.hex().upper() for host in stores]
        borns, born_of = _different(rows, "born_host", rows.born_host)
        born_hosts = list(map(format_host, borns))
        head = rows.head
        plain = zip(
            rows.offset.tolist(),
            zip(*_places(rows.body), strict=True),
            zip(*_places(rows.properties), strict=True),
            zip(store_of, born_of, strict=True),
            zip(*(head[field].tolist() for field in _FIELDS), strict=True),
            strict=True,
        )
        for offset, (body_in, start, end), (where, first, last), (store, born), fixed in plain:
            (size, crc, flag, position, sys_flag, born_ms, store_ms, reconsume_times, prepared) = fixed
            properties = decode_properties(buffers[where][first:last])
            stored_id = "%s%016X" % (prefixes[store], position & _UNSIGNED)  # noqa: UP031 - the fastest
            yield Message(
                topic,
                broker_name,
                queue_id,
                offset,
                buffers[body_in][start:end].tobytes(),
                properties.get(PROPERTY_UNIQUE_KEY, stored_id),
                stored_id,
                properties.get(PROPERTY_TAGS),
                properties.get(PROPERTY_KEYS),
                properties,
                born_ms,
                store_ms,
                born_hosts[born],
                store_hosts[store],
                flag,
                sys_flag,
                reconsume_times,
                prepared,
                crc,
                position,
                size,
            )


_FIELDS: Final = (
    *("size", "body_crc", "flag", "commit_log_offset", "sys_flag", "born_timestamp"),
    *("store_timestamp", "reconsume_times", "prepared_transaction_offset"),
)
"""The fixed fields of a record that a message takes over."""


def _places(spans: Spans) -> tuple[list[int], list[int], list[int]]:
    """Return the buffer, start and end of each span."""
    return spans.index.tolist(), spans.start.tolist(), (spans.start + spans.length).tolist()


def _different(rows: Rows, field: str, where: Callable[[], Spans]) -> tuple[list[bytes], list[int]]:
    """Return the different hosts, which are few, and which of them each message has."""
    if (only := rows.only_host(field)) is not None:
        return [only], [0] * len(rows)
    encoded = where().collect(rows.buffers).dictionary_encode()
    # Not `np.asarray`: PyArrow imports pandas for it, and swallows a Ctrl-C or SIGTERM that comes meanwhile.
    return encoded.dictionary.to_pylist(), np.from_dlpack(encoded.indices).tolist()
