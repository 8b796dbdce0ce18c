"""A link so slow that what is in flight takes longer than one time-out: nothing is sent twice, none fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random

import pytest
from tests.simulation.cluster import Cluster
from tests.simulation.history import Place
from tests.simulation.host import SimulatedHost
from tests.simulation.network import Habits, Network, Session
from tests.simulation.scheduler import Process, Scheduler, SimulatedClock
from tests.simulation.servers import State

from pyspark_rocketmq.client import (
    Client,
    ClientOptions,
    OutgoingMessage,
    Producer,
    ProducerOptions,
    SendOutcome,
    SendPipeline,
    encode_one,
)
from pyspark_rocketmq.client.read.queue_reader import DecodeOptions, read_batches
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.model import OffsetRange
from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.remoting.frame import Frame
from pyspark_rocketmq.testing.log import PullLimits
from pyspark_rocketmq.testing.wire import Reply

BODY_BYTES = 4_000
BYTES_PER_S = 100_000
TIMEOUT_MS = 400
"""Ten bodies take this long, and more than half of what TCP's window holds."""


@dataclass
class SlowLink:
    """One broker, a slow link to it, and a client."""

    queues: int = 1
    scheduler: Scheduler = field(default_factory=Scheduler)
    stored: list[bytes] = field(default_factory=list)
    executed: Counter[int] = field(default_factory=Counter)
    """The requests of each code."""

    def __post_init__(self) -> None:
        habits = Habits(bytes_per_s=BYTES_PER_S)
        network = Network(self.scheduler, Random(1), habits, ids=Random(2))
        self.cluster = Cluster(
            network,
            brokers=["broker-a"],
            name_servers=1,
            slaves=0,
            slave_readable=True,
            limits=PullLimits(),
            on_append=self._append,
            on_commit=lambda *_: None,
        )
        self.cluster.create_topic("orders", self.queues, brokers=["broker-a"])
        self.cluster.watchers.append(self._execute)
        self.cluster.start()
        self.process = Process("sender")
        self.client = Client(
            ClientOptions(name_servers=(self.cluster.name_server,), request_timeout_ms=TIMEOUT_MS),
            clock=SimulatedClock(self.scheduler, self.process),
            random=Random(3),
            host=SimulatedHost(network, self.process),
        )

    def _append(self, place: Place, body: bytes, properties: Mapping[str, str], stored_ms: int) -> None:
        del place, properties, stored_ms
        self.stored.append(body)

    def _execute(self, broker: str, session: Session, frame: Frame, reply: Reply) -> None:
        del broker, session, reply
        self.executed[frame.command.code] += 1

    def append(self, queue_id: int, body: bytes) -> None:
        """Store a message without the link."""
        self.cluster.stores["broker-a"].append(
            *("orders", queue_id, body.ljust(BODY_BYTES), {}),
            store_timestamp=1,
            born_timestamp=1,
            sys_flag=0,
            flag=0,
        )

    def run(self, *works: Callable[[], None]) -> None:
        """Run each in a thread of its own, after the broker is registered."""
        over: list[Callable[[], None]] = []

        def work_and_tell(work: Callable[[], None]) -> None:
            self.client.clock.sleep(2.0)
            work()
            over.append(work)

        for number, work in enumerate(works):
            self.scheduler.start(lambda work=work: work_and_tell(work), self.process, f"thread-{number}")
        assert self.scheduler.run(lambda: len(over) == len(works), until_s=300.0), "it does not end"
        self.scheduler.end()

    def producer(self) -> Producer:
        options = ProducerOptions(send_timeout_ms=TIMEOUT_MS, retries=0)
        return Producer(self.client, options=options)


def bodies(name: str, count: int) -> list[bytes]:
    return [b"%s-%d" % (name.encode(), number) for number in range(count)]


def message(body: bytes) -> OutgoingMessage:
    return OutgoingMessage("orders", body.ljust(BODY_BYTES))


def check(outcomes: Iterable[SendOutcome]) -> None:
    assert [outcome.error for outcome in outcomes if outcome.error is not None] == []


def send_in_pipeline(link: SlowLink, name: str, count: int, **options: int) -> None:
    producer = link.producer()
    with SendPipeline(producer, **options) as pipeline:
        for body in bodies(name, count):
            check(pipeline.submit(encode_one(message(body), producer.ids)))
        check(pipeline.flush())


@pytest.mark.parametrize("gather", [1, 16])
@pytest.mark.parametrize("in_flight", [16, 256])
def test_sends_in_flight_wait_for_the_ones_before_them(in_flight: int, gather: int) -> None:
    link = SlowLink()
    link.run(lambda: send_in_pipeline(link, "a", 300, max_in_flight=in_flight, gather=gather))
    assert Counter(link.stored) == Counter(bodies("a", 300))


def test_pipelines_that_share_a_connection_wait_for_one_another() -> None:
    link = SlowLink()
    link.run(*(lambda name=name: send_in_pipeline(link, name, 100, max_in_flight=64) for name in "abc"))
    assert Counter(link.stored) == Counter(body for name in "abc" for body in bodies(name, 100))


def test_threads_that_send_one_message_each_wait_for_one_another() -> None:
    link = SlowLink()
    producer = link.producer()
    sent = bodies("a", 40)
    link.run(*(lambda body=body: producer.send(message(body)) for body in sent))
    assert Counter(link.stored) == Counter(sent)


def test_a_broker_that_hangs_is_noticed_after_one_time_out() -> None:
    """Only answers to earlier requests count: those that a broker owes now are not waited for one by one."""
    link = SlowLink()
    outcomes: list[SendOutcome] = []

    def send() -> None:
        producer = link.producer()
        with SendPipeline(producer, max_in_flight=64) as pipeline:
            outcomes.extend(pipeline.submit(encode_one(message(b"first"), producer.ids)))
            outcomes.extend(pipeline.flush())
            link.cluster.servers["broker-a", 0].stop(State.PAUSED)
            begin_s = link.scheduler.now
            for body in bodies("a", 32):
                outcomes.extend(pipeline.submit(encode_one(message(body), producer.ids)))
            outcomes.extend(pipeline.flush())
            assert link.scheduler.now - begin_s < 3 * TIMEOUT_MS / 1000

    link.run(send)
    assert len(outcomes) == 33
    assert sum(outcome.error is not None for outcome in outcomes) == 32


@pytest.mark.parametrize("queues", [1, 4])
@pytest.mark.parametrize("readers", [1, 3])
def test_no_pull_is_sent_again_while_answers_arrive(queues: int, readers: int) -> None:
    """Those that are in flight at the same time take up to 40 s."""
    link = SlowLink(queues)
    stored = [f"{queue}-{number}".encode() for queue in range(queues) for number in range(1_000 // queues)]
    for body in stored:
        queue = int(body.partition(b"-")[0])
        link.append(queue, body)
    ranges = [OffsetRange(each, 0, 1_000 // queues) for each in link.cluster.queues("orders")]
    read: list[bytes] = []

    def pull() -> None:
        given, decode = ReadOptions(consumer_group="report"), DecodeOptions(columns=["body"])
        for batch in read_batches(link.client, ranges, given, decode):
            read.extend(body.rstrip() for body in batch.column("body").to_pylist())

    link.run(*[pull] * readers)
    assert Counter(read) == Counter(stored * readers)
    assert link.executed[RequestCode.PULL_MESSAGE] <= readers * (1_000 // 32 + 3 * queues)
