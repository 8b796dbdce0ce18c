"""A task's writes, through brokers that lose, refuse and delay: nothing acknowledged is missing.

Several of these are defects of the two other sinks: rocketmq-flink's loses failed sends and everything that
is not SEND_OK, acknowledges before answers are there, and ignores the sharding key; rocketmq-spark's closes
with sends in flight, ignores the status, and sends tags only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from pyspark.sql.pandas.types import from_arrow_schema
from tests.support.clocks import FakeClock

from pyspark_rocketmq.client import Client, Message
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.client.routes.name_servers import NameServers
from pyspark_rocketmq.client.send.queue_selection import queue_for_key
from pyspark_rocketmq.errors import (
    BrokerNotFoundError,
    OptionError,
    PermissionDeniedError,
    RocketMQError,
    SendError,
    TopicNotFoundError,
)
from pyspark_rocketmq.model import Permission
from pyspark_rocketmq.options import SinkOptions, parse_options
from pyspark_rocketmq.record.encode.outgoing_rows import UNIQUE_KEY_BYTES
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.frame import decode_frame, encode_frame
from pyspark_rocketmq.spark.write import dead_letters, parcels
from pyspark_rocketmq.spark.write.sink_schema import sink_layout
from pyspark_rocketmq.spark.write.sink_topics import SinkTopics
from pyspark_rocketmq.spark.write.write_task import WriteReport, WriteScope, WriteTask
from pyspark_rocketmq.testing import Damage, Delay, HangUp, MockCluster, Refuse, Silence

SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
BATCH = RequestCode.SEND_BATCH_MESSAGE
SCOPE = WriteScope(job="query/7", partition=3)

Write = Callable[..., WriteReport]


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with MockCluster({"orders": 2}, brokers=("broker-a", "broker-b")) as cluster:
        yield cluster


@pytest.fixture
def write(mq: MockCluster) -> Iterator[Write]:
    clients = []

    def run(
        *given_batches: pa.RecordBatch,
        scope: WriteScope = SCOPE,
        batches: Iterable[pa.RecordBatch] | None = None,
        schema: pa.Schema | None = None,
        **given: object,
    ) -> WriteReport:
        """Write record batches to the topic orders unless an option (None for absent) says otherwise."""
        settings = {"nameServer": mq.name_server, "topic": "orders", "outageTimeout": "0s"} | given
        options = parse_options(SinkOptions, settings, environ={})
        client = Client(options.client)
        clients.append(client)
        layout = sink_layout(from_arrow_schema(schema or given_batches[0].schema), options)
        return WriteTask(client, options, layout, scope).run(given_batches if batches is None else batches)

    yield run
    for client in clients:
        client.close()


def rows(*bodies: str | bytes, **columns: pa.Array | list[object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"body": pa.array(bodies)} | columns)


def numbered(count: int, first: int = 0) -> pa.RecordBatch:
    return rows(*[f"m{number}" for number in range(first, first + count)])


def stored(mq: MockCluster, topic: str = "orders") -> list[Message]:
    return [message for queue in mq.queues(topic) for message in mq.messages(topic, queue)]


def stored_bodies(mq: MockCluster, topic: str = "orders") -> list[str]:
    return sorted(message.body.decode() for message in stored(mq, topic))


def status(code: ResponseCode) -> Damage:
    """The answer says: stored, but not as durably as asked."""

    def change(frame: bytes) -> bytes:
        answer = decode_frame(memoryview(frame))
        return encode_frame(replace(answer.command, code=code), bytes(answer.body))

    return Damage(change)


# --- what arrives ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["compressAbove", "compressMsgBodyOverHowmuch"])
def test_bodies_are_compressed_from_a_size_on(mq: MockCluster, write: Write, name: str) -> None:
    write(rows("x" * 99, "x" * 100), compression="zlib", **{name: "100"})
    flags = {len(message.body): message.sys_flag & 1 for message in stored(mq)}
    assert flags == {99: 0, 100: 1}


def test_a_batch_that_is_cut_into_pieces_is_stored_whole(mq: MockCluster, write: Write, monkeypatch) -> None:
    monkeypatch.setattr(parcels, "_PIECE_BYTES", 1_000)
    assert write(numbered(500)).rows == 500
    assert stored_bodies(mq) == sorted(f"m{number}" for number in range(500))


def test_every_part_of_a_row_arrives(mq: MockCluster, write: Write) -> None:
    report = write(
        rows(
            "one",
            "two",
            tags=["new", None],
            keys=[["k1", None, "k2"], None],
            properties=pa.array([[("region", "eu")], None], pa.map_(pa.string(), pa.string())),
            flag=pa.array([5, None], pa.int32()),
            shardingKey=["customer-1", "customer-1"],
        )
    )
    assert (report.rows, report.sends) == (2, 1)
    one, two = stored(mq)
    assert (one.body, one.tags, one.keys, one.flag) == (b"one", "new", "k1 k2", 5)
    assert one.properties["region"] == "eu"
    assert one.properties["__SHARDINGKEY"] == "customer-1"
    assert (two.body, two.tags, two.keys, two.flag) == (b"two", None, None, 0)
    assert one.msg_id != two.msg_id


def test_options_go_before_columns(mq: MockCluster, write: Write) -> None:
    write(rows("x", topic=["elsewhere"], tags=["t"], keys=["k"]), tags="T", key="K", messageGroup="G")
    (message,) = stored(mq)
    assert (message.tags, message.keys, message.properties["__SHARDINGKEY"]) == ("T", "K", "G")


def test_each_row_goes_to_its_topic_and_queue(mq: MockCluster, write: Write) -> None:
    mq.create_topic("payments", 2)
    batch = rows(
        *("a", "b", "c"),
        topic=["orders", "payments", "orders"],
        brokerName=["broker-b", "broker-a", "broker-b"],
        queueId=pa.array([1, 0, 1], pa.int32()),
    )
    write(batch, topic=None)
    assert [m.body for m in mq.messages("orders", mq.queue("orders", 1, "broker-b"))] == [b"a", b"c"]
    assert [m.body for m in mq.messages("payments", mq.queue("payments", 0, "broker-a"))] == [b"b"]


def test_rows_as_they_were_read_are_sent_anew(mq: MockCluster, write: Write) -> None:
    maps = pa.array([[("UNIQ_KEY", "old"), ("mine", "1")]], pa.map_(pa.string(), pa.string()))
    batch = rows(
        "x", brokerName=["gone"], queueId=pa.array([9], pa.int32()), queueOffset=[4], msgId=["old"],
        properties=maps,
    )  # fmt: skip
    write(batch)
    (message,) = stored(mq)
    assert message.properties["mine"] == "1"
    assert message.msg_id != "old"


def test_plain_rows_travel_in_few_sends_over_all_queues(mq: MockCluster, write: Write) -> None:
    report = write(numbered(400), batchSize=100)
    assert (report.rows, report.sends, mq.asked[BATCH]) == (400, 4, 4)
    assert [mq.max_offset(queue) for queue in mq.queues("orders")] == [100] * 4


def test_the_sharding_key_chooses_the_queue_as_the_java_client_does(mq: MockCluster, write: Write) -> None:
    keys = [f"customer-{number % 7}" for number in range(50)]
    write(rows(*[f"{n}" for n in range(50)], shardingKey=keys))
    queues = {int(message.body): message.queue for message in stored(mq)}
    assert queues == {n: queue_for_key(key, mq.queues("orders")) for n, key in enumerate(keys)}
    for queue in mq.queues("orders"):
        found = [int(message.body) for message in mq.messages("orders", queue)]
        assert found == sorted(found)


# --- nothing is lost, or it is said ----------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [HangUp(), HangUp(executed=True), Silence(), Silence(executed=True)],
    ids=["lost", "answer lost", "never there", "never answered"],
)
def test_a_send_without_an_answer_is_sent_again(mq: MockCluster, write: Write, fault: object) -> None:
    injected = mq.inject(fault, on=SENDS, times=2, after=1)
    write(numbered(500), batchSize=50, sendTimeoutMs=200)
    assert injected.hits == 2
    assert set(stored_bodies(mq)) == set(stored_bodies_of(500))


def stored_bodies_of(count: int) -> list[str]:
    return sorted(f"m{number}" for number in range(count))


def test_the_task_ends_only_when_every_answer_is_there(mq: MockCluster, write: Write) -> None:
    delays = mq.inject(Delay(0.3), on=SENDS, times=4)
    write(numbered(40), batchSize=10)
    assert delays.hits == 4
    assert stored_bodies(mq) == stored_bodies_of(40)


@pytest.mark.parametrize(
    "code",
    [ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE],
)
def test_a_weaker_status_fails_the_task_unless_it_is_accepted(
    mq: MockCluster, write: Write, code: ResponseCode
) -> None:
    mq.inject(status(code), on=SENDS)
    with pytest.raises(SendError, match=r"10 messages .*as durably") as failure:
        write(numbered(10))
    assert failure.value.failed == 10
    mq.inject(status(code), on=SENDS)
    write(numbered(10), acceptStatuses=f"SEND_OK,{code.name}")


def test_a_failure_says_the_first_cause_and_how_many_messages_failed(mq: MockCluster, write: Write) -> None:
    mq.fail(SENDS, code=ResponseCode.SYSTEM_ERROR, times=None, remark="no space on the device")
    with pytest.raises(SendError, match=r"30 messages .* the first cause: .*no space") as failure:
        write(numbered(30), batchSize=10, retries=1, sendsInFlight=3)
    assert failure.value.failed == 30
    assert failure.value.facts["partition"] == 3
    assert isinstance(failure.value.__cause__, SendError)


def test_a_failed_task_reads_no_further(mq: MockCluster, write: Write) -> None:
    mq.fail(SENDS, code=ResponseCode.SYSTEM_ERROR, times=None)
    batches = (numbered(10, first) for first in range(0, 10_000, 10))
    taken = []

    def counted() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            taken.append(batch)
            yield batch

    options = parse_options(
        SinkOptions, {"nameServer": mq.name_server, "topic": "orders", "retries": 0}, environ={}
    )
    layout = sink_layout(from_arrow_schema(numbered(1).schema), options)
    with Client(options.client) as client:
        task = WriteTask(client, options, layout, SCOPE)
        with pytest.raises(SendError):
            task.run(counted())
    assert len(taken) < 50


def test_answers_that_came_while_the_rows_were_slow_count(mq: MockCluster) -> None:
    def slow() -> Iterator[pa.RecordBatch]:
        for first in range(3):
            yield numbered(1, first)
            time.sleep(0.3)  # the query upstream, slower than a send may be

    given = {"nameServer": mq.name_server, "topic": "orders", "sendTimeoutMs": 150}
    options = parse_options(SinkOptions, given, environ={})
    layout = sink_layout(from_arrow_schema(numbered(1).schema), options)
    with Client(options.client) as client:
        WriteTask(client, options, layout, SCOPE).run(slow())
    assert stored_bodies(mq) == stored_bodies_of(3)


@pytest.mark.parametrize("limit", ["slaveTimeout", "syncFlushTimeout", "putMessageTimeout"])
def test_a_store_as_slow_as_brokers_let_it_be_is_not_sent_again(mq: MockCluster, limit: str) -> None:
    """By default. A broker answers by then, with a status that acceptStatuses may name."""
    clock = FakeClock()
    slow_s = {"slaveTimeout": 3, "syncFlushTimeout": 5, "putMessageTimeout": 8}[limit] + 1
    sends = mq.inject(Delay(0.3), on=SENDS)

    def taken() -> Iterator[pa.RecordBatch]:
        yield numbered(1)
        clock.now_s += slow_s

    options = parse_options(SinkOptions, {"nameServer": mq.name_server, "topic": "orders"}, environ={})
    layout = sink_layout(from_arrow_schema(numbered(1).schema), options)
    with Client(options.client, clock=clock) as client:
        WriteTask(client, options, layout, SCOPE).run(taken())
    assert sends.hits == 1
    assert stored_bodies(mq) == stored_bodies_of(1)


def test_an_outage_is_waited_for(mq: MockCluster, write: Write) -> None:
    mq.fail(SENDS, code=ResponseCode.SYSTEM_BUSY, times=6)
    write(numbered(10), retries=1, outageTimeout="30s")
    assert stored_bodies(mq) == stored_bodies_of(10)


def test_a_broker_that_goes_is_passed_over(mq: MockCluster, write: Write) -> None:
    mq.stop_broker("broker-a")
    write(numbered(60), batchSize=10)
    assert stored_bodies(mq) == stored_bodies_of(60)


# --- order ----------------------------------------------------------------------------------


def test_order_in_a_queue_holds_over_retries_and_slow_answers(mq: MockCluster, write: Write) -> None:
    hung_up = mq.inject(HangUp(), on=SENDS, times=2, after=3)
    busy = mq.fail(SENDS, code=ResponseCode.SYSTEM_BUSY, times=5)
    slow = mq.inject(Delay(0.05), on=SENDS, times=4)
    write(rows(*[str(n) for n in range(600)], shardingKey=[f"k{n % 9}" for n in range(600)]), batchSize=20,
          retries=9)  # fmt: skip
    for queue in mq.queues("orders"):
        found = [int(message.body) for message in mq.messages("orders", queue)]
        firsts = list(dict.fromkeys(found))
        assert firsts == sorted(firsts)
    assert len({message.body for message in stored(mq)}) == 600
    assert (hung_up.hits, busy.hits, slow.hits) == (2, 5, 4)


def test_order_in_a_queue_holds_for_rows_that_are_sent_in_different_ways(
    mq: MockCluster, write: Write
) -> None:
    """Small ones in batches, larger ones compressed; rows of several queues take turns."""
    bodies = [f"{number:03}" + "x" * (200 if number % 5 == 0 else 0) for number in range(120)]
    batch = rows(*bodies, shardingKey=[f"k{number % 7}" for number in range(120)])
    report = write(batch, compression="zlib", compressAbove="100")
    for queue in mq.queues("orders"):
        found = [message.body for message in mq.messages("orders", queue)]
        assert len(found) > 1
        assert found == sorted(found)
    assert stored_bodies(mq) == sorted(bodies)
    assert report.sends < 80, "neighbors in a queue share a send"


def test_queues_take_turns_if_each_message_is_sent_alone_in_order(mq: MockCluster, write: Write) -> None:
    count = 400
    write(rows(*[str(n) for n in range(count)], shardingKey=[f"k{n % 9}" for n in range(count)]), batchSize=1)
    sent = {queue: mq.messages("orders", queue) for queue in mq.queues("orders")}
    for messages in sent.values():
        found = [int(message.body) for message in messages]
        assert found == sorted(found)
    used = [messages for messages in sent.values() if messages]
    assert sum(map(len, used)) == count
    assert len(used) > 1
    # A queue's last message leaves after answers to all others of it, each queue's first one at once.
    first_ms = max(messages[0].born_timestamp for messages in used)
    assert all(first_ms <= messages[-1].born_timestamp for messages in used)


def test_a_single_message_keeps_its_flag_and_may_be_as_large_as_brokers_take(
    mq: MockCluster, write: Write
) -> None:
    batch = rows("x" * 1_000, "y", flag=pa.array([7, 8], pa.int32()))
    write(batch, batchSize=1, maxMessageBytes=1_000, batchBytes=1_000, compression="none")
    assert sorted((len(message.body), message.flag) for message in stored(mq)) == [(1, 8), (1_000, 7)]


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
def test_a_body_that_does_not_shrink_is_sent_alone_where_a_batch_would_be_too_large(
    mq: MockCluster, write: Write, compression: str
) -> None:
    body = Random(1).randbytes(10_000 - 22 - UNIQUE_KEY_BYTES)
    write(rows(body, b"y"), maxMessageBytes=10_000, batchBytes=10_000, compression=compression)
    assert sorted(len(message.body) for message in stored(mq)) == [1, len(body)]


def test_behind_a_send_that_fails_for_good_nothing_of_its_queue_is_sent(
    mq: MockCluster, write: Write
) -> None:
    mq.inject(status(ResponseCode.FLUSH_DISK_TIMEOUT), on=SENDS)
    with pytest.raises(SendError) as failure:
        write(rows(*[str(n) for n in range(50)]), shardingKey="k", batchSize=10)
    assert [int(message.body) for message in stored(mq)] == list(range(10))
    assert failure.value.failed == 50


# --- topics ---------------------------------------------------------------------------------


def test_a_missing_topic_is_an_error_that_says_what_to_do(mq: MockCluster, write: Write) -> None:
    with pytest.raises(TopicNotFoundError, match=r"createTopic=true.*topic=nowhere"):
        write(numbered(1), topic="nowhere")
    with pytest.raises(TopicNotFoundError, match="createTopic"):
        write(rows("x", topic=["nowhere"]), topic=None)


def test_a_topic_is_made_on_request_with_so_many_queues(mq: MockCluster, write: Write) -> None:
    write(numbered(3), topic="new", createTopic=True, topicQueues=3)
    assert len(mq.queues("new")) == 6
    assert stored_bodies(mq, "new") == stored_bodies_of(3)


def test_a_topic_that_another_writer_created_first_stays_as_it_is(mq: MockCluster, write: Write) -> None:
    missed = mq.inject(Refuse(ResponseCode.TOPIC_NOT_EXIST), on=RequestCode.GET_ROUTEINFO_BY_TOPIC)
    write(numbered(3), createTopic=True, topicQueues=1)
    assert missed.hits == 1
    assert len(mq.queues("orders")) == 4
    assert stored_bodies(mq) == stored_bodies_of(3)


def test_a_topic_that_may_not_be_written(mq: MockCluster, write: Write) -> None:
    mq.create_topic("closed", 1, perm=Permission.READ)
    with pytest.raises(PermissionDeniedError, match="permission forbids"):
        write(numbered(1), topic="closed")


@pytest.mark.parametrize("others", [[], ["broker-b"]], ids=["no broker is left", "another one is there"])
def test_a_topic_whose_broker_restarts_is_waited_for(
    others: list[str], mq: MockCluster, write: Write
) -> None:
    mq.unregister("broker-a")
    mq.unregister("broker-b")
    for broker in others:
        mq.register(broker)
    name = "elsewhere" if others else "orders"
    back = threading.Timer(0.3, lambda: mq.create_topic(name, 1) if others else mq.register("broker-a"))
    back.start()
    try:
        assert write(numbered(3), topic=name, outageTimeout="20s").rows == 3
    finally:
        back.join()
    assert stored_bodies(mq, name) == stored_bodies_of(3)


def test_a_topic_that_may_be_written_at_a_broker_that_restarts_is_waited_for(
    mq: MockCluster, write: Write
) -> None:
    """Name servers that restart know the brokers one by one, and the first may be one that is read-only."""
    mq.create_topic("orders", 1, perm=Permission.READ, brokers=["broker-b"])
    mq.unregister("broker-a")
    back = threading.Timer(0.3, lambda: mq.register("broker-a"))
    back.start()
    try:
        assert write(numbered(3), outageTimeout="20s").rows == 3
    finally:
        back.join()
    assert stored_bodies(mq) == stored_bodies_of(3)


def test_no_broker_at_all_is_not_a_missing_topic(mq: MockCluster, write: Write) -> None:
    mq.unregister("broker-a")
    mq.unregister("broker-b")
    with pytest.raises(BrokerNotFoundError, match="no broker is registered"):
        write(numbered(1), outageTimeout="300ms")


def test_a_topic_that_stays_away_beside_other_brokers_is_missing(mq: MockCluster, write: Write) -> None:
    with pytest.raises(TopicNotFoundError, match="createTopic"):
        write(numbered(1), topic="nowhere", outageTimeout="2s")


def test_a_missing_topic_asks_once_which_brokers_are_registered(mq: MockCluster) -> None:
    given = {"nameServer": mq.name_server, "topic": "order"}
    options = parse_options(SinkOptions, given, where="write", environ={})
    with Client(mq.name_server) as client:
        with pytest.raises(TopicNotFoundError, match=r"did you mean orders\? Otherwise create it"):
            SinkTopics(client, options).queues("order")
        assert mq.asked[RequestCode.GET_BROKER_CLUSTER_INFO] == 1


@pytest.mark.parametrize("dead_letters", [{"deadLetterTopic": "dead"}, {}], ids=["dead letters", "none"])
def test_a_topic_of_a_row_whose_broker_restarts_is_waited_for(
    dead_letters: dict[str, str], mq: MockCluster, write: Write
) -> None:
    """Another broker is there: it takes dead letters, and knows nothing of the topic."""
    mq.create_topic("dead", 1, brokers=["broker-b"])
    mq.create_topic("payments", 1, brokers=["broker-a"])
    mq.unregister("broker-a")
    back = threading.Timer(0.3, lambda: mq.register("broker-a"))
    back.start()
    try:
        batch = rows("x", "y", topic=["payments", "dead"])
        report = write(batch, topic=None, outageTimeout="20s", **dead_letters)
    finally:
        back.join()
    assert (report.rows, report.dead_letters) == (2, 0)
    assert stored_bodies(mq, "payments") == ["x"]


def test_the_topic_of_dead_letters_whose_broker_restarts_is_waited_for(mq: MockCluster, write: Write) -> None:
    """Another broker is there, and knows nothing of the topic."""
    mq.create_topic("dead", 1, brokers=["broker-a"])
    mq.create_topic("orders", 1, brokers=["broker-b"])
    mq.unregister("broker-a")
    back = threading.Timer(0.3, lambda: mq.register("broker-a"))
    back.start()
    try:
        report = write(rows("x", ""), outageTimeout="20s", deadLetterTopic="dead")
    finally:
        back.join()
    assert (report.rows, report.dead_letters) == (2, 1)
    assert len(mq.messages("dead")) == 1


def test_a_broker_that_rows_name_is_waited_for_while_it_restarts(mq: MockCluster, write: Write) -> None:
    mq.create_topic("dead", 1, brokers=["broker-b"])
    mq.unregister("broker-a")
    back = threading.Timer(0.3, lambda: mq.register("broker-a"))
    back.start()
    try:
        batch = rows("x", "y", brokerName=["broker-a", "broker-b"], queueId=pa.array([1, 1], pa.int32()))
        assert write(batch, deadLetterTopic="dead", outageTimeout="20s").dead_letters == 0
    finally:
        back.join()
    assert [m.body for m in mq.messages("orders", mq.queue("orders", 1, "broker-a"))] == [b"x"]


def test_a_broker_that_comes_back_after_the_route_was_looked_up_gets_its_rows(
    mq: MockCluster, write: Write, monkeypatch
) -> None:
    mq.create_topic("dead", 1, brokers=["broker-b"])
    mq.unregister("broker-a")
    look_up = NameServers.fetch_registered_brokers

    def register_first(*args: object, **given: object) -> object:
        mq.register("broker-a")
        return look_up(*args, **given)

    monkeypatch.setattr(NameServers, "fetch_registered_brokers", register_first)
    batch = rows("x", "y", brokerName=["broker-a", "broker-b"], queueId=pa.array([1, 1], pa.int32()))
    assert write(batch, deadLetterTopic="dead", outageTimeout="20s").dead_letters == 0


def test_missing_topics_of_rows_are_waited_for_once_while_all_brokers_are_there(
    mq: MockCluster, caplog: pytest.LogCaptureFixture
) -> None:
    registration_s = 30  # brokers repeat it every 30 s: a restarted name server may know nothing for so long
    settings = {"nameServer": mq.name_server, "deadLetterTopic": "dead", "outageTimeout": "60s"}
    options = parse_options(SinkOptions, settings, environ={})
    clock = FakeClock(0.0, base=SYSTEM_CLOCK)
    with Client(options.client, clock=clock) as client:

        def waited_s(topic: str) -> float:
            """Return how long a new task waits before it gives the topic up."""
            before, slept = clock.monotonic(), len(clock.sleeps)
            assert SinkTopics(client, options, patient=True).queues(topic) is None
            return clock.monotonic() - before if len(clock.sleeps) > slept else 0.0

        assert waited_s("nowhere") > registration_s
        (told,) = [record.getMessage() for record in caplog.records]
        assert "the rows of topic nowhere wait: no name server has a route to the topic" in told
        assert waited_s("nowhere") == 0
        assert waited_s("nor here") == 0
        mq.unregister("broker-b")
        assert waited_s("nor here") > registration_s
        mq.register("broker-b")
        assert SinkTopics(client, options, patient=True).queues("orders") is not None
        mq.unregister("broker-b")
        assert waited_s("nowhere") > registration_s
        clock.now_s += 3_600
        assert waited_s("nowhere") > registration_s
        mq.register("broker-b")

        def waited_for_s(broker: str) -> float:
            before, slept = clock.monotonic(), len(clock.sleeps)
            client.invalidate("orders")
            assert SinkTopics(client, options, patient=True).queues("orders", {broker}) is not None
            return clock.monotonic() - before if len(clock.sleeps) > slept else 0.0

        assert waited_for_s("no such broker") == 0
        mq.unregister("broker-b")
        assert waited_for_s("broker-b") > registration_s
        assert waited_for_s("broker-b") == 0


@pytest.mark.parametrize("outage_s", [1, 2, 10, 60])
def test_the_wait_for_a_missing_topic_ends_before_the_outage_is_over(mq: MockCluster, outage_s: int) -> None:
    """Else the last error would be that of the outage, however the pauses fall."""
    options = parse_options(
        SinkOptions,
        {"nameServer": mq.name_server, "topic": "nowhere", "outageTimeout": f"{outage_s}s"},
        environ={},
    )
    for seed in range(20):
        clock = FakeClock(0.0, base=SYSTEM_CLOCK)
        with Client(options.client, clock=clock, random=Random(seed)) as client:
            with pytest.raises(TopicNotFoundError, match="does not exist"):
                SinkTopics(client, options, patient=True).queues("nowhere")
            assert clock.monotonic() >= min(outage_s / 2, 30)


# --- dead letters ---------------------------------------------------------------------------

BAD = rows(
    *(b"fine", b"", b"fine too", b"x" * 2000, b"tagged", b"lost"),
    topic=["orders", "orders", "orders", "orders", "orders", "no such topic"],
    tags=[None, "t", None, None, "a\x01b", None],
)


def test_a_row_that_cannot_be_sent_fails_the_task(write: Write) -> None:
    with pytest.raises(OptionError, match=r"cannot be sent: it has no body.*deadLetterTopic"):
        write(BAD, topic=None, maxMessageBytes=1000, batchBytes=1000)


def test_dead_letters_go_to_a_topic_with_their_cause(mq: MockCluster, write: Write) -> None:
    mq.create_topic("dead", 1)
    report = write(
        BAD, topic=None, deadLetterTopic="dead", maxMessageBytes=1000, batchBytes=1000, compression="none"
    )
    assert (report.rows, report.dead_letters) == (6, 4)
    assert stored_bodies(mq) == ["fine", "fine too"]
    found = {message.properties["deadLetterCause"]: message for message in stored(mq, "dead")}
    assert len(found) == 4
    empty, long, tagged, lost = (
        next(message for cause, message in found.items() if part in cause)
        for part in ("no body", "maxMessageBytes", "tags holds", "no legal name")
    )
    assert (empty.tags, empty.properties["deadLetterBodyBytes"]) == ("t", "0")
    assert (long.body, long.properties["deadLetterBodyBytes"]) == (b"x" * 1000, "2000")
    assert (tagged.body, tagged.tags) == (b"tagged", "a?b")
    assert lost.properties["deadLetterTopic"] == "no such topic"


def test_a_dead_letter_has_room_for_long_texts(mq: MockCluster, write: Write) -> None:
    """A property is measured in bytes: keys and tags of more than 32,767 are a cause of dead letters."""
    mq.create_topic("dead", 1)
    long = "\U0001f600" * 9_000
    batch = rows(b"one", b"two", keys=[long, "k" * 40_000], tags=[long, "é" * 9_000])
    assert write(batch, deadLetterTopic="dead").dead_letters == 2
    one, two = sorted(stored(mq, "dead"), key=lambda message: message.body)
    assert (one.keys, one.tags) == (long[:2_000], long[:2_000])
    assert (two.keys, two.tags) == ("k" * 8_000, "é" * 4_000)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_dead_letter_goes_to_any_broker_that_takes_it(mq: MockCluster, write: Write, ordered: bool) -> None:
    """Also in an ordered write: dead letters have no order."""
    mq.create_topic("dead", 1)
    mq.stop_broker("broker-a", unregister=False)
    batch = rows("", "", brokerName=["broker-b"] * 2, queueId=pa.array([0, 0], pa.int32()))
    assert write(batch, deadLetterTopic="dead", ordered=ordered, outageTimeout="0s").dead_letters == 2
    assert len(stored(mq, "dead")) == 2


def test_dead_letters_go_to_a_folder_of_parquet_files_and_replace_their_own(
    write: Write, tmp_path: Path
) -> None:
    for _ in range(2):
        report = write(BAD, topic=None, deadLetterPath=str(tmp_path), maxMessageBytes=1000, batchBytes=1000,
                       compression="none")  # fmt: skip
        assert report.dead_letters == 4
    table = pq.read_table(str(tmp_path))
    assert table.num_rows == 4
    assert {len(row["body"]) for row in table.to_pylist()} == {0, 2000, 6, 4}


def illegal(body: str) -> pa.RecordBatch:
    return rows(body, tags=["\x01"])


def dead_bodies(folder: Path) -> list[str]:
    return sorted(row["body"].decode() for row in pq.read_table(folder).to_pylist())


def test_two_attempts_at_once_leave_one_whole_file(write: Write, tmp_path: Path) -> None:
    def first() -> Iterator[pa.RecordBatch]:
        for number in range(3):
            yield illegal(f"d{number}")
            if number == 1:  # the other attempt runs from its begin to its end meanwhile
                write(*map(illegal, ("d0", "d1", "d2")), deadLetterPath=str(tmp_path))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dead_letters, "_FLUSH_ROWS", 1)
        assert (
            write(schema=illegal("").schema, batches=first(), deadLetterPath=str(tmp_path)).dead_letters == 3
        )
    assert dead_bodies(tmp_path) == ["d0", "d1", "d2"]
    assert len(list(tmp_path.iterdir())) == 1


def test_writes_do_not_replace_one_anothers_dead_letters(write: Write, tmp_path: Path) -> None:
    for day in ("monday", "tuesday"):
        for _ in range(2):  # its task runs again
            scope = WriteScope(job="the same jobId", partition=0, write=day)
            write(illegal(day), scope=scope, deadLetterPath=str(tmp_path))
    assert dead_bodies(tmp_path) == ["monday", "tuesday"]


class LikeHdfs(fs.LocalFileSystem):
    """It does not rename over a file."""

    def move(self, src: str, dest: str) -> None:
        if Path(dest).exists():
            raise OSError(f"rename to {dest} failed")
        super().move(src, dest)


def test_a_batch_that_is_repeated_replaces_its_dead_letters_on_hdfs(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "file_system", lambda path: (LikeHdfs(), path))
    for body in ("first", "again"):
        write(illegal(body), deadLetterPath=str(tmp_path))
    assert dead_bodies(tmp_path) == ["again"]
    assert len(list(tmp_path.iterdir())) == 1


class FullDisk(fs.LocalFileSystem):
    """Nothing fits into its files."""

    def open_output_stream(self, path: str, **given: object) -> pa.NativeFile:  # noqa: ARG002
        return super().open_output_stream("/dev/full", **given)


@pytest.mark.parametrize("flush_rows", [1, 10_000])
@pytest.mark.parametrize(
    ("files", "folder", "cause"),
    [(FullDisk(), "dead", "No space left on device"), (fs.LocalFileSystem(), "a file/dead", "a file/dead")],
)
def test_a_folder_of_dead_letters_that_cannot_be_written_is_told(
    write: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flush_rows: int,
    files: fs.FileSystem,
    folder: str,
    cause: str,
) -> None:
    (tmp_path / "a file").touch()
    monkeypatch.setattr(dead_letters, "file_system", lambda path: (files, path))
    monkeypatch.setattr(dead_letters, "_FLUSH_ROWS", flush_rows)
    with pytest.raises(RocketMQError, match=cause) as caught:
        write(illegal("x"), deadLetterPath=str(tmp_path / folder))
    assert "the folder of dead letters cannot be written" in caught.value.message
    assert caught.value.facts == {"option": "deadLetterPath", "folder": str(tmp_path / folder)}


def test_a_task_that_fails_leaves_no_file(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield illegal("x")
        raise RuntimeError("the task is cancelled")

    monkeypatch.setattr(dead_letters, "_FLUSH_ROWS", 1)
    with pytest.raises(RuntimeError, match="cancelled"):
        write(schema=illegal("").schema, batches=failing(), deadLetterPath=str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_what_the_broker_refuses_is_found_within_its_batch(mq: MockCluster, write: Write) -> None:
    mq.create_topic("dead", 1)
    mq.fail(BATCH, code=ResponseCode.MESSAGE_ILLEGAL, remark="the message is illegal")
    mq.fail(RequestCode.SEND_MESSAGE_V2, code=ResponseCode.MESSAGE_ILLEGAL, remark="this one")
    report = write(rows("a", "b", "c", tags=["t", "t", "t"]), deadLetterTopic="dead")
    assert report.dead_letters == 1
    (dead,) = stored(mq, "dead")
    assert "this one" in dead.properties["deadLetterCause"]
    assert dead.tags == "t"
    assert sorted([dead.body.decode(), *stored_bodies(mq)]) == ["a", "b", "c"]


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY])
def test_what_fails_for_another_reason_is_no_dead_letter(
    mq: MockCluster, write: Write, tmp_path: Path, code: ResponseCode
) -> None:
    mq.fail(SENDS, code=code, times=None)
    with pytest.raises(SendError, match="10 messages"):
        write(numbered(10), deadLetterPath=str(tmp_path / "dead"), retries=0)
    assert [*tmp_path.rglob("*.parquet")] == []


def test_a_task_counts_its_sends(mq: MockCluster, write: Write) -> None:
    mq.create_topic("dead", 1)
    assert write(numbered(25), batchSize=10).sends == 3
    mq.inject(Refuse(ResponseCode.MESSAGE_ILLEGAL), on=BATCH)
    assert write(numbered(20), batchSize=10, sendsInFlight=1, deadLetterTopic="dead").sends == 2 + 10


def test_rows_without_a_key_go_to_the_queues_in_turn_also_in_order(mq: MockCluster, write: Write) -> None:
    """With `ordered` a send has one queue: the pieces of a batch that Spark hands over take turns."""
    pieces = [numbered(5, first) for first in range(0, 40, 5)]
    write(*pieces, ordered=True)
    found = [
        [message.body.decode() for message in mq.messages("orders", queue)] for queue in mq.queues("orders")
    ]
    assert [len(bodies) for bodies in found] == [10] * 4
    assert all(bodies == sorted(bodies, key=lambda body: int(body[1:])) for bodies in found)


def test_messages_of_a_refused_batch_are_sent_one_by_one_as_they_are(mq: MockCluster, write: Write) -> None:
    """Their flags, and that their bodies are compressed: else readers would get the compressed bytes."""
    mq.create_topic("dead", 1)
    refused = mq.inject(Refuse(ResponseCode.MESSAGE_ILLEGAL), on=BATCH, times=None)
    bodies = ["a" * 200, "b" * 200, "c" * 200]
    given = {"compression": "zlib", "compressAbove": "100", "deadLetterTopic": "dead"}
    report = write(rows(*bodies, flag=pa.array([1, 2, 3], pa.int32())), **given)
    assert refused.hits
    assert report.dead_letters == 0
    found = [(message.body.decode(), message.flag, message.sys_flag & 1) for message in stored(mq)]
    assert sorted(found) == [(body, flag, 1) for flag, body in enumerate(bodies, 1)]


@pytest.mark.parametrize("ordered", [False, True])
def test_one_row_that_is_refused_is_one_dead_letter(mq: MockCluster, write: Write, ordered: bool) -> None:
    """The rows that wait for it in its queue are sent, and keep their order."""
    mq.create_topic("dead", 1)
    mq.fail(BATCH, code=ResponseCode.MESSAGE_ILLEGAL)
    mq.inject(Refuse(ResponseCode.MESSAGE_ILLEGAL, "this one"), on=RequestCode.SEND_MESSAGE_V2, after=2)
    report = write(
        rows(*[f"{number:02}" for number in range(80)], shardingKey=["k"] * 80),
        deadLetterTopic="dead",
        batchSize=10,
        ordered=ordered,
    )
    (dead,) = stored(mq, "dead")
    assert report.dead_letters == 1
    expected = [f"{number:02}" for number in range(80)]
    expected.remove(dead.body.decode())
    assert stored_bodies(mq) == expected
    if ordered:
        assert dead.body == b"02"
        assert [message.body.decode() for message in stored(mq)] == expected


def test_a_missing_topic_of_a_row_is_a_dead_letter(mq: MockCluster, write: Write) -> None:
    mq.create_topic("dead", 1)
    report = write(rows("x", "y", topic=["nowhere", "orders"]), topic=None, deadLetterTopic="dead")
    assert report.dead_letters == 1
    assert stored_bodies(mq) == ["y"]


def test_a_queue_that_is_not_there_is_a_dead_letter(mq: MockCluster, write: Write) -> None:
    mq.create_topic("dead", 1)
    batch = rows("x", "y", brokerName=["broker-a"] * 2, queueId=pa.array([5, 1], pa.int32()))
    assert write(batch, deadLetterTopic="dead").dead_letters == 1
    (dead,) = stored(mq, "dead")
    assert (dead.body, dead.properties["deadLetterTopic"]) == (b"x", "orders")
    with pytest.raises(OptionError, match="its queue does not exist"):
        write(batch)


# --- write ids ------------------------------------------------------------------------------


def test_a_repeated_task_gives_its_rows_the_same_ids(mq: MockCluster, write: Write) -> None:
    for _ in range(2):
        report = write(rows("a", "b", "a"), deliveryGuarantee="effectively-once")
    ids = [message.properties["writeId"] for message in stored(mq)]
    assert len(ids) == 6
    assert len(set(ids)) == 3
    assert len(report.contents) == 2 * 8
    write(rows("a"), scope=WriteScope(job="query/8", partition=0), deliveryGuarantee="effectively-once")
    assert len({message.properties["writeId"] for message in stored(mq)}) == 4


def test_the_users_own_ids_are_taken_and_every_row_needs_one(mq: MockCluster, write: Write) -> None:
    report = write(rows("a", "b", writeId=pa.array([1, 2])), deliveryGuarantee="effectively-once")
    assert sorted(message.properties["writeId"] for message in stored(mq)) == ["1", "2"]
    assert report.contents == b""
    with pytest.raises(OptionError, match="no write id"):
        write(rows("a", writeId=pa.array([None], pa.string())), deliveryGuarantee="effectively-once")


def test_a_row_whose_properties_leave_no_room_for_its_write_id_is_refused(
    mq: MockCluster, write: Write
) -> None:
    properties = pa.array([[("p", "v" * (32_767 - UNIQUE_KEY_BYTES - 3))]], pa.map_(pa.string(), pa.string()))
    write(rows("as it is", properties=properties))
    with pytest.raises(OptionError, match="properties take over"):
        write(rows("with an id", properties=properties), deliveryGuarantee="effectively-once")
    assert stored_bodies(mq) == ["as it is"]


def test_the_scope_of_write_ids_may_be_long(mq: MockCluster, write: Write) -> None:
    for job in ("j" * 65, "j" * 66):
        write(rows("a"), scope=WriteScope(job=job, partition=0), deliveryGuarantee="effectively-once")
    assert len({message.properties["writeId"] for message in stored(mq)}) == 2
