"""A master that is away costs the queues of the other brokers next to nothing, on the mock cluster."""

from __future__ import annotations

import itertools
import json
import statistics
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.deaf import deaf_address
from tests.support.topics import put
from tests.support.wait import eventually

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.dstream.direct import batch_plan
from pyspark_rocketmq.dstream.direct.batch_plan import DirectPlan, Pace
from pyspark_rocketmq.errors import DataLossError, TopicNotFoundError
from pyspark_rocketmq.model import Earliest, MessageQueue
from pyspark_rocketmq.offsets import offset_lookup
from pyspark_rocketmq.offsets.offset_lookup import fetch_available_ends
from pyspark_rocketmq.offsets.planning_client import PlanningClient
from pyspark_rocketmq.offsets.stream_offset import SourceOffset
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.planning.rate import PidSettings
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.spark.read.schema import read_schema
from pyspark_rocketmq.spark.read.stream import RocketMQStreamReader
from pyspark_rocketmq.testing import MockCluster
from pyspark_rocketmq.testing.faults import Delay, Refuse, Silence
from pyspark_rocketmq.testing.wire import Reply

pytestmark = pytest.mark.timeout(120)

A0, B0 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-b", 0)

MOST_S = 0.5
"""The promise: what a micro-batch of the healthy queues takes more while a master is away."""

SLACK_S = 1.5
"""What the machine may take for everything else, on a bad day; without the promise it was 3 s and more."""


class Stream:
    """The calls that Spark makes for each trigger, and how long they took."""

    def __init__(self, mq: MockCluster, **options: str) -> None:
        given = {"nameServer": mq.name_server, "topic": "orders", "startingOffsets": "earliest"}
        given = {
            name: value for name, value in (given | {"routeRefreshMs": "1000"} | options).items() if value
        }
        parsed = parse_options(SourceOptions, given, where="readStream", environ={})
        self.options = parsed
        self.reader = RocketMQStreamReader(parsed, read_schema(None))
        self.end: dict[str, Any] = self.reader.initialOffset()
        self.took_s: list[float] = []

    def trigger(self) -> dict[MessageQueue, int]:
        begin = SYSTEM_CLOCK.monotonic()
        end = self.reader.latestOffset(self.end, self.reader.getDefaultReadLimit())
        self.took_s.append(SYSTEM_CLOCK.monotonic() - begin)
        self.end = json.loads(json.dumps(end))
        return dict(SourceOffset.from_dict(self.end).offsets)


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with MockCluster({"orders": 1}, brokers=("broker-a", "broker-b")) as cluster:
        send(cluster, A0, B0)
        yield cluster


def send(mq: MockCluster, *queues: MessageQueue) -> None:
    for queue in queues:
        put(mq, queue, b"x")


def check(took_s: list[float]) -> None:
    assert statistics.median(took_s) < MOST_S
    assert max(took_s) < MOST_S + SLACK_S


def die(mq: MockCluster) -> None:
    mq.stop_broker("broker-b", unregister=False)


def leave(mq: MockCluster) -> None:
    mq.stop_broker("broker-b")


def hang(mq: MockCluster) -> None:
    mq.inject(Silence(), broker="broker-b", times=None)


@pytest.fixture
def deaf() -> Iterator[str]:
    """An address that does not even refuse: what a machine that is gone looks like."""
    with deaf_address() as addr:
        yield addr


def come_back(mq: MockCluster, how: Callable[[MockCluster], None]) -> None:
    mq.heal() if how is hang else mq.start_broker("broker-b")


def batches(stream: Stream, *, direct: bool) -> Callable[[], dict[MessageQueue, int]]:
    """Return what plans the next batch of the stream, or of a direct stream with its options."""
    if not direct:
        return stream.trigger
    pace, numbers = Pace(pid=PidSettings(batch_interval_ms=1000)), itertools.count(1)
    plan, client = DirectPlan(Earliest(), {A0: 0, B0: 0}, 0, pace), stream.reader._open_client()

    def batch() -> dict[MessageQueue, int]:
        ranges = plan.ranges(next(numbers), client, stream.options, remember_ms=0)
        return {each.queue: each.until_offset for each in ranges}

    return batch


