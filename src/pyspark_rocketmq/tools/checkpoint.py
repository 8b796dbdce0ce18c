"""Offsets between a Spark checkpoint and a consumer group."""

# Facts (CommitLog of Spark 4.3): `commits/<batch>` is written when the batch is done. On a local file system
# `offsets/.<batch>.crc`, if it exists, is compared with the file (Hadoop's ChecksumFileSystem).

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.model.nested_offsets import flatten, nest
from pyspark_rocketmq.offsets.offset_log import OffsetLogEntry
from pyspark_rocketmq.offsets.stream_offset import SourceIdentity, SourceOffset
from pyspark_rocketmq.options.text.queue_patterns import QueuePattern, covers
from pyspark_rocketmq.planning.topics.queue_names import rename_queues
from pyspark_rocketmq.tools.checkpoint_files import CheckpointFiles, checkpoint_files

__all__ = [
    "CheckpointOffsets",
    "forget",
    "offsets_from_json",
    "offsets_to_json",
    "read_finished_offsets",
    "seek",
]


_MAX_LONG: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class CheckpointOffsets:
    """A query's position: the next offsets after its last finished batch."""

    batch: int
    source: SourceIdentity
    offsets: Mapping[MessageQueue, int]


@dataclass(frozen=True, slots=True)
class _LastBatch:
    """The offset log's entry of the last finished batch, and the chosen source in it."""

    number: int
    entry: OffsetLogEntry
    source: str
    offset: SourceOffset


def read_finished_offsets(checkpoint: str | Path, *, source: int | str | None = None) -> CheckpointOffsets:
    """Read a query's finished offsets from its checkpoint.

    Parameters
    ----------
    checkpoint : str or Path
        The query's ``checkpointLocation``: a path, or a URI that Spark can read.
    source : int or str, optional
        Which of the query's sources, where several read RocketMQ: its number from 0, or its name if sources
        are named (``DataStreamReader.name``).

    Raises
    ------
    OptionError
        The folder is not a checkpoint of a query that reads RocketMQ, no batch is finished, or several
        sources match and ``source`` is absent.
    """
    last = _last_batch(checkpoint_files(checkpoint), source)
    return CheckpointOffsets(last.number, last.offset.source, last.offset.offsets)


def seek(
    checkpoint: str | Path, offsets: Mapping[MessageQueue, int], *, source: int | str | None = None
) -> None:
    """Make a stopped query continue from other offsets. It keeps all of its state.

    The last finished batch then ends at these offsets. The position of unnamed queues does not change. Moving
    back repeats the rows in between; moving forward skips them.

    Parameters
    ----------
    checkpoint : str or Path
        The query's ``checkpointLocation``, as of `read_finished_offsets`; the query must not run.
    offsets : Mapping
        The next offset of each queue.
    source : int or str, optional
        Which of the query's sources, where several read RocketMQ: its number from 0, or its name if sources
        are named (``DataStreamReader.name``).

    Raises
    ------
    OptionError
        As `read_finished_offsets`; or a batch is planned but not finished, which a restart would repeat as
        planned; or the query reads with ``isolation=read_committed``; or the checkpoint cannot be written.
    """
    files = checkpoint_files(checkpoint)
    last = _last_batch(files, source)
    if last.offset.committed_only:
        raise OptionError(
            "the query reads with isolation=read_committed: its rows depend on commit topics, too. Start a "
            "new query with startingOffsets instead",
            checkpoint=checkpoint,
        )
    names = [*last.offset.offsets, *offsets]
    position = last.offset.named_as(names)
    moved = {**position.offsets, **rename_queues(offsets, names, choose=max)}
    _rewrite(files, last, replace(position, offsets=moved))


def forget(
    checkpoint: str | Path, patterns: Collection[QueuePattern], *, source: int | str | None = None
) -> None:
    """Remove queues from the checkpoint of a stopped query: of a deleted topic, or a retired broker.

    If such a queue exists, the query treats it as new and starts it as its options say.

    Parameters
    ----------
    checkpoint : str or Path
        The query's ``checkpointLocation``, as of `read_finished_offsets`; the query must not run.
    patterns : collection of QueuePattern
    source : int or str, optional
        Which of the query's sources, where several read RocketMQ: its number from 0, or its name if sources
        are named (``DataStreamReader.name``).

    Raises
    ------
    OptionError
        As `seek`.
    """
    files = checkpoint_files(checkpoint)
    last = _last_batch(files, source)
    _rewrite(files, last, last.offset.without(lambda queue: covers(patterns, queue)))


def _rewrite(files: CheckpointFiles, last: _LastBatch, position: SourceOffset) -> None:
    """Rewrite the end offsets of the last finished batch."""
    if (begun := max(files.batches("offsets"))) > last.number:
        raise OptionError(
            "a batch is begun and not finished: let the query finish it, then stop it again. If it cannot, "
            "because a topic or broker is gone, start it with the option forgetQueues",
            checkpoint=str(files),
            batch=begun,
        )
    name = f"offsets/{last.number}"
    try:
        files.replace(name, last.entry.moved(last.source, position).text())
    except OSError as error:
        raise OptionError(
            f"the checkpoint cannot be written: {error.strerror}", file=f"{files}/{name}"
        ) from error


def _last_batch(files: CheckpointFiles, source: int | str | None) -> _LastBatch:
    try:
        batches = files.batches("commits")
    except OSError as error:
        raise OptionError(f"the checkpoint cannot be read: {error.strerror}", checkpoint=files) from error
    if not batches:
        raise OptionError("the folder has no finished batch of a query", checkpoint=files)
    batch = max(batches)
    try:
        entry = OffsetLogEntry.parse(files.read(f"offsets/{batch}"))
    except OSError as error:
        raise OptionError(
            "the checkpoint has no offsets of its last batch", checkpoint=str(files), batch=batch
        ) from error
    ours = {name: offset for name, offset in entry.of_rocketmq().items() if offset.resolved}
    chosen = [name for name in ours if source is None or name == str(source)]
    if len(chosen) != 1:
        what = f"reads RocketMQ by {len(ours)} sources, name one" if chosen else "has no such RocketMQ source"
        raise OptionError(f"the query {what}", checkpoint=str(files), sources=", ".join(ours) or None)
    return _LastBatch(batch, entry, chosen[0], ours[chosen[0]])


def offsets_to_json(offsets: Mapping[MessageQueue, int]) -> str:
    """Return offsets as JSON in the format of ``startingOffsets``."""
    return json.dumps(nest(offsets), indent=2)


def offsets_from_json(text: str) -> dict[MessageQueue, int]:
    """Parse the output of `offsets_to_json`.

    Raises
    ------
    OptionError
        The text has another format.
    """
    try:
        return {queue: _offset(value) for queue, value in flatten(json.loads(text)).items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise OptionError(
            f'offsets are JSON such as {{"orders": {{"broker-a": {{"0": 120}}}}}}: {error}'
        ) from error


def _offset(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_LONG:
        raise ValueError(f"{value!r} is no offset")
    return value
