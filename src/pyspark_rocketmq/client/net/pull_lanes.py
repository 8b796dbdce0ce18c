"""Pulls at a proxy: each has a connection to itself until it is answered."""

# Facts (5.4.0's proxy; AbstractRemotingActivity.writeResponse, Netty's water mark of 64 KiB)
# - A proxy drops an answer without a word if the connection holds 64 KiB that it could not send yet. So the
#   second of two answers to pulls is lost, and what else was asked on that connection as well.
# - It adds TRACE_ON and MSG_REGION to every answer; name servers do not, brokers to sends only.
# - It answers requests of one connection side by side, and the brokers of all its topics share its address.

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from pyspark_rocketmq.client.clock import Clock, Deadline
from pyspark_rocketmq.client.net.connection import Connection, Response
from pyspark_rocketmq.remoting.command import Buffer
from pyspark_rocketmq.remoting.header import RequestHeader
from pyspark_rocketmq.remoting.template import RequestTemplate

__all__ = ["LANES", "PullChannel", "PullLanes", "is_of_proxy"]

LANES: Final = 8
"""The most connections to a proxy. Each pull brings up to 32 messages, so 256 are on the way."""

_POLL_S: Final = 0.005


def is_of_proxy(response: Response) -> bool:
    """Whether a proxy gave this answer, which is not one to a send."""
    return "TRACE_ON" in response.fields


class PullChannel(Protocol):
    """Where pulls are sent: a `Connection` to a broker, or the `PullLanes` to a proxy."""

    @property
    def addr(self) -> str:
        """The server's ``host:port``."""

    def call(
        self, request: RequestHeader, body: Buffer = b"", *, deadline: Deadline | None = None
    ) -> Response:
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


class PullLanes:
    """The connections of a process to a proxy that are for pulls only; safe to share between threads.

    Parameters
    ----------
    addr : str
    connect : Callable
        Opens a connection to it.
    clock : Clock
    timeout_ms : int
        How long to wait for a free connection where a caller gives no deadline.
    """

    def __init__(
        self, addr: str, connect: Callable[[], Connection], *, clock: Clock, timeout_ms: int
    ) -> None:
        self.addr = addr
        self._connect = connect
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._lock = threading.Lock()
        self._lanes: list[Connection] = []
        self._numbers = itertools.count(1)
        self._sent: dict[int, tuple[Connection, int]] = {}

    def call(
        self, request: RequestHeader, body: Buffer = b"", *, deadline: Deadline | None = None
    ) -> Response:
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
        """Wait for the first of these requests, and return all answers that are here by then.

        Raises as `Connection.wait_some`.
        """
        answered = [number for number in opaques if self._is_answered(number)]
        return [(number, self._wait(number, deadline)) for number in answered or [next(iter(opaques))]]

    def abandon(self, *opaques: int) -> None:
        """Forget requests. A connection on which an answer is due is closed, or it would be in the way."""
        for number in opaques:
            if (sent := self._sent.pop(number, None)) is None:
                continue
            lane, opaque = sent
            if lane.in_flight:
                lane.close()
            else:
                lane.abandon(opaque)

    def close(self) -> None:
        """Close the connections; the next pull opens new ones."""
        with self._lock:
            lanes, self._lanes = self._lanes, []
        for lane in lanes:
            lane.close()

    def forget(self) -> None:
        """Close this process's copies of the descriptors only, see `Connection.forget`."""
        for lane in self._lanes:
            lane.forget()

    def _deadline(self) -> Deadline:
        return Deadline(self._clock, self._timeout_ms)

    def _submit(self, submit: Callable[[Connection], int], deadline: Deadline) -> int:
        with self._lock:
            lane = self._free_lane(deadline)
            opaque = submit(lane)
        number = next(self._numbers)
        self._sent[number] = (lane, opaque)
        return number

    def _free_lane(self, deadline: Deadline) -> Connection:
        """Return a connection without a request in flight, opening one if there may be more."""
        while True:
            for lane in self._lanes:
                lane.poll()
            self._lanes = [lane for lane in self._lanes if lane.alive]
            for lane in self._lanes:
                if not lane.in_flight:
                    return lane
            if len(self._lanes) < LANES:
                self._lanes.append(self._connect())
                return self._lanes[-1]
            deadline.check("every connection to the proxy waits for an answer", addr=self.addr)
            self._lanes[0].poll(min(_POLL_S, deadline.remaining_s))

    def _is_answered(self, number: int) -> bool:
        """Whether a request's answer, or its connection's end, is here."""
        lane, _ = self._sent[number]
        lane.poll()
        return not lane.in_flight

    def _wait(self, number: int, deadline: Deadline) -> Response:
        lane, opaque = self._sent[number]
        response = lane.wait(opaque, deadline)
        del self._sent[number]
        return response


def _pull(
    template: RequestTemplate, values: tuple[int | str, ...], deadline: Deadline, lane: Connection
) -> int:
    return lane.submit_many(template, [values], deadline=deadline)[0]
