from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

import pytest
from pyspark import RDD, SparkContext
from pyspark.streaming import StreamingContext
from tests.spark.conftest import INTERVAL_S, same_messages
from tests.support.wait import eventually
from typer.testing import CliRunner

from pyspark_rocketmq.cli import app
from pyspark_rocketmq.client import Admin
from pyspark_rocketmq.dstream import (
    ConsumerStrategy,
    HasOffsetRanges,
    OffsetRanges,
    RocketMqUtils,
    explain_missing_ranges,
)
from pyspark_rocketmq.dstream.direct.stream import _Run
from pyspark_rocketmq.errors import NoOffsetRangesError, OptionError, TopicNotFoundError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.planning.rate import FinishedBatch, PidSettings, RateEstimate
from pyspark_rocketmq.tools.checkpoint import offsets_from_json


@dataclass
class Seen:
    """What output operations saw, by batch; a batch that is run again is there twice."""

    ranges: dict[datetime, list[OffsetRanges]] = field(default_factory=lambda: defaultdict(list))
    rows: list[tuple[str, int, int, str]] = field(default_factory=list)
    hook: Callable[[], None] = lambda: None

    def take(self, time, rdd) -> None:
        assert isinstance(rdd, HasOffsetRanges)
        self.ranges[time].append(rdd.offsetRanges)
        self.hook()
        found = rdd.map(lambda m: (m.broker_name, m.queue_id, m.queue_offset, m.body.decode())).collect()
        self.rows += found

    def sizes(self) -> list[int]:
        return [r.planned for again in list(self.ranges.values()) for r in again if r.planned]


@pytest.fixture
def direct(contexts, mq, group):
    """``direct(topic, ...)``: a context and its direct stream, not started yet."""

    def make(topic, *args, options=None, **keywords):
        ssc = contexts()
        given = {"nameServer": mq.name_server, **(options or {})}
        return ssc, RocketMqUtils.createMQPullStream(ssc, group, topic, *args, options=given, **keywords)

    return make


@pytest.fixture
def committed(client, group):
    """``committed(topic)``: the group's offsets."""
    return lambda topic: client.committed_offsets(group, client.read_queues(topic))


def test_every_message_once_and_committed_when_its_batch_is_finished(
    direct, send, topic, client, committed, monkeypatch
):
    monkeypatch.setattr(RDD, "offsetRanges", None, raising=False)  # removed again at the end
    explain_missing_ranges()
    name = topic(queues=2)
    expected = send(name, 40)
    ssc, stream = direct(name, ConsumerStrategy.earliest)
    seen, while_running = Seen(), []
    seen.hook = lambda: while_running.append(committed(name))
    stream.foreachRDD(seen.take)
    later: list[type[Exception]] = []

    def too_late(rdd):
        try:
            _ = rdd.offsetRanges
        except NoOffsetRangesError as error:
            later.append(type(error))

    stream.map(lambda m: m.keys).foreachRDD(too_late)
    counts: list[int] = []
    with_ranges = stream.transform(lambda rdd: rdd.map(lambda _, planned=rdd.offsetRanges.planned: planned))
    with_ranges.foreachRDD(lambda rdd: counts.extend(rdd.collect()))
    windowed: list[int] = []
    stream.window(3 * INTERVAL_S).foreachRDD(lambda rdd: windowed.append(rdd.count()))
    ssc.start()
    eventually(lambda: len(seen.rows) == 40, 60, what="forty messages")
    expected += send(name, 6)
    eventually(lambda: len(seen.rows) == 46, 30, what="six more")
    same_messages(seen.rows, expected)
    for queue_id in range(2):
        offsets = [row[2] for row in seen.rows if row[1] == queue_id]
        assert offsets == sorted(offsets)
    ends = send.ends(name)
    eventually(lambda: committed(name) == ends, 30, what="the next offsets to be committed")
    assert while_running[0] == dict.fromkeys(ends), "committed before the first batch was finished"
    assert later[0] is NoOffsetRangesError
    assert counts[:40] == [40] * 40
    eventually(lambda: 40 in windowed and windowed[-1] == 0, 30, what="the window to pass")
    progress = ssc._jssc.ssc().progressListener()
    eventually(lambda: progress.numTotalReceivedRecords() == 46, 30, what="Spark's statistics")
    infos = [
        info
        for batch in list(scala_list(ssc, progress.retainedBatches()))
        for info in scala_list(ssc, batch.streamIdToInputInfo().values().toSeq())
    ]
    texts = [info.metadataDescription().get() for info in infos if info.numRecords() == 40]
    assert texts == [f"{name}@broker-a:0[0, 20)\n{name}@broker-a:1[0, 20)"]


