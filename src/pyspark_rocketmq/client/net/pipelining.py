"""Concurrent requests to many brokers, from one thread."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.client.net.connection import Connection, Response
from pyspark_rocketmq.client.net.pull_lanes import PullChannel
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.remoting.command import Buffer
from pyspark_rocketmq.remoting.template import Request

__all__ = ["Call", "pipeline"]

T = TypeVar("T")
K = TypeVar("K")

MAX_IN_FLIGHT: Final = 256
"""Requests in flight on one connection. Brokers queue 10,000 administrative requests in all, shared by every
client, and answer them on 16 threads: more than this gains nothing."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and the function that converts its answer.

    Parameters
    ----------
    request : Request
    parse : Callable
        Converts the answer to a value, or raises the error of its code.
    body : bytes-like
    before_send : Callable
        Called directly before `pipeline` sends it. An error is the outcome of all that were to be sent there.
    """

    request: Request
    parse: Callable[[Response], T]
    body: Buffer = b""
    before_send: Callable[[], None] = lambda: None

    def on(self, channel: PullChannel, *, deadline: Deadline) -> T:
        """Make only this call."""
        return self.parse(channel.call(self.request, self.body, deadline=deadline))


@dataclass(slots=True)
class _Lane(Generic[K, T]):
    """The calls of one connection: those to be sent, and those in flight by their numbers."""

    connection: Connection
    waiting: deque[tuple[K, Call[T]]] = field(default_factory=deque)
    in_flight: dict[int, tuple[K, Call[T]]] = field(default_factory=dict)

    def fill(self, deadline: Deadline) -> None:
        """Send as many calls as there is room for, together: they cost little more than one call."""
        room = MAX_IN_FLIGHT - len(self.in_flight)
        if not self.waiting or room < min(len(self.waiting), MAX_IN_FLIGHT // 2):
            return
        calls = list(itertools.islice(self.waiting, room))
        for _, call in calls:
            call.before_send()
        requests = [(call.request, call.body) for _, call in calls]
        opaques = self.connection.submit_all(requests, deadline=deadline)
        for opaque, _ in zip(opaques, calls, strict=True):
            self.in_flight[opaque] = self.waiting.popleft()

    def collect(self, outcomes: dict[K, T | RocketMQError], deadline: Deadline) -> None:
        """Wait for an answer, and process all that have arrived."""
        for opaque, response in self.connection.wait_some(self.in_flight, deadline):
            key, call = self.in_flight.pop(opaque)
            try:
                outcomes[key] = call.parse(response)
            except RocketMQError as error:
                outcomes[key] = error

    def fail(self, outcomes: dict[K, T | RocketMQError], error: RocketMQError) -> None:
        """Set the connection's error as the outcome of all remaining calls."""
        self.connection.abandon(*self.in_flight)
        for key, _ in self.in_flight.values():
            outcomes[key] = error
        for key, _ in self.waiting:
            outcomes[key] = error
        self.in_flight.clear()
        self.waiting.clear()


def pipeline(
    calls: Iterable[tuple[K, Connection, Call[T]]], *, deadline: Deadline
) -> dict[K, T | RocketMQError]:
    """Make many calls, on all connections in parallel, up to ``MAX_IN_FLIGHT`` concurrently on each.

    Returns
    -------
    dict
        For each key, in the calls' order, its value, or the error that this call (or its connection) met.
    """
    lanes: dict[int, _Lane[K, T]] = {}
    calls = list(calls)
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
            lane.connection.abandon(*lane.in_flight)
    return {key: outcomes[key] for key, _, _ in calls}
