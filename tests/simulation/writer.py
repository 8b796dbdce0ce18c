"""A writer of numbered messages, with the real producer."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Final

from tests.simulation.history import History
from tests.simulation.network import Network, SimulatedHost
from tests.simulation.scheduler import Process, SimulatedClock

from pyspark_rocketmq.client import (
    Client,
    ClientOptions,
    OutgoingMessage,
    Producer,
    ProducerOptions,
    SendPipeline,
    encode_many,
)
from pyspark_rocketmq.errors import RocketMQError

__all__ = ["Writer"]

_OUTAGE_TIMEOUT_MS: Final = 600_000


class Writer:
    """Sends batches until it is told to stop; ordered: each lane is one queue.

    Parameters
    ----------
    name : str
    network : Network
    options : ClientOptions
    topic : str
    history : History
    chance : random.Random
    messages : int
        How many are sent in all.
    pause_s : float
        Between two batches, on average.
    ordered : bool
    body_bytes : int
        Bodies are filled up with spaces.
    note : callable
    """

    def __init__(
        self,
        name: str,
        network: Network,
        options: ClientOptions,
        topic: str,
        history: History,
        chance: random.Random,
        *,
        messages: int,
        pause_s: float,
        ordered: bool,
        body_bytes: int,
        note: Callable[[str], None],
    ) -> None:
        self._process = Process(name)
        self._network = network
        self._topic = topic
        self._history = history
        self._chance = chance
        self._left = messages
        self._pause_s = pause_s
        self._ordered = ordered
        self._body_bytes = body_bytes
        self._note = note
        self._client = Client(
            options,
            clock=SimulatedClock(network.scheduler, self._process),
            random=random.Random(chance.random()),
            host=SimulatedHost(network, self._process),
        )
        self.done = False

    def start(self) -> None:
        """Begin."""
        self._network.scheduler.start(self._write, self._process, "writer")

    def _write(self) -> None:
        options = ProducerOptions(send_timeout_ms=2_000, retries=3)
        producer = Producer(self._client, options=options)
        numbers: Counter[str] = Counter()
        with SendPipeline(
            producer,
            max_in_flight=self._chance.choice((1, 4, 8)),
            ordered=self._ordered,
            outage_timeout_ms=_OUTAGE_TIMEOUT_MS,
        ) as pipeline:
            queues = self._queues()
            for turn in itertools.count():
                if self._left <= 0:
                    break
                size = min(self._left, self._chance.randint(1, 20))
                self._left -= size
                queue = queues[turn % len(queues)] if self._ordered else None
                lane = f"{self._process.name}-{turn % len(queues) if self._ordered else 'any'}"
                first = numbers[lane]
                numbers[lane] += size
                messages = [
                    OutgoingMessage(self._topic, (b"%s:%d" % (lane.encode(), number)).ljust(self._body_bytes))
                    for number in range(first, first + size)
                ]
                sent = encode_many(messages, producer.ids)
                self._acknowledge(pipeline.submit(sent, queue, token=(lane, first, size)))
                if self._pause_s:
                    self._network.scheduler.park(self._chance.expovariate(1 / self._pause_s))
            self._acknowledge(pipeline.flush())
        self.done = True

    def _queues(self) -> tuple:
        while True:
            with contextlib.suppress(RocketMQError):
                if queues := self._client.write_queues(self._topic):
                    return queues
            self._network.scheduler.park(1.0)

    def _acknowledge(self, outcomes) -> None:
        for outcome in outcomes:
            lane, first, size = outcome.token
            if outcome.error is not None:
                self._history.refused.append(f"{lane}:{first}+{size}: {outcome.error}")
                self._note(f"a send is given up: {outcome.error}")
            else:
                numbers = self._history.acknowledged.setdefault(lane, set())
                numbers.update(range(first, first + size))
