"""Handles messages that cannot be decoded: an error that names them, nulls, or no row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_rocketmq.errors import CorruptMessageError
from pyspark_rocketmq.model import CorruptMessage, MessageQueue
from pyspark_rocketmq.record.decode.spans import Int64s, Mask

__all__ = ["BODY_DAMAGED", "INSIDE_DAMAGED", "UNREADABLE", "Corrupt", "OnCorrupt", "replace_slots"]

OnCorrupt: TypeAlias = Literal["fail", "null", "skip"]

BODY_DAMAGED: Final = 1
"""The body does not decompress, or does not match its checksum."""
INSIDE_DAMAGED: Final = 2
"""The same of an inner batch: all fields of its messages are lost."""
UNREADABLE: Final = 3
"""Nothing is known of the message but where it is."""

_NAMED: Final = 100


@dataclass(slots=True)
class Corrupt:
    """Judges what does not decode, by one policy; remembers which messages that were.

    The layout of records is judged elsewhere: a record that breaks it hides those after it.

    Parameters
    ----------
    queue : MessageQueue
    policy : {"fail", "null", "skip"}
    """

    queue: MessageQueue
    policy: OnCorrupt = "fail"
    count: int = 0
    """The number of messages that did not decode, of the rows that `settle` has seen."""
    first: list[CorruptMessage] = field(default_factory=list)
    """The first of them, at most a hundred."""
    _noted: dict[int, str] = field(default_factory=dict)

    @property
    def skipped(self) -> int:
        """How many of them have no row."""
        return self.count if self.policy == "skip" else 0

    def error(self, message: str, **facts: Any) -> CorruptMessageError:
        """Return the error, naming the queue."""
        queue = self.queue
        return CorruptMessageError(
            message, topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id, **facts
        )

    def require(self, valid: Mask, offset: Int64s, message: str) -> None:
        """Raise if a message is not valid, whatever the policy.

        Parameters
        ----------
        valid : array of bool
        offset : array of int
            The queue offset of each.
        message : str
            What is wrong with those that are not.
        """
        if not valid.all():
            raise self.error(message, queue_offset=int(offset[int(np.argmin(valid))]))

    def judge(self, valid: Mask, offset: Int64s, message: str) -> bool:
        """Return whether all messages are valid; those that are not raise, or are noted.

        Parameters as of `require`.
        """
        if valid.all():
            return True
        if self.policy == "fail":
            self.require(valid, offset, message)
        self._noted |= dict.fromkeys(offset[~valid].tolist(), message)
        return False

    def note(self, error: CorruptMessageError, offset: int, count: int) -> None:
        """Raise the error, naming the message, or note ``count`` messages from ``offset`` on."""
        if self.policy == "fail":
            raise self.error(error.message, queue_offset=offset) from error
        self._noted |= dict.fromkeys(range(offset, offset + count), error.message)

    def forget(self) -> None:
        """Drop the notes of messages that no row came of."""
        self._noted.clear()

    def settle(self, offset: Int64s) -> Mask | None:
        """Count the noted messages among rows that are ready, and return which they are; None if none is."""
        if not self._noted:
            return None
        marked: Mask = np.isin(offset, np.fromiter(self._noted, np.int64, len(self._noted)))
        if not marked.any():
            return None
        found = offset[marked].tolist()
        self.count += len(found)
        room = _NAMED - len(self.first)
        self.first += [CorruptMessage(self.queue, each, self._noted[each]) for each in found[:room]]
        for each in found:
            del self._noted[each]
        return marked

    def text(self, array: pa.Array, offset: Int64s, what: str) -> pa.Array:
        """Return a binary array as strings; one that is not UTF-8 raises, or becomes null."""
        try:
            return array.cast(pa.string())
        except pa.ArrowInvalid:
            valid = np.fromiter(map(_is_text, array), np.bool_, len(array))
            self.judge(valid, offset, f"the {what} is not UTF-8")
            return pc.if_else(pa.array(valid), array, None).cast(pa.string())


def replace_slots(array: pa.Array) -> pa.Array:
    """Return a binary array without nulls, with U+FFFD for what is not UTF-8 in it, as Java decodes."""
    texts = (each.decode(errors="replace").encode() for each in array.to_pylist())
    return pa.array(texts, pa.binary())


def _is_text(value: pa.BinaryScalar) -> bool:
    try:
        (value.as_py() or b"").decode()
    except UnicodeDecodeError:
        return False
    return True
