"""Pulls at a proxy: each has a connection to itself until it is answered."""

# Facts (5.4.0's proxy; AbstractRemotingActivity.writeResponse, Netty's water mark of 64 KiB)
# - A proxy silently drops an answer if the connection holds 64 KiB that it could not send yet. So the
#   second of two answers to pulls is lost, and what else was asked on that connection as well.
# - It adds TRACE_ON and MSG_REGION to every answer; name servers do not, brokers to sends only.
# - It answers requests of one connection side by side, and the brokers of all its topics share its address.

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pyspark_rocketmq.client.clock import Clock, Deadline
from pyspark_rocketmq.client.net.connection import Connection, Response
from pyspark_rocketmq.errors import RequestTimeoutError, RocketMQError
from pyspark_rocketmq.remoting.command import Buffer
from pyspark_rocketmq.remoting.template import Request, RequestTemplate

__all__ = ["LANES", "SUSPENDED_LANES", "PullChannel", "PullLanes", "is_of_proxy"]

LANES: Final = 8
"""The most connections to a proxy. Each pull brings up to 32 messages, so 256 are on the way."""

SUSPENDED_LANES: Final = 64
"""The most connections for pulls that brokers hold until a message comes; they are apart from the others."""

_POLL_S: Final = 0.005


def is_of_proxy(response: Response) -> bool:
    """Whether a proxy gave this answer, which is not one to a send."""
    return "TRACE_ON" in response.fields


class PullChannel(Protocol):
    """Where pulls are sent: a `Connection` to a broker, or the `PullLanes` to a proxy."""

    @property
    def addr(self) -> str:
        """The server's ``host:port``."""

    def call(self, request: Request, body: Buffer = b"", *, deadline: Deadline | None = None) -> Response:
        """As `Connection.call`."""

    def submit_many(
        self,
        template: RequestTemplate,
        values: Sequence[tuple[int | str, ...]],
        *,
        deadline: Deadline | None = None,
    ) -> list[int]:
        """As `Connection.submit_many`."""

    def wait_some(self, opaques: Collection[int], deadline: Deadline) -> list[tuple[int, Response]]:
        """As `Connection.wait_some`."""

    def abandon(self, *opaques: int) -> None:
        """As `Connection.abandon`."""


@dataclass(eq=False)
class _Lane:
    """A connection; while ``taken`` by the thread that opens it or sends, it may be None."""

    connection: Connection | None = None
    taken: bool = True
    latest: int = 0
    """The number of the request that it had last."""
    sent_s: float = 0.0
    """When it had that, by the clock."""

    def owes(self, number: int) -> bool:
        """Whether the answer to a request is still to come."""
        return self.latest == number and self.connection is not None and self.connection.in_flight > 0