def scala_list(ssc: StreamingContext, seq):
    return ssc._jvm.scala.jdk.javaapi.CollectionConverters.asJava(seq)


def test_commit_async_and_nothing_is_committed_without_it(direct, send, topic, committed):
    name = topic(queues=2)
    send(name, 10)
    ssc, stream = direct(name, ConsumerStrategy.earliest(), autoCommit=False)
    seen, wanted, told = Seen(), threading.Event(), []

    def output(time, rdd):
        seen.take(time, rdd)
        if wanted.is_set():
            stream.commitAsync(rdd.offsetRanges, lambda offsets, error: told.append((offsets, error)))

    stream.foreachRDD(output)
    ssc.start()
    eventually(lambda: len(seen.ranges) >= 4, 30, what="four batches")
    assert set(committed(name).values()) == {None}
    wanted.set()
    eventually(lambda: told, 30, what="a commit")
    assert told[0] == (send.ends(name), None), "queues without news are committed too"
    eventually(lambda: committed(name) == send.ends(name), 10, what="the commit at the broker")
    ssc.stop(stopSparkContext=False)
    eventually(
        lambda: not [t for t in threading.enumerate() if t.name in ("commit-async", "group-commits")],
        10,
        what="the committing threads to end",
    )


def test_nothing_behind_a_failed_batch_is_committed(direct, send, topic, committed):
    name = topic(queues=1)
    send(name, 3)
    ssc, stream = direct(name)
    seen = Seen()

    def fail() -> None:
        if len(seen.rows) == 3:
            raise RuntimeError("the sink is down")

    seen.hook = fail
    stream.foreachRDD(seen.take)
    ssc.start()
    (queue,) = send.ends(name)
    eventually(lambda: committed(name) == {queue: 3}, 30, what="the first batch's commit")
    seen.hook = fail
    eventually(lambda: len(seen.ranges) >= 4, 30, what="failed batches")
    seen.hook = lambda: None
    send(name, 2)
    eventually(lambda: len(seen.rows) == 5, 30, what="the messages behind the failure")
    batches = len(seen.ranges)
    eventually(lambda: len(seen.ranges) > batches + 2, 30, what="two finished batches more")
    assert committed(name) == {queue: 3}


def test_a_batch_whose_end_spark_did_not_report_does_not_hold_up_commits(
    direct, send, topic, committed, monkeypatch
):
    """Spark's listener bus drops events when it is full; here one, before it gets to the stream."""
    dropped, record = [], _Run.onBatchCompleted

    def drop_first(self, event):
        if dropped:
            record(self, event)
        else:
            dropped.append(event)

    monkeypatch.setattr(_Run, "onBatchCompleted", drop_first)
    monkeypatch.setattr("pyspark_rocketmq.dstream.direct.stream._EVENT_PATIENCE_MS", 0)
    name = topic(queues=1)
    send(name, 3)
    ssc, stream = direct(name)
    stream.foreachRDD(Seen().take)
    ssc.start()
    (queue,) = send.ends(name)
    eventually(lambda: committed(name) == {queue: 3}, 30, what="the commit of a later batch")


