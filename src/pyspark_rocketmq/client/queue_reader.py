"""From offset ranges to messages: the one reader that every API of the package stands on.

Ranges are emitted one after the other, each in offset order and exactly once; pulls are pipelined over
all of them, so that many small ranges cost little more than one. Memory is bounded by
``max_bytes_in_flight`` at both ends and by one batch.

Delivery promise: every offset of a range is returned, filtered, or reported as lost, or an error is raised.
Reading has no side effects at the broker; the same ranges give the same rows again while the broker has them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_rocketmq.client.range_pull import RangePull, ReadOptions
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.model import Message, MessageQueue, OffsetRange, RangeReport
from pyspark_rocketmq.planning.depth import PullDepth
from pyspark_rocketmq.record.arrow import BatchDecoder, Chunk, Column
from pyspark_rocketmq.record.objects import MessageDecoder

if TYPE_CHECKING:
    from pyspark_rocketmq.client.core import Client

__all__ = ["DecodeOptions", "decode_batches", "read_batches", "read_chunks", "read_messages"]

ReportHandler = Callable[[RangeReport], None]

_OBJECTS_AT_ONCE: Final = 512
_BYTES_AT_ONCE: Final = 1 << 20
"""How much is decoded to objects together; more is hardly cheaper, and pulls wait meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeOptions:
    """Which columns to build, and how large record batches may become.

    Parameters
    ----------
    columns : sequence of str or Column
        Names of `record.arrow.COLUMNS`, or columns that are called differently.
    max_batch_rows, max_batch_bytes : int
        A batch is handed out when it holds this many rows or bytes of answers. Memory pools give blocks
        above some MiB back at once, so that larger batches pay for page faults each time (measured: 0.2
        instead of 0.05 us a KiB).
    """

    columns: Sequence[str | Column]
    body_as: Literal["binary", "string"] = "binary"
    check_crc: bool = False
    max_batch_rows: int = 10_000
    max_batch_bytes: int = 4 << 20


def read_chunks(
    client: Client, ranges: Sequence[OffsetRange], options: ReadOptions
) -> Iterator[tuple[RangePull, list[Chunk]]]:
    """Pull ranges and yield their raw records, undecoded, as they come in order.

    Each range ends with one empty list, when everything of it has been yielded.

    Raises
    ------
    DataLossError
        Messages are gone and ``options.fail_on_data_loss`` is set.
    RocketMQError
        A range made no progress for ``options.stall_timeout_ms``, or failed for good.
    """
    waiting = deque(ranges)
    active: deque[RangePull] = deque()
    depth = PullDepth(options.pulls_in_flight)
    try:
        while waiting or active:
            _fill(client, active, waiting, options, depth)
            head = active[0]
            try:
                if head.blocked:
                    head.fill(1)
                    head.blocked = False
                chunks = [] if head.done else head.receive()
            except RocketMQError as error:
                head.recover(error)
                continue
            if chunks:
                _fill(client, active, waiting, options, depth)  # the broker works while the caller does
                yield head, chunks
            if head.done:
                head.close()
                active.popleft()
                yield head, []
    finally:
        for pull in active:
            pull.close()


def _fill(
    client: Client,
    active: deque[RangePull],
    waiting: deque[OffsetRange],
    options: ReadOptions,
    depth: PullDepth,
) -> None:
    """Keep the allowed number of pulls in flight, the first range first.

    Those between the first and the last one have asked for all that they may: a later one was begun only
    when there was room left, and they get no answers before it is their turn.
    """
    budget = depth.limit - sum(pull.load for pull in active)
    if active:
        # The one that everything waits for has a share of its own: the others may have taken it all while
        # its broker was away.
        head = active[0]
        budget -= _try_to_fill(head, max(depth.limit - head.load, 0 if head.waits else 1))
    if len(active) > 1:
        budget -= _try_to_fill(active[-1], budget)
    while waiting and (budget > 0 or not active):
        pull = RangePull(client, waiting.popleft(), options, depth)
        active.append(pull)
        budget -= _try_to_fill(pull, budget)


def _try_to_fill(pull: RangePull, budget: int) -> int:
    """Send pulls of a range; if that fails, it waits for the range's turn to be retried or raised."""
    if pull.blocked or budget <= 0:
        return 0
    try:
        return pull.fill(budget)
    except RocketMQError:
        pull.blocked = True
        return 0


