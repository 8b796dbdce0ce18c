"""One client for each set of options in a process."""

from __future__ import annotations

from typing import Final

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.net.fork import ForkSafeLock, tell_after_fork
from pyspark_rocketmq.options import ClientOptions

__all__ = ["shared_client"]


class _SharedClients:
    """The clients of one process, by options."""

    def __init__(self) -> None:
        self.lock = ForkSafeLock()
        self.clients: dict[ClientOptions, Client] = {}
        tell_after_fork(self)

    def after_fork(self) -> None:
        """Start without clients in a child process: the parent's routes may be outdated there."""
        self.clients = {}


_shared: Final = _SharedClients()


def shared_client(options: ClientOptions) -> Client:
    """Return the process's client for these options. Equal options share a client for the process's lifetime.

    After a fork, the child gets separate clients.
    """
    with _shared.lock:
        if options not in _shared.clients:
            _shared.clients[options] = Client(options)
        return _shared.clients[options]
