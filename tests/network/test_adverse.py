"""A reader, a producer and offsets over a network that cuts, delays, loses, changes and swallows bytes.

Whatever it does: exact content or a named error, within the deadline.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.support.proxy import Proxy, Trouble, flip
from tests.support.wait import within

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
from pyspark_rocketmq.client.net.connection import Connection
from pyspark_rocketmq.client.read.queue_reader import DecodeOptions, read_batches
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.errors import (
    ConnectionLostError,
    CorruptMessageError,
    NameServerError,
    RemoteProtocolError,
    RequestTimeoutError,
    RocketMQError,
    SendError,
)
from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.testing import Announce, Damage, Drip, MockBroker, Stranger

pytestmark = pytest.mark.timeout(30)

COLUMNS = ("queueOffset", "tags", "keys", "body", "properties")
MESSAGES = 1_000


@dataclass
class Network:
    """A mock broker behind a proxy."""

    mq: MockBroker
    proxy: Proxy
    client: Client

    @property
    def queue(self) -> MessageQueue:
        return self.mq.queue("orders")

    def fill(self, count: int = MESSAGES) -> list[bytes]:
        bodies = [b"message %d " % number + b"x" * (number % 300) for number in range(count)]
        for body in bodies:
            self.mq.send(OutgoingMessage("orders", body, tags="t", keys="k"))
        return bodies

    def read(
        self, *, stall_timeout_ms: int = 60_000, check_crc: bool = False, pulls_in_flight: int | None = None
    ) -> list[bytes]:
        """Read the whole queue; return the bodies."""
        batches = read_batches(
            self.client,
            [OffsetRange(self.queue, 0, self.mq.max_offset(self.queue))],
            ReadOptions(
                consumer_group="g",
                stall_timeout_ms=stall_timeout_ms,
                missing_patience_ms=100,
                pulls_in_flight=pulls_in_flight,
            ),
            DecodeOptions(columns=COLUMNS, check_crc=check_crc),
        )
        return [body for batch in batches for body in batch.column("body").to_pylist()]


@contextlib.contextmanager
def network(*troubles: Trouble, request_timeout_ms: int | None = None) -> Iterator[Network]:
    """Only a request whose answer may never come is given up soon: others may take long on a busy machine."""
    if request_timeout_ms is None:
        lost = any(trouble.stall_after is not None or trouble.drop for trouble in troubles)
        request_timeout_ms = 300 if lost else 30_000
    with MockBroker({"orders": 1}) as mq, Proxy(mq.address("broker-a"), *troubles) as proxy:
        mq.advertise("broker-a", proxy.addr)
        options = ClientOptions(
            name_servers=(mq.name_server,),
            request_timeout_ms=request_timeout_ms,
            connect_timeout_ms=30_000,
        )
        with Client(options, operation_timeout_ms=60_000) as client:
            yield Network(mq, proxy, client)


# --- reading --------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [0, 1, 3, 4, 11, 200, 5_000, 40_000])
def test_a_connection_that_is_cut_is_opened_anew(position: int) -> None:
    with network(Trouble(cut_after=position), Trouble()) as net:
        bodies = net.fill()
        with within(10):
            assert net.read() == bodies
        assert net.proxy.connections == 2


def test_connections_that_are_cut_again_and_again() -> None:
    with network(*[Trouble(cut_after=30_000)] * 100) as net:
        bodies = net.fill()
        with within(20):
            assert net.read() == bodies
        assert net.proxy.connections > 5


@pytest.mark.parametrize("position", [0, 5, 300, 20_000])
def test_a_half_open_connection_is_noticed_by_its_deadline(position: int) -> None:
    with network(Trouble(stall_after=position), Trouble()) as net:
        bodies = net.fill()
        with within(10):
            assert net.read() == bodies
        assert net.proxy.connections >= 2


def test_a_network_that_swallows_everything_ends_the_read() -> None:
    with network(Trouble(stall_after=0)) as net:
        net.fill(10)
        with within(10), pytest.raises(RequestTimeoutError) as caught:
            net.read(stall_timeout_ms=1_000)
    assert {"addr", "queue", "offset"} <= caught.value.facts.keys()


def test_a_slow_network_only_takes_longer() -> None:
    with network(Trouble(delay_s=0.002)) as net:
        bodies = net.fill(500)
        assert net.read() == bodies


def test_a_long_way_to_the_broker_is_kept_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 0.1 s there and back: 32 pulls of 32 messages at a time would take 16 turns, so there are more."""
    in_flight: dict[int | None, list[int]] = {32: [], None: []}
    submit_many = Connection.submit_many
    with network(Trouble(way_s=0.05)) as net:
        bodies = net.fill(16_000)
        for pulls, counts in in_flight.items():

            def submit_and_count(connection: Connection, *args, counts=counts, **more) -> list[int]:
                sent = submit_many(connection, *args, **more)
                counts.append(connection.in_flight)
                return sent

            monkeypatch.setattr(Connection, "submit_many", submit_and_count)
            assert net.read(pulls_in_flight=pulls) == bodies
    assert max(in_flight[32]) == 32
    assert max(in_flight[None]) > 64


