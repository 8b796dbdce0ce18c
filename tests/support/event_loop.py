"""What is asynchronous, for tests that are not: an event loop in a thread."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from pyspark_rocketmq.client import AsyncClient
from pyspark_rocketmq.client.aio.connection import AsyncConnection
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Deadline
from pyspark_rocketmq.client.net.connection import Response
from pyspark_rocketmq.remoting.header import RequestHeader

T = TypeVar("T")

PATIENCE_S = 150
"""A call ends by its own deadline. After this long, the test fails."""


class LoopThread:
    """An event loop that runs in a thread until the block ends."""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run in the loop, and wait for the result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)


class Blocking:
    """An object whose coroutines are called as functions."""

    def __init__(self, loop: LoopThread, inner: Any) -> None:
        self._run = loop.run
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return found
        return lambda *args, **given: self._run(found(*args, **given))


class AsyncConnections:
    """Connections of an event loop whose calls block."""

    def __init__(self, name_server: str, loop: LoopThread) -> None:
        self._loop = loop
        self._client = AsyncClient(name_server)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._client.close())

    def connect(self, addr: str) -> BlockingConnection:
        """Return the connection to an address."""
        return BlockingConnection(self._loop, self._loop.run(self._client.connection(addr)))


class BlockingConnection:
    """Has the calls of a connection that block."""

    def __init__(self, loop: LoopThread, inner: AsyncConnection) -> None:
        self._loop = loop
        self._inner = inner

    def call(
        self, request: RequestHeader, body: bytes = b"", *, deadline: Deadline | None = None
    ) -> Response:
        until = deadline or Deadline(SYSTEM_CLOCK, 60_000)
        return self._loop.run(self._inner.call(request, body, deadline=until))
