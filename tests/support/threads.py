"""A host that has no thread left, a number of times."""

from __future__ import annotations

from collections.abc import Callable

from pyspark_rocketmq.client.net.byte_stream import ByteStream
from pyspark_rocketmq.client.net.endpoint import ConnectionOptions
from pyspark_rocketmq.client.net.host import SYSTEM_HOST, Condition

__all__ = ["NO_THREAD", "HostWithoutThreads"]

NO_THREAD = "can't start new thread"
"""What CPython says."""


class HostWithoutThreads:
    """The machine itself, which refuses to start as many threads as ``refusals``."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals

    def connect(self, addr: str, options: ConnectionOptions) -> ByteStream:
        return SYSTEM_HOST.connect(addr, options)

    def address(self) -> str:
        return SYSTEM_HOST.address()

    def process_id(self) -> int:
        return SYSTEM_HOST.process_id()

    def random_bytes(self, count: int) -> bytes:
        return SYSTEM_HOST.random_bytes(count)

    def condition(self) -> Condition:
        return SYSTEM_HOST.condition()

    def start(self, work: Callable[[], None], *, name: str) -> None:
        if self.refusals:
            self.refusals -= 1
            raise RuntimeError(NO_THREAD)
        SYSTEM_HOST.start(work, name=name)
