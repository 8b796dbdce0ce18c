"""Java's hash of a text, which brokers compare tags by and producers choose queues by."""

from __future__ import annotations

__all__ = ["java_hash"]


def java_hash(text: str) -> int:
    """Return ``String.hashCode``: over UTF-16 code units, a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value
