"""The connections of a process: one an address, and several for pulls at a proxy.

They are born on first use and replaced when they die.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock, Deadline
from pyspark_rocketmq.client.net.connection import Connection
from pyspark_rocketmq.client.net.endpoint import ConnectionOptions
from pyspark_rocketmq.client.net.fork import tell_after_fork
from pyspark_rocketmq.client.net.host import SYSTEM_HOST, Host, Outcome
from pyspark_rocketmq.client.net.pipelining import Call, pipeline
from pyspark_rocketmq.client.net.pull_lanes import LANES, SUSPENDED_LANES, PullLanes
from pyspark_rocketmq.errors import ConnectError, RequestTimeoutError, RocketMQError

__all__ = ["ConnectionPool"]

K = TypeVar("K")
T = TypeVar("T")

_MOST_CONNECTING: Final = 32
"""Threads of one `ConnectionPool.call_each` that connect."""


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
        self._opening: dict[str, Outcome[Connection]] = {}
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
        """Return the live connection to ``addr``, opening it if there is none. Callers share the attempt.

        Raises
        ------
        ConnectError
            If it cannot be opened within ``connect_timeout_ms``.
        """
        if (connection := self._find(addr)) is not None:
            return connection
        with self._lock:
            under_way = self._opening.get(addr)
            if under_way is None:
                outcome = self._opening[addr] = Outcome(self._host)
        if under_way is None:
            return self._open_shared(addr, outcome)
        try:
            return under_way.get(self.options.connect_timeout_ms / 1000)
        except TimeoutError as cause:
            raise ConnectError("cannot connect: timed out", addr=addr) from cause
        except RocketMQError as error:
            raise error.with_facts() from error.__cause__  # the others that wait get it, too

    def _find(self, addr: str) -> Connection | None:
        """Return the live connection to ``addr``, if there is one."""
        connection = self._connections.get(addr)
        if connection is not None:
            connection.poll()  # notice that the server closed it, before a request is lost
            if connection.alive:
                return connection
        return None

    def _open_shared(self, addr: str, outcome: Outcome[Connection]) -> Connection:
        """Open the connection, for all callers that wait for the outcome."""
        failure: RocketMQError = ConnectError("cannot connect: the attempt was interrupted", addr=addr)
        connection: Connection | None = None
        try:
            connection = self._find(addr) or self._open(addr)  # one may have been opened a moment ago
        except RocketMQError as error:
            failure = error
            raise
        finally:
            with self._lock:
                wanted = self._opening.get(addr) is outcome  # else the pool was closed meanwhile
                if wanted:
                    del self._opening[addr]
                if wanted and connection is not None:
                    self._connections[addr] = connection
            if wanted and connection is not None:
                outcome.settle(connection)
            else:
                outcome.fail(failure)
        if not wanted:
            connection.close()
            raise ConnectError("cannot connect: the pool was closed", addr=addr)
        return connection

    def call_each(
        self, calls: Iterable[tuple[K, str, Call[T]]], *, deadline: Deadline
    ) -> dict[K, T | RocketMQError]:
        """Make many calls by address, in parallel; a server that is not connected delays its own calls only.

        Threads connect to such servers, and make their calls. They end at the latest ``connect_timeout_ms``
        after the deadline, and send nothing after it.

        Returns
        -------
        dict
            For each key, in the calls' order, its value, or the error that this call (or its connection) met.
        """
        calls = list(calls)
        own: dict[str, list[tuple[K, Call[T]]]] = {}
        for key, addr, call in calls:
            own.setdefault(addr, []).append((key, call))
        found = {addr: self._find(addr) for addr in own}
        ready = [(k, it, call) for addr, it in found.items() if it is not None for k, call in own[addr]]
        rest = {addr: Outcome[dict[K, T | RocketMQError]](self._host) for addr in own if not found[addr]}
        todo = deque(rest)

        def work() -> None:
            while True:
                try:
                    addr = todo.popleft()
                except IndexError:
                    return
                try:
                    rest[addr].settle(self._connect_and_call(addr, own[addr], deadline))
                except Exception as error:  # noqa: BLE001 - may be a thread's outermost frame: raised by `get`
                    rest[addr].fail(error)

        alone = not (ready or len(rest) > 1) or not self._start_some(work, len(rest))
        outcomes = pipeline(ready, deadline=deadline)
        if alone:
            work()
        for addr, outcome in rest.items():
            try:
                outcomes |= outcome.get(deadline.remaining_s)
            except TimeoutError:
                late = RequestTimeoutError(f"no answer within {deadline.timeout_ms:.0f} ms", addr=addr)
                outcomes |= dict.fromkeys((key for key, _ in own[addr]), late)
        return {key: outcomes[key] for key, _, _ in calls}

    def _start_some(self, work: Callable[[], None], count: int) -> int:
        """Start threads, at most one for each address; return how many, which may be none."""
        for started in range(min(count, _MOST_CONNECTING)):
            try:
                self._host.start(work, name=f"connect_{started}")
            except RuntimeError:  # the machine has no thread left
                return started
        return min(count, _MOST_CONNECTING)

    def _connect_and_call(
        self, addr: str, calls: Sequence[tuple[K, Call[T]]], deadline: Deadline
    ) -> dict[K, T | RocketMQError]:
        try:
            deadline.check("not connected", addr=addr)  # others have taken all the time
            connection = self.get(addr)
            deadline.check("connected", addr=addr)
        except RocketMQError as error:
            return {key: error for key, _ in calls}
        return pipeline([(key, connection, call) for key, call in calls], deadline=deadline)

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
                    lambda: self._open(addr),
                    clock=self._clock,
                    timeout_ms=self.options.request_timeout_ms,
                    most=SUSPENDED_LANES if suspended else LANES,
                )
            return self._lanes[addr, suspended]

    def _open(self, addr: str) -> Connection:
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
        """Close every connection, also those that are being opened; the pool can be used again."""
        with self._lock:
            opened: list[Connection | PullLanes] = [*self._connections.values(), *self._lanes.values()]
            self._connections.clear()
            self._opening.clear()
        for each in opened:
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
