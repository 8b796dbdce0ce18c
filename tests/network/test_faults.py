"""Tables of faults of answers, servers and data: a range is read exactly, or ends in the error that is named.

Each row of a table is one kind of fault; the mock broker makes it happen while the reader is at work.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from tests.support.clocks import FakeClock
from tests.support.wait import within

from pyspark_rocketmq.client import (
    Admin,
    Client,
    ClientOptions,
    MessageSelector,
    OffsetRange,
    OutgoingMessage,
    Producer,
    ProducerOptions,
    SendPipeline,
    encode_one,
)
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock
from pyspark_rocketmq.client.read.queue_reader import DecodeOptions, read_batches, read_messages
from pyspark_rocketmq.client.read.range_reader import read_chunks
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.client.read.samples import message_times
from pyspark_rocketmq.errors import (
    AuthenticationError,
    BrokerError,
    BrokerNotFoundError,
    ConnectError,
    CorruptMessageError,
    DataLossError,
    FlowControlError,
    GroupNotFoundError,
    OptionError,
    PermissionDeniedError,
    RemoteProtocolError,
    RequestTimeoutError,
    RocketMQError,
    SendError,
    ServiceNotAvailableError,
    UnsupportedRequestError,
)
from pyspark_rocketmq.model import LostRange, MessageQueue, Permission, RangeReport
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.testing import (
    Announce,
    Cut,
    Damage,
    Delay,
    Drip,
    Fault,
    HangUp,
    MockCluster,
    PullLimits,
    Refuse,
    Reorder,
    Repeat,
    Short,
    Silence,
    Stranger,
)

pytestmark = pytest.mark.timeout(30)

PULL = RequestCode.PULL_MESSAGE
MESSAGES = 600
"""In each of two queues: some twenty pulls."""


@dataclass
class Reader:
    """Reads both queues of ``orders`` from a mock cluster and remembers the reports."""

    mq: MockCluster
    client: Client
    reports: list[RangeReport] = field(default_factory=list)
    on_batch: Callable[[], None] = lambda: None

    @property
    def ranges(self) -> list[OffsetRange]:
        return [OffsetRange(queue, 0, MESSAGES) for queue in self.mq.queues("orders")[:2]]

    def read(self, ranges: list[OffsetRange] | None = None, **options: object) -> list[tuple[int, int]]:
        """Return queue number and body's number of every row."""
        given = {"consumer_group": "g", "stall_timeout_ms": 60_000, "missing_patience_ms": 200} | options
        batches = read_batches(
            self.client,
            self.ranges if ranges is None else ranges,
            ReadOptions(**given),
            DecodeOptions(columns=("queueId", "queueOffset", "body"), max_batch_rows=100),
            on_report=self.reports.append,
        )
        rows = []
        for batch in batches:
            self.on_batch()
            queue_ids, bodies = batch.column("queueId").to_pylist(), batch.column("body").to_pylist()
            rows += [(queue_id, int(body)) for queue_id, body in zip(queue_ids, bodies, strict=True)]
        return rows


def everything(ranges: list[OffsetRange]) -> list[tuple[int, int]]:
    return [(one.queue_id, number) for one in ranges for number in range(len(one))]


@contextlib.contextmanager
def reader(*, clock: Clock = SYSTEM_CLOCK, **how: object) -> Iterator[Reader]:
    """An unanswered request is repeated soon; all in all, much time is left."""
    with MockCluster({"orders": 2}, **how) as mq:
        for queue in mq.queues("orders")[:2]:
            for number in range(MESSAGES):
                tag = "even" if number % 2 == 0 else "odd"
                mq.send(OutgoingMessage("orders", b"%d" % number, tags=tag), queue)
        options = ClientOptions(
            name_servers=(mq.name_server,), request_timeout_ms=400, connect_timeout_ms=30_000
        )
        with Client(options, clock=clock, operation_timeout_ms=60_000) as client:
            yield Reader(mq, client)


@contextlib.contextmanager
def slow_reader(**how: object) -> Iterator[Reader]:
    """A reader that a broker keeps for a second: it gives one message at a time, each a little late."""
    with reader(limits=PullLimits(messages=1), **how) as it:
        it.mq.inject(Delay(0.05), on=PULL, times=None)
        yield it


@contextlib.contextmanager
def meanwhile(*steps: tuple[float, Callable[[], None]]) -> Iterator[None]:
    """Do things so many seconds from now, beside what the block does and before it ends."""
    done: list[float] = []

    def do(after_s: float, step: Callable[[], None]) -> None:
        step()
        done.append(after_s)

    timers = [threading.Timer(after_s, do, (after_s, step)) for after_s, step in steps]
    for timer in timers:
        timer.start()
    try:
        yield
        assert len(done) == len(steps), f"of {len(steps)} steps, only those at {done} were before its end"
    finally:
        for timer in timers:
            timer.join()


# --- answers --------------------------------------------------------------------------------

