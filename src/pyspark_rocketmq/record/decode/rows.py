"""The positions of each message's fields, body and properties: one entry per message, nothing copied."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from pyspark_rocketmq.record.decode.spans import Bytes, Int32s, Int64s, Spans
from pyspark_rocketmq.record.layout import BORN_HOST_AT, FIXED_SIZE, IPV6_EXTRA, STORE_HOST_AT, MessageFlag

__all__ = ["HEAD", "Chunk", "Rows"]

# Plain integers: with a member of an enumeration, numpy takes several times as long.
_BORN_HOST_V6: Final = int(MessageFlag.BORN_HOST_V6)
_STORE_HOST_V6: Final = int(MessageFlag.STORE_HOST_V6)

HEAD: Final = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">u4"),
        ("body_crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("commit_log_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
        ("born_host", "V8"),
        ("store_timestamp", ">i8"),
        ("store_host", "V8"),
        ("reconsume_times", ">i4"),
        ("prepared_transaction_offset", ">i8"),
        ("body_length", ">i4"),
    ]
)
"""The fixed part of a record with IPv4 hosts, see ``layout``."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The records of one pull answer: bytes ``[start, end)`` of a receive buffer.

    Only messages with ``from_offset <= queueOffset < until_offset`` count. Consecutive chunks that
    hold the very same ``buffer`` object are decoded together, which is what makes decoding fast.

    Parameters
    ----------
    buffer : memoryview
        Contiguous bytes, below 2 GiB; read only during the call.
    offset_delta : int
        ``offsetDelta`` of the answer (static topics), added to each record's queue offset.
    unreadable : bool
        The record stands for one that cannot be read: only its queue offset means something.
    answer_until : int
        The next offset that the answer told, if it is after ``until_offset``.
    """

    buffer: bytearray | memoryview
    start: int
    end: int
    from_offset: int
    until_offset: int
    offset_delta: int = 0
    unreadable: bool = False
    answer_until: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """One entry a message, in the order of offsets.

    ``head`` holds the fixed fields (its hosts are only right if they are IPv4), ``offset`` the
    logical queue offsets; the spans say where in ``buffers`` the record, the plain body and the
    properties are.
    """

    buffers: tuple[Bytes, ...]
    head: npt.NDArray[np.void]
    offset: Int64s
    record: Spans
    body: Spans
    properties: Spans
    damage: npt.NDArray[np.uint8] | None = None
    """What is wrong with each message, see ``corrupt``; None where nothing is, which is nearly always."""

    def __len__(self) -> int:
        return self.offset.size

    def __getitem__(self, rows: slice | Int64s) -> Rows:
        # numpy copies opaque values of 88 bytes twenty times faster than structured ones.
        head = self.head.view(f"V{FIXED_SIZE}")[rows].view(HEAD)
        return Rows(
            self.buffers,
            head,
            self.offset[rows],
            self.record[rows],
            self.body[rows],
            self.properties[rows],
            None if self.damage is None else self.damage[rows],
        )

    @classmethod
    def concat(cls, parts: Sequence[Rows]) -> Rows:
        """Join the rows of several buffers, numbered in the order of ``parts``."""
        return cls(
            tuple(itertools.chain.from_iterable(part.buffers for part in parts)),
            np.concatenate([part.head.view(f"V{FIXED_SIZE}") for part in parts]).view(HEAD),
            np.concatenate([part.offset for part in parts]),
            Spans.concat([part.record for part in parts]),
            Spans.concat([part.body for part in parts]),
            Spans.concat([part.properties for part in parts]),
            _join_damage(parts),
        )

    def sys_flag(self) -> Int32s:
        """Return the sysFlag of each message."""
        return self.head["sys_flag"].astype(np.int32)

    def only_host(self, field: str) -> bytes | None:
        """Return the host that all messages have; None if there are several, or IPv6 addresses."""
        if not len(self) or (self.sys_flag() & (_BORN_HOST_V6 | _STORE_HOST_V6)).any():
            return None
        hosts = np.frombuffer(self.head[field].tobytes(), np.int64)
        return hosts[:1].tobytes() if (hosts == hosts[0]).all() else None

    def born_host(self) -> Spans:
        """Return where the 8 or 20 bytes of the born hosts are."""
        length = np.where(self.sys_flag() & _BORN_HOST_V6, 8 + IPV6_EXTRA, 8)
        return Spans(self.record.index, self.record.start + BORN_HOST_AT, length)

    def store_host(self) -> Spans:
        """Return where the 8 or 20 bytes of the store hosts are."""
        sys_flag = self.sys_flag()
        length = np.where(sys_flag & _STORE_HOST_V6, 8 + IPV6_EXTRA, 8)
        shift = np.where(sys_flag & _BORN_HOST_V6, IPV6_EXTRA, 0)
        return Spans(self.record.index, self.record.start + STORE_HOST_AT + shift, length)


def _join_damage(parts: Sequence[Rows]) -> npt.NDArray[np.uint8] | None:
    if all(part.damage is None for part in parts):
        return None
    sound = [np.zeros(len(part), np.uint8) if part.damage is None else part.damage for part in parts]
    return np.concatenate(sound)
