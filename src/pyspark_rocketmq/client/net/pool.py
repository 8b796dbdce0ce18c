"""The connections of a process: one an address, and several for pulls at a proxy.

They are born on first use and replaced when they die.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock
from pyspark_rocketmq.client.net.connection import Connection
from pyspark_rocketmq.client.net.endpoint import ConnectionOptions
from pyspark_rocketmq.client.net.fork import tell_after_fork
from pyspark_rocketmq.client.net.host import SYSTEM_HOST, Condition, Host
from pyspark_rocketmq.client.net.pull_lanes import LANES, SUSPENDED_LANES, PullLanes

__all__ = ["ConnectionPool"]


class ConnectionPool:
    """Connections by address, shared by the threads of one process.

    A child process that inherits a pool by a fork starts with an empty one: two processes that read
    one socket would steal each other's answers.

    Parameters
    ----------
    options : ConnectionOptions
    clock : Clock
    host : Host
    """

    def __init__(
        self, options: ConnectionOptions, clock: Clock = SYSTEM_CLOCK, host: Host = SYSTEM_HOST
    ) -> None:
        self.options = options
        self._clock = clock
        self._host = host
        self._connections: dict[str, Connection] = {}
        self._lanes: dict[tuple[str, bool], PullLanes] = {}
        self._start_empty()
        tell_after_fork(self)

    def _start_empty(self) -> None:
        self._lock = threading.Lock()
        self._opening: dict[str, Condition] = {}
        self._connections = {}

    def after_fork(self) -> None:
        """Start empty in a child process."""
        for inherited in self._connections.values():
            inherited.forget()
        for lanes in self._lanes.values():
            lanes.forget()
        self._start_empty()

    @property
    def opened(self) -> tuple[Connection, ...]:
        """The connections of now, dead ones included, except those for pulls at a proxy."""
        with self._lock:
            return tuple(self._connections.values())

    def get(self, addr: str) -> Connection:
        """Return the live connection to ``addr``, opening it if there is none.

        Raises
        ------
        ConnectError
            If it cannot be opened within ``connect_timeout_ms``.
        """
        with self._lock:
            opening = self._opening.setdefault(addr, self._host.condition())
        with opening:  # callers of other addresses do not wait for a dead one
            connection = self._connections.get(addr)
            if connection is not None:
                connection.poll()  # notice that the server closed it, before a request is lost
                if connection.alive:
                    return connection
                connection.close()
            self._bury()
            connection = Connection(addr, self.options, self._clock, self._host)
            with self._lock:
                self._connections[addr] = connection
            return connection

    def pull_lanes(self, addr: str, *, suspended: bool = False) -> PullLanes:
        """Return the connections for pulls at a proxy, which are opened as they are needed.

        Parameters
        ----------
        addr : str
        suspended : bool
            For pulls that the broker holds until a message comes.
        """
        with self._lock:
            if (addr, suspended) not in self._lanes:
                self._lanes[addr, suspended] = PullLanes(
                    addr,
                    lambda: self._open_lane(addr),
                    clock=self._clock,
                    timeout_ms=self.options.request_timeout_ms,
                    most=SUSPENDED_LANES if suspended else LANES,
                )
            return self._lanes[addr, suspended]

    def _open_lane(self, addr: str) -> Connection:
        self._bury()
        return Connection(addr, self.options, self._clock, self._host)

    def _bury(self) -> None:
        """Close the connections that died: servers move, and their old addresses are not used again."""
        with self._lock:
            connections = list(self._connections.items())
            lanes = list(self._lanes.values())
        for each in lanes:
            each.bury()
        for addr, connection in connections:
            connection.poll()
            if connection.alive:
                continue
            with self._lock:
                if self._connections.get(addr) is connection:
                    del self._connections[addr]
            connection.close()

    def drop(self, addr: str) -> None:
        """Close the connection to ``addr``, if there is one."""
        with self._lock:
            connection = self._connections.pop(addr, None)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close every connection; the pool can be used again."""
        with self._lock:
            opened: list[Connection | PullLanes] = [*self._connections.values(), *self._lanes.values()]
            self._connections.clear()
        for each in opened:
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
