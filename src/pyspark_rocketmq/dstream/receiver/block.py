"""The block format: pulled records or objects, as bytes with a checksum."""

# Facts: ours. ">4sBBHI" magic, version, kind, 0, length of the JSON head; ">I" CRC-32 of everything before
# and after it; the head; records back to back, or one pickle. One task writes a block, other tasks of the
# same job read it.

from __future__ import annotations

import itertools
import json
import logging
import pickle
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import cloudpickle

from pyspark_rocketmq.client.groups.pulled_run import PulledRun
from pyspark_rocketmq.client.groups.push_delivery import with_original_topic
from pyspark_rocketmq.client.read.queue_reader import DecodeOptions, decode_batches
from pyspark_rocketmq.errors import CorruptMessageError, OptionError
from pyspark_rocketmq.model import Message, MessageQueue
from pyspark_rocketmq.options import ReceiverOptions
from pyspark_rocketmq.options.choices import CorruptPolicy, policy_of_objects
from pyspark_rocketmq.record.decode.objects import MessageDecoder
from pyspark_rocketmq.record.decode.rows import Chunk
from pyspark_rocketmq.record.layout import MIN_RECORD_SIZE
from pyspark_rocketmq.remoting.namespace import NO_NAMESPACE, Namespace

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "BlockReading",
    "block_batches",
    "block_elements",
    "count_records",
    "encode_objects",
    "encode_runs",
    "reading_of",
    "run_messages",
]

_LOG: Final = logging.getLogger(__name__)

_HEAD: Final = struct.Struct(">4sBBHI")
_CRC_SIZE: Final = 4
_MAGIC: Final = b"RMQB"
_VERSION: Final = 1
_RECORDS: Final = 0
_OBJECTS: Final = 1
_OFFSET_AT: Final = 20
"""The position of the queue offset in a record, see ``record.layout``."""


def count_records(run: PulledRun) -> int:
    """Return the number of records of a run without decoding them; an inner batch counts as one.

    Raises
    ------
    CorruptMessageError
        The last record is truncated.
    """
    records, begin, end = run.records, run.from_offset - run.offset_delta, run.until_offset - run.offset_delta
    count = at = 0
    while at < len(records):
        size = int.from_bytes(records[at : at + 4], "big")
        if size < MIN_RECORD_SIZE or at + size > len(records):
            raise CorruptMessageError("a record's size leads out of the answer", position=at, size=size)
        offset = int.from_bytes(records[at + _OFFSET_AT : at + _OFFSET_AT + 8], "big")
        count += begin <= offset < end
        at += size
    return count


def encode_runs(runs: Sequence[PulledRun]) -> bytes:
    """Return a block of pulled records."""
    rows = [[*_place(r.queue), r.from_offset, r.until_offset, r.offset_delta, len(r.records)] for r in runs]
    return _frame(_RECORDS, json.dumps(rows).encode(), [run.records for run in runs])


def encode_objects(objects: Sequence[Any]) -> bytes:
    """Return a block of the results of ``deserialize``; they may be of classes of the main program.

    Other processes cannot import such classes: PySpark's cloudpickle includes them.
    """
    data: bytes = cloudpickle.dumps(list(objects), pickle.HIGHEST_PROTOCOL)  # type: ignore[no-untyped-call]
    return _frame(_OBJECTS, b"", [data])


@dataclass(frozen=True, slots=True)
class BlockReading:
    """Which messages of a block are returned, and how messages that cannot be decoded are handled.

    Parameters
    ----------
    tags : frozenset of str, optional
        Drop messages with other tags: brokers compare hashes of tags only.
    on_corrupt : CorruptPolicy
        A record with an invalid layout is always an error: its response is not pulled again.
    check_crc : bool
    namespace : Namespace
        That of the receiver, which the topics of redelivered messages have at the brokers.
    """

    tags: frozenset[str] | None = None
    on_corrupt: CorruptPolicy = CorruptPolicy.FAIL
    check_crc: bool = False
    namespace: Namespace = NO_NAMESPACE

    def messages(self, queue: MessageQueue, chunks: Sequence[Chunk]) -> Iterator[Message]:
        """Yield the messages of a queue as objects."""
        policy = policy_of_objects(self.on_corrupt)
        decoder = MessageDecoder(queue, on_corrupt=policy, check_crc=self.check_crc)
        for message in decoder.messages(chunks):
            if self.tags is None or message.tags in self.tags:
                yield message
        for corrupt in decoder.corrupt.first:
            _LOG.warning("skipped, it does not decode: %s", corrupt)


