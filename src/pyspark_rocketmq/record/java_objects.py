"""Bodies that Java's ObjectOutputStream wrote: detected, not read."""

from __future__ import annotations

from typing import Final

__all__ = ["JAVA_OBJECT_HINT", "JAVA_OBJECT_START"]

# Facts: java.io.ObjectStreamConstants of JDK 17: STREAM_MAGIC 0xACED, then STREAM_VERSION 5, big-endian.
JAVA_OBJECT_START: Final = b"\xac\xed\x00\x05"

JAVA_OBJECT_HINT: Final = (
    "The body was written by Java's ObjectOutputStream: javaobj.loads(body) of the package javaobj-py3 reads "
    "such bodies; have the producer send JSON or Avro where you can"
)
