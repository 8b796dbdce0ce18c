"""Receivers in a Spark session with two cores: one receiver, one core for batches."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext, StorageLevel
from pyspark.streaming import StreamingContext
from tests.spark.conftest import INTERVAL_S, same_messages
from tests.support.wait import eventually

from pyspark_rocketmq.dstream import (
    ReceivedRDD,
    ReliableRocketMQReceiver,
    RocketMQConfig,
    RocketMQReceiver,
    RocketMQUtils,
)
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import CompatibilityWarning


@dataclass
class Got:
    """What an output operation saw."""

    rows: list = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    hook: Callable[[], None] = lambda: None

    def take(self, _, rdd) -> None:
        assert isinstance(rdd, ReceivedRDD)
        self.hook()
        found = rdd.map(lambda m: (m.broker_name, m.queue_id, m.queue_offset, m.body.decode())).collect()
        assert len(found) == rdd.received
        if found:
            self.sizes.append(len(found))
        self.rows += found


@pytest.fixture
def properties(mq, group):
    """``properties(topic, key=value, ...)``: of rocketmq-spark's push mode."""

    def make(topic: str, **more) -> dict:
        return {
            RocketMQConfig.NAME_SERVER_ADDR: mq.name_server,
            RocketMQConfig.CONSUMER_GROUP: group,
            RocketMQConfig.CONSUMER_TOPIC: topic,
            RocketMQConfig.CONSUMER_OFFSET_RESET_TO: "earliest",
            RocketMQConfig.CONSUMER_OFFSET_PERSIST_INTERVAL: 200,
            **more,
        }

    return make


def stop_in_order(ssc: StreamingContext) -> None:
    RocketMQUtils.stopReceivers()
    ssc.stop(stopSparkContext=False, stopGraceFully=True)


def test_every_message_once_and_acknowledged(contexts, properties, send, topic, client, group):
    name = topic(queues=3)
    expected = send(name, 90)
    ssc = contexts()
    stream = RocketMQUtils.createInputDStream(ssc, properties(name), StorageLevel.MEMORY_ONLY)
    got, columns = Got(), []

    def batches(rdd):
        columns.extend(rdd.recordBatches(["body", "queueId"]).map(lambda b: b.to_pylist()).collect())

    stream.foreachRDD(got.take)
    stream.foreachRDD(batches)
    ssc.start()
    eventually(lambda: len(got.rows) == 90, 60, what="ninety messages")
    expected += send(name, 30)
    eventually(lambda: len(got.rows) == 120, 30, what="thirty more")
    for queue_id in range(3):
        offsets = [row[2] for row in got.rows if row[1] == queue_id]
        assert offsets == sorted(offsets)
    (info,) = RocketMQUtils.receiverInfos()
    assert (info.active, info.messages, info.failures) == (True, 120, 0)
    queues = client.read_queues(name)
    eventually(lambda: client.committed_offsets(group, queues) == send.ends(name), 20, what="the commits")
    received = ssc._jssc.ssc().progressListener().numTotalReceivedRecords
    eventually(lambda: received() == 120, 30, what="Spark's statistics")
    stop_in_order(ssc)
    same_messages(got.rows, expected)
    assert sorted(row["body"] for some in columns for row in some) == sorted(r[3].encode() for r in expected)
    eventually(lambda: not RocketMQUtils.receiverInfos(), 30, what="the receivers to end")


class Orders(RocketMQReceiver):
    """Takes orders with an even number; asks to be restarted by one of them, once."""

    marker = ""

    def deserialize(self, body):
        number = int(body.rsplit(b" ")[-1])
        if number == 12 and self.marker and not os.path.exists(self.marker):  # noqa: PTH110
            with open(self.marker, "w"):  # noqa: PTH123
                self.restart("order 12 came", ValueError("twelve"))
        return None if number % 2 else ("order", number, self.receiverId, self.isStopped())


def test_deserialize_skips_and_a_receiver_restarts_itself(contexts, mq, send, topic, group, tmp_path):
    name = topic(queues=2)
    ssc = contexts()
    options = {"startFrom": "earliest", "offsetPersistIntervalMs": 200}
    receiver = Orders(mq.name_server, {name: 2}, group, "MEMORY_AND_DISK_SER_2", options=options)
    receiver.marker = str(tmp_path / "restarted")
    seen: list = []
    stream = RocketMQUtils.receiverStream(ssc, receiver)
    stream.foreachRDD(lambda rdd: seen.extend(rdd.collect()))
    ssc.start()
    send(name, 40)
    wanted = {("order", number, 0, False) for number in range(0, 40, 2)}
    eventually(lambda: set(seen) == wanted, 60, what="the even orders")
    (info,) = RocketMQUtils.receiverInfos()
    assert info.restarts == 1
    assert info.last_error == "order 12 came: twelve"
    send(name, 11)
    eventually(lambda: ("order", 50, 0, False) in seen, 30, what="an order after the restart")
    eventually(lambda: RocketMQUtils.receiverInfos()[0].skipped >= 25, 10, what="the skipped ones")
    stop_in_order(ssc)


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), Py4JError("Too many open files")])
def test_receivers_connect_again_to_a_driver_that_had_no_thread_or_file_for_them(
    contexts, properties, send, topic, monkeypatch, error
):
    start, refused = threading.Thread.start, []

    def start_or_fail(thread: threading.Thread) -> None:
        if thread.name == "receiver-link" and not refused:
            refused.append(thread)
            raise error
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_fail)
    name = topic(queues=1)
    expected = send(name, 10)
    ssc, got = contexts(), Got()
    RocketMQUtils.createInputDStream(ssc, properties(name)).foreachRDD(got.take)
    ssc.start()
    eventually(lambda: len(got.rows) == 10, 60, what="ten messages")
    assert refused
    same_messages(got.rows, expected)
    stop_in_order(ssc)


