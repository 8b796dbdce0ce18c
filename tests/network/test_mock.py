"""The mock broker's faults: each one happens as it was ordered, and the client meets it as it should."""

from __future__ import annotations

import socket
import threading

import pytest
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client, MessageQueue, OutgoingMessage, Producer, PullConsumer, PullStatus
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Deadline
from pyspark_rocketmq.client.net.connection import Connection
from pyspark_rocketmq.client.net.endpoint import ConnectionOptions, split_address
from pyspark_rocketmq.errors import (
    AuthenticationError,
    ConnectionLostError,
    CorruptMessageError,
    OptionError,
    RemoteProtocolError,
    RequestTimeoutError,
    TopicNotFoundError,
)
from pyspark_rocketmq.remoting.acl import Credentials
from pyspark_rocketmq.remoting.body import decode_consumer_ids, encode_heartbeat
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.command import Command
from pyspark_rocketmq.remoting.frame import decode_frame, encode_frame
from pyspark_rocketmq.remoting.header import (
    GetConsumerListByGroupRequest,
    GetMaxOffsetRequest,
    HeartbeatRequest,
)
from pyspark_rocketmq.testing import (
    Announce,
    Cut,
    Damage,
    Delay,
    Drip,
    HangUp,
    MockBroker,
    MockCluster,
    PullLimits,
    Refuse,
    Reorder,
    Repeat,
    Short,
    Silence,
    Stranger,
    peek,
)

MAX = RequestCode.GET_MAX_OFFSET
REQUEST = GetMaxOffsetRequest(topic="orders", queue_id=0, broker_name="broker-a")


def deadline(ms: int = 30_000) -> Deadline:
    return Deadline(SYSTEM_CLOCK, ms)


@pytest.fixture
def mq():
    with MockBroker({"orders": 2}) as mock:
        yield mock


@pytest.fixture
def connection(mq: MockBroker):
    connection = Connection(mq.address("broker-a"), ConnectionOptions())
    yield connection
    connection.close()


def test_a_code_n_times_after_some_good_answers(mq: MockBroker, connection: Connection) -> None:
    injected = mq.inject(Refuse(2, "later"), on=MAX, times=2, after=1)
    assert [connection.call(REQUEST).code for _ in range(5)] == [0, 2, 2, 0, 0]
    assert (injected.hits, mq.asked[MAX]) == (2, 5)


def test_only_a_master_that_ends_forgets_the_members() -> None:
    with MockCluster({"orders": 1}, slaves=1) as mq, Client(mq.name_server) as client:
        master = client.connection(mq.address("broker-a"))
        master.call(HeartbeatRequest(), encode_heartbeat("one", consumer_groups=("billing",))).require()
        members = GetConsumerListByGroupRequest(consumer_group="billing")
        mq.stop_broker("broker-a", 1)
        assert decode_consumer_ids(master.call(members).require().body) == ("one",)
        mq.stop_broker("broker-a")
        mq.start_broker("broker-a")
        assert client.connection(mq.address("broker-a")).call(members).code == ResponseCode.SYSTEM_ERROR


def test_until_it_is_healed_and_at_one_broker_only() -> None:
    with MockCluster({"orders": 1}, brokers=("a", "b")) as mq, Client(mq.name_server) as client:
        mq.fail(MAX, code=ResponseCode.SYSTEM_BUSY, times=None, broker="a")
        codes = {name: client.connection(mq.address(name)).call(REQUEST).code for name in mq.brokers}
        assert codes == {"a": 2, "b": 0}
        mq.heal()
        assert client.connection(mq.address("a")).call(REQUEST).code == 0


def test_a_fault_that_never_happens_is_refused(mq: MockBroker) -> None:
    with pytest.raises(OptionError):
        mq.inject(Silence(), times=0)


def test_late_and_overtaken(mq: MockBroker, connection: Connection) -> None:
    mq.inject(Delay(0.1), on=MAX)
    first, second = connection.submit_all([(REQUEST, b"")] * 2)

    def arrived() -> list[int]:
        connection.poll(1.0)
        return list(connection._answers)

    assert eventually(lambda: len(found := arrived()) == 2 and found) == [second, first]
    assert [connection.wait(one, deadline()).code for one in (first, second)] == [0, 0]


def test_never(mq: MockBroker, connection: Connection) -> None:
    mq.inject(Silence(), on=MAX)
    with pytest.raises(RequestTimeoutError):
        connection.call(REQUEST, deadline=deadline(100))
    assert connection.call(REQUEST).code == 0


@pytest.mark.parametrize("fault", [HangUp(), Cut(after_bytes=9)])
def test_the_connection_ends(mq: MockBroker, connection: Connection, fault: object) -> None:
    mq.inject(fault, on=MAX)
    with pytest.raises(ConnectionLostError):
        connection.call(REQUEST, deadline=deadline())