OUTAGES = pytest.mark.parametrize("how", [die, leave, hang])


@OUTAGES
def test_a_trigger_does_not_wait_for_a_broker_that_is_away(
    mq: MockCluster, how: Callable[[MockCluster], None]
) -> None:
    stream = Stream(mq, requestTimeoutMs="3000")
    assert stream.trigger() == {A0: 1, B0: 1}
    how(mq)
    for n in range(2, 6):
        send(mq, A0)
        assert stream.trigger() == {A0: n, B0: 1}
    check(stream.took_s[1:])
    come_back(mq, how)
    send(mq, B0)
    eventually(lambda: stream.trigger() == {A0: 5, B0: 2}, 20.0, what="the broker is read again")
    stream.reader.stop()


def test_a_machine_that_is_gone_costs_no_more_than_a_broker_that_is_down(mq: MockCluster, deaf: str) -> None:
    stream = Stream(mq)
    assert stream.trigger() == {A0: 1, B0: 1}
    die(mq)
    mq.advertise("broker-b", deaf)
    for n in range(2, 8):
        send(mq, A0)
        assert stream.trigger() == {A0: n, B0: 1}
    check(stream.took_s[1:])
    come_back(mq, die)
    send(mq, B0)
    eventually(lambda: stream.trigger() == {A0: 7, B0: 2}, 30.0, what="the broker is read again")
    stream.reader.stop()


@OUTAGES
def test_a_batch_of_a_direct_stream_does_not_wait_either(
    mq: MockCluster, how: Callable[[MockCluster], None]
) -> None:
    given = {"nameServer": mq.name_server, "topic": "orders", "requestTimeoutMs": "3000"}
    options = parse_options(SourceOptions, given, environ={})
    pace = Pace(pid=PidSettings(batch_interval_ms=1000))
    plan = DirectPlan(Earliest(), {A0: 0, B0: 0}, SYSTEM_CLOCK.now_ms(), pace)
    client = PlanningClient(options.client)

    def batch(number: int) -> dict[MessageQueue, int]:
        ranges = plan.ranges(number, client, options, remember_ms=0)
        return {each.queue: each.until_offset for each in ranges}

    try:
        assert batch(1) == {A0: 1, B0: 1}
        how(mq)
        took_s = []
        for n in range(2, 6):
            send(mq, A0)
            begin = SYSTEM_CLOCK.monotonic()
            assert batch(n) == {A0: n, B0: 1}
            took_s.append(SYSTEM_CLOCK.monotonic() - begin)
        check(took_s)
    finally:
        client.close()


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_BUSY, None], ids=["busy", "silent"])
@pytest.mark.parametrize("direct", [False, True], ids=["stream", "direct"])
def test_a_broker_that_fails_while_its_losses_are_looked_at_holds_up_no_other(
    mq: MockCluster, monkeypatch: pytest.MonkeyPatch, code: ResponseCode | None, *, direct: bool
) -> None:
    monkeypatch.setattr("pyspark_rocketmq.spark.read.stream.MOVED_BACK_PATIENCE_MS", 0)
    monkeypatch.setitem(batch_plan._PATIENCE_MS, "shortened", 0)
    stream = Stream(mq, failOnDataLoss="false")
    batch = batches(stream, direct=direct)
    send(mq, B0)
    assert batch() == {A0: 1, B0: 2}
    mq.truncate(B0, 1)
    fault = Silence() if code is None else Refuse(code)
    mq.inject(fault, on=RequestCode.GET_MIN_OFFSET, broker="broker-b", times=None)
    for count in range(2, 5):  # at first, the queue gets some time
        send(mq, A0)
        assert batch() == {A0: count, B0: 2}
    mq.heal()
    send(mq, B0)
    eventually(lambda: mq.max_offset(B0) == batch()[B0], 20.0, what="the queue is read again")
    stream.reader.stop()