def test_a_plain_receiver_obeys_spark_s_max_rate_and_its_log_setting(
    contexts, conf, properties, send, topic, tmp_path
):
    name = topic(queues=2)
    expected = send(name, 300)
    conf(
        {
            "spark.streaming.receiver.maxRate": "100",
            "spark.streaming.receiver.writeAheadLog.enable": "true",
            "spark.streaming.backpressure.enabled": "true",
        }
    )
    ssc = contexts()
    ssc.checkpoint(str(tmp_path / "checkpoint"))
    stream = RocketMQUtils.createInputDStream(ssc, properties(name, **{"pull.max.batch.size": 4}))
    got = Got()
    stream.foreachRDD(got.take)
    ssc.start()
    stored = lambda: sum(info.messages for info in RocketMQUtils.receiverInfos())  # noqa: E731
    begin, first = eventually(lambda: (time.monotonic(), stored()) if stored() else None, 60, what="a block")
    eventually(lambda: stored() == 300, 60, what="three hundred messages")
    assert time.monotonic() - begin > (300 - first) / 100 / 2, "the receiver was faster than it may be"
    eventually(lambda: len(got.rows) == 300, 60, what="their batches")
    same_messages(got.rows, expected)
    logs = [path for path in (tmp_path / "checkpoint").rglob("log-*") if "receivedData" in str(path)]
    assert sum(path.stat().st_size for path in logs) > 300 * 100
    stop_in_order(ssc)


def test_backpressure_slows_receivers_down_to_their_output(contexts, conf, properties, send, topic):
    """Received at 60 messages a second at first, processed at 25: the rate falls to that and below."""
    name = topic(queues=2)
    send(name, 1_000)
    prefix = "spark.streaming.backpressure"
    conf({f"{prefix}.enabled": "true", f"{prefix}.initialRate": "60", f"{prefix}.pid.minRate": "10"})
    ssc = contexts()
    stream = RocketMQUtils.createInputDStream(ssc, properties(name, **{"pull.max.batch.size": 4}))
    got, hurry = Got(), threading.Event()

    def slowly(moment, rdd) -> None:
        before = len(got.rows)
        got.take(moment, rdd)
        hurry.wait((len(got.rows) - before) / 25)

    stream.foreachRDD(slowly)
    ssc.start()
    stored = lambda: sum(info.messages for info in RocketMQUtils.receiverInfos())  # noqa: E731
    eventually(lambda: len(got.sizes) >= 3, 60, what="batches to learn from")
    first, begin = stored(), time.monotonic()
    assert first < 850, "too few are left to see a rate"
    eventually(lambda: stored() >= first + 100, 60, what="a hundred more")
    assert (stored() - first) / (time.monotonic() - begin) < 40, "messages a second behind a slow output"
    hurry.set()
    eventually(lambda: len(got.rows) == 1_000, 150, what="all batches")
    stop_in_order(ssc)


def test_several_topics_in_order_through_one_receiver(contexts, mq, send, topic, group):
    names = [topic(queues=2), topic(queues=1)]
    options = {"startFrom": "earliest", "ordered": True}
    receiver = RocketMQReceiver(
        mq.name_server, dict.fromkeys(names, 1), group, "DISK_ONLY", options=options, deserialize=bytes.decode
    )
    ssc, seen = contexts(), []
    RocketMQUtils.receiverStream(ssc, receiver).foreachRDD(lambda rdd: seen.extend(rdd.collect()))
    ssc.start()
    for name in names:
        send(name, 30)
    eventually(lambda: len(seen) == 60, 60, what="sixty messages")
    for name in names:
        rows = send.sent[name]
        for queue_id in range(2):
            wanted = [body for _, queue, _, body in rows if queue == queue_id]
            assert [body for body in seen if body in set(wanted)] == wanted
    stop_in_order(ssc)


# What a checkpoint holds is unpickled: so these stand at the module's level.

RECOVERED = Got()


def take_recovered(rdd):
    RECOVERED.take(None, rdd)


