from __future__ import annotations

import json
import logging
from types import SimpleNamespace

import pytest
from prometheus_client.registry import CollectorRegistry
from pyspark.sql.streaming.listener import SourceProgress
from tests.support.clocks import FakeClock
from tests.unit.spark.fake_rocketmq import FakeRocketMQ

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.offsets.stream_offset import CommitPosition, SourceIdentity, SourceOffset
from pyspark_rocketmq.options import ClientOptions
from pyspark_rocketmq.spark.monitor.lag import Lag, QueueLag, Spread, lag
from pyspark_rocketmq.spark.monitor.listener import RocketMQQueryListener
from pyspark_rocketmq.spark.monitor.metrics import export_metrics

A0, A1, B0 = (MessageQueue("orders", *where) for where in (("a", 0), ("a", 1), ("b", 0)))
SOURCE = SourceIdentity(topics=("orders",), group="g", name_server="127.0.0.1:9876")
LOGGER = "pyspark_rocketmq.spark.monitor.listener"


class World:
    """A RocketMQ, a listener on it, and the events that Spark would send."""

    def __init__(self, **options: str) -> None:
        self.clock = FakeClock()
        self.mq = FakeRocketMQ(self.clock, [A0, A1, B0])
        self.opened: list[ClientOptions] = []
        self.reports_newest = True
        self.listener = RocketMQQueryListener(connect=self.connect, clock=self.clock, **options)

    def connect(self, options: ClientOptions) -> FakeRocketMQ:
        self.opened.append(options)
        return self.mq

    def offset(self, *positions: int, source: SourceIdentity = SOURCE, **more: object) -> SourceOffset:
        return SourceOffset(
            source=source,
            offsets=dict(zip((A0, A1, B0), positions, strict=True)),
            started_at_ms=1,
            **more,
        )

    def newest(self) -> SourceOffset:
        return self.offset(*(len(self.mq.logs[queue]) for queue in (A0, A1, B0)))

    def progress(
        self,
        start: SourceOffset | None,
        end: SourceOffset,
        rows: int,
        *,
        name: str | None = "q",
    ) -> None:
        source = SourceProgress(
            description="PythonMicroBatchStream@7",
            startOffset="null" if start is None else json.dumps(start.to_dict()),
            endOffset=json.dumps(end.to_dict()),
            latestOffset=json.dumps(self.newest().to_dict()) if self.reports_newest else None,
            numInputRows=rows,
            inputRowsPerSecond=10.0,
            processedRowsPerSecond=20.0,
            metrics={},
        )
        other = SourceProgress("rate", "1", "2", "2", 5, 1.0, 1.0, {})
        progress = SimpleNamespace(id="id", runId="r", name=name, batchId=3, sources=[other, source])
        self.listener.onQueryProgress(SimpleNamespace(progress=progress))

    def stop(self) -> None:
        self.listener.onQueryTerminated(SimpleNamespace(id="id", runId="r", exception=None))


@pytest.fixture
def world() -> World:
    world = World()
    for _ in range(10):
        world.mq.send()
    return world


@pytest.mark.parametrize("reports_newest", [True, False], ids=["Spark 4.2", "Spark 4.0"])
def test_lag_in_messages_seconds_and_bytes(world: World, reports_newest: bool):
    world.reports_newest = reports_newest
    stored = world.mq.logs[A0][4][0]
    world.clock.now_s = stored / 1000 + 90
    world.progress(world.offset(0, 0, 0), world.offset(4, 9, 10), 23)
    (status,) = world.listener.statuses()
    assert [queue.messages for queue in status.lag.queues] == [6, 1, 0]
    assert status.lag.messages == 7
    assert status.lag.messages_by_queue == Spread(0, 7 / 3, 6)
    assert status.lag.seconds == pytest.approx(90, abs=0.1)
    assert status.lag.queues[2].seconds == 0
    assert status.lag.seconds_by_queue is not None
    assert status.lag.seconds_by_queue.least == 0
    assert status.lag.bytes == 7 * 100
    assert (status.label, status.source, status.batch_id) == ("q", 1, 3)
    assert (status.rows_per_second, status.input_rows_per_second) == (20.0, 10.0)