@pytest.mark.parametrize("direct", [False, True], ids=["stream", "direct"])
def test_a_busy_broker_does_not_hide_that_another_has_other_messages(
    mq: MockCluster, *, direct: bool
) -> None:
    stream = Stream(mq)
    batch = batches(stream, direct=direct)
    assert batch() == {A0: 1, B0: 1}
    mq.truncate(A0, 0)
    before_ms = mq.messages("orders", B0)[0].store_timestamp
    eventually(lambda: SYSTEM_CLOCK.now_ms() > before_ms, what="the time of another message")
    send(mq, A0, A0, B0)
    mq.inject(Refuse(ResponseCode.SYSTEM_BUSY), on=RequestCode.PULL_MESSAGE, broker="broker-b", times=None)
    with pytest.raises(DataLossError, match="the topic was created again"):
        batch()
    stream.reader.stop()


def test_a_slow_broker_is_not_starved(mq: MockCluster) -> None:
    """It answers later than the others are willing to wait, each time."""
    stream = Stream(mq)
    stream.trigger()
    mq.inject(Delay(1.0), on=RequestCode.GET_MAX_OFFSET, broker="broker-b", times=None)
    send(mq, B0)
    eventually(lambda: stream.trigger()[B0] == 2, 20.0, what="the slow broker is read")
    stream.reader.stop()


def test_brokers_that_are_away_share_one_patience_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_lookup, "OPERATION_TIMEOUT_MS", 2_000)
    names = tuple(f"broker-{name}" for name in "abcd")
    with MockCluster({"orders": 1}, brokers=names) as mq:
        send(mq, A0)
        for name in names[1:]:
            mq.stop_broker(name, unregister=False)
        options = parse_options(SourceOptions, {"nameServer": mq.name_server, "topic": "orders"}, environ={})
        client = PlanningClient(options.client)
        begin = SYSTEM_CLOCK.monotonic()
        try:
            assert fetch_available_ends(client, client.read_queues("orders")) == {A0: 1}
        finally:
            client.close()
        assert SYSTEM_CLOCK.monotonic() - begin < 5, "not 2 s for each of three"


def test_a_run_that_ends_when_all_is_read_waits_for_a_slow_broker(mq: MockCluster) -> None:
    stream = Stream(mq)
    stream.reader.prepareForTriggerAvailableNow()
    mq.inject(Delay(1.5), on=RequestCode.GET_MAX_OFFSET, broker="broker-b", times=None)
    assert stream.trigger() == {A0: 1, B0: 1}
    stream.reader.stop()


def test_a_readable_slave_is_read_while_its_master_is_away() -> None:
    brokers = ("broker-a", "broker-b")
    with MockCluster({"orders": 1}, brokers=brokers, slaves=1, slave_readable=True) as mq:
        send(mq, A0, B0, B0)
        stream = Stream(mq)
        assert stream.trigger() == {A0: 1, B0: 2}
        send(mq, B0, B0, B0)
        mq.lag("broker-b", 1)
        mq.stop_broker("broker-b")
        eventually(lambda: stream.trigger() == {A0: 1, B0: 4}, 10.0, what="what the slave has is read")
        check(stream.took_s[-1:])
        mq.lag("broker-b", 4)  # fewer than were read: that is no loss
        send(mq, A0)
        assert stream.trigger() == {A0: 2, B0: 4}
        mq.start_broker("broker-b")
        eventually(lambda: stream.trigger() == {A0: 2, B0: 5}, 20.0, what="the master is read again")
        stream.reader.stop()