def test_speed_limits_hold_from_the_first_batch_on(direct, send, topic, conf):
    conf(
        {
            "spark.streaming.backpressure.enabled": "true",
            "spark.streaming.backpressure.initialRate": "50",
            "spark.streaming.rocketmq.maxRatePerPartition": "25",
        }
    )
    name = topic(queues=3)
    expected = send(name, 90)
    ssc, stream = direct(name, autoCommit=False)
    seen = Seen()
    stream.foreachRDD(seen.take)
    ssc.start()
    eventually(lambda: len(seen.rows) == 90, 60, what="ninety messages")
    same_messages(seen.rows, expected)
    assert seen.sizes()[0] == 50 * INTERVAL_S
    most = max(len(r) for again in seen.ranges.values() for ranges in again for r in ranges)
    assert most <= 25 * INTERVAL_S
    assert len(seen.sizes()) >= 90 / (3 * 25 * INTERVAL_S)


def test_batches_between_the_slides_of_a_window_are_committed_with_the_window(direct, send, topic, committed):
    """Spark runs no job at their times, and tells nothing of them."""
    name = topic(queues=1)
    expected = send(name, 20)
    ssc, stream = direct(name, ConsumerStrategy.earliest)
    seen: list[int] = []
    window = stream.window(3 * INTERVAL_S, 3 * INTERVAL_S)
    window.foreachRDD(lambda rdd: seen.extend(rdd.map(lambda m: m.queue_offset).collect()))
    ssc.start()
    eventually(lambda: len(seen) == 20, 60, what="the first window")
    expected += send(name, 5)
    eventually(lambda: committed(name) == send.ends(name), 30, what="the commits")
    assert sorted(seen) == list(range(len(expected)))


def test_queues_that_come_while_the_stream_runs_are_read_from_their_begin(direct, send, topic, client):
    name = topic(queues=1)
    ssc, stream = direct(name, ConsumerStrategy.latest, options={"routeRefreshMs": 100})
    seen = Seen()
    stream.foreachRDD(seen.take)
    ssc.start()
    eventually(lambda: seen.ranges, 30, what="the first batch")
    Admin(client).alter_topic(name, queues=3)
    client.invalidate(name)
    expected = send(name, 30)
    eventually(lambda: len(seen.rows) >= 30, 60, what="the messages of old and new queues")
    same_messages(seen.rows, expected)
    assert {row[1] for row in seen.rows} == {0, 1, 2}


def test_where_a_stream_starts(direct, send, topic, client, group):
    """The group's offset first, unless specific offsets are forced; what is not listed at its min offset."""
    name = topic(queues=4)
    send(name, 40)
    zero, one, two, three = client.read_queues(name)
    client.commit_offsets(group, {zero: 7, one: 8})
    specific = {one: 3, two: ConsumerStrategy.LATEST, three: ConsumerStrategy.EARLIEST}

    def starts(strategy, *, force=False):
        ssc, stream = direct(name, strategy, forceSpecial=force, autoCommit=False)
        seen = Seen()
        stream.foreachRDD(seen.take)
        ssc.start()
        eventually(lambda: seen.ranges, 30, what="the first batch")
        ssc.stop(stopSparkContext=False)
        (first, *_) = min(list(seen.ranges.items()))[1]
        return {found.queue: found.from_offset for found in first}

    assert starts(ConsumerStrategy.earliest) == {zero: 7, one: 8, two: 0, three: 0}
    assert starts(ConsumerStrategy.latest(), force=True) == {zero: 7, one: 8, two: 10, three: 10}
    assert starts(ConsumerStrategy.specificOffset(specific)) == {zero: 7, one: 8, two: 10, three: 0}
    forced = starts(ConsumerStrategy.specificOffset(specific), force=True)
    assert forced == {zero: 0, one: 3, two: 10, three: 0}
    default = ConsumerStrategy.specificOffset({one: 3}, ConsumerStrategy.LATEST)
    assert starts(default, force=True) == {zero: 10, one: 3, two: 10, three: 10}


def test_steps_in_python_pass_messages_on_as_they_are(direct, send, topic):
    """Between the reader and what a stream does first nothing is pickled: not even what cannot be."""
    name = topic(queues=2)
    send(name, 20)
    ssc, stream = direct(name, messageHandler=lambda message: (threading.Lock(), message.queue_offset))
    sums: list[int] = []
    stream.map(lambda pair: pair[1]).reduce(lambda a, b: a + b).foreachRDD(
        lambda rdd: sums.extend(rdd.collect())
    )
    counts: list[int] = []
    stream.foreachRDD(lambda rdd: counts.append(rdd.filter(lambda pair: pair[1] > 4).count()))
    ssc.start()
    eventually(lambda: sums and counts, 60, what="a batch")
    assert sums[0] == 2 * sum(range(10))
    assert counts[0] == 2 * 5


