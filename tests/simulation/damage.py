"""Messages that brokers have stored damaged: they do not decode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["DAMAGED", "DAMAGES", "UNTIMED", "body_of"]

DAMAGED: Final = b"damaged-any:0"
"""The body of a row whose message does not decode."""

_MAGIC_AT: Final = slice(4, 8)
_SYS_FLAG_END: Final = 39


def _without_magic(record: bytes) -> bytes:
    """Break the layout: this record hides those after it in an answer."""
    return record[: _MAGIC_AT.start] + bytes(4) + record[_MAGIC_AT.stop :]


def _too_long(record: bytes) -> bytes:
    """Break the layout, too: the record leads out of its answer."""
    return b"\x7f" + record[1:]


def _compressed(record: bytes) -> bytes:
    """Say that the body is compressed, which it is not."""
    flag = record[_SYS_FLAG_END] | 1
    return record[:_SYS_FLAG_END] + bytes([flag]) + record[_SYS_FLAG_END + 1 :]


DAMAGES: Final[tuple[Callable[[bytes], bytes], ...]] = (_without_magic, _too_long, _compressed)
UNTIMED: Final = DAMAGES[:2]
"""After these, a record has no store time that can be read."""


def body_of(body: bytes | None) -> bytes:
    """Return a row's body as judges compare it."""
    return DAMAGED if body is None else body.rstrip()