def test_a_slave_is_read_by_a_user_who_may_use_the_querys_group_only() -> None:
    brokers = ("broker-a", "broker-b")
    with MockCluster({"orders": 1}, brokers=brokers, slaves=1, slave_readable=True) as mq:
        pull = mq._operations[RequestCode.PULL_MESSAGE]

        def allow_the_group(replica: Any, frame: Any, limits: Any) -> Any:
            group = frame.command.fields["consumerGroup"]
            if group != "report":
                return Reply(ResponseCode.NO_PERMISSION, remark=f"no permission to access Group:{group}")
            return pull(replica, frame, limits)

        mq._operations[RequestCode.PULL_MESSAGE] = allow_the_group
        send(mq, A0, B0)
        stream = Stream(mq, consumerGroup="report")
        assert stream.trigger() == {A0: 1, B0: 1}
        send(mq, B0)
        mq.stop_broker("broker-b")
        eventually(lambda: stream.trigger() == {A0: 1, B0: 2}, 10.0, what="what the slave has is read")
        stream.reader.stop()


def test_a_topic_that_is_gone_holds_no_other_queue_of_its_broker_back(mq: MockCluster) -> None:
    mq.create_topic("payments", 1)
    given = json.dumps({"orders": {"broker-a": [0]}, "payments": {"broker-a": [0]}})
    stream = Stream(mq, topic="", assign=given)
    p0 = MessageQueue("payments", "broker-a", 0)
    assert stream.trigger() == {A0: 1, p0: 0}
    mq.delete_topic("payments")
    send(mq, A0)
    stream.reader._open_client().invalidate("payments")  # type: ignore[attr-defined]
    assert stream.trigger() == {A0: 2, p0: 0}
    stream.reader.stop()
    missing = Stream(mq, topic="", assign=given)
    with pytest.raises(TopicNotFoundError):
        missing.trigger()
    missing.reader.stop()


@pytest.mark.parametrize("how", ["topic", "assign"])
def test_a_restarted_query_does_not_wait_for_a_topic_whose_only_broker_is_away(
    mq: MockCluster, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """No name server knows the topic, and the new process has never seen it."""
    monkeypatch.setattr("pyspark_rocketmq.spark.read.stream.OUTAGE_PATIENCE_MS", 0)
    mq.create_topic("payments", 1, brokers=["broker-b"])
    p0 = MessageQueue("payments", "broker-b", 0)
    assigned = json.dumps({"orders": {"broker-a": [0]}, "payments": {"broker-b": [0]}})
    given = {"topic": "", "assign": assigned} if how == "assign" else {"topic": "orders,payments"}
    first = Stream(mq, **given)
    assert first.trigger().items() >= {A0: 1, p0: 0}.items()
    first.reader.stop()
    mq.stop_broker("broker-b")
    send(mq, A0)
    second = Stream(mq, **given)
    second.end = first.end
    assert second.trigger().items() >= {A0: 2, p0: 0}.items()
    mq.start_broker("broker-b")
    send(mq, p0)
    eventually(lambda: second.trigger()[p0] == 1, 20.0, what="the topic is read again")
    second.reader.stop()


def test_a_slave_that_may_not_be_read_is_not_planned_with() -> None:
    with MockCluster({"orders": 1}, brokers=("broker-a", "broker-b"), slaves=1) as mq:
        send(mq, A0, B0)
        stream = Stream(mq)
        assert stream.trigger() == {A0: 1, B0: 1}
        mq.stop_broker("broker-b")
        send(mq, A0, B0)
        for _ in range(3):
            assert stream.trigger() == {A0: 2, B0: 1}
        stream.reader.stop()


def test_no_thread_outlives_the_planning(mq: MockCluster) -> None:
    stream = Stream(mq, requestTimeoutMs="1000")
    stream.trigger()
    hang(mq)
    send(mq, A0)
    stream.trigger()
    stream.reader.stop()
    eventually(
        lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("ask-")],
        10.0,
        what="the threads ended",
    )
