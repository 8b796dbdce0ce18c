"""What a client takes from its machine, besides the time: connections, threads that wait, its identity.

A simulation puts one thread and virtual time in their place.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Generic, Protocol, TypeVar

from pyspark_rocketmq.client.net.byte_stream import ByteStream, SocketStream
from pyspark_rocketmq.client.net.endpoint import ConnectionOptions, open_socket

__all__ = ["SYSTEM_HOST", "Condition", "Host", "Outcome"]

T = TypeVar("T")


class Condition(Protocol):
    """A lock whose holders can wait for one another, as ``threading.Condition``."""

    def __enter__(self) -> bool:
        """Lock."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Unlock."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Unlock, wait for a notification, and lock again; whether one came within ``timeout`` seconds."""
        ...

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until ``predicate`` holds; whether it held within ``timeout`` seconds."""
        ...

    def notify_all(self) -> None:
        """Wake everyone who waits."""
        ...


class Host(Protocol):
    """Connections, threads, and what distinguishes processes."""

    def connect(self, addr: str, options: ConnectionOptions) -> ByteStream:
        """Connect to ``host:port``.

        Raises
        ------
        ConnectError
            If there is no connection (or no TLS session) within ``connect_timeout_ms``.
        """
        ...

    def condition(self) -> Condition:
        """Return a new condition."""
        ...

    def address(self) -> str:
        """Return the machine's IP address, for names that people read."""
        ...

    def process_id(self) -> int:
        """Return the number of the running process."""
        ...

    def random_bytes(self, count: int) -> bytes:
        """Return bytes for ids that no other process may have, not even a forked child."""
        ...

    def start(self, work: Callable[[], None], *, name: str) -> None:
        """Run ``work`` in a thread that does not keep the process alive.

        Raises
        ------
        RuntimeError
            The machine has no thread left.
        """
        ...


class _SystemHost:
    """The machine itself."""

    def connect(self, addr: str, options: ConnectionOptions) -> ByteStream:
        return SocketStream(open_socket(addr, options))

    def condition(self) -> Condition:
        return threading.Condition()

    def address(self) -> str:
        try:
            return socket.gethostbyname(socket.gethostname())
        except OSError:
            return "127.0.0.1"

    def process_id(self) -> int:
        return os.getpid()

    def random_bytes(self, count: int) -> bytes:
        return secrets.token_bytes(count)

    def start(self, work: Callable[[], None], *, name: str) -> None:
        threading.Thread(target=work, name=name, daemon=True).start()


SYSTEM_HOST: Final[Host] = _SystemHost()


class Outcome(Generic[T]):
    """The value or the error of something under way in one thread, for others that wait for it."""

    __slots__ = ("_error", "_turn", "_values")

    def __init__(self, host: Host) -> None:
        self._turn = host.condition()
        self._values: list[T] = []
        self._error: BaseException | None = None

    def settle(self, value: T) -> None:
        """Give everyone the value."""
        with self._turn:
            self._values.append(value)
            self._turn.notify_all()

    def fail(self, error: BaseException) -> None:
        """Give everyone the error."""
        with self._turn:
            self._error = error
            self._turn.notify_all()

    def get(self, timeout_s: float) -> T:
        """Return the value, or raise the error.

        Raises
        ------
        TimeoutError
            Neither was there in time.
        """
        with self._turn:
            if not self._turn.wait_for(lambda: bool(self._values) or self._error is not None, timeout_s):
                raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._values[0]