def test_what_is_in_the_log_and_not_processed_comes_after_a_recovery(
    contexts, properties, send, topic, client, group, tmp_path, monkeypatch, caplog
):
    # As with a cluster, whose executors cannot read the log on this disk.
    monkeypatch.setattr("pyspark_rocketmq.dstream.receiver.stream.local_cores", lambda _: None)
    name, checkpoint = topic(queues=2), str(tmp_path / "checkpoint")
    RECOVERED.__init__()
    made: list[StreamingContext] = []

    def set_up() -> StreamingContext:
        ssc = StreamingContext(SparkContext._active_spark_context, INTERVAL_S)
        ssc.checkpoint(checkpoint)
        stream = RocketMQUtils.createReliableInputDStream(ssc, properties(name), StorageLevel.MEMORY_ONLY_2)
        stream.foreachRDD(take_recovered)
        made.append(ssc)
        return ssc

    def fail() -> None:
        if len(RECOVERED.rows) >= 20:
            raise RuntimeError("the sink is down")

    RECOVERED.hook = fail
    ssc = contexts(lambda: StreamingContext.getOrCreate(checkpoint, set_up))
    ssc.start()
    send(name, 20)
    eventually(lambda: len(RECOVERED.rows) == 20, 60, what="the first messages")
    send(name, 60)
    queues = client.read_queues(name)
    eventually(
        lambda: client.committed_offsets(group, queues) == send.ends(name), 30, what="what was not processed"
    )
    ssc.stop(stopSparkContext=False)
    assert len(RECOVERED.rows) == 20
    RECOVERED.hook = lambda: None
    ssc = contexts(lambda: StreamingContext.getOrCreate(checkpoint, set_up))
    ssc.start()
    eventually(lambda: len(set(RECOVERED.rows)) == 80, 60, what="everything")
    assert "goes to the driver's own disk" in caplog.text
    assert len(made) == 1, "the context did not come from its checkpoint"
    more = send(name, 10)
    eventually(lambda: set(more) <= set(RECOVERED.rows), 30, what="what came after the recovery")
    same_messages(sorted(set(RECOVERED.rows)), sorted(send.sent[name]))
    stop_in_order(ssc)


def test_errors_say_what_to_do(contexts, mq, properties, topic, group, tmp_path):
    ssc = contexts()
    name = topic(queues=1)
    ssc.checkpoint(str(tmp_path))
    with pytest.raises(OptionError, match=r"2 receivers would hold all 2 cores .* such as local\[3\]"):
        RocketMQUtils.createInputDStream(ssc, properties(name), receivers=2)
    with pytest.warns(CompatibilityWarning, match="client.name") as warned:
        RocketMQUtils.createInputDStream(ssc, properties(name, **{RocketMQConfig.CLIENT_NAME: "me"}))
    assert len([each for each in warned if each.category is CompatibilityWarning]) == 1
    with pytest.raises(OptionError, match="2 receivers would hold"):
        RocketMQUtils.receiverStream(ssc, ReliableRocketMQReceiver(mq.name_server, name, group))
    with pytest.raises(OptionError, match="unknown option"):
        RocketMQUtils.createInputDStream(contexts(), properties(name, consumer="x"))
    with pytest.raises(OptionError, match="unknown storage level"):
        RocketMQReceiver(mq.name_server, name, group, "MEMORY")


def test_a_reliable_receiver_without_a_checkpoint_directory_is_refused_when_it_is_made(
    contexts, mq, properties, topic, group, tmp_path
):
    ssc = contexts()
    name = topic(queues=1)
    with pytest.raises(OptionError, match=r"call ssc.checkpoint\(directory\) before you create the stream"):
        RocketMQUtils.createReliableInputDStream(ssc, properties(name))
    with pytest.raises(OptionError, match="before you create the stream"):
        RocketMQUtils.receiverStream(ssc, ReliableRocketMQReceiver(mq.name_server, name, group))

    def set_up() -> StreamingContext:
        # PySpark's getOrCreate gives the context its directory after this.
        assert RocketMQUtils.createReliableInputDStream(ssc, properties(name)) is not None
        return ssc

    assert StreamingContext.getOrCreate(str(tmp_path / "checkpoint"), set_up) is ssc


def test_a_receiver_that_waits_for_a_core_is_stopped(contexts, spark, properties, send, topic, tmp_path):
    """As when its executor is gone, and the others have no core for it."""
    name, let_go, sc = topic(queues=1), tmp_path / "let-go", spark.sparkContext

    def hold(number: int) -> None:
        (tmp_path / f"core-{number}").touch()
        eventually(let_go.exists, 120, what="the end of the test")

    held = threading.Thread(target=lambda: sc.parallelize(range(2), 2).foreach(hold), daemon=True)
    held.start()
    try:
        eventually(lambda: len(list(tmp_path.glob("core-*"))) == 2, 60, what="all cores to be busy")
        ssc = contexts()
        RocketMQUtils.createInputDStream(ssc, properties(name)).foreachRDD(lambda rdd: None)
        ssc.start()
        eventually(RocketMQUtils.receiverInfos, 60, what="the receiver's job")
        RocketMQUtils.stopReceivers(15)
    finally:
        let_go.touch()
        held.join(60)
