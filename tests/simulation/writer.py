"""A writer of numbered messages, with the real producer."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from tests.simulation.host import SimulatedHost
from tests.simulation.scheduler import Process, SimulatedClock
from tests.simulation.stage import Stage

from pyspark_rocketmq.client import (
    Client,
    ClientOptions,
    OutgoingMessage,
    Producer,
    ProducerOptions,
    SendOutcome,
    SendPipeline,
    encode_many,
)
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.model import MessageQueue

__all__ = ["Writer"]

_OUTAGE_TIMEOUT_MS: Final = 600_000
_LAST: Final = 4
"""The last batches: one message each."""


class Writer:
    """Sends batches; ordered: each lane is one queue. The last ones are sent after everything is well again.

    Parameters
    ----------
    name : str
    stage : Stage
    options : ClientOptions
    topic : str
    chance : random.Random
    messages : int
        How many are sent in all.
    pause_s : float
        Between two batches, on average.
    ordered : bool
    body_bytes : int
        Bodies are filled up with spaces.
    tags : sequence of str or None
        Of the messages, in turn.
    """

    def __init__(
        self,
        name: str,
        stage: Stage,
        options: ClientOptions,
        topic: str,
        chance: random.Random,
        *,
        messages: int,
        pause_s: float,
        ordered: bool,
        body_bytes: int,
        tags: Sequence[str | None] = (None,),
    ) -> None:
        self._process = Process(name)
        self._stage = stage
        self._topic = topic
        self._history = stage.history
        self._chance = chance
        self._left = messages
        self._pause_s = pause_s
        self._ordered = ordered
        self._body_bytes = body_bytes
        self._tags = tags
        self._client = Client(
            options,
            clock=SimulatedClock(stage.scheduler, self._process),
            random=random.Random(chance.random()),
            host=SimulatedHost(stage.network, self._process),
        )
        self._numbers: Counter[str] = Counter()
        self.rests = False
        """Whether only the last batches are left, or none."""
        self.done = False

    def start(self) -> None:
        """Begin."""
        self._stage.scheduler.start(self._write, self._process, "writer")

    def _write(self) -> None:
        options = ProducerOptions(send_timeout_ms=2_000, retries=3)
        producer = Producer(self._client, options=options)
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
                self._send(pipeline, producer, queues, turn, size)
                if self._pause_s:
                    self._stage.scheduler.park(self._chance.expovariate(1 / self._pause_s))
            self._acknowledge(pipeline.flush())
            self.rests = True
            while not self._stage.healed:
                self._stage.scheduler.park(1.0)
            for turn in range(min(len(queues), _LAST)):
                self._send(pipeline, producer, queues, turn, 1)
            self._acknowledge(pipeline.flush())
        self.done = True

    def _send(
        self,
        pipeline: SendPipeline,
        producer: Producer,
        queues: tuple[MessageQueue, ...],
        turn: int,
        size: int,
    ) -> None:
        queue = queues[turn % len(queues)] if self._ordered else None
        lane = f"{self._process.name}-{turn % len(queues) if self._ordered else 'any'}"
        first = self._numbers[lane]
        self._numbers[lane] += size
        bodies = [b"%s:%d" % (lane.encode(), number) for number in range(first, first + size)]
        self._history.sent.update(bodies)
        messages = [
            OutgoingMessage(
                self._topic, body.ljust(self._body_bytes), tags=self._tags[number % len(self._tags)]
            )
            for number, body in enumerate(bodies, first)
        ]
        sent = encode_many(messages, producer.ids)
        self._acknowledge(pipeline.submit(sent, queue, token=(lane, first, size)))

    def _queues(self) -> tuple[MessageQueue, ...]:
        while True:
            with contextlib.suppress(RocketMQError):
                if queues := self._client.write_queues(self._topic):
                    return queues
            self._stage.scheduler.park(1.0)

    def _acknowledge(self, outcomes: Iterable[SendOutcome]) -> None:
        for outcome in outcomes:
            lane, first, size = outcome.token
            if outcome.error is not None:
                self._history.refused.append(f"{lane}:{first}+{size}: {outcome.error}")
                self._stage.note(f"a send is given up: {outcome.error}")
            else:
                numbers = self._history.acknowledged.setdefault(lane, set())
                numbers.update(range(first, first + size))