class PullLanes:
    """The connections of a process to a proxy that are for pulls only; safe to share between threads.

    A lane is free again when its answer has arrived, whether or not that has been taken.

    Parameters
    ----------
    addr : str
    connect : Callable
        Opens a connection to it.
    clock : Clock
    timeout_ms : int
        How long to wait for a free connection where a caller gives no deadline.
    most : int
        How many connections to open.
    """

    def __init__(
        self,
        addr: str,
        connect: Callable[[], Connection],
        *,
        clock: Clock,
        timeout_ms: int,
        most: int = LANES,
    ) -> None:
        self.addr = addr
        self._connect = connect
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._most = most
        self._numbers = itertools.count(1)
        self._start_empty()

    def _start_empty(self) -> None:
        self._lock = threading.Lock()
        self._lanes: list[_Lane] = []
        self._sent: dict[int, tuple[_Lane, Connection, int]] = {}

    def call(self, request: Request, body: Buffer = b"", *, deadline: Deadline | None = None) -> Response:
        """Send a request on a free connection and wait for its answer. Raises as `Connection.call`."""
        deadline = deadline or self._deadline()
        number = self._submit(lambda lane: lane.submit(request, body, deadline=deadline), deadline)
        try:
            return self.wait_some((number,), deadline)[0][1]
        finally:
            self.abandon(number)

    def submit_many(
        self,
        template: RequestTemplate,
        values: Sequence[tuple[int | str, ...]],
        *,
        deadline: Deadline | None = None,
    ) -> list[int]:
        """Send a request for each of ``values``, each as soon as a connection is free.

        Raises
        ------
        ConnectError, ConnectionLostError
        RequestTimeoutError
            No connection became free.
        """
        until = deadline or self._deadline()
        numbers: list[int] = []
        try:
            for each in values:
                number = self._submit(functools.partial(_pull, template, each, until), until)
                numbers.append(number)
        except BaseException:
            self.abandon(*numbers)
            raise
        return numbers

    def wait_some(self, opaques: Collection[int], deadline: Deadline) -> list[tuple[int, Response]]:
        """Wait for the first of these requests, unless others are answered; return all answers that are here.

        After a time-out, connections on which nothing was heard since the wait began are closed, too: the
        proxy's machine may be gone, and each would cost another time-out. Raises as `Connection.wait_some`.
        """
        begin_s = self._clock.monotonic()
        answered = [number for number in opaques if self._is_answered(number)]
        here: list[tuple[int, Response]] = []
        for number in answered or [next(iter(opaques))]:
            _, connection, opaque = self._sent[number]
            try:
                here.append((number, connection.wait(opaque, deadline)))
            except RocketMQError as error:
                if here:
                    break  # it is raised again when what came is taken
                if isinstance(error, RequestTimeoutError):
                    self._close_silent(begin_s)
                raise
            self._sent.pop(number, None)
        return here

    def abandon(self, *opaques: int) -> None:
        """Forget requests. A connection on which an answer is due is closed, or it would be in the way."""
        for number in opaques:
            if (sent := self._sent.pop(number, None)) is None:
                continue
            lane, connection, opaque = sent
            if lane.owes(number):
                connection.close()
            else:
                connection.abandon(opaque)

    def close(self) -> None:
        """Close the connections; the next pull opens new ones."""
        with self._lock:
            connections = [lane.connection for lane in self._lanes if lane.connection is not None]
        for connection in connections:
            connection.close()

    def forget(self) -> None:
        """Start empty in a child process; close its copies of the descriptors, see `Connection.forget`."""
        for lane in self._lanes:
            if lane.connection is not None:
                lane.connection.forget()
        self._start_empty()

    def _deadline(self) -> Deadline:
        return Deadline(self._clock, self._timeout_ms)

    def _submit(self, submit: Callable[[Connection], int], deadline: Deadline) -> int:
        while (lane := self._take_lane()) is None:
            deadline.check("every connection to the proxy waits for an answer", addr=self.addr)
            self._clock.sleep(min(_POLL_S, deadline.remaining_s))
        try:
            connection = lane.connection = lane.connection or self._connect()
            opaque = submit(connection)
        except BaseException:
            self._remove(lane)
            raise
        with self._lock:
            lane.latest, lane.sent_s = next(self._numbers), self._clock.monotonic()
            lane.taken = False
            self._sent[lane.latest] = (lane, connection, opaque)
            return lane.latest

    def _take_lane(self) -> _Lane | None:
        """Return a lane for this caller alone, its connection free or yet to be opened; None if none is."""
        self.bury()
        with self._lock:
            for lane in self._lanes:
                connection = None if lane.taken else lane.connection
                if connection is not None and connection.alive and not connection.in_flight:
                    lane.taken = True
                    return lane
            if len(self._lanes) == self._most:
                return None
            self._lanes.append(_Lane())
            return self._lanes[-1]

    def bury(self) -> None:
        """Receive what has arrived, and close the connections that died."""
        with self._lock:
            idle = [(lane, lane.connection) for lane in self._lanes if not lane.taken]
        for _, connection in idle:
            if connection is not None:
                connection.poll()
        with self._lock:
            left = {*self._lanes}
            dead = [(lane, c) for lane, c in idle if c and not c.alive and not lane.taken and lane in left]
            for lane, _ in dead:
                self._lanes.remove(lane)
        for _, connection in dead:  # not with the lock: it may take a second
            connection.close()

    def _close_silent(self, since_s: float) -> None:
        """Close the connections that have had no answer, and no new request, since a moment of the clock."""
        with self._lock:
            silent = [
                lane.connection
                for lane in self._lanes
                if not lane.taken
                and lane.connection is not None
                and max(lane.sent_s, lane.connection.heard_at) <= since_s
            ]
        for connection in silent:  # not with the lock: it may take a second
            connection.close()

    def _remove(self, lane: _Lane) -> None:
        with self._lock:
            self._lanes.remove(lane)
        if lane.connection is not None:
            lane.connection.close()

    def _is_answered(self, number: int) -> bool:
        """Whether a request's answer, or its connection's end, is here."""
        lane, connection, _ = self._sent[number]
        connection.poll()
        return not lane.owes(number)


def _pull(
    template: RequestTemplate, values: tuple[int | str, ...], deadline: Deadline, lane: Connection
) -> int:
    return lane.submit_many(template, [values], deadline=deadline)[0]