def test_a_persisted_stream_is_read_once_for_all_its_outputs(direct, send, topic, spark):
    name = topic(queues=2)
    send(name, 20)
    read = spark.sparkContext.accumulator(0)

    def offset(message):
        read.add(1)
        return message.queue_offset

    ssc, stream = direct(name, messageHandler=offset)
    stream.cache()
    found: list[list[int]] = []
    for _ in range(3):
        stream.foreachRDD(lambda rdd: found.append(sorted(rdd.map(lambda offset: offset).collect())))
    ssc.start()
    eventually(lambda: len(found) >= 3, 60, what="three outputs")
    assert found[:3] == [sorted([*range(10)] * 2)] * 3
    assert read.value == 20


# --- recovery: what a checkpoint holds is unpickled, so these stand at the module's level ---

RECOVERED = Seen()


def take(time, rdd):
    RECOVERED.take(time, rdd)


def test_a_recovered_stream_replays_its_unfinished_batches_exactly(
    contexts, mq, send, topic, group, tmp_path, committed
):
    name = topic(queues=2)
    send(name, 10)
    checkpoint = str(tmp_path / "checkpoint")
    RECOVERED.__init__()

    def set_up() -> StreamingContext:
        ssc = StreamingContext(SparkContext._active_spark_context, INTERVAL_S)
        stream = RocketMqUtils.createMQPullStream(
            ssc,
            group,
            name,
            options={"nameServer": mq.name_server, "pull.max.speed.per.partition": 5},
        )
        stream.foreachRDD(take)
        return ssc

    def fail() -> None:
        if len(RECOVERED.rows) >= 8:
            raise RuntimeError("the sink is down")

    RECOVERED.hook = fail
    ssc = contexts(lambda: StreamingContext.getOrCreate(checkpoint, set_up))
    ssc.start()
    eventually(lambda: len(RECOVERED.sizes()) >= 3, 60, what="a failed batch")
    failed, (first_try,) = next((t, r) for t, r in reversed(list(RECOVERED.ranges.items())) if r[0].planned)
    eventually(
        lambda: len(RECOVERED.ranges) > list(RECOVERED.ranges).index(failed) + 3, 30, what="a checkpoint"
    )
    ssc.stop(stopSparkContext=False)
    backlog = send(name, 40)
    done = len(RECOVERED.rows)

    RECOVERED.hook = lambda: None
    ssc = contexts(lambda: StreamingContext.getOrCreate(checkpoint, set_up))
    ssc.start()
    eventually(lambda: len(set(RECOVERED.rows)) == 50, 90, what="all messages")
    again = RECOVERED.ranges[failed][1:]
    assert again == [first_try], "another range came back under the batch's time"
    same_messages(sorted(set(RECOVERED.rows)), sorted(send.sent[name]))
    assert len(RECOVERED.rows[done:]) <= 42 + 8, "more was repeated than the last batches"
    assert set(backlog) <= set(RECOVERED.rows[done:])
    most = max(len(r) for tries in RECOVERED.ranges.values() for ranges in tries for r in ranges)
    assert most <= 5 * INTERVAL_S, "the first batches after the recovery ignored the speed limit"
    eventually(lambda: committed(name) == send.ends(name), 30, what="commits after the recovery")


def take_by_changed_code(time, rdd):
    CHANGED.take(time, rdd)


CHANGED = Seen()


