"""Steady writing and reading while things go wrong, and what became of every message."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from pyspark_rocketmq.client import (
    Client,
    ClientOptions,
    MessageQueue,
    OffsetRange,
    OutgoingMessage,
    Producer,
    ProducerOptions,
    SendPipeline,
    encode_many,
)
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock
from pyspark_rocketmq.client.read.queue_reader import DecodeOptions, read_batches
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.errors import NameServerError, RocketMQError, TopicNotFoundError
from pyspark_rocketmq.offsets.offset_lookup import PlanningClient, fetch_available_ends

_BATCH = 100
_BACK_OFF_S = 0.2
_MOST_IN_A_READ = 20_000
"""Offsets of a queue that one micro-batch takes."""


@dataclass
class Figures:
    """What a run came to; stalls in seconds."""

    faults: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    refused: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    read: int = 0
    lost: int = 0
    repeated_sends: int = 0
    repeated_rows: int = 0
    disordered: int = 0
    retried_batches: int = 0
    longest_stall_s: float = 0.0
    seconds: float = 0.0

    def __str__(self) -> str:
        kinds = "\n".join(f"  {kind:<42}{count:>7}" for kind, count in sorted(self.faults.items()))
        return (
            f"faults, {len(self.faults)} kinds:\n{kinds}\n"
            f"messages acknowledged  {self.sent:>12,}\n"
            f"messages read          {self.read:>12,}\n"
            f"lost                   {self.lost:>12,}\n"
            f"rows read twice        {self.repeated_rows:>12,}\n"
            f"out of order           {self.disordered:>12,}\n"
            f"sent twice (allowed)   {self.repeated_sends:>12,}\n"
            f"sends given up         {self.refused:>12,}\n"
            f"batches read again     {self.retried_batches:>12,}\n"
            f"longest stall          {self.longest_stall_s:>11.1f}s\n"
            f"took                   {self.seconds:>11.1f}s"
            + "".join(f"\n  given up {count} times: {why}" for why, count in self.refusals.most_common(10))
        )


class _Numbers:
    """Which numbers of a lane were acknowledged, and how often each was read.

    The writer's thread and the reader's mark at the same time: each array grows in the thread that marks in
    it, or the copy would miss a mark.
    """

    def __init__(self) -> None:
        self.acknowledged = np.zeros(1 << 12, np.bool_)
        self.read = np.zeros(1 << 12, np.uint8)
        self.highest_first = -1

    def acknowledge(self, first: int, end: int) -> None:
        while len(self.acknowledged) < end:
            self.acknowledged = np.concatenate([self.acknowledged, np.zeros_like(self.acknowledged)])
        self.acknowledged[first:end] = True

    def grow_read(self, size: int) -> None:
        while len(self.read) < size:
            self.read = np.concatenate([self.read, np.zeros_like(self.read)])

    @property
    def lost(self) -> int:
        """How many were acknowledged and never read."""
        acknowledged, read = np.flatnonzero(self.acknowledged), np.flatnonzero(self.read)
        return len(np.setdiff1d(acknowledged, read, assume_unique=True))


class Workload:
    """Writes numbered messages to a topic and reads them back, until it is told to finish.

    One writer lets the producer choose brokers; one sends in order to each queue. The reader plans and reads
    micro-batches as a stream does: a batch that fails is read again from its start.

    Parameters
    ----------
    name_server, topic : str
    pace_s : float
        A pause between two batches of a writer.
    read_stall_ms : int
        How long one read may be stuck before the batch is planned anew.
    request_timeout_ms : int
    clock : Clock
        The client's.
    """

    def __init__(
        self,
        name_server: str,
        topic: str,
        *,
        pace_s: float = 0.0,
        read_stall_ms: int = 30_000,
        request_timeout_ms: int = 2_000,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._options = ClientOptions(
            name_servers=tuple(name_server.split(";")),
            request_timeout_ms=request_timeout_ms,
            connect_timeout_ms=2_000,
        )
        self._topic = topic
        self._clock = clock
        self._pace_s = pace_s
        self._read_stall_ms = read_stall_ms
        self._send_timeout_ms = request_timeout_ms
        self._stop = threading.Event()
        self._failures: list[BaseException] = []
        self._lanes: dict[str, _Numbers] = {}
        self._positions: dict[MessageQueue, int] = {}
        self._progress = time.monotonic()
        self.figures = Figures()

    @property
    def sent(self) -> int:
        """How many messages were acknowledged so far; raises what ended the workload, if something did."""
        if self._failures:
            raise self._failures[0]
        return self.figures.sent

    @contextlib.contextmanager
    def running(self) -> Iterator[Workload]:
        """Run writers and reader beside the block; check everything at its end."""
        started = time.monotonic()
        with (
            Client(self._options, clock=self._clock, operation_timeout_ms=10_000) as client,
            contextlib.closing(PlanningClient(self._options)) as planner,
        ):
            writers = [
                self._thread(lambda: self._write(client, ordered=False)),
                self._thread(lambda: self._write(client, ordered=True)),
            ]
            reader = self._thread(lambda: self._read(client, planner, writers))
            try:
                yield self
            finally:
                self._stop.set()
                for thread in (*writers, reader):
                    thread.join(180)
            if self._failures:
                raise self._failures[0]
            assert not any(thread.is_alive() for thread in (*writers, reader)), "the workload does not end"
        self.figures.seconds = time.monotonic() - started
        self._sum_up()

    def _thread(self, target) -> threading.Thread:
        def run() -> None:
            try:
                target()
            except BaseException as failure:  # noqa: BLE001 - the thread's outermost frame
                self._failures.append(failure)
                self._stop.set()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    # --- writing ---

    def _write(self, client: Client, *, ordered: bool) -> None:
        # A broker that was made read-only is no outage: retries must last as long as the fault.
        options = ProducerOptions(send_timeout_ms=self._send_timeout_ms, retries=60)
        producer = Producer(client, options=options)
        queues = client.write_queues(self._topic)
        numbers: Counter[str] = Counter()
        with SendPipeline(producer, max_in_flight=8, ordered=ordered, outage_timeout_ms=120_000) as pipeline:
            for turn in itertools.count():
                if self._stop.is_set():
                    break
                queue = queues[turn % len(queues)] if ordered else None
                lane = f"o{turn % len(queues)}" if ordered else "u"
                first = numbers[lane]
                numbers[lane] += _BATCH
                messages = [
                    OutgoingMessage(self._topic, b"%s:%d" % (lane.encode(), number))
                    for number in range(first, first + _BATCH)
                ]
                batch = encode_many(messages, producer.ids)
                self._acknowledge(pipeline.submit(batch, queue, token=(lane, first)))
                self._stop.wait(self._pace_s)
            self._acknowledge(pipeline.flush())

    def _acknowledge(self, outcomes) -> None:
        for outcome in outcomes:
            lane, first = outcome.token
            if outcome.error is not None:
                self.figures.refused += _BATCH
                self.figures.refusals[f"{outcome.error} <- {outcome.error.__cause__}"] += 1
                continue
            numbers = self._lanes.setdefault(lane, _Numbers())
            numbers.acknowledge(first, first + _BATCH)
            self.figures.sent += _BATCH

    # --- reading ---

    def _read(self, client: Client, planner: PlanningClient, writers: list[threading.Thread]) -> None:
        while True:
            last_round = not any(writer.is_alive() for writer in writers)
            try:
                caught_up = self._read_once(client, planner)
            except RocketMQError as error:
                # As a stream does: name servers that restart know no topic until the brokers have registered.
                if not error.retriable and not isinstance(error, (NameServerError, TopicNotFoundError)):
                    raise
                self.figures.retried_batches += 1
                caught_up = False
                time.sleep(_BACK_OFF_S)
            if caught_up and last_round:
                return
            if caught_up:
                self._stop.wait(0.02)

    def _read_once(self, client: Client, planner: PlanningClient) -> bool:
        """Read one micro-batch; return whether nothing was left to read."""
        ends = fetch_available_ends(planner, client.read_queues(self._topic))
        begins = {queue: self._positions.get(queue, 0) for queue in ends}
        ranges = [
            OffsetRange(queue, begins[queue], min(end, begins[queue] + _MOST_IN_A_READ))
            for queue, end in sorted(ends.items())
            if end > begins[queue]
        ]
        if not ranges:
            self._progress = time.monotonic()
            every = len(ends) == len(client.write_queues(self._topic))
            every = every and self._positions.keys() <= ends.keys()
            if not every:
                client.invalidate(self._topic)  # a broker was away when the route was looked up
            return every
        read = read_batches(
            client,
            ranges,
            ReadOptions(consumer_group="chaos", stall_timeout_ms=self._read_stall_ms),
            DecodeOptions(columns=("brokerName", "queueId", "queueOffset", "body"), check_crc=True),
        )
        rows: list[bytes] = []
        found: list[tuple[str, int, int]] = []
        for batch in read:
            rows += batch.column("body").to_pylist()
            places = (batch.column(name).to_pylist() for name in ("brokerName", "queueId", "queueOffset"))
            found += zip(*places, strict=True)
            self._advanced()
        expected = [
            (one.broker_name, one.queue_id, offset)
            for one in ranges
            for offset in range(one.from_offset, one.until_offset)
        ]
        if any(one.queue.logical for one in ranges):  # the parts of its queues lie 10,000 offsets apart
            there = set(found)
            expected = [place for place in expected if place in there]
        if found != expected:
            surplus = Counter(found) - Counter(expected)
            self.figures.repeated_rows += sum(surplus.values()) or 1
        for row in rows:
            self._seen(row)
        for one in ranges:
            self._positions[one.queue] = one.until_offset
        self._advanced()
        return False

    def _advanced(self) -> None:
        """Rows have come: measure how long none did."""
        now = time.monotonic()
        self.figures.longest_stall_s = max(self.figures.longest_stall_s, now - self._progress)
        self._progress = now

    def _seen(self, row: bytes) -> None:
        lane, _, text = row.decode().partition(":")
        number = int(text)
        numbers = self._lanes.setdefault(lane, _Numbers())
        numbers.grow_read(number + 1)
        self.figures.read += 1
        if numbers.read[number]:
            self.figures.repeated_sends += 1
        elif lane != "u":  # in order, as far as messages come for the first time
            self.figures.disordered += number < numbers.highest_first
            numbers.highest_first = max(numbers.highest_first, number)
        numbers.read[number] = min(255, int(numbers.read[number]) + 1)

    def _sum_up(self) -> None:
        self.figures.lost = sum(numbers.lost for numbers in self._lanes.values())