@pytest.mark.parametrize("executed", [False, True])
@pytest.mark.parametrize("kind", [HangUp, Silence])
def test_whether_an_unanswered_send_took_effect(mq: MockBroker, kind: type, executed: bool) -> None:
    mq.inject(kind(executed=executed), on=RequestCode.SEND_MESSAGE_V2)
    with Client(mq.name_server, operation_timeout_ms=60_000) as client:
        options = Producer(client).options.__class__(send_timeout_ms=200, retries=100)
        Producer(client, options=options).send(OutgoingMessage("orders", b"1"), mq.queue("orders"))
    assert len(mq.messages("orders")) == (2 if executed else 1)


def test_pieces_strangers_repeats(mq: MockBroker, connection: Connection) -> None:
    for fault in (Drip(step_bytes=5), Stranger(), Repeat()):
        mq.inject(fault, on=MAX)
        assert connection.call(REQUEST).code == 0
    assert connection.in_flight == 0


def test_order(mq: MockBroker, connection: Connection) -> None:
    mq.inject(Reorder(hold=3), on=MAX, times=3)
    host, port = split_address(mq.address("broker-a"))
    with socket.create_connection((host, port), timeout=60) as raw, raw.makefile("rb") as stream:
        for opaque in (1, 2, 3):
            raw.sendall(encode_frame(Command(MAX, opaque, fields=REQUEST.fields())))
        arrived = []
        for _ in range(3):
            head = stream.read(4)
            frame = decode_frame(memoryview(head + stream.read(int.from_bytes(head, "big"))))
            arrived.append(frame.command.opaque)
    assert arrived == [3, 2, 1]
    mq.inject(Reorder(hold=3), on=MAX)
    assert connection.call(REQUEST).code == 0  # nobody else comes


def test_wrong_bytes(mq: MockBroker, connection: Connection) -> None:
    mq.inject(Damage(lambda frame: b"HTTP" + frame), on=MAX)
    with pytest.raises(RemoteProtocolError):
        connection.call(REQUEST, deadline=deadline())


def test_2_gib_announced(mq: MockBroker, connection: Connection) -> None:
    mq.inject(Announce(), on=MAX)
    with pytest.raises(RemoteProtocolError, match="above the limit"):
        connection.call(REQUEST, deadline=deadline())


def test_short_answers(mq: MockBroker) -> None:
    for number in range(10):
        mq.send(OutgoingMessage("orders", b"%d" % number))
    mq.inject(Short(messages=3), on=RequestCode.PULL_MESSAGE)
    with PullConsumer("g", mq.name_server) as consumer:
        assert len(consumer.pull(mq.queue("orders"), "*", 0).messages) == 3
        assert len(consumer.pull(mq.queue("orders"), "*", 0).messages) == 10


def test_data_expires_and_is_truncated_and_has_gaps(mq: MockBroker) -> None:
    queue = mq.queue("orders")
    for number in range(10):
        mq.send(OutgoingMessage("orders", b"%d" % number))
    mq.gap(queue, 5)
    assert mq.send(OutgoingMessage("orders", b"10")) == 15
    mq.expire(queue, 4)
    assert (mq.min_offset(queue), mq.max_offset(queue)) == (4, 16)
    with PullConsumer("g", mq.name_server) as consumer:
        below = consumer.pull(queue, "*", 2)
        assert (below.status, below.next_begin_offset) == (PullStatus.OFFSET_ILLEGAL, 4)
        result = consumer.pull(queue, "*", 4)
        assert [message.queue_offset for message in result.messages] == [4, 5, 6, 7, 8, 9, 15]
        assert consumer.pull(queue, "*", 12).messages[0].queue_offset == 15
        mq.truncate(queue, 6)
        beyond = consumer.pull(queue, "*", 12)
        assert (beyond.status, beyond.next_begin_offset) == (PullStatus.OFFSET_ILLEGAL, 6)
    assert mq.send(OutgoingMessage("orders", b"again")) == 6


def test_a_gap_at_the_end_is_stepped_over(mq: MockBroker) -> None:
    queue = mq.queue("orders")
    mq.gap(queue, 2_000)
    with PullConsumer("g", mq.name_server) as consumer:
        result = consumer.pull(queue, "*", 0)
    assert (result.status, result.next_begin_offset) == (PullStatus.NO_MATCHED_MSG, 2_000)


def test_a_record_is_damaged(mq: MockBroker) -> None:
    queue = mq.queue("orders")
    mq.send(OutgoingMessage("orders", b"1"))
    mq.corrupt(queue, 0, lambda record: record[:4] + b"\0\0\0\0" + record[8:])
    with PullConsumer("g", mq.name_server) as consumer, pytest.raises(CorruptMessageError, match="magic"):
        consumer.pull(queue, "*", 0)
    with pytest.raises(KeyError):
        mq.corrupt(queue, 7, bytes)