def test_changed_code_goes_on_from_the_exported_checkpoint_of_the_job_before(
    contexts, mq, send, topic, group, tmp_path, client
):
    """The checkpoint holds the old code: the new job starts from its offsets, and misses nothing."""
    name, checkpoint = topic(queues=2), tmp_path / "checkpoint"
    send(name, 20)
    RECOVERED.__init__()
    CHANGED.__init__()

    def job(output) -> StreamingContext:
        options = {"nameServer": mq.name_server, "pull.max.speed.per.partition": 5}
        ssc = StreamingContext(SparkContext._active_spark_context, INTERVAL_S)
        RocketMqUtils.createMQPullStream(ssc, group, name, autoCommit=False, options=options).foreachRDD(
            output
        )
        return ssc

    def fail() -> None:
        if len(RECOVERED.rows) >= 8:
            raise RuntimeError("the sink is down")

    RECOVERED.hook = fail
    ssc = contexts(lambda: StreamingContext.getOrCreate(str(checkpoint), lambda: job(take)))
    ssc.start()
    eventually(lambda: len(RECOVERED.sizes()) >= 3, 60, what="a failed batch")

    def exported() -> dict[MessageQueue, int]:
        done = CliRunner().invoke(app, ["offsets", "export", "--checkpoint", str(checkpoint)])
        assert done.exit_code == 0, done.output
        return offsets_from_json(done.stdout)

    queues = client.read_queues(name)
    finished = {queue: sum(row[1] == queue.queue_id for row in RECOVERED.rows) for queue in queues}
    eventually(lambda: exported() == finished, 30, what="the ends of what is finished")
    ssc.stop(stopSparkContext=False)
    send(name, 20)
    start = exported()

    def changed() -> StreamingContext:
        ssc = StreamingContext(SparkContext._active_spark_context, INTERVAL_S)
        RocketMqUtils.createMQPullStream(
            ssc,
            group,
            name,
            ConsumerStrategy.specificOffset(start),
            forceSpecial=True,
            options={"nameServer": mq.name_server},
        ).foreachRDD(take_by_changed_code)
        return ssc

    after = str(tmp_path / "checkpoint of the changed code")
    contexts(lambda: StreamingContext.getOrCreate(after, changed)).start()
    eventually(lambda: len(CHANGED.rows) >= 40 - len(RECOVERED.rows), 60, what="the rest")
    same_messages(RECOVERED.rows + CHANGED.rows, send.sent[name])


# --- without a stream -----------------------------------------------------------------------


def test_the_rate_estimate_is_sparks(spark):
    estimator = spark.sparkContext._jvm.org.apache.spark.streaming.scheduler.rate.PIDRateEstimator
    theirs = estimator(500, 1.0, 0.2, 0.1, 100.0)
    settings = PidSettings(batch_interval_ms=500, derivative=0.1)
    ours = RateEstimate()
    batches = [
        (1000, 500, 200, 0),
        (1500, 0, 200, 0),
        (2000, 900, 450, 30),
        (2600, 80, 700, 400),
        (2600, 5, 5, 5),
    ]
    batches += [(3000 + 500 * n, 100 + 37 * n % 90, 90 + 11 * n % 400, 13 * n % 50) for n in range(20)]
    rates = []
    for ended, messages, processing, scheduling in batches:
        answer = theirs.compute(ended, messages, processing, scheduling)
        before = ours
        ours = ours.after(
            FinishedBatch(
                ended_at_ms=ended, messages=messages, processing_ms=processing, scheduling_ms=scheduling
            ),
            settings,
        )
        if answer.isDefined():
            rates.append(answer.get())
            assert ours.rate == pytest.approx(answer.get())
        else:
            assert ours.rate is before.rate
    assert len(rates) == 22
    assert len({round(rate) for rate in rates}) > 20, "rates above the lowest one, too"


def test_wrong_arguments_are_told_at_once(direct, topic):
    name = topic(queues=1)
    with pytest.raises(TopicNotFoundError, match="no-such-topic"):
        direct([name, "no-such-topic"])
    elsewhere = ConsumerStrategy.specificOffset({MessageQueue("elsewhere", "broker-a", 0): 0})
    with pytest.raises(OptionError, match="topics that are not read: elsewhere"):
        direct(name, elsewhere)
    lost = ConsumerStrategy.specificOffset({MessageQueue(name, "broker-a", 7): 0})
    with pytest.raises(OptionError, match="broker-a:7, which the query does not read or which do not exist"):
        direct(name, lost)
    with pytest.raises(OptionError, match="topics is malformed"):
        direct("no spaces")