def read_batches(
    client: Client,
    ranges: Sequence[OffsetRange],
    options: ReadOptions,
    decode: DecodeOptions,
    *,
    on_report: ReportHandler | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read ranges as Arrow record batches, each of one range and all of the same schema.

    Parameters
    ----------
    client : Client
    ranges : sequence of OffsetRange
    options : ReadOptions
    decode : DecodeOptions
    on_report : Callable, optional
        Called after each range with what became of its offsets.

    Raises
    ------
    CorruptMessageError
        A record does not decode; names its queue and offset.
    DataLossError, RocketMQError
        As `read_chunks`.
    """
    tags = options.selector.tags
    pending: list[Chunk] = []
    rows = planned = size = 0
    decoder: BatchDecoder | None = None
    for pull, chunks in read_chunks(client, ranges, options):
        decoder = decoder or _decoder(pull.offsets.queue, decode, tags)
        pending += chunks
        planned += sum(chunk.until_offset - chunk.from_offset for chunk in chunks)
        size += sum(chunk.end - chunk.start for chunk in chunks)
        if pending and (not chunks or planned >= decode.max_batch_rows or size >= decode.max_batch_bytes):
            for batch in decoder.batches(pending):
                kept = batch if tags is None else _matching(batch, tags)
                rows += kept.num_rows
                if kept.num_rows:
                    yield kept
            pending = []
            planned = size = 0
        if not chunks:
            if on_report is not None:
                on_report(_report(pull, rows, filtered=not options.selector.takes_all))
            rows = 0
            decoder = None


def read_messages(
    client: Client, ranges: Sequence[OffsetRange], options: ReadOptions, *, check_crc: bool = False
) -> Iterator[Message]:
    """Read ranges as one `Message` object each: convenient, and many times slower than `read_batches`.

    Raises
    ------
    CorruptMessageError, DataLossError, RocketMQError
        As `read_batches`; what was read before and not yet returned is not.
    """
    tags = options.selector.tags
    pending: list[Chunk] = []
    planned = size = 0
    for pull, chunks in read_chunks(client, ranges, options):
        pending += chunks
        planned += sum(chunk.until_offset - chunk.from_offset for chunk in chunks)
        size += sum(chunk.end - chunk.start for chunk in chunks)
        if pending and (not chunks or planned >= _OBJECTS_AT_ONCE or size >= _BYTES_AT_ONCE):
            decoder = MessageDecoder(pull.offsets.queue, check_crc=check_crc)
            found, pending = decoder.messages(pending), []
            planned = size = 0
            yield from found if tags is None else (message for message in found if message.tags in tags)


def decode_batches(
    queue: MessageQueue, chunks: Sequence[Chunk], decode: DecodeOptions, tags: frozenset[str] | None
) -> Iterator[pa.RecordBatch]:
    """Decode answers of a queue that were pulled before; with a tag filter only what it really asks for.

    Raises
    ------
    CorruptMessageError
        A record does not decode.
    """
    for batch in _decoder(queue, decode, tags).batches(chunks):
        kept = batch if tags is None else _matching(batch, tags)
        if kept.num_rows:
            yield kept


_TAGS_FOR_CHECK = "__tags__"


def _decoder(queue: MessageQueue, decode: DecodeOptions, tags: frozenset[str] | None) -> BatchDecoder:
    """Build the decoder of one queue; a tag filter needs the tags, asked for or not."""
    extra = [] if tags is None else [Column(_TAGS_FOR_CHECK, "tags")]
    return BatchDecoder(
        [*decode.columns, *extra],
        queue=queue,
        body_as=decode.body_as,
        check_crc=decode.check_crc,
        max_batch_rows=decode.max_batch_rows,
        max_batch_bytes=decode.max_batch_bytes,
    )


def _matching(batch: pa.RecordBatch, tags: frozenset[str]) -> pa.RecordBatch:
    """Keep the rows whose tag is really asked for: brokers compare hashes, and hashes collide."""
    mask = pc.is_in(batch.column(_TAGS_FOR_CHECK), value_set=pa.array(sorted(tags), pa.string()))
    batch = batch.drop_columns([_TAGS_FOR_CHECK])
    return batch if pc.all(mask).as_py() else batch.filter(mask)


def _report(pull: RangePull, rows: int, *, filtered: bool) -> RangeReport:
    missing = len(pull.offsets) - rows - sum(len(lost.offsets) for lost in pull.lost)
    if missing < 0:
        raise AssertionError(f"{pull.offsets} gave {rows} rows and lost {pull.lost}: more than it holds")
    return RangeReport(
        offsets=pull.offsets,
        rows=rows,
        filtered=missing if filtered else 0,
        gaps=0 if filtered else missing,
        lost=tuple(pull.lost),
    )