def test_an_operator_resets_a_group(mq: MockBroker) -> None:
    queue = mq.queue("orders")
    for _ in range(3):
        mq.send(OutgoingMessage("orders", b"x"))
    mq.reset_offset("g", queue, 1)
    with PullConsumer("g", mq.name_server) as consumer:
        first = consumer.pull(queue, "*", 0)
        assert (first.status, first.next_begin_offset) == (PullStatus.OFFSET_ILLEGAL, 1)
        assert consumer.pull(queue, "*", 0).status is PullStatus.FOUND
        assert consumer.fetch_consume_offset(queue) == 1
    assert mq.committed("g", queue) == 1


def test_routes_flap() -> None:
    with MockCluster({"orders": 1}, brokers=("a", "b")) as mq, Client(mq.name_server) as client:
        mq.unregister("a")
        assert [queue.broker_name for queue in client.read_queues("orders")] == ["b"]
        mq.register("a")
        client.invalidate("orders")
        assert [queue.broker_name for queue in client.read_queues("orders")] == ["a", "b"]
        mq.delete_topic("orders")
        client.invalidate("orders")
        with pytest.raises(TopicNotFoundError):
            client.read_queues("orders")


def test_the_address_of_a_stopped_broker_is_no_other_servers(mq: MockBroker) -> None:
    host, _, port = mq.address("broker-a").rpartition(":")
    mq.stop_broker("broker-a", unregister=False)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=60)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((host, int(port)))
    mq.start_broker("broker-a")
    socket.create_connection((host, int(port)), timeout=60).close()


def test_a_broker_dies_and_comes_back_with_its_messages(mq: MockBroker) -> None:
    mq.send(OutgoingMessage("orders", b"1"))
    addr = mq.address("broker-a")
    with Client(mq.name_server) as client:
        queue = mq.queue("orders")
        assert client.max_offsets((queue,))[queue] == 1
        mq.stop_broker("broker-a")
        mq.stop_broker("broker-a")  # no effect
        back = threading.Timer(0.2, mq.start_broker, ("broker-a",))
        back.start()
        assert client.max_offsets((queue,))[queue] == 1
        back.join()
    assert mq.address("broker-a") == addr


def test_slaves_refuse_or_lag() -> None:
    with MockBroker({"orders": 1}, slaves=1) as mq, Client(mq.name_server) as client:
        for _ in range(5):
            mq.send(OutgoingMessage("orders", b"x"))
        assert client.route("orders").brokers[0].addresses.keys() == {0, 1}
        slave = client.connection(mq.address("broker-a", 1))
        mq.lag("broker-a", 2)
        assert slave.call(REQUEST).fields["offset"] == "3"
        mq.stop_broker("broker-a")
        client.invalidate("orders")
        assert client.route("orders").brokers[0].addresses.keys() == {1}


def test_the_limits_of_an_answer() -> None:
    with MockBroker({"orders": 1}, limits=PullLimits(messages=5)) as mq:
        for _ in range(9):
            mq.send(OutgoingMessage("orders", b"x" * 100))
        with PullConsumer("g", mq.name_server) as consumer:
            assert len(consumer.pull(mq.queue("orders"), "*", 0, 100).messages) == 5
            mq.set_limits(PullLimits(messages=100, body_bytes=700))
            assert len(consumer.pull(mq.queue("orders"), "*", 0, 100).messages) == 2


def test_only_signed_requests() -> None:
    credentials = Credentials("user", "secret")
    with MockBroker({"orders": 1}, credentials=credentials) as mq:
        for given, code in ((credentials, 0), (Credentials("user", "wrong"), 16), (None, 16)):
            with_these = Connection(mq.address("broker-a"), ConnectionOptions(credentials=given))
            response = with_these.call(REQUEST)
            assert response.code == code
            if code:
                with pytest.raises(AuthenticationError):
                    response.require()
            with_these.close()


def test_peek_shows_the_newest(mq: MockBroker) -> None:
    for number in range(30):
        mq.send(OutgoingMessage("orders", b"%d" % number), mq.queue("orders", number % 2))
    assert sorted(int(message.body) for message in peek(mq.name_server, "orders", 4)) == [26, 27, 28, 29]
    assert len(peek(mq.name_server, "orders", 100)) == 30
    with pytest.raises(OptionError):
        peek(mq.name_server, "orders", 0)


def test_queues_and_unknown_ones(mq: MockBroker) -> None:
    assert mq.queues("orders") == (mq.queue("orders", 0), mq.queue("orders", 1))
    with pytest.raises(KeyError):
        mq.expire(MessageQueue("orders", "broker-a", 9), 1)


def test_a_mock_that_is_never_entered_leaves_nothing_open() -> None:
    mock = MockBroker({"orders": 1})
    mock.send(OutgoingMessage("orders", b"1"))
    assert len(mock.messages("orders")) == 1