RIDDEN_OUT: dict[str, tuple[Fault, int]] = {
    "busy": (Refuse(ResponseCode.SYSTEM_BUSY, "[TIMEOUT_CLEAN_QUEUE]broker busy"), 5),
    "flow control": (Refuse(ResponseCode.FLOW_CONTROL), 5),
    "not available": (Refuse(ResponseCode.SERVICE_NOT_AVAILABLE), 3),
    "moved": (Refuse(ResponseCode.NOT_LEADER_FOR_QUEUE), 3),
    "goes away": (Refuse(ResponseCode.GO_AWAY), 3),
    "late": (Delay(0.1), 5),
    "too late": (Delay(0.6), 2),
    "silent": (Silence(), 2),
    "hangs up": (HangUp(), 4),
    "hangs up in an answer": (Cut(after_bytes=300), 4),
    "hangs up in a length": (Cut(after_bytes=2), 4),
    "drips": (Drip(step_bytes=900, pause_s=0.001), 3),
    "announces much and sends nothing": (Announce(100 << 20), 1),
    "strangers": (Stranger(), 10),
    "repeats": (Repeat(), 10),
    "out of order": (Reorder(hold=7), 20),
    "short": (Short(messages=3), 30),
    "one at a time": (Short(messages=1), 20),
}


@pytest.mark.parametrize("kind", RIDDEN_OUT)
def test_answers_that_are_ridden_out(kind: str) -> None:
    fault, times = RIDDEN_OUT[kind]
    with reader() as it:
        injected = it.mq.inject(fault, on=PULL, times=times, after=3)
        with within(8):
            assert it.read() == everything(it.ranges)
        assert injected.hits == times
        assert [(report.rows, report.gaps, report.lost) for report in it.reports] == [(MESSAGES, 0, ())] * 2


ENDS_THE_READ: dict[str, tuple[Fault, type[RocketMQError]]] = {
    "wrong account": (Refuse(ResponseCode.NO_PERMISSION, "check signature failed."), AuthenticationError),
    "wrong account, 4.9": (Refuse(1, "org.apache.rocketmq.acl.common.AclException: no"), AuthenticationError),
    "forbidden": (Refuse(ResponseCode.NO_PERMISSION, "the topic is forbidden"), PermissionDeniedError),
    "no group": (Refuse(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST), GroupNotFoundError),
    "broken filter": (Refuse(ResponseCode.SUBSCRIPTION_PARSE_FAILED), BrokerError),
    "unknown request": (Refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED), UnsupportedRequestError),
    "system error": (Refuse(ResponseCode.SYSTEM_ERROR, "java.lang.NullPointerException"), BrokerError),
    "unknown code": (Refuse(31_415, "what?"), BrokerError),
    "no frame": (Damage(lambda frame: b"HTTP/1.1 400 Bad Request\r\n\r\n"), RemoteProtocolError),
    "2 GiB": (Announce(), RemoteProtocolError),
    "a header without an offset": (
        Damage(lambda frame: frame.replace(b"nextBeginOffset", b"nextBeginOffseT")),
        RemoteProtocolError,
    ),
    "an offset that is no number": (
        Damage(lambda frame: frame.replace(b'nextBeginOffset":"', b'nextBeginOffset":"-', 1)[: len(frame)]),
        RemoteProtocolError,
    ),
    "records cut off": (
        Damage(lambda frame: (len(frame) - 14).to_bytes(4, "big") + frame[4:-10]),
        CorruptMessageError,
    ),
}


WHERE = ({"addr"}, {"queue", "offset"}, {"topic", "broker_name", "queue_id", "from_offset"})
"""The facts of an error that say where it happened."""


@pytest.mark.parametrize("kind", ENDS_THE_READ)
def test_answers_that_end_the_read(kind: str) -> None:
    fault, error = ENDS_THE_READ[kind]
    with reader() as it:
        it.mq.inject(fault, on=PULL, times=None, after=3)
        with within(6), pytest.raises(error) as caught:
            it.read()
        assert any(where <= caught.value.facts.keys() for where in WHERE), caught.value.facts
        it.mq.heal()
        assert it.read() == everything(it.ranges)  # the client is none the worse


STALLS: dict[str, tuple[Fault, type[RocketMQError]]] = {
    "busy": (Refuse(ResponseCode.SYSTEM_BUSY), FlowControlError),
    "not available": (Refuse(ResponseCode.SERVICE_NOT_AVAILABLE), ServiceNotAvailableError),
    "silent": (Silence(), RequestTimeoutError),
}


@pytest.mark.parametrize("kind", STALLS)
def test_faults_without_end_end_at_the_deadline(kind: str) -> None:
    fault, error = STALLS[kind]
    clock = SYSTEM_CLOCK if isinstance(fault, Silence) else FakeClock()
    with reader(clock=clock) as it:
        it.mq.inject(fault, on=PULL, times=None, after=5)
        it.client.read_queues("orders")
        started = clock.monotonic()
        with pytest.raises(error):
            it.read(stall_timeout_ms=1_000)
        assert 1.0 <= clock.monotonic() - started < 5


