"""The W3C trace context of a message, as its property ``traceparent`` has it."""

# Facts (W3C Trace Context, level 1): version, trace id, parent id and flags as lowercase hexadecimal digits
# between dashes. Version ff is invalid, and so are ids of zeros only. Later versions may append fields.

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

__all__ = ["TraceContext"]

_TEXT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The span that a message comes from.

    Parameters
    ----------
    trace_id, span_id : int
        128 and 64 bits, not zero.
    flags : int
        8 bits; the lowest says that the trace is sampled.
    """

    trace_id: int
    span_id: int
    flags: int = 0

    @classmethod
    def parse(cls, text: str | None) -> Self | None:
        """Read a ``traceparent``; None for an invalid one, which the standard says to ignore."""
        found = _TEXT.fullmatch(text or "")
        if found is None or (found[4] and text and text.startswith("00")):
            return None
        context = cls(int(found[1], 16), int(found[2], 16), int(found[3], 16))
        return context if context.trace_id and context.span_id else None

    def __str__(self) -> str:
        """Return the context as ``traceparent``."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.flags:02x}"
