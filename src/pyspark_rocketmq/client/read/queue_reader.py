"""From offset ranges to messages: the one reader that every API of the package stands on.

Ranges are emitted one after the other, each in offset order and exactly once (`range_reader`). Memory is
bounded by ``max_bytes_in_flight`` at both ends and by one batch.

Delivery promise: every offset of a range is returned, filtered, or reported as lost, or an error is raised.
Reading has no side effects at the broker; the same ranges give the same rows again while the broker has them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_rocketmq.client.read.range_pull import RangePull
from pyspark_rocketmq.client.read.range_reader import Pulled, RangeEnd, read_chunks
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.client.read.reread import read_again
from pyspark_rocketmq.errors import CorruptMessageError
from pyspark_rocketmq.model import Message, MessageQueue, OffsetRange, RangeReport
from pyspark_rocketmq.options.choices import BodyType, ObjectPolicy
from pyspark_rocketmq.record.decode.arrow import BatchDecoder, Chunk, Column
from pyspark_rocketmq.record.decode.commit_marks import Decided
from pyspark_rocketmq.record.decode.corrupt import Corrupt, OnCorrupt
from pyspark_rocketmq.record.decode.objects import MessageDecoder
from pyspark_rocketmq.record.properties import PROPERTY_COMMIT_TOPIC

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client

__all__ = ["DecodeOptions", "decode_batches", "read_batches", "read_messages"]

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)

ReportHandler = Callable[[RangeReport], None]

_OBJECTS_AT_ONCE: Final = 512
_BYTES_AT_ONCE: Final = 1 << 20
"""How much is decoded to objects together. More is hardly cheaper, and delays the next pulls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeOptions:
    """Which columns to build, and how large record batches may become.

    Parameters
    ----------
    columns : sequence of str or Column
        Names in `record.decode.arrow.COLUMNS`, or columns with other names.
    on_corrupt : {"fail", "null", "skip"}
        How a message that cannot be decoded is handled: an error, nulls in the affected columns, or no row.
    check_crc : bool
        Compare each stored body with its checksum.
    decided : Callable, optional
        Returns, for a queue, which messages of transactional writes are rows. Others are filtered out.
    max_batch_rows, max_batch_bytes : int
        A batch is returned when it holds this many rows or bytes of answers. Memory pools return
        blocks above some MiB to the system at once: larger batches cause page faults each time (measured: 0.2
        instead of 0.05 us per KiB).
    """

    columns: Sequence[str | Column]
    body_as: BodyType = "binary"
    on_corrupt: OnCorrupt = "fail"
    check_crc: bool = False
    decided: Callable[[MessageQueue], Decided] | None = None
    max_batch_rows: int = 10_000
    max_batch_bytes: int = 4 << 20


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
        Called after each range with the outcome of its offsets.

    Raises
    ------
    CorruptMessageError
        A record cannot be decoded. The error names its queue and offset.
    DataLossError, RocketMQError
        As `read_chunks`.
    """
    tags = options.selector.tags
    rows = 0
    decoder: BatchDecoder | None = None
    for run in _pull_runs(client, ranges, options, decode.max_batch_rows, decode.max_batch_bytes):
        decoder = decoder or _make_decoder(run.pull.offsets.queue, decode, tags)
        corrupt = decoder.corrupt
        decoded = -corrupt.skipped - decoder.undecided
        for batch in _decode(decoder.batches, run.chunks, decode.on_corrupt, run.again(client, options)):
            decoded += batch.num_rows
            kept = batch if tags is None else _select_matching(batch, tags)
            rows += kept.num_rows
            if kept.num_rows:
                yield kept
        run.pull.account_for(run.chunks, decoded + corrupt.skipped + decoder.undecided)
        if run.ends:
            if on_report is not None:
                filtered = decoder.undecided if options.selector.takes_all else None
                on_report(_report(run.pull, rows, corrupt, filtered=filtered))
            rows = 0
            decoder = None


def read_messages(
    client: Client,
    ranges: Sequence[OffsetRange],
    options: ReadOptions,
    *,
    on_corrupt: ObjectPolicy = "fail",
    check_crc: bool = False,
    decided: Callable[[MessageQueue], Decided] | None = None,
) -> Iterator[Message]:
    """Read ranges as one `Message` object each: convenient, and many times slower than `read_batches`.

    A message that cannot be decoded is an error or, with ``on_corrupt="skip"``, omitted with a warning. For
    ``decided``, see `DecodeOptions`.

    Raises
    ------
    CorruptMessageError, DataLossError, RocketMQError
        As `read_batches`. Messages that were read but not yet returned are dropped.
    """
    tags = options.selector.tags
    for run in _pull_runs(client, ranges, options, _OBJECTS_AT_ONCE, _BYTES_AT_ONCE):
        queue = run.pull.offsets.queue
        decoder = MessageDecoder(queue, on_corrupt=on_corrupt, check_crc=check_crc)
        rows = None if decided is None else decided(queue)
        decoded = 0
        for message in _decode(decoder.messages, run.chunks, on_corrupt, run.again(client, options)):
            decoded += 1
            if (tags is None or message.tags in tags) and (rows is None or _is_row(message, rows)):
                yield message
        run.pull.account_for(run.chunks, decoded + decoder.corrupt.skipped)
        for corrupt in decoder.corrupt.first:
            _LOG.warning("skipped, it does not decode: %s", corrupt)


def _is_row(message: Message, decided: Decided) -> bool:
    mark = message.properties.get(PROPERTY_COMMIT_TOPIC)
    if mark is None:
        return True
    decided.check((mark,))
    return decided.has(message.queue_offset)


@dataclass(slots=True)
class _Run:
    """Chunks of one range that are decoded together."""

    pull: RangePull
    chunks: list[Chunk] = field(default_factory=list)
    offsets: int = 0
    size: int = 0
    ends: bool = False
    """Whether the range ends with them."""

    def add(self, chunks: Sequence[Chunk]) -> None:
        self.chunks += chunks
        self.offsets += sum(chunk.until_offset - chunk.from_offset for chunk in chunks)
        self.size += sum(chunk.end - chunk.start for chunk in chunks)

    def again(self, client: Client, options: ReadOptions) -> Callable[[], list[Chunk]]:
        """Return a function that pulls the chunks again; those that break the layout, message by message."""

        def pull_again() -> list[Chunk]:
            self.chunks = read_again(client, self.pull.offsets.queue, self.chunks, options)
            return self.chunks

        return pull_again


def _decode(
    decode: Callable[[list[Chunk]], Iterator[T]],
    chunks: list[Chunk],
    on_corrupt: OnCorrupt,
    again: Callable[[], list[Chunk]],
) -> Iterator[T]:
    """Decode answers. If a record breaks their layout and the policy is skip, read them again."""
    results = decode(chunks)
    try:
        first = next(results, None)
    except CorruptMessageError as error:
        if on_corrupt == "fail" or not error.breaks_layout:
            raise
        results = decode(again())
        first = next(results, None)
    if first is not None:
        yield first
        yield from results


def _pull_runs(
    client: Client, ranges: Sequence[OffsetRange], options: ReadOptions, most_offsets: int, most_bytes: int
) -> Iterator[_Run]:
    """Pull ranges. A run has at least these numbers of offsets or bytes, or ends its range."""
    run: _Run | None = None
    for event in read_chunks(client, ranges, options):
        run = run or _Run(event.pull)
        match event:
            case Pulled(_, chunks):
                run.add(chunks)
            case RangeEnd():
                run.ends = True
            case _:
                assert_never(event)
        if run.ends or run.offsets >= most_offsets or run.size >= most_bytes:
            yield run
            run = None


def decode_batches(
    queue: MessageQueue, chunks: Sequence[Chunk], decode: DecodeOptions, tags: frozenset[str] | None
) -> Iterator[pa.RecordBatch]:
    """Decode answers of a queue that were pulled before; with a tag filter, only messages with these tags.

    Raises
    ------
    CorruptMessageError
        A record does not decode.
    """
    decoder = _make_decoder(queue, decode, tags)
    for batch in decoder.batches(chunks):
        kept = batch if tags is None else _select_matching(batch, tags)
        if kept.num_rows:
            yield kept
    for corrupt in decoder.corrupt.first:
        _LOG.warning("it does not decode: %s", corrupt)


_TAGS_FOR_CHECK = "__tags__"


def _make_decoder(queue: MessageQueue, decode: DecodeOptions, tags: frozenset[str] | None) -> BatchDecoder:
    """Return the decoder of one queue. A tag filter needs the tags, even if they are not selected."""
    extra = [] if tags is None else [Column(_TAGS_FOR_CHECK, "tags")]
    return BatchDecoder(
        [*decode.columns, *extra],
        queue=queue,
        body_as=decode.body_as,
        on_corrupt=decode.on_corrupt,
        check_crc=decode.check_crc,
        max_batch_rows=decode.max_batch_rows,
        max_batch_bytes=decode.max_batch_bytes,
        decided=None if decode.decided is None else decode.decided(queue),
    )


def _select_matching(batch: pa.RecordBatch, tags: frozenset[str]) -> pa.RecordBatch:
    """Keep the rows with these tags: brokers compare hashes, which may collide."""
    mask = pc.is_in(batch.column(_TAGS_FOR_CHECK), value_set=pa.array(sorted(tags), pa.string()))
    batch = batch.drop_columns([_TAGS_FOR_CHECK])
    return batch if pc.all(mask).as_py() else batch.filter(mask)


def _report(pull: RangePull, rows: int, corrupt: Corrupt, *, filtered: int | None) -> RangeReport:
    """Return the outcome of a range, of which ``filtered`` messages were left out; None if unknown."""
    found = rows + corrupt.skipped
    rest = len(pull.offsets) - found - pull.gaps - sum(len(lost.offsets) for lost in pull.lost)
    if rest < 0 or (filtered is not None and rest != filtered):
        raise AssertionError(
            f"{pull.offsets}: {found} messages, {pull.gaps} gaps and {pull.lost} do not make it up"
        )
    return RangeReport(
        offsets=pull.offsets,
        rows=rows,
        filtered=rest,
        gaps=pull.gaps,
        lost=tuple(pull.lost),
        skipped=corrupt.skipped,
        nulled=corrupt.count - corrupt.skipped,
        corrupt=tuple(corrupt.first),
    )
