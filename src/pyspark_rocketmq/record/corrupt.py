"""How the batch decoder says which message is corrupt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pyspark_rocketmq.errors import CorruptMessageError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.record.spans import Int64s, Mask

__all__ = ["Corrupt"]


@dataclass(frozen=True, slots=True)
class Corrupt:
    """Finds the first message that fails a check and names its queue and offset."""

    queue: MessageQueue

    def error(self, message: str, **facts: Any) -> CorruptMessageError:
        """Return the error, naming the queue."""
        queue = self.queue
        return CorruptMessageError(
            message, topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id, **facts
        )

    def require(self, valid: Mask, offset: Int64s, message: str) -> None:
        """Raise if a message is not valid.

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

    def text(self, array: pa.Array, offset: Int64s, what: str) -> pa.Array:
        """Return a binary array as strings; raise if one is not UTF-8."""
        try:
            return array.cast(pa.string())
        except pa.ArrowInvalid as error:
            valid = np.fromiter(map(_is_text, array), np.bool_, len(array))
            self.require(valid, offset, f"the {what} is not UTF-8")
            raise AssertionError("Arrow and Python differ about UTF-8") from error


def _is_text(value: pa.BinaryScalar) -> bool:
    try:
        (value.as_py() or b"").decode()
    except UnicodeDecodeError:
        return False
    return True
