"""Selects the queue of a message."""

# Facts (DefaultMQProducerImpl, TopicPublishInfo, SelectMessageQueueByHash; 5.4.0)
# - Without a key: round-robin; after a failure the next queue is at another broker, if there is one.
# - With a key: the Java hash of its text modulo the number of writable queues, sorted by broker name and id.

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_rocketmq.client.clock import Clock
from pyspark_rocketmq.client.net.fork import ForkSafeLock
from pyspark_rocketmq.client.retry import RandomSource
from pyspark_rocketmq.model import MessageQueue, TopicRoute
from pyspark_rocketmq.remoting.java_hash import java_hash

__all__ = ["QueueSelector", "queue_for_key", "queue_numbers"]

_AVOID_S: Final = 5.0
"""How long a broker is skipped after a failure: a dead broker stays in the route for up to 120 s."""

_AVOID_COSTS: Final = 3
"""The same as a multiple of what the attempt took: a broker that hangs costs a quarter of the time."""

_LONG_KEY: Final = 200


def queue_for_key(key: str, queues: Sequence[MessageQueue]) -> MessageQueue:
    """Return the queue that ``SelectMessageQueueByHash`` of the Java client selects for a text key.

    Parameters
    ----------
    queues : sequence of MessageQueue
        The writable queues, sorted, at least one.
    """
    return queues[abs(java_hash(key)) % len(queues)]


def queue_numbers(keys: pa.Array, count: int) -> npt.NDArray[np.int32]:
    """Return what `queue_for_key` takes of ``count`` queues, for a column of keys (UTF-8 as ``binary``)."""
    encoded = keys.dictionary_encode()
    hashes = _hashes(encoded.dictionary)
    chosen: npt.NDArray[np.int32] = (np.abs(hashes) % count).astype(np.int32)[encoded.indices.to_numpy()]
    return chosen


def _hashes(texts: pa.Array) -> npt.NDArray[np.int64]:
    """Return ``String.hashCode`` of each text: in ASCII one step per character, for all texts together."""
    data = b"".join(values := texts.to_pylist())
    lengths = np.array([len(value) for value in values], np.int64)
    if not data.isascii() or (len(values) and lengths.max() > _LONG_KEY):
        return np.array([java_hash(value.decode()) for value in values], np.int64)
    codes = np.frombuffer(data, np.uint8)
    starts = np.cumsum(lengths) - lengths
    hashes = np.zeros(len(values), np.uint32)
    for step in range(int(lengths.max(initial=0))):
        longer = lengths > step
        hashes[longer] = hashes[longer] * np.uint32(31) + codes[starts[longer] + step]
    return hashes.view(np.int32).astype(np.int64)


class QueueSelector:
    """Selects queues round-robin, each topic from a random start, and skips brokers that failed recently."""

    def __init__(self, *, clock: Clock, random: RandomSource) -> None:
        self._clock = clock
        self._random = random
        self._lock = ForkSafeLock()
        self._turns: dict[str, int] = {}
        self._avoided: dict[str, float] = {}
        self._writable: dict[str, tuple[TopicRoute, tuple[MessageQueue, ...]]] = {}

    def write_queues(self, route: TopicRoute) -> tuple[MessageQueue, ...]:
        """Return the route's writable queues, which are sorted once a route: each send needs them."""
        known = self._writable.get(route.topic)
        if known is None or known[0] is not route:
            known = self._writable[route.topic] = route, route.write_queues()
        return known[1]

    def avoid(self, broker_name: str, *, cost_s: float = 0.0) -> None:
        """Skip a broker for some seconds, as long as there is another one.

        Parameters
        ----------
        cost_s : float
            The duration of the attempt that failed. A broker that hangs costs a timeout at each attempt.
        """
        with self._lock:
            self._avoided[broker_name] = self._clock.monotonic() + max(_AVOID_S, _AVOID_COSTS * cost_s)

    def next(
        self,
        topic: str,
        queues: Sequence[MessageQueue],
        owner: Callable[[MessageQueue], str | None] = attrgetter("broker_name"),
    ) -> MessageQueue:
        """Return the next queue; ``queues`` is not empty, ``owner`` returns their brokers."""
        with self._lock:
            if topic not in self._turns:
                self._turns[topic] = int(self._random.uniform(0, len(queues)))
            if self._avoided:
                now = self._clock.monotonic()
                self._avoided = {name: until for name, until in self._avoided.items() if now < until}
            for _ in queues:
                queue = self._take(topic, queues)
                name = owner(queue)
                if name is not None and name not in self._avoided:
                    return queue
            return self._take(topic, queues)

    def _take(self, topic: str, queues: Sequence[MessageQueue]) -> MessageQueue:
        turn = self._turns[topic]
        self._turns[topic] = turn + 1
        return queues[turn % len(queues)]