def test_a_batch_costs_a_sample_of_two_queues_however_many_lag():
    world = World()
    many = [MessageQueue("orders", "a", queue_id) for queue_id in range(20)]
    world.mq.logs = {queue: [] for queue in many}
    world.mq.send()
    world.mq.sizes = dict.fromkeys(many, 300)
    sampled: list[MessageQueue] = []
    weigh = world.mq.message_sizes

    def note(offsets, group, selector):
        sampled.extend(offsets)
        return weigh(offsets, group, selector)

    world.mq.message_sizes = note
    world.newest = lambda: SourceOffset(source=SOURCE, offsets=dict.fromkeys(many, 1), started_at_ms=1)
    start = SourceOffset(source=SOURCE, offsets=dict.fromkeys(many, 0), started_at_ms=1)
    for batch in range(1, 4):
        world.progress(start, start, 0)
        assert len(sampled) == 2 * batch
        assert world.listener.statuses()[0].lag.bytes == 20 * 300
    assert len(set(sampled)) == 6, "each time others"


def test_rows_are_held_against_ranges(world: World, caplog: pytest.LogCaptureFixture):
    world.progress(world.offset(0, 0, 0), world.offset(4, 9, 10), 20)
    (status,) = world.listener.statuses()
    assert (status.planned, status.rows, status.skipped) == (23, 20, 3)
    # The first batch has no start; its end tells where it began.
    world.progress(None, world.offset(4, 9, 10, begin={A0: 2, A1: 2, B0: 2}), 17)
    assert world.listener.statuses()[0].skipped == 0
    with caplog.at_level(logging.WARNING, LOGGER):
        world.progress(world.offset(4, 9, 10), world.offset(4, 10, 10), 2)
    assert "1 rows more than offsets" in caplog.text


def test_of_committed_batches_the_lag_is_that_of_their_records(world: World) -> None:
    log = MessageQueue("orders-commits", "a", 0)
    world.mq.logs[log] = world.mq.logs[A0][:7]
    commits = {log: CommitPosition(begin=3, read=5, needed=3, known=7)}
    start = world.offset(0, 0, 0, committed_only=True)
    world.progress(start, world.offset(10, 10, 10, committed_only=True, commits=commits), 200)
    (status,) = world.listener.statuses()
    assert (status.planned, status.rows, status.skipped) == (None, 200, None)
    assert {each.queue: each.messages for each in status.lag.queues}[log] == 2


def test_a_heartbeat_is_no_row_of_the_ranges(world: World):
    start = world.offset(4, 9, 10)
    world.progress(start, world.offset(4, 10, 10, heartbeat_at_ms=5), 2)
    (status,) = world.listener.statuses()
    assert (status.planned, status.rows, status.skipped) == (1, 1, 0)


def test_the_last_batch_of_a_stopped_query_is_committed(world: World):
    world.progress(world.offset(0, 0, 0), world.offset(4, 9, 10), 23)
    assert world.mq.committed == {}
    world.stop()
    assert world.mq.committed == {A0: 4, A1: 9, B0: 10}
    assert world.listener.statuses() == ()
    world.stop()  # a second query's end finds nothing of this one


def test_a_dead_broker_keeps_no_other_from_its_commit(world: World, caplog: pytest.LogCaptureFixture):
    world.progress(world.offset(0, 0, 0), world.offset(4, 9, 10), 23)
    world.mq.dead = {"a"}
    with caplog.at_level(logging.WARNING, LOGGER):
        world.stop()
    assert world.mq.committed == {B0: 10}
    assert "group g are not committed" in caplog.text


@pytest.mark.parametrize(
    "source",
    [
        SourceIdentity(topics=("orders",), name_server="127.0.0.1:9876"),
        SourceIdentity(topics=("orders",), group="g", name_server="127.0.0.1:9876", commits=False),
    ],
    ids=["no group", "commitOffsets=false"],
)
def test_nothing_is_committed_for_who_does_not_want_it(world: World, source: SourceIdentity):
    world.progress(None, world.offset(10, 10, 10, source=source, begin={A0: 0, A1: 0, B0: 0}), 30)
    world.stop()
    assert world.mq.committed == {}


def test_credentials_come_from_the_listener_and_the_place_from_the_offsets():
    world = World(accessKey="me", secretKey="s3cret")
    source = SourceIdentity(
        topics=("orders",), group="g", name_server="127.0.0.1:1;127.0.0.1:2", namespace="ns"
    )
    world.mq.send()
    world.progress(None, world.offset(0, 0, 0, source=source, begin={A0: 0, A1: 0, B0: 0}), 0)
    world.stop()
    (options,) = world.opened
    assert options.name_servers == ("127.0.0.1:1", "127.0.0.1:2")
    assert (options.namespace, options.access_key, options.secret_key) == ("ns", "me", "s3cret")
    world.listener.close()
    assert world.mq.calls[-1] == "close"


