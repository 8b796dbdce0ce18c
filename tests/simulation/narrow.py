"""A reader with little memory: what brokers have sent, and it has not given out, is counted outside it."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.host import SimulatedHost
from tests.simulation.network import Session
from tests.simulation.scheduler import Process, SimulatedClock
from tests.simulation.stage import Stage

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.client.read.range_reader import Pulled, read_chunks
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.options import ClientOptions
from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.remoting.frame import Frame
from pyspark_rocketmq.remoting.header import PullMessageRequest
from pyspark_rocketmq.testing.wire import Reply

__all__ = ["NarrowReader"]

_ANSWERS: Final = 5
"""So many may be in its memory. Each has one message."""
_RECORD_BYTES: Final = 400
"""More than a message has without its body."""
_NAME: Final = "narrow"


@dataclass(slots=True)
class _Held:
    """The answers of one read that were sent and not given out, by queue and offset.

    Those of a connection that is gone do not count: which of them have arrived is not known. Each counts as
    the smallest one: messages may become larger, and what was asked for before the first of these was right.
    """

    smallest: int = sys.maxsize
    sessions: dict[tuple[MessageQueue, int], Session] = field(default_factory=dict)
    reached: dict[MessageQueue, int] = field(default_factory=dict)
    over: list[set[tuple[MessageQueue, int]]] = field(default_factory=list)
    """What there was when it was too much, unless a part of it was about to be given out."""

    def send(self, queue: MessageQueue, offset: int, size: int, session: Session, *, most: int) -> None:
        """Record an answer: one that is sent again takes the place of the first."""
        self.smallest = min(self.smallest, size)
        if offset >= self.reached.get(queue, offset + 1):
            self.sessions[queue, offset] = session
        held = {place for place, session in self.sessions.items() if session.open}
        if len(held) * self.smallest > most:
            self.over.append(held)

    def give_out(self, queue: MessageQueue, until: int, *, most: int) -> Iterator[int]:
        """Record that a queue was read to an offset; yield what was too much since the last time.

        What is given out now was taken before: the reader may first have had to connect for the next range.
        """
        for held in self.over:
            left, at = len(held), self.reached[queue]
            while at < until and (queue, at) in held:
                left -= 1
                at += 1
            if left * self.smallest > most:
                yield left * self.smallest
        self.over.clear()
        self.reached[queue] = until
        self.sessions = {
            place: session
            for place, session in self.sessions.items()
            if place[0] != queue or place[1] >= until
        }


class NarrowReader:
    """Reads every queue of a topic in one task, slowly, again and again.

    Parameters
    ----------
    stage : Stage
    options : ClientOptions
    chance : random.Random
    ranges : callable
        Returns what brokers have.
    body_bytes : int
    """

    def __init__(
        self,
        stage: Stage,
        options: ClientOptions,
        chance: random.Random,
        *,
        ranges: Callable[[], Sequence[OffsetRange]],
        body_bytes: int,
    ) -> None:
        self._stage = stage
        self._options = options
        self._chance = chance
        self._ranges = ranges
        self._most_bytes = _ANSWERS * (_RECORD_BYTES + body_bytes)
        # The range that all others wait for has one answer always.
        self._most_held = self._most_bytes * (_ANSWERS + 1) // _ANSWERS
        self._process = Process(_NAME)
        self._held = _Held()

    def start(self) -> None:
        """Begin."""
        self._stage.scheduler.start(self._run, self._process, "reader")

    def executed(self, broker: str, session: Session, frame: Frame, reply: Reply) -> None:
        """Count the answer to a pull."""
        if session.process is not self._process or frame.command.code != RequestCode.PULL_MESSAGE:
            return
        asked = PullMessageRequest.parse(frame.command.fields)
        queue = MessageQueue(asked.topic, broker, asked.queue_id)
        if reply.body:
            self._held.send(queue, asked.queue_offset, len(reply.body), session, most=self._most_held)

    def _run(self) -> None:
        scheduler = self._stage.scheduler
        client = Client(
            self._options,
            clock=SimulatedClock(scheduler, self._process),
            random=random.Random(self._chance.random()),
            host=SimulatedHost(self._stage.network, self._process),
        )
        while not self._stage.healed:
            ranges = [each for each in self._ranges() if len(each)]
            self._held = _Held(self._held.smallest, reached={each.queue: each.from_offset for each in ranges})
            try:
                self._read(client, ranges)
            except RocketMQError as error:
                self._stage.note(f"the narrow reader ends: {error}")
            scheduler.park(self._chance.uniform(0.5, 5.0))

    def _read(self, client: Client, ranges: Sequence[OffsetRange]) -> None:
        options = ReadOptions(
            consumer_group=_NAME,
            pull_batch_size=1,
            max_bytes_in_flight=self._most_bytes,
            fail_on_data_loss=False,
            missing_patience_ms=1_000,
        )
        self._stage.history.did["a reader with little memory"] += 1
        for event in read_chunks(client, ranges, options):
            if isinstance(event, Pulled):
                queue, until = event.pull.offsets.queue, event.chunks[-1].until_offset
                self._stage.history.oversized += [
                    f"{held:,} bytes are in memory with {queue}, {self._most_held:,} may be"
                    for held in self._held.give_out(queue, until, most=self._most_held)
                ]
                self._stage.scheduler.park(self._chance.uniform(0.0, 0.05))