_ALL: Final = BlockReading()


def reading_of(options: ReceiverOptions) -> BlockReading:
    """Return how to read the blocks of a receiver."""
    namespace = Namespace(options.client.namespace)
    return BlockReading(options.selector.tags, options.on_corrupt, options.check_crc, namespace)


def block_elements(block: bytes, reading: BlockReading = _ALL) -> Iterator[Any]:
    """Yield a block's messages, in order within each queue, or its objects.

    Parameters
    ----------
    block : bytes
    reading : BlockReading

    Raises
    ------
    CorruptMessageError
        The block, or a record in it, cannot be decoded.
    """
    kind, head_size = _open(block)
    if kind == _OBJECTS:
        data = memoryview(block)[_HEAD.size + _CRC_SIZE :]
        yield from pickle.loads(data)  # noqa: S301 - written by a task of the same job
        return
    for queue, chunks in _by_queue(block, head_size):
        for message in reading.messages(queue, chunks):
            yield with_original_topic(message, reading.namespace)


def block_batches(
    block: bytes, decode: DecodeOptions, tags: frozenset[str] | None
) -> Iterator[pa.RecordBatch]:
    """Yield a block's messages as record batches. Raises as `block_elements`.

    Redelivered messages have the topic ``%RETRY%group``.

    Raises
    ------
    OptionError
        The block contains objects of the receiver's ``deserialize``, not messages.
    """
    kind, head_size = _open(block)
    if kind == _OBJECTS:
        raise OptionError("a receiver with deserialize has stored objects: use its stream unchanged")
    for queue, chunks in _by_queue(block, head_size):
        yield from decode_batches(queue, chunks, decode, tags)


def run_messages(run: PulledRun, reading: BlockReading = _ALL) -> Iterator[Message]:
    """Yield the messages of one pull as stored, with their offsets and topics."""
    return reading.messages(run.queue, [run.chunk()])


def _place(queue: MessageQueue) -> tuple[str, str, int]:
    return queue.topic, queue.broker_name, queue.queue_id


def _frame(kind: int, head: bytes, parts: Sequence[bytes | memoryview]) -> bytes:
    front = _HEAD.pack(_MAGIC, _VERSION, kind, 0, len(head))
    data = b"".join([head, *parts])
    return front + zlib.crc32(data, zlib.crc32(front)).to_bytes(_CRC_SIZE, "big") + data


def _open(block: bytes) -> tuple[int, int]:
    """Check a block; return its kind and the length of its JSON head."""
    start = _HEAD.size + _CRC_SIZE
    if len(block) < start:
        raise CorruptMessageError("a block of a receiver is cut off", size=len(block))
    magic, version, kind, _, head_size = _HEAD.unpack_from(block)
    crc = zlib.crc32(memoryview(block)[start:], zlib.crc32(block[: _HEAD.size]))
    sound = crc == int.from_bytes(block[_HEAD.size : start], "big")
    if not sound or (magic, version) != (_MAGIC, _VERSION):
        raise CorruptMessageError("a block of a receiver is damaged, or of another version", size=len(block))
    return kind, head_size


def _by_queue(block: bytes, head_size: int) -> Iterator[tuple[MessageQueue, list[Chunk]]]:
    """Group the runs by queue, in the order of the pulls.

    A queue that comes back to its member is pulled again from what was committed: a group for each time.
    """
    buffer = memoryview(block)
    at = _HEAD.size + _CRC_SIZE
    rows = json.loads(block[at : at + head_size])
    at += head_size
    placed: list[tuple[PulledRun, int]] = []
    for topic, broker_name, queue_id, begin, end, offset_delta, length in rows:
        queue = MessageQueue(topic, broker_name, queue_id)
        placed.append((PulledRun(queue, begin, offset_delta, buffer[at : at + length], end), at))
        at += length
    ordered = sorted(placed, key=lambda each: each[0].queue)
    for queue, some in itertools.groupby(ordered, lambda each: each[0].queue):
        chunks: list[Chunk] = []
        for run, start in some:
            if chunks and run.from_offset < chunks[-1].until_offset:
                yield queue, chunks
                chunks = []
            chunks.append(run.chunk(buffer, start))
        yield queue, chunks