def test_events_that_come_after_the_close_open_nothing(world: World, caplog: pytest.LogCaptureFixture):
    world.progress(world.offset(0, 0, 0), world.offset(4, 9, 10), 23)
    world.listener.close()
    with caplog.at_level(logging.WARNING, LOGGER):
        world.progress(world.offset(4, 9, 10), world.offset(5, 9, 10), 1)
        world.listener.measure()
        assert caplog.text == "", "a batch that ends after the close of a job is no news"
        world.stop()
    assert (len(world.opened), world.mq.committed) == (1, {})
    assert "not committed: the listener is closed" in caplog.text


def test_what_no_broker_answers_is_missing_not_zero(world: World, caplog: pytest.LogCaptureFixture):
    world.mq.dead = {"a", "b"}
    with caplog.at_level(logging.WARNING, LOGGER):
        world.progress(world.offset(0, 0, 0), world.offset(4, 9, 10), 23)
        (status,) = world.listener.measure()
    assert (status.lag.messages, status.lag.seconds, status.lag.bytes) == (7, None, None)
    assert "the lag of q is not known" in caplog.text


def test_measuring_sees_what_came_since(world: World):
    world.progress(world.offset(0, 0, 0), world.offset(10, 10, 10), 30)
    assert world.listener.statuses()[0].lag.messages == 0
    world.mq.send(A0, A0, B0)
    (status,) = world.listener.measure()
    assert status.lag.messages == 3
    assert world.listener.statuses()[0].lag.messages == 0
    world.mq.dead = {"a"}
    assert [queue.queue for queue in world.listener.measure()[0].lag.queues] == [B0]


def test_prometheus_text(world: World):
    registry = CollectorRegistry()
    export_metrics(world.listener, registry)
    assert world.mq.calls == [], "registering asks nobody"
    world.progress(world.offset(0, 0, 0), world.offset(4, 9, 10), 20, name=None)
    found = {
        (sample.name, sample.labels.get("queue_id"), sample.labels.get("broker")): sample.value
        for family in registry.collect()
        for sample in family.samples
    }
    assert found["rocketmq_lag_messages", None, None] == 7
    assert found["rocketmq_batch_skipped_offsets", None, None] == 3
    assert found["rocketmq_queue_position", "1", "a"] == 9
    assert found["rocketmq_queue_lag_messages", "0", "a"] == 6
    labels = {"query": "id", "group": "g"}
    assert registry.get_sample_value("rocketmq_lag_bytes", labels) == 700
    with pytest.raises(ValueError, match="Duplicated"):
        export_metrics(world.listener, registry)
    world.stop()
    assert registry.get_sample_value("rocketmq_lag_messages", labels) is None


def test_offsets_of_a_newer_release_are_told_and_left_alone(world: World, caplog: pytest.LogCaptureFixture):
    end = world.offset(1, 1, 1)
    source = SourceProgress("x", "null", json.dumps(end.to_dict() | {"version": 9}), "null", 1, 1.0, 1.0, {})
    progress = SimpleNamespace(id="id", runId="r", name="q", batchId=3, sources=[source])
    with caplog.at_level(logging.WARNING, LOGGER):
        world.listener.onQueryProgress(SimpleNamespace(progress=progress))
    assert world.listener.statuses() == ()
    assert "not understood" in caplog.text


def test_sums_say_when_they_do_not_know():
    known = QueueLag(queue=A0, position=1, max_offset=3, seconds=2.0, bytes=7)
    unknown = QueueLag(queue=A1, position=5, max_offset=3)
    assert unknown.messages == 0, "a position ahead of the end is no debt of others"
    assert Lag((known, unknown)).bytes is None
    assert Lag((known, unknown)).seconds is None
    assert Lag((known,)).seconds == 2.0
    assert Lag().messages_by_queue is None


def test_a_printed_lag_is_a_table():
    known = QueueLag(queue=A0, position=1, max_offset=12_345, seconds=2.04, bytes=7_000)
    unknown = QueueLag(queue=A1, position=5, max_offset=6)
    assert str(Lag((known, unknown))) == (
        "topic   queue  position     max  messages  seconds  bytes\n"
        "orders  a:0           1  12,345    12,344      2.0  7,000\n"
        "orders  a:1           5       6         1\n"
        "total                              12,345"
    )
    assert str(Lag()).splitlines()[-1].split() == ["total", "0", "0.0", "0"]


@pytest.mark.parametrize("query", [{"isActive": True, "lastProgress": None}, {"isActive": False}])
def test_lag_of_a_session_needs_a_running_query(query):
    session = SimpleNamespace(streams=SimpleNamespace(active=[SimpleNamespace(**query)]))
    with pytest.raises(OptionError, match="no running query of this session"):
        lag(session, "g", "orders")  # type: ignore[arg-type]
