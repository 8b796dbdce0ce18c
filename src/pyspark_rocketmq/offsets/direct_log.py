"""The files that a direct stream keeps next to Spark's checkpoints: its batches and their progress.

``<checkpoint directory>/rocketmq-<stream>/<time>`` contains the ranges of the batch of a time (ms), and the
positions that queues had before it whose range begins elsewhere, because they ended before their position.
``ends-<time>`` contains the next offsets after the batches up to that time, all of which are finished.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageQueue, OffsetRange

__all__ = [
    "ENDS_PREFIX",
    "FOLDER_PREFIX",
    "decode_ends",
    "decode_moved",
    "decode_ranges",
    "encode_ends",
    "encode_ranges",
    "is_direct_checkpoint",
    "next_offsets",
]

FOLDER_PREFIX: Final = "rocketmq-"
ENDS_PREFIX: Final = "ends-"

_VERSION: Final = 1


def encode_ranges(ranges: Iterable[OffsetRange], moved: Mapping[MessageQueue, int] | None = None) -> str:
    """Return the content of a batch's file."""
    rows = [[r.topic, r.broker_name, r.queue_id, r.from_offset, r.until_offset] for r in ranges]
    more = {"moved": _encode_offsets(moved)} if moved else {}
    return json.dumps({"version": _VERSION, "ranges": rows, **more})


def decode_ranges(text: str) -> tuple[OffsetRange, ...] | None:
    """Return the ranges; None for an incomplete file: its batch never ran."""
    rows = _rows(text, "ranges")
    if rows is None:
        return None
    return tuple(
        OffsetRange.create(topic, queue_id, broker_name, begin, end)
        for topic, broker_name, queue_id, begin, end in rows
    )


def decode_moved(text: str) -> dict[MessageQueue, int]:
    """Return the positions before a batch of the queues whose range does not begin there."""
    return _decode_offsets(_rows(text, "moved") or [])


def encode_ends(ends: Mapping[MessageQueue, int]) -> str:
    """Return the content of the file with the offsets up to which all batches are finished."""
    return json.dumps({"version": _VERSION, "ends": _encode_offsets(ends)})


def decode_ends(text: str) -> dict[MessageQueue, int] | None:
    """Return the next offsets; None for an incomplete file."""
    rows = _rows(text, "ends")
    return None if rows is None else _decode_offsets(rows)


def _encode_offsets(offsets: Mapping[MessageQueue, int]) -> list[list[Any]]:
    return [[q.topic, q.broker_name, q.queue_id, offset] for q, offset in sorted(offsets.items())]


def _decode_offsets(rows: list[list[Any]]) -> dict[MessageQueue, int]:
    return {MessageQueue(topic, broker_name, queue_id): at for topic, broker_name, queue_id, at in rows}


def _rows(text: str, what: str) -> list[list[Any]] | None:
    try:
        document = json.loads(text)
    except ValueError:
        return None
    if not isinstance(document, dict) or document.get("version") != _VERSION:
        return None
    return document.get(what)


def is_direct_checkpoint(checkpoint: Path) -> bool:
    """Whether a direct stream keeps its checkpoints in a folder on this machine."""
    return bool(_folders(checkpoint))


def next_offsets(checkpoint: Path, *, stream: int | None = None) -> dict[MessageQueue, int]:
    """Return where a new job must start to continue a stopped direct stream without loss.

    It is the end of the last batch that is finished together with all batches before it. Queues that are in
    no such batch start where the first batch that contains them did.

    Parameters
    ----------
    checkpoint : Path
        The directory of ``ssc.checkpoint``, on this machine.
    stream : int, optional
        Spark's id of the stream, if the checkpoint contains several.

    Raises
    ------
    OptionError
        No such stream exists, several exist and none is selected, or no batch was ever planned.
    """
    folders = _folders(checkpoint)
    wanted = [folder for number, folder in folders.items() if stream in {None, number}]
    if len(wanted) != 1:
        what = f"has {len(wanted)} direct streams, name one" if wanted else "has no such direct stream"
        raise OptionError(f"the checkpoint {what}", checkpoint=checkpoint, streams=sorted(folders))
    (folder,) = wanted
    files = {file.name: file for file in folder.iterdir()}
    begins: dict[MessageQueue, int] = {}
    for time in sorted(int(name) for name in files if name.isdigit()):
        for found in decode_ranges(_text(files[str(time)])) or ():
            begins.setdefault(found.queue, found.from_offset)
    offsets = begins | _newest_ends(files)
    if not offsets:
        raise OptionError("the stream has not planned a batch", checkpoint=checkpoint)
    return offsets


def _newest_ends(files: Mapping[str, Path]) -> dict[MessageQueue, int]:
    times = sorted(int(t) for name in files if (t := name.removeprefix(ENDS_PREFIX)) != name and t.isdigit())
    for time in reversed(times):
        if (ends := decode_ends(_text(files[f"{ENDS_PREFIX}{time}"]))) is not None:
            return ends
    return {}


def _folders(checkpoint: Path) -> dict[int, Path]:
    found = ((folder.name.removeprefix(FOLDER_PREFIX), folder) for folder in checkpoint.glob("rocketmq-*"))
    return {int(number): folder for number, folder in found if number.isdigit()}


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise OptionError(f"the checkpoint cannot be read: {error.strerror}", file=file) from error
    except UnicodeDecodeError:  # truncated within a character
        return ""
