"""One client for each set of options in a process."""

from __future__ import annotations

import weakref
from typing import Final

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.net.fork import ForkSafeLock, tell_after_fork
from pyspark_rocketmq.options import ClientOptions

__all__ = ["shared_client"]

_MOST: Final = 32
"""How many clients are kept. Each new token of temporary credentials is another client's."""


class _SharedClients:
    """The clients of one process, by options; the one that was asked for last is the last."""

    def __init__(self) -> None:
        self.lock = ForkSafeLock()
        self.clients: dict[ClientOptions, Client] = {}
        tell_after_fork(self)

    def after_fork(self) -> None:
        """Start without clients in a child process: the parent's routes may be outdated there."""
        self.clients = {}


_shared: Final = _SharedClients()


def shared_client(options: ClientOptions) -> Client:
    """Return the process's client for these options. Equal options share a client.

    After a fork, the child gets separate clients. A client that was not asked for while others were is
    closed once nothing uses it.
    """
    with _shared.lock:
        client = _shared.clients.pop(options, None) or Client(options)
        _shared.clients[options] = client
        if len(_shared.clients) > _MOST:
            former = _shared.clients.pop(next(iter(_shared.clients)))
            weakref.finalize(former, former.pool.close).atexit = False
        return client
