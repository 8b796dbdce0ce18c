"""Free ports on the loopback interface."""

from __future__ import annotations

import contextlib
import random
import socket
import sys
from collections.abc import Sequence
from typing import Final

from pyspark_rocketmq.errors import DevClusterError

__all__ = ["BROKER_PORTS", "free_port", "is_free"]

LOOPBACK: Final = "127.0.0.1"
BROKER_PORTS: Final = (-2, 0, 1)
"""The ports that a broker uses around its listen port: the fast (VIP) port and the replication port."""

# Below the ports that systems use for outgoing connections, so that a server's port is still free when it
# is restarted.
_FIRST, _LAST = 15_000, 30_000
_ATTEMPTS = 200


def free_port(source: random.Random, offsets: Sequence[int] = (0,)) -> int:
    """Return a random port that is free, together with the ports at ``offsets`` from it.

    The ports are not reserved until the server binds them: a caller must be prepared to retry.

    Raises
    ------
    DevClusterError
        No such port was found.
    """
    for _ in range(_ATTEMPTS):
        port = source.randrange(_FIRST, _LAST)
        if all(is_free(port + offset) for offset in offsets):
            return port
    raise DevClusterError(f"no free port between {_FIRST} and {_LAST} after {_ATTEMPTS} attempts")


def is_free(port: int) -> bool:
    """Return whether a server could listen on a port now."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        if sys.platform != "win32":  # there it would mean to share a port that is in use
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))  # every interface: brokers bind their replication port on all of them
        except OSError:
            return False
    return True