def test_bytes_that_drip() -> None:
    with network(Trouble(step=97)) as net:
        bodies = net.fill(300)
        assert net.read() == bodies


@pytest.mark.parametrize(("position", "count"), [(0, 1), (2, 3), (60, 4), (500, 1), (3_000, 700)])
def test_bytes_that_vanish(position: int, count: int) -> None:
    """What follows is taken for what it is not: an error, or (nothing more comes) a time-out and a retry."""
    with network(Trouble(drop=(position, count)), Trouble()) as net:
        bodies = net.fill()
        with within(10):
            found = outcome(net, check_crc=True)
        if isinstance(found, list):
            assert found == bodies
            assert net.proxy.connections == 2, "what vanished was not missed"
        else:
            assert isinstance(found, (RemoteProtocolError, CorruptMessageError))


# --- changed bytes --------------------------------------------------------------------------


def outcome(net: Network, *, check_crc: bool) -> list[bytes] | RocketMQError:
    try:
        return net.read(check_crc=check_crc, stall_timeout_ms=1_000)
    except RocketMQError as error:
        return error


def test_changed_bytes_never_give_a_wrong_body() -> None:
    """One flipped bit anywhere in an answer: an error, or the bodies as they are (one may be missing).

    RocketMQ's checksum covers the body. What stands around it (offsets, times, properties) is protected by
    TCP's checksum, or by TLS.
    """
    with network(request_timeout_ms=100) as net:
        bodies = net.fill(3)
        sizes: list[int] = []
        pulls = RequestCode.PULL_MESSAGE
        net.mq.inject(Damage(lambda frame: sizes.append(len(frame)) or frame), on=pulls)
        assert net.read() == bodies
        kinds = set()
        for position in range(0, sizes[0], 5):
            change = flip(position, mask=1 << position % 8)
            net.mq.inject(Damage(lambda frame, change=change: change(frame, 0)), on=pulls)
            with within(3):
                found = outcome(net, check_crc=True)
            net.mq.heal()
            kinds.add(type(found))
            if isinstance(found, list):
                assert found == bodies or found in [bodies[:at] + bodies[at + 1 :] for at in range(3)], (
                    position
                )
        assert {list, RemoteProtocolError, CorruptMessageError} <= kinds


def test_a_checksum_finds_what_nothing_else_does() -> None:
    with network() as net:
        bodies = net.fill(3)
        net.mq.corrupt(net.queue, 1, lambda record: record.replace(b"message 1", b"message 7"))
        assert net.read()[1] != bodies[1]
        with pytest.raises(CorruptMessageError, match="checksum") as caught:
            net.read(check_crc=True)
        assert caught.value.facts["queue_offset"] == 1


# --- frames ---------------------------------------------------------------------------------


def test_a_frame_of_2_gib_is_not_waited_for() -> None:
    with network() as net:
        net.fill(10)
        net.mq.inject(Announce(), on=RequestCode.PULL_MESSAGE)
        with within(2), pytest.raises(RemoteProtocolError, match="above the limit"):
            net.read()


def test_a_frame_that_is_announced_and_never_comes_takes_no_memory() -> None:
    """Within the limit the size is believed, so the deadline decides; memory grows with what arrives."""
    with network(request_timeout_ms=300) as net:
        bodies = net.fill(10)
        announced = net.mq.inject(Announce(150 << 20), on=RequestCode.PULL_MESSAGE)
        with within(5):
            assert net.read() == bodies
        assert announced.hits == 1
        connection = net.client.connection(net.proxy.addr)
        assert connection.alive


def test_strangers_and_drips_do_no_harm() -> None:
    with network() as net:
        bodies = net.fill(200)
        strangers = net.mq.inject(Stranger(), on=RequestCode.PULL_MESSAGE, times=3)
        drips = net.mq.inject(Drip(step_bytes=500), on=RequestCode.PULL_MESSAGE, times=2)
        assert net.read() == bodies
        assert (strangers.hits, drips.hits) == (3, 2)


def test_an_answer_that_takes_longer_than_its_timeout_is_waited_for_while_it_arrives() -> None:
    """As a large message over a slow link: requested again it would take as long."""
    with network(request_timeout_ms=300) as net:
        bodies = net.fill(32)
        drips = net.mq.inject(Drip(step_bytes=200, pause_s=0.02), on=RequestCode.PULL_MESSAGE, times=1_000)
        with within(20):
            assert net.read(stall_timeout_ms=20_000) == bodies
        assert drips.hits == 1


