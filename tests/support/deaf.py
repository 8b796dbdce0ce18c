"""An address of a machine that is gone: it does not even refuse a connection."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

__all__ = ["deaf_address"]


@contextlib.contextmanager
def deaf_address(host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Return an address whose requests for connections are dropped: nobody accepts, and its queue is full."""
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind((host, port))
        listener.listen(0)
        for _ in range(4):
            filler = sockets.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield f"{host}:{listener.getsockname()[1]}"
