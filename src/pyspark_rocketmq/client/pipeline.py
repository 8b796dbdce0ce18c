"""Many requests to many brokers at once, from one thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.client.connection import Connection, Response
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.remoting.header import RequestHeader

__all__ = ["Call", "pipeline"]

T = TypeVar("T")
K = TypeVar("K")

MAX_IN_FLIGHT: Final = 256
"""Requests in flight on one connection. Brokers queue 10,000 administrative requests in all, shared by every
client, and answer them on 16 threads: more than this gains nothing."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request together with how its answer reads.

    Parameters
    ----------
    request : RequestHeader
    parse : Callable
        Turns the answer into a value, or raises the error that its code stands for.
    body : bytes
    """

    request: RequestHeader
    parse: Callable[[Response], T]
    body: bytes = b""

    def on(self, connection: Connection, *, deadline: Deadline) -> T:
        """Make this one call."""
        return self.parse(connection.call(self.request, self.body, deadline=deadline))


@dataclass(slots=True)
class _Lane(Generic[K, T]):
    """The calls of one connection: those to be sent, and those in flight in the order they were sent."""

    connection: Connection
    waiting: deque[tuple[K, Call[T]]] = field(default_factory=deque)
    in_flight: deque[tuple[int, K, Call[T]]] = field(default_factory=deque)

    def fill(self, deadline: Deadline) -> None:
        while self.waiting and len(self.in_flight) < MAX_IN_FLIGHT:
            key, call = self.waiting[0]
            opaque = self.connection.submit(call.request, call.body, deadline=deadline)
            self.waiting.popleft()
            self.in_flight.append((opaque, key, call))

    def collect(self, outcomes: dict[K, T | RocketMQError], deadline: Deadline) -> None:
        """Take the oldest answer."""
        opaque, key, call = self.in_flight[0]
        response = self.connection.wait(opaque, deadline)
        self.in_flight.popleft()
        try:
            outcomes[key] = call.parse(response)
        except RocketMQError as error:
            outcomes[key] = error

    def fail(self, outcomes: dict[K, T | RocketMQError], error: RocketMQError) -> None:
        """Give everything that is left the connection's error."""
        self.connection.abandon(*(opaque for opaque, _, _ in self.in_flight))
        for _, key, _ in self.in_flight:
            outcomes[key] = error
        for key, _ in self.waiting:
            outcomes[key] = error
        self.in_flight.clear()
        self.waiting.clear()


def pipeline(
    calls: Iterable[tuple[K, Connection, Call[T]]], *, deadline: Deadline
) -> dict[K, T | RocketMQError]:
    """Make many calls, up to ``MAX_IN_FLIGHT`` at once on each connection, all connections side by side.

    Returns
    -------
    dict
        For each key its value, or the error that this call (or its connection) met.
    """
    lanes: dict[int, _Lane[K, T]] = {}
    for key, connection, call in calls:
        lanes.setdefault(id(connection), _Lane(connection)).waiting.append((key, call))
    outcomes: dict[K, T | RocketMQError] = {}
    busy = list(lanes.values())
    try:
        while busy:
            for step in (_Lane.fill, lambda lane, until: lane.collect(outcomes, until)):
                for lane in busy:
                    if not lane.waiting and not lane.in_flight:
                        continue
                    try:
                        step(lane, deadline)
                    except RocketMQError as error:
                        lane.fail(outcomes, error)
            busy = [lane for lane in busy if lane.waiting or lane.in_flight]
    finally:
        for lane in busy:
            lane.connection.abandon(*(opaque for opaque, _, _ in lane.in_flight))
    return outcomes