# --- sending --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble",
    [
        Trouble(cut_after=0),
        Trouble(cut_after=150),
        Trouble(stall_after=0),
        Trouble(stall_after=400),
        Trouble(drop=(2, 1)),
        Trouble(change=flip(0, mask=0x80)),
    ],
    ids=["cut at once", "cut in an answer", "half-open", "half-open later", "byte lost", "length changed"],
)
def test_sends_get_through_at_least_once(trouble: Trouble) -> None:
    with network(trouble, Trouble()) as net, within(15):
        producer = Producer(net.client, options=ProducerOptions(send_timeout_ms=300, retries=100))
        sent, failed = [], []
        for number in range(20):
            body = b"%d" % number
            try:
                producer.send(OutgoingMessage("orders", body))
                sent.append(body)
            except RemoteProtocolError:  # not retried: the peer does not speak the protocol
                failed.append(body)
        stored = [message.body for message in net.mq.messages("orders")]
        assert set(sent) <= set(stored)
        assert len(failed) <= 1
        assert net.proxy.connections == 2, "there was no trouble"


def test_an_ordered_pipeline_keeps_the_order_over_cuts() -> None:
    with network(*[Trouble(cut_after=700)] * 50) as net, within(20):
        producer = Producer(net.client, options=ProducerOptions(send_timeout_ms=10_000, retries=10))
        outcomes = []
        with SendPipeline(producer, max_in_flight=8, ordered=True, outage_timeout_ms=60_000) as pipeline:
            for number in range(60):
                batch = encode_many([OutgoingMessage("orders", b"%d" % number)], producer.ids)
                outcomes += pipeline.submit(batch, net.queue, token=number)
            outcomes += pipeline.flush()
        assert [outcome.error for outcome in outcomes] == [None] * 60
        numbers = [int(message.body) for message in net.mq.messages("orders")]
        # A repeat may come late, when the network delivers a first try after the second: brokers cannot tell.
        assert list(dict.fromkeys(numbers)) == list(range(60))


def test_a_send_into_nothing_is_given_up() -> None:
    with network(Trouble(stall_after=0)) as net, within(5):
        net.client.read_queues("orders")
        producer = Producer(net.client, options=ProducerOptions(send_timeout_ms=200, retries=2))
        with pytest.raises(SendError) as caught:
            producer.send(OutgoingMessage("orders", b"x"))
    assert caught.value.facts["attempts"] == 3


# --- offsets and routes ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble", [Trouble(cut_after=10), Trouble(stall_after=10)], ids=["cut", "half-open"]
)
def test_offsets_are_asked_for_again(trouble: Trouble) -> None:
    with network(trouble, Trouble()) as net, within(5):
        net.fill(10)
        queues = (net.queue,)
        assert net.client.max_offsets(queues) == {net.queue: 10}
        net.client.commit_offsets("g", {net.queue: 4})
        assert net.client.committed_offsets("g", queues) == {net.queue: 4}


def test_offsets_into_nothing_are_given_up() -> None:
    with network(Trouble(stall_after=0)) as net, within(6):
        net.client.read_queues("orders")
        net.client.operation_timeout_ms = 1_000
        with pytest.raises(RequestTimeoutError):
            net.client.max_offsets((net.queue,))


@pytest.mark.parametrize("trouble", [Trouble(cut_after=0), Trouble(cut_after=50)], ids=["cut", "cut later"])
def test_a_bad_line_to_the_name_server(trouble: Trouble) -> None:
    with MockBroker({"orders": 2}) as mq, Proxy(mq.name_server, trouble, Trouble()) as proxy:
        options = ClientOptions(name_servers=(proxy.addr,), connect_timeout_ms=30_000)
        with Client(options) as client, within(5):
            assert len(client.read_queues("orders")) == 2
            assert proxy.connections == 2


def test_a_name_server_that_swallows_everything_is_passed_over() -> None:
    with MockBroker({"orders": 2}) as mq, Proxy(mq.name_server, Trouble(stall_after=0)) as dead:
        options = ClientOptions(name_servers=(dead.addr, mq.name_server), connect_timeout_ms=500)
        with Client(options) as client, within(5):
            assert len(client.read_queues("orders")) == 2
            assert len(client.read_queues("orders")) == 2


def test_an_only_name_server_that_swallows_everything_is_an_error_soon() -> None:
    with MockBroker({"orders": 2}) as mq, Proxy(mq.name_server, Trouble(stall_after=0)) as dead:
        options = ClientOptions(name_servers=(dead.addr,), connect_timeout_ms=500)
        with (
            Client(options) as client,
            within(5),
            pytest.raises(NameServerError, match="did not answer"),
        ):
            client.read_queues("orders")


def test_a_connection_that_died_while_idle_is_replaced_before_it_is_used() -> None:
    with network() as net:
        net.fill(5)
        assert net.client.max_offsets((net.queue,)) == {net.queue: 5}
        first = net.client.connection(net.proxy.addr)
        net.mq.disconnect("broker-a")
        with contextlib.suppress(ConnectionLostError):
            first.poll(2.0)
        assert net.client.max_offsets((net.queue,)) == {net.queue: 5}
        assert net.proxy.connections == 2