# --- servers --------------------------------------------------------------------------------


def test_a_filter_that_the_broker_cannot_parse_reads_nothing() -> None:
    refused = Refuse(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse error")
    with reader() as it:
        it.mq.inject(refused, on=RequestCode.CHECK_CLIENT_CONFIG, times=None)
        with pytest.raises(OptionError, match="does not parse"):
            it.read(selector=MessageSelector.by_sql("amount >"))


def test_a_filter_is_checked_at_a_broker_that_comes_later() -> None:
    refused = Refuse(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse error")
    with reader(brokers=("broker-a", "broker-b")) as it:
        first, second = (OffsetRange(q, 0, 5) for q in it.mq.queues("orders") if q.queue_id == 0)
        it.mq.inject(Refuse(ResponseCode.SUCCESS), on=RequestCode.CHECK_CLIENT_CONFIG, times=1)
        selector = MessageSelector.by_sql("amount > 1")
        it.client.check_selector_at([first.queue], selector, group="g")
        it.client.check_selector_at([first.queue], selector, group="g")
        it.mq.inject(refused, on=RequestCode.CHECK_CLIENT_CONFIG, times=None)
        with pytest.raises(OptionError, match="does not parse"):
            it.client.check_selector_at([first.queue, second.queue], selector, group="g")


def test_a_filter_is_checked_before_the_first_pull_in_spite_of_trouble() -> None:
    with reader() as it:
        hung_up = it.mq.inject(HangUp(), on=RequestCode.CHECK_CLIENT_CONFIG, times=3)
        with pytest.raises(OptionError, match="does not filter by SQL"):
            it.read(selector=MessageSelector.by_sql("amount > 1"))
        assert hung_up.hits == 3


def test_tags_are_not_pushed_down_where_messages_are_stored_as_inner_batches() -> None:
    with reader() as it:
        Admin(it.client).alter_topic("orders", attributes={"queue.type": "BatchCQ"})
        busy = it.mq.inject(Refuse(ResponseCode.SYSTEM_BUSY), on=RequestCode.GET_TOPIC_CONFIG, times=2)
        expected = [row for row in everything(it.ranges) if row[1] % 2]
        assert it.read(selector=MessageSelector.by_tag("odd")) == expected
        assert busy.hits == 2
        assert set(it.client.pull_selectors.values()) == {MessageSelector()}, "the broker filters nothing"
        assert sum(report.filtered for report in it.reports) == MESSAGES


def test_sql_filters_are_refused_where_messages_are_stored_as_inner_batches() -> None:
    with reader() as it:
        Admin(it.client).alter_topic("orders", attributes={"queue.type": "BatchCQ"})
        it.mq.inject(Refuse(ResponseCode.SUCCESS), on=RequestCode.CHECK_CLIENT_CONFIG, times=None)
        with pytest.raises(OptionError, match="inner batches"):
            it.read(selector=MessageSelector.by_sql("amount > 1"))


def test_a_broker_restarts() -> None:
    with (
        slow_reader() as it,
        meanwhile(
            (0.05, lambda: it.mq.stop_broker("broker-a")), (0.6, lambda: it.mq.start_broker("broker-a"))
        ),
    ):
        assert it.read() == everything(it.ranges)


def test_a_broker_that_stays_away() -> None:
    with reader(clock=FakeClock()) as it:
        assert it.read() == everything(it.ranges)
        it.mq.stop_broker("broker-a")
        with pytest.raises((BrokerNotFoundError, ConnectError)):
            it.read(stall_timeout_ms=800)


def test_a_route_that_flaps() -> None:
    with reader() as it:
        hung_up = it.mq.inject(HangUp(), on=PULL, times=6)  # so that routes are asked for
        with meanwhile(
            *((0.03 * step, lambda: it.mq.unregister("broker-a")) for step in range(0, 10, 2)),
            *((0.03 * step, lambda: it.mq.register("broker-a")) for step in range(1, 11, 2)),
        ):
            # Up to eleven failures in a row, each with a pause of up to 2 s by chance.
            assert it.read(stall_timeout_ms=60_000) == everything(it.ranges)
        assert hung_up.hits == 6


def test_a_name_server_is_not_needed_once_the_route_is_known() -> None:
    with reader(clock=FakeClock()) as it:
        it.client.read_queues("orders")
        it.mq.stop_name_server()
        hung_up = it.mq.inject(HangUp(), on=PULL, times=2)
        assert it.read() == everything(it.ranges)
        assert hung_up.hits == 2


def test_the_whole_cluster_goes_and_comes_back() -> None:
    """Brokers first, so that the name server forgets the topic before it goes itself."""
    with slow_reader() as it:

        def go() -> None:
            it.mq.stop_broker("broker-a")
            it.client.invalidate("orders")
            with contextlib.suppress(RocketMQError):
                it.client.route("orders")
            it.mq.stop_name_server()

        def come_back() -> None:
            it.mq.start_name_server()
            it.mq.start_broker("broker-a")

        with meanwhile((0.05, go), (1.0, come_back)):
            assert it.read() == everything(it.ranges)


def test_sends_wait_for_a_whole_cluster_that_goes_and_comes_back() -> None:
    with reader() as it:
        producer = Producer(it.client, options=ProducerOptions(send_timeout_ms=300, retries=1))
        queue = it.ranges[0].queue
        producer.send(OutgoingMessage("orders", b"before"), queue)
        it.mq.stop_broker("broker-a")
        it.client.invalidate("orders")
        with pytest.raises(BrokerNotFoundError, match="no broker is registered"):
            it.client.route("orders")
        it.mq.stop_name_server()

        def come_back() -> None:
            it.mq.start_name_server()
            it.mq.start_broker("broker-a")

        with meanwhile((0.8, come_back)), SendPipeline(producer, outage_timeout_ms=60_000) as pipeline:
            outcomes = pipeline.submit(encode_one(OutgoingMessage("orders", b"after"), producer.ids), queue)
            outcomes += pipeline.flush()
        assert [outcome.error for outcome in outcomes] == [None]


def test_a_send_that_waited_for_an_outage_is_still_tried_as_often_as_retries_says() -> None:
    """A broker that is back may have too few replicas in sync, which is no outage."""
    with reader() as it:
        producer = Producer(it.client, options=ProducerOptions(retries=1))
        send = RequestCode.SEND_MESSAGE_V2
        it.mq.fail(send, code=ResponseCode.SYSTEM_BUSY, times=3)
        refused = it.mq.fail(send, code=ResponseCode.SYSTEM_ERROR, remark="in-sync replicas not enough")
        with SendPipeline(producer, outage_timeout_ms=60_000) as pipeline:
            message = encode_one(OutgoingMessage("orders", b"after"), producer.ids)
            outcomes = pipeline.submit(message, it.ranges[0].queue) + pipeline.flush()
        assert refused.hits == 1
        assert [outcome.error for outcome in outcomes] == [None]


def test_a_queue_whose_broker_was_away_is_read_as_fast_as_before() -> None:
    """Others have begun meanwhile, with all pulls that may be in flight; it has its share all the same."""
    with MockCluster({"orders": 1}, brokers=("broker-a", "broker-b")) as mq, Client(mq.name_server) as client:
        ranges = [OffsetRange(queue, 0, 2_000) for queue in mq.queues("orders")]
        for one in ranges:
            for number in range(len(one)):
                mq.send(OutgoingMessage("orders", b"%d" % number), one.queue)
        mq.stop_broker(ranges[0].broker_name, unregister=False)
        options = ReadOptions(consumer_group="g", stall_timeout_ms=60_000)
        with meanwhile((0.5, lambda: mq.start_broker(ranges[0].broker_name))):
            loads = [
                event.pull.in_flight
                for event in read_chunks(client, ranges, options)
                if event.pull.offsets == ranges[0]
            ]
    assert max(loads) > 16


def test_sends_wait_for_a_broker_that_may_be_written() -> None:
    """Name servers that restart know the brokers one by one, and the first may be one that is read-only."""
    with (
        MockCluster(topics={"orders": 1}, brokers=("broker-a", "broker-b")) as mq,
        Client(mq.name_server) as client,
    ):
        producer = Producer(client, options=ProducerOptions(send_timeout_ms=300, retries=1))
        producer.send(OutgoingMessage("orders", b"before"))
        mq.unregister("broker-a")
        mq.create_topic("orders", 1, perm=Permission.READ, brokers=["broker-b"])
        client.invalidate("orders")
        with (
            meanwhile((0.8, lambda: mq.register("broker-a"))),
            SendPipeline(producer, outage_timeout_ms=60_000) as pipeline,
        ):
            outcomes = pipeline.submit(encode_one(OutgoingMessage("orders", b"after"), producer.ids))
            outcomes += pipeline.flush()
        assert [outcome.error for outcome in outcomes] == [None]
        mq.create_topic("orders", 1, perm=Permission.READ)
        client.invalidate("orders")
        with pytest.raises(SendError, match="forbids writing, or"):
            producer.send(OutgoingMessage("orders", b"never"))


def test_connections_are_cut_again_and_again() -> None:
    with slow_reader() as it, meanwhile(*((0.05 * step, it.mq.disconnect) for step in range(1, 8))):
        assert it.read() == everything(it.ranges)


@pytest.mark.parametrize("lag", [0, 50])
def test_the_master_dies_and_a_slave_serves(lag: int) -> None:
    """A slave that lags serves what it has; the rest is waited for until the master is back."""
    with slow_reader(slaves=1, slave_readable=True) as it:
        it.mq.lag("broker-a", lag)
        steps = [(0.05, lambda: it.mq.stop_broker("broker-a"))]
        if lag:
            steps.append((1.0, lambda: it.mq.start_broker("broker-a")))
        with meanwhile(*steps):
            assert it.read(missing_patience_ms=60_000) == everything(it.ranges)


def test_a_slave_that_lags_is_never_believed_about_lost_messages() -> None:
    """The master is away for longer than missing messages are waited for: they are not skipped."""
    with reader(slaves=1, slave_readable=True) as it:
        it.mq.lag("broker-a", 100)
        it.mq.stop_broker("broker-a")
        with meanwhile((1.0, lambda: it.mq.start_broker("broker-a"))):
            rows = it.read(missing_patience_ms=100, fail_on_data_loss=False)
        assert rows == everything(it.ranges)
        assert not [lost for report in it.reports for lost in report.lost]


def test_a_slave_that_may_not_be_read_is_waited_for() -> None:
    clock = FakeClock()
    with reader(clock=clock, slaves=1) as it:
        it.mq.stop_broker("broker-a")
        with pytest.raises(BrokerNotFoundError, match="slaveReadEnable=true"):
            it.read(stall_timeout_ms=800)
        clock.on_sleep = lambda: it.mq.start_broker("broker-a")
        assert it.read() == everything(it.ranges)


# --- data -----------------------------------------------------------------------------------


def test_messages_expire_before_they_are_read() -> None:
    with reader() as it:
        first = it.ranges[0].queue
        it.mq.expire(first, 100)
        with pytest.raises(DataLossError) as caught:
            it.read()
        assert caught.value.condition == "OFFSETS_EXPIRED"
        assert (caught.value.facts["from_offset"], caught.value.facts["until_offset"]) == (0, 100)
        rows = it.read(fail_on_data_loss=False)
        assert rows == everything(it.ranges)[100:]
        assert [(str(lost.offsets), lost.condition) for report in it.reports for lost in report.lost] == [
            (f"{first}[0, 100)", "OFFSETS_EXPIRED")
        ]


def test_messages_expire_while_they_are_read() -> None:
    """Whatever was gone when its turn came is reported, and everything else is there, once and in order."""
    with reader() as it:
        queue = it.ranges[0].queue
        it.on_batch = lambda: it.mq.expire(queue, 400)
        rows = it.read(fail_on_data_loss=False, pulls_in_flight=2)
        report = it.reports[0]
        lost = sum(len(one.offsets) for one in report.lost)
        assert 0 < lost < 400
        assert report.rows + lost == MESSAGES
        (hole,) = report.lost
        expected = [
            (queue_id, number)
            for queue_id, number in everything(it.ranges)
            if queue_id or not hole.offsets.from_offset <= number < hole.offsets.until_offset
        ]
        assert rows == expected


def test_everything_expires() -> None:
    with reader() as it:
        for one in it.ranges:
            it.mq.expire(one.queue, MESSAGES)
        assert it.read(fail_on_data_loss=False) == []
        assert [sum(len(lost.offsets) for lost in report.lost) for report in it.reports] == [MESSAGES] * 2


@pytest.mark.parametrize("slaves", [0, 1])
def test_the_log_is_truncated(slaves: int) -> None:
    """A slave that may not be read does not hide what its master says."""
    with reader(slaves=slaves) as it:
        second = it.ranges[1].queue
        it.mq.truncate(second, 250)
        with pytest.raises(DataLossError) as caught:
            it.read(stall_timeout_ms=5_000 if slaves else 60_000)
        assert caught.value.condition == "OFFSET_WENT_BACK"
        rows = it.read(fail_on_data_loss=False)
        assert rows == everything(it.ranges)[: MESSAGES + 250]
        assert [lost.condition for lost in it.reports[-1].lost] == ["OFFSET_WENT_BACK"]


def test_missing_messages_get_some_time() -> None:
    """A broker that was restarted rebuilds its index: what was planned comes back a little later."""
    with reader() as it:
        queue = it.ranges[1].queue
        kept = [message.body for message in it.mq.messages("orders", queue)][250:]
        it.mq.truncate(queue, 250)

        def come_back() -> None:
            for body in kept:
                it.mq.send(OutgoingMessage("orders", body), queue)

        with meanwhile((0.3, come_back)):
            assert it.read(missing_patience_ms=60_000) == everything(it.ranges)


def test_the_topic_is_deleted() -> None:
    with reader() as it:
        assert it.read() == everything(it.ranges)
        ranges = it.ranges
        it.mq.delete_topic("orders")
        it.mq.queues = lambda topic: tuple(one.queue for one in ranges)  # what the plan was made of
        with pytest.raises(DataLossError) as caught:
            it.read()
        assert caught.value.condition == "QUEUE_LOST"
        assert it.read(fail_on_data_loss=False) == []


def test_a_queue_is_taken_away() -> None:
    with reader() as it:
        ranges = it.ranges
        it.mq.create_topic("orders", queues=1)
        it.mq.queues = lambda topic: tuple(one.queue for one in ranges)
        rows = it.read(fail_on_data_loss=False)
        assert rows == everything(ranges)[:MESSAGES]
        assert [lost.condition for lost in it.reports[-1].lost] == ["QUEUE_LOST"]


def test_gaps_are_no_loss() -> None:
    with MockCluster() as mq, Client(mq.name_server) as client:
        mq.create_topic("orders", 1, attributes={"cleanup.policy": "COMPACTION"})
        queue, there = mq.queue("orders"), []
        for block in range(8):
            there += [mq.send(OutgoingMessage("orders", b"1"), queue) for _ in range(25)]
            mq.gap(queue, 7 + 90 * (block % 3))
        reports: list[RangeReport] = []
        batches = read_batches(
            client,
            [OffsetRange(queue, 0, mq.max_offset(queue))],
            ReadOptions(consumer_group="g"),
            DecodeOptions(columns=("queueOffset",)),
            on_report=reports.append,
        )
        assert [offset for batch in batches for offset in batch.column(0).to_pylist()] == there
        assert (reports[0].rows, reports[0].lost) == (200, ())
        assert reports[0].gaps == mq.max_offset(queue) - 200


@pytest.mark.parametrize("remove", [MockCluster.remove, MockCluster.remove_index], ids=["log", "index"])
@pytest.mark.parametrize(("first", "last"), [(0, 10), (13, 14), (30, 70), (100, MESSAGES), (0, MESSAGES)])
def test_messages_whose_files_are_gone_are_lost(
    first: int, last: int, remove: Callable[[MockCluster, MessageQueue, int, int], None]
) -> None:
    """They are a hole in an answer if the queue's index still has them, or a jump, and no gaps."""
    with reader() as it:
        queue = it.ranges[0].queue
        remove(it.mq, queue, first, last)
        with pytest.raises(DataLossError, match="deleted the files") as caught:
            it.read()
        assert caught.value.condition == "OFFSETS_EXPIRED"
        assert caught.value.facts["from_offset"] == first
        assert (
            it.read(fail_on_data_loss=False) == everything(it.ranges)[:first] + everything(it.ranges)[last:]
        )
        report = it.reports[-2]
        assert (report.rows, report.gaps) == (MESSAGES - (last - first), 0)
        assert sum(len(lost.offsets) for lost in report.lost) == last - first


@pytest.mark.parametrize("remove", [MockCluster.remove, MockCluster.remove_index], ids=["log", "index"])
def test_a_filter_hides_only_what_it_leaves_out(
    remove: Callable[[MockCluster, MessageQueue, int, int], None],
) -> None:
    """Whether a scan found nothing, or nothing is left to be found, is told apart."""
    with reader() as it:
        remove(it.mq, it.ranges[0].queue, 0, MESSAGES)
        with pytest.raises(DataLossError, match="deleted the files"):
            it.read(selector=MessageSelector.by_tag("even"))
        rows = it.read(selector=MessageSelector.by_tag("even"), fail_on_data_loss=False)
        assert rows == [(1, number) for number in range(0, MESSAGES, 2)]
        assert [(report.rows, report.filtered) for report in it.reports] == [(0, 0), (300, 300)]
        assert it.read(selector=MessageSelector.by_tag("neither"), fail_on_data_loss=False) == []


@pytest.mark.parametrize("remove", [MockCluster.remove, MockCluster.remove_index], ids=["log", "index"])
@pytest.mark.parametrize(("first", "last"), [(100, 110), (0, MESSAGES)])
def test_a_slave_whose_files_are_gone_is_never_believed(
    first: int, last: int, remove: Callable[[MockCluster, MessageQueue, int, int], None]
) -> None:
    """It deletes files by itself: what it has not, its master may have, and is waited for."""
    with reader(slaves=1, slave_readable=True) as it:
        queue = it.ranges[0].queue
        it.mq.stop_broker("broker-a")
        remove(it.mq, queue, first, last)
        with pytest.raises(RocketMQError) as caught:
            it.read(stall_timeout_ms=500, fail_on_data_loss=False)
        assert caught.value.retriable
        with meanwhile((0.5, lambda: it.mq.start_broker("broker-a"))):
            rows = it.read(fail_on_data_loss=False)
        assert rows == everything(it.ranges)[:first] + everything(it.ranges)[last:]  # now the master says so


def test_a_slave_alone_serves_a_compacted_topic() -> None:
    """It knows that the topic's holes are no loss, as its master did."""
    with reader(slaves=1, slave_readable=True) as it:
        it.mq.create_topic("table", 1, attributes={"cleanup.policy": "COMPACTION"})
        (queue,) = it.mq.queues("table")
        for number in range(20):
            if number in (5, 10):
                it.mq.gap(queue, 1_000)
            it.mq.send(OutgoingMessage("table", b"%d" % number), queue)
        it.mq.stop_broker("broker-a")
        assert it.read([OffsetRange(queue, 0, 2_020)], stall_timeout_ms=3_000) == [
            (0, number) for number in range(20)
        ]
        assert [(report.rows, report.lost) for report in it.reports] == [(20, ())]


def test_an_operator_resets_the_group() -> None:
    """The reset is of the group's offsets, not of ours: it changes nothing."""
    with reader() as it:
        for one in it.ranges:
            it.mq.reset_offset("g", one.queue, 500)
        assert it.read() == everything(it.ranges)


def test_holes_are_losses_for_who_may_not_know_the_topics_settings() -> None:
    with reader() as it:
        it.mq.remove(it.ranges[0].queue, 0, 10)
        it.mq.inject(Refuse(ResponseCode.NO_PERMISSION), on=RequestCode.GET_TOPIC_CONFIG, times=None)
        assert it.read(fail_on_data_loss=False) == everything(it.ranges)[10:]
        with pytest.raises(PermissionDeniedError):
            it.read()


class _Resets(dict[tuple[str, str, int], int]):
    """Are told again and again."""

    def pop(self, key, *_):
        return self[key]


def test_a_reset_that_is_told_for_ever_ends_the_read() -> None:
    with reader() as it:
        queue = it.ranges[0].queue
        it.mq._stores["broker-a"].resets = _Resets({("g", queue.topic, queue.queue_id): 500})
        pulls = it.mq.inject(Delay(0), on=PULL, times=None)
        with pytest.raises(BrokerError, match="21"):
            it.read(stall_timeout_ms=500)
        assert pulls.hits < 500, "with pauses"


@pytest.mark.parametrize("at", [0, 17, MESSAGES - 1])
def test_a_damaged_record_is_named(at: int) -> None:
    with reader() as it:
        queue = it.ranges[0].queue
        it.mq.corrupt(queue, at, lambda record: record[:4] + b"\0\0\0\0" + record[8:])
        with pytest.raises(CorruptMessageError) as caught:
            it.read()
        assert (caught.value.facts["queue_offset"], caught.value.facts["queue_id"]) == (at, 0)


@pytest.mark.parametrize("limits", [PullLimits(), PullLimits(1, 1), PullLimits(7, 1 << 20)])
@pytest.mark.parametrize("policy", ["null", "skip"])
@pytest.mark.parametrize("tag", [None, "odd"])
def test_damaged_records_cost_themselves_alone(policy: str, limits: PullLimits, tag: str | None) -> None:
    """Whatever the answers are cut like: a batch that is repeated has the same rows."""
    damaged = [0, 17, 18, 19, MESSAGES - 1]
    with reader(limits=limits) as it:
        queue = it.ranges[0].queue
        for at in damaged:
            broken = b"\0\0\0\0" if at % 2 else b"\x7f\0\0\0"  # the magic, or the size
            it.mq.corrupt(queue, at, lambda record, new=broken: record[:4] + new + record[8:])
        reports: list[RangeReport] = []
        batches = read_batches(
            it.client,
            [it.ranges[0]],
            ReadOptions(consumer_group="g", selector=MessageSelector.by_tag(tag or "*")),
            DecodeOptions(columns=("queueOffset", "body"), on_corrupt=policy),
            on_report=reports.append,
        )
        rows = {row["queueOffset"]: row["body"] for batch in batches for row in batch.to_pylist()}
        sound = {at: b"%d" % at for at in range(MESSAGES) if at not in damaged and (tag is None or at % 2)}
        gone = dict.fromkeys(damaged) if policy == "null" and tag is None else {}
        assert rows == sound | gone
        (report,) = reports
        if tag is None:  # a filter may leave a damaged message out before it is read
            found = [each.queue_offset for each in report.corrupt]
            assert found == damaged
            assert (report.skipped, report.nulled) == ((5, 0) if policy == "skip" else (0, 5))
        assert report.rows + report.filtered + report.skipped == MESSAGES


@pytest.mark.parametrize("policy", ["null", "skip"])
def test_a_damaged_record_after_a_range_does_not_stand_for_removed_messages_at_its_end(policy: str) -> None:
    with reader() as it:
        queue = it.ranges[0].queue
        it.mq.remove(queue, 5, 16)
        it.mq.corrupt(queue, 16, lambda record: record[:4] + b"\0\0\0\0" + record[8:])
        decode = DecodeOptions(columns=("queueOffset",), on_corrupt=policy)

        def read(until: int, **options: object) -> list[int]:
            ranges, given = [OffsetRange(queue, 0, until)], ReadOptions(consumer_group="g", **options)
            batches = read_batches(it.client, ranges, given, decode, on_report=it.reports.append)
            return [each for batch in batches for each in batch.column("queueOffset").to_pylist()]

        with pytest.raises(DataLossError, match="11 messages cannot be read"):
            read(16)
        assert read(16, fail_on_data_loss=False) == [0, 1, 2, 3, 4]
        assert read(17, fail_on_data_loss=False) == [0, 1, 2, 3, 4, *([16] if policy == "null" else [])]
        shorter, longer = it.reports
        lost = (LostRange(OffsetRange(queue, 5, 16), "OFFSETS_EXPIRED"),)
        assert (shorter.lost, shorter.corrupt, longer.lost) == (lost, (), lost)
        assert [each.queue_offset for each in longer.corrupt] == [16]


def test_what_was_damaged_on_its_way_comes_whole_the_second_time() -> None:
    def damage(frame: bytes) -> bytes:
        return frame.replace(b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\0", 1)

    with reader() as it:
        damaged = it.mq.inject(Damage(damage), on=PULL, times=2)
        decode = DecodeOptions(columns=("queueOffset",), on_corrupt="skip")
        options = ReadOptions(consumer_group="g")
        batches = read_batches(it.client, it.ranges, options, decode, on_report=it.reports.append)
        assert sum(batch.num_rows for batch in batches) == 2 * MESSAGES
        assert [report.corrupt for report in it.reports] == [(), ()]
        assert damaged.hits == 2


def test_damaged_records_are_passed_while_their_master_is_away_and_a_slave_serves() -> None:
    with reader(clock=FakeClock(base=SYSTEM_CLOCK), slaves=1, slave_readable=True) as it:
        queue = it.ranges[0].queue
        it.mq.corrupt(queue, 17, lambda record: record[:4] + b"\0\0\0\0" + record[8:])
        it.mq.stop_broker(queue.broker_name)
        decode = DecodeOptions(columns=("queueOffset",), on_corrupt="skip")
        batches = read_batches(it.client, it.ranges[:1], ReadOptions(consumer_group="g"), decode)
        offsets = [each for batch in batches for each in batch.column("queueOffset").to_pylist()]
    assert offsets == [number for number in range(MESSAGES) if number != 17]


@pytest.mark.parametrize("broken", [b"\0\0\0\0", b"\x7f\0\0\0"])
def test_the_time_of_a_damaged_record_is_that_of_the_next_message(broken: bytes) -> None:
    """Else a query that aligns its queues would end, whatever `onCorrupt` says."""
    with reader() as it:
        queue = it.ranges[0].queue
        at = 4 if broken == b"\0\0\0\0" else 0  # the magic, or the size
        it.mq.corrupt(queue, 17, lambda record: record[:at] + broken + record[at + 4 :])
        found, after = (message_times(it.client, {queue: offset}, group="g") for offset in (17, 18))
    assert found == after != {}


def test_objects_of_damaged_records_are_skipped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with reader() as it:
        queue = it.ranges[0].queue
        it.mq.corrupt(queue, 17, lambda record: record[:4] + b"\0\0\0\0" + record[8:])
        options = ReadOptions(consumer_group="g")
        messages = list(read_messages(it.client, it.ranges[:1], options, on_corrupt="skip"))
        assert [message.queue_offset for message in messages] == [n for n in range(MESSAGES) if n != 17]
        assert "at 17" in caplog.text


@pytest.mark.parametrize(
    "limits", [PullLimits(1, 1), PullLimits(7, 256), PullLimits(8, 64 << 10), PullLimits(5_000, 8 << 20)]
)
def test_any_limits_of_the_broker(limits: PullLimits) -> None:
    with reader(limits=limits) as it:
        assert it.read() == everything(it.ranges)


def test_limits_that_change_meanwhile() -> None:
    with slow_reader() as it:
        sizes = [3, 8, 1, 4, 2, 500]
        with meanwhile(
            *(
                (0.03 * step, lambda size=size: it.mq.set_limits(PullLimits(messages=size)))
                for step, size in enumerate(sizes)
            )
        ):
            assert it.read() == everything(it.ranges)


# --- all together ---------------------------------------------------------------------------


def test_everything_at_once() -> None:
    faults = [fault for fault, _ in RIDDEN_OUT.values() if not isinstance(fault, Announce)]
    with reader(slaves=1, slave_readable=True) as it:
        injected = [
            it.mq.inject(fault, on=PULL, times=2, after=3 + 2 * step) for step, fault in enumerate(faults)
        ]
        assert it.read() == everything(it.ranges)
        assert [each.hits for each in injected] == [2] * len(faults)
        assert [(report.rows, report.lost) for report in it.reports] == [(MESSAGES, ())] * 2


def test_filtered_reads_ride_out_faults_too() -> None:
    with reader() as it:
        kinds = ("busy", "hangs up", "short", "out of order", "repeats")
        injected = [
            it.mq.inject(RIDDEN_OUT[kind][0], on=PULL, times=3, after=step) for step, kind in enumerate(kinds)
        ]
        rows = it.read(selector=MessageSelector.by_tag("even"))
        assert rows == [(queue_id, number) for queue_id, number in everything(it.ranges) if number % 2 == 0]
        assert [(report.rows, report.filtered) for report in it.reports] == [(300, 300)] * 2
        assert [each.hits for each in injected] == [3] * len(kinds)
