"""Sends, through brokers that are busy, silent, stopping, or gone."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest
from tests.support.clocks import FakeClock
from tests.support.fakes import Lowest
from tests.support.scripted_cluster import ScriptedCluster, stored
from tests.support.scripted_peer import Peer, answer
from tests.support.wait import eventually

from pyspark_rocketmq.client import (
    Client,
    Compression,
    OutgoingMessage,
    Producer,
    ProducerOptions,
    SendPipeline,
    SendStatus,
    encode_one,
)
from pyspark_rocketmq.client.send.queue_selection import queue_for_key
from pyspark_rocketmq.errors import (
    AuthenticationError,
    ConnectionLostError,
    FlowControlError,
    MessageIllegalError,
    OptionError,
    RequestTimeoutError,
    RocketMQError,
    SendError,
    SendRefusedError,
)
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.frame import Frame
from pyspark_rocketmq.testing import MockCluster

MESSAGE = OutgoingMessage("orders", b"x")
TWO = ("broker-a", "broker-b")


def producer_of(cluster: ScriptedCluster, **options: object) -> Producer:
    client = Client(cluster.name_server, random=Lowest(), operation_timeout_ms=3_000)
    return Producer(client, options=ProducerOptions(**({"send_timeout_ms": 1_000} | options)))  # type: ignore[arg-type]


def test_a_message_goes_to_the_queue_that_is_named_or_to_that_of_its_key() -> None:
    with MockCluster({"orders": 3}, brokers=TWO) as mq, Client(mq.name_server) as client:
        producer = Producer(client, options=ProducerOptions(send_timeout_ms=30_000))
        queues = client.write_queues("orders")
        for queue in queues[::-2]:
            assert producer.send(MESSAGE, queue).queue == queue
            assert producer.send_batch([MESSAGE, MESSAGE], queue).queue == queue
            producer.send_one_way(MESSAGE, queue)
        eventually(lambda: [mq.max_offset(queue) for queue in queues] == [0, 4] * 3, what="all of them")
        keyed = replace(MESSAGE, sharding_key="order-1")
        of_key = queue_for_key("order-1", queues)
        before = mq.max_offset(of_key)
        for _ in range(3):
            assert producer.send(keyed).queue == of_key
            producer.send_one_way(keyed)
        eventually(lambda: sum(mq.max_offset(queue) for queue in queues) == 12 + 6, what="those of the key")
        assert mq.max_offset(of_key) == before + 6


def test_a_queue_that_was_removed_is_not_sent_to() -> None:
    """The producer's route is older: other queues take its messages, unless the caller names that one."""
    with MockCluster({"orders": 4}) as mq, Client(mq.name_server) as client:
        producer = Producer(client)
        removed = producer.send(MESSAGE, mq.queue("orders", 3)).queue
        mq.create_topic("orders", 2)
        assert {producer.send(MESSAGE).queue.queue_id for _ in range(4)} == {0, 1}
        with pytest.raises(RocketMQError, match="orders"):
            producer.send(MESSAGE, removed)


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_PERMISSION,
        ResponseCode.GO_AWAY,
        ResponseCode.INVALID_PARAMETER,
    ],
)
def test_another_broker_is_tried(code: ResponseCode) -> None:
    def script(peer: Peer, frame: Frame, name: str) -> None:
        peer.send(answer(frame, code=code) if name == "broker-a" else stored(frame))

    with ScriptedCluster(script, brokers=TWO, queues=1) as cluster:
        producer = producer_of(cluster)
        results = [producer.send(MESSAGE) for _ in range(4)]
        producer.client.close()
    assert {result.queue.broker_name for result in results} == {"broker-b"}
    # After its failure the broker is passed over.
    assert cluster.asked[RequestCode.SEND_MESSAGE_V2] == 5


@pytest.mark.parametrize(
    ("code", "remark", "error"),
    [
        (ResponseCode.MESSAGE_ILLEGAL, "too large", MessageIllegalError),
        (ResponseCode.NO_PERMISSION, "check signature failed.", AuthenticationError),
        (ResponseCode.SYSTEM_ERROR, "org.apache.rocketmq.acl.common.AclException: no", AuthenticationError),
    ],
)
def test_what_no_broker_will_take(code: ResponseCode, remark: str, error: type[Exception]) -> None:
    def script(peer: Peer, frame: Frame, name: str) -> None:
        del name
        peer.send(answer(frame, code=code, remark=remark))

    with ScriptedCluster(script, brokers=TWO) as cluster:
        producer = producer_of(cluster)
        with pytest.raises(error):
            producer.send(MESSAGE)
        producer.client.close()
    assert cluster.asked[RequestCode.SEND_MESSAGE_V2] == 1


@pytest.mark.parametrize(
    ("code", "cause"),
    [(ResponseCode.SYSTEM_BUSY, FlowControlError), (ResponseCode.SYSTEM_ERROR, SendRefusedError)],
)
def test_retries_end(code: ResponseCode, cause: type[Exception]) -> None:
    def script(peer: Peer, frame: Frame, name: str) -> None:
        del name
        peer.send(answer(frame, code=code, remark="why"))

    with ScriptedCluster(script) as cluster:
        producer = producer_of(cluster, retries=2)
        with pytest.raises(SendError, match="not sent") as caught:
            producer.send_batch([MESSAGE] * 5)
        producer.client.close()
    assert cluster.asked[RequestCode.SEND_BATCH_MESSAGE] == 3
    assert isinstance(caught.value.__cause__, cause)
    assert (caught.value.failed, caught.value.facts["remark"]) == (5, "why")
    assert {"addr", "topic", "queue", "attempts"} <= caught.value.facts.keys()


def test_a_silent_broker_is_given_up() -> None:
    with ScriptedCluster(lambda peer, frame, name: None) as cluster:
        producer = producer_of(cluster, retries=0, send_timeout_ms=1_500)
        producer.client.write_queues("orders")  # with more time than the send has
        producer.client.connection(cluster.addresses["broker-a"])
        with pytest.raises(SendError) as caught:
            producer.send(MESSAGE)
        producer.client.close()
    assert isinstance(caught.value.__cause__, RequestTimeoutError)
    assert re.search(r"no answer within 1[0-5]\d\d ms", str(caught.value.__cause__))


@pytest.mark.parametrize("together", [False, True])
def test_a_message_whose_answer_does_not_come_is_not_called_not_sent(together: bool) -> None:
    kept: list[Frame] = []

    def script(peer: Peer, frame: Frame, name: str) -> None:
        del name
        kept.append(frame)
        if len(kept) == 2:  # what was stored before is not undone by this answer
            peer.send(answer(frame, code=ResponseCode.SYSTEM_BUSY))

    with ScriptedCluster(script) as cluster:
        producer = producer_of(cluster, retries=1, send_timeout_ms=500)
        if together:
            with SendPipeline(producer) as pipeline:
                (outcome,) = pipeline.submit(encode_one(MESSAGE, producer.ids)) + pipeline.flush()
            error = outcome.error
        else:
            with pytest.raises(SendError) as caught:
                producer.send(MESSAGE)
            error = caught.value
        producer.client.close()
    assert len(kept) == 2
    assert isinstance(error, SendError)
    assert error.message.startswith("not acknowledged, but perhaps stored")
    assert isinstance(error.__cause__, FlowControlError)


@pytest.mark.parametrize(("retries", "total_ms"), [(0, 150), (3, 600)])
def test_a_send_has_a_timeout_for_each_attempt(retries: int, total_ms: int) -> None:
    with Client("127.0.0.1:9") as client:
        options = ProducerOptions(retries=retries, send_timeout_ms=150)
        assert Producer(client, options=options).total_deadline().timeout_ms == total_ms


@pytest.mark.parametrize("above", [2_000, 2_001])
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZLIB, Compression.ZSTD])
def test_bodies_are_compressed_as_the_options_say(compression: Compression, above: int) -> None:
    bodies: list[tuple[bytes, int]] = []

    def script(peer: Peer, frame: Frame, name: str) -> None:
        del name
        bodies.append((bytes(frame.body), int(frame.command.fields["f"])))
        peer.send(stored(frame))

    message = OutgoingMessage("orders", b"x" * 2_000)
    with ScriptedCluster(script) as cluster:
        producer = producer_of(
            cluster, compression=compression, batch_compression=compression, compress_above=above
        )
        producer.send_one_way(message)
        eventually(lambda: len(bodies) == 1, what="the message")
        producer.send(message)
        producer.send_batch([message])
        producer.client.close()
    used = compression if above == 2_000 else Compression.NONE
    assert [flags for _, flags in bodies] == [used.value] * 3
    assert [message.body in body for body, _ in bodies] == [used is Compression.NONE] * 3


@pytest.mark.parametrize(
    ("error", "skipped_s"), [(RequestTimeoutError("no answer"), 30), (ConnectionLostError("reset"), 5)]
)
def test_a_broker_that_hangs_is_skipped_for_three_timeouts(error: RocketMQError, skipped_s: float) -> None:
    clock = FakeClock()
    with (
        ScriptedCluster(lambda peer, frame, name: peer.send(stored(frame)), brokers=TWO) as cluster,
        Client(cluster.name_server, clock=clock) as client,
    ):
        producer = Producer(client, options=ProducerOptions(send_timeout_ms=10_000))

        def used() -> set[str]:
            return {producer.send(MESSAGE).queue.broker_name for _ in range(8)}

        assert used() == set(TWO)
        producer.note_failure(MessageQueue("orders", "broker-a", 0), error)
        clock.now_s += skipped_s - 0.01
        assert used() == {"broker-b"}
        clock.now_s += 1
        assert used() == set(TWO)
        producer.note_failure(
            MessageQueue("orders", "broker-a", 0), MessageIllegalError("too large", code=13)
        )
        assert used() == set(TWO), "a failure that is the message's"


def test_a_key_stays_with_its_queue_over_retries() -> None:
    seen: list[str] = []

    def script(peer: Peer, frame: Frame, name: str) -> None:
        seen.append(f"{name}:{frame.command.fields['e']}")
        peer.send(stored(frame) if len(seen) == 3 else answer(frame, code=ResponseCode.SYSTEM_BUSY))

    with ScriptedCluster(script, brokers=TWO) as cluster:
        producer = producer_of(cluster)
        producer.send(OutgoingMessage("orders", b"x", sharding_key="k"))
        producer.client.close()
    assert len(seen) == 3
    assert len(set(seen)) == 1


@pytest.mark.parametrize("key", ["k", None])
def test_a_key_stays_with_its_queue_although_a_retry_sees_more_queues(key: str | None) -> None:
    with MockCluster({"orders": 2}) as mq, Client(mq.name_server) as client:
        producer = Producer(client)
        old, message = client.write_queues("orders"), replace(MESSAGE, sharding_key=key)
        mq.create_topic("orders", 7)
        mq.fail(RequestCode.SEND_MESSAGE_V2, code=ResponseCode.TOPIC_NOT_EXIST)
        sent = producer.send(message).queue
        assert len(client.write_queues("orders")) == 7, "the route is looked up again"
        if key is not None:
            assert queue_for_key(key, client.write_queues("orders")) != queue_for_key(key, old) == sent


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
def test_stored_but_not_safely(code: ResponseCode, status: SendStatus) -> None:
    """The message is there: sending it again would store it twice."""

    def script(peer: Peer, frame: Frame, name: str) -> None:
        del name
        peer.send(answer(frame, code=code, msgId="00", queueId="0", queueOffset="9"))

    with ScriptedCluster(script) as cluster:
        producer = producer_of(cluster)
        with pytest.raises(SendError, match="stored") as caught:
            producer.send(MESSAGE)
        assert caught.value.facts["status"] == status.value
        assert cluster.asked[RequestCode.SEND_MESSAGE_V2] == 1
        lenient = producer_of(cluster, accept_statuses=frozenset(SendStatus))
        result = lenient.send(MESSAGE)
        assert (result.status, result.queue_offset) == (status, 9)
        producer.client.close()
        lenient.client.close()


def test_the_request_never_makes_a_topic() -> None:
    seen: list[str] = []

    def script(peer: Peer, frame: Frame, name: str) -> None:
        del name
        seen.append(frame.command.fields["c"])
        peer.send(stored(frame))

    with ScriptedCluster(script) as cluster:
        producer = producer_of(cluster)
        producer.send(MESSAGE)
        producer.client.close()
    assert seen == ["orders"]


# --- many at a time ---


def test_a_pipeline_retries_what_was_refused() -> None:
    tries: Counter[str] = Counter()

    def script(peer: Peer, frame: Frame, name: str) -> None:
        del name
        body = bytes(frame.body).decode()
        tries[body] += 1
        busy = int(body) % 3 == 0 and tries[body] == 1
        peer.send(answer(frame, code=ResponseCode.SYSTEM_BUSY) if busy else stored(frame))

    with ScriptedCluster(script, brokers=TWO) as cluster:
        producer = producer_of(cluster)
        with SendPipeline(producer, max_in_flight=8) as pipeline:
            outcomes = []
            for number in range(30):
                message = encode_one(OutgoingMessage("orders", b"%d" % number), producer.ids)
                outcomes += pipeline.submit(message, token=number)
            outcomes += pipeline.flush()
        producer.client.close()
    assert sorted(outcome.token for outcome in outcomes) == list(range(30))
    assert not [outcome.error for outcome in outcomes if outcome.error]
    assert sum(tries.values()) == 40


def test_an_ordered_pipeline_has_one_send_in_flight_a_queue() -> None:
    """Also while one is refused and waits for its next try."""
    seen: dict[str, list[int]] = {}
    tries: Counter[int] = Counter()

    def script(peer: Peer, frame: Frame, name: str) -> None:
        number = int(bytes(frame.body))
        tries[number] += 1
        if number % 4 == 1 and tries[number] == 1:
            peer.send(answer(frame, code=ResponseCode.SYSTEM_BUSY))
            return
        seen.setdefault(f"{name}:{frame.command.fields['e']}", []).append(number)
        peer.send(stored(frame))

    with ScriptedCluster(script, brokers=TWO) as cluster:
        producer = producer_of(cluster)
        with SendPipeline(producer, max_in_flight=20, ordered=True) as pipeline:
            for number in range(60):
                message = OutgoingMessage("orders", b"%d" % number)
                pipeline.submit(encode_one(message, producer.ids), key=f"k{number % 5}")
            outcomes = pipeline.flush()
        producer.client.close()
    assert not [outcome.error for outcome in outcomes if outcome.error]
    assert sorted(number for numbers in seen.values() for number in numbers) == list(range(60))
    assert all(numbers == sorted(numbers) for numbers in seen.values())


def test_an_ordered_send_names_its_queue() -> None:
    with ScriptedCluster(lambda peer, frame, name: None) as cluster:
        producer = producer_of(cluster)
        with (
            SendPipeline(producer, ordered=True) as pipeline,
            pytest.raises(OptionError, match="queue or a key"),
        ):
            pipeline.submit(encode_one(MESSAGE, producer.ids))
        producer.client.close()


@pytest.mark.parametrize("ordered", [False, True])
def test_what_waits_behind_a_failure_is_held_back(ordered: bool) -> None:
    """In ordered mode only: sending on would break the order."""

    def script(peer: Peer, frame: Frame, name: str) -> None:
        del name
        fails = bytes(frame.body) == b"1"
        peer.send(answer(frame, code=ResponseCode.SYSTEM_ERROR) if fails else stored(frame))

    with ScriptedCluster(script) as cluster:
        producer = producer_of(cluster, retries=1)
        queue = producer.client.write_queues("orders")[0]
        with SendPipeline(producer, ordered=ordered) as pipeline:
            outcomes = []
            for number in range(3):
                message = encode_one(OutgoingMessage("orders", b"%d" % number), producer.ids)
                outcomes += pipeline.submit(message, queue, token=number)
            outcomes += pipeline.flush()
        producer.client.close()
    assert {outcome.token: type(outcome.error) for outcome in outcomes} == {
        0: type(None),
        1: SendError,
        2: SendError if ordered else type(None),
    }
    assert {outcome.token: outcome.sent for outcome in outcomes} == {0: True, 1: True, 2: not ordered}


def test_nothing_of_a_queue_is_sent_before_its_failure_is_known_to_the_caller() -> None:
    """The caller who learns of the failure from a submit has handed over the next message by then."""
    arrived: list[bytes] = []

    def script(peer: Peer, frame: Frame, name: str) -> None:
        del name
        arrived.append(bytes(frame.body))
        fails = bytes(frame.body) == b"0"
        peer.send(answer(frame, code=ResponseCode.MESSAGE_ILLEGAL) if fails else stored(frame))

    with ScriptedCluster(script) as cluster:
        producer = producer_of(cluster)
        queue = producer.client.write_queues("orders")[0]
        with SendPipeline(producer, max_in_flight=2, ordered=True) as pipeline:
            for number in range(4):
                message = encode_one(OutgoingMessage("orders", b"%d" % number), producer.ids)
                outcomes = pipeline.submit(message, queue, token=number)
                if any(outcome.error for outcome in outcomes):
                    break
            again = [outcome for outcome in outcomes if not outcome.sent]
            assert [outcome.token for outcome in again] == [1, 2]
            assert arrived == [b"0"]
            for outcome in again:
                assert isinstance(outcome.error, SendError)
                pipeline.submit(outcome.outgoing, queue)
            assert [outcome.error for outcome in pipeline.flush()] == [None, None]
        producer.client.close()
    assert arrived == [b"0", b"1", b"2"]


def test_a_pipeline_outlives_lost_connections() -> None:
    received: list[bytes] = []

    def script(peer: Peer, frame: Frame, name: str) -> None:
        del name
        received.append(bytes(frame.body))
        if len(received) % 10 == 5:
            peer.hang_up()
        else:
            peer.send(stored(frame))

    with ScriptedCluster(script) as cluster:
        producer = producer_of(cluster, retries=10)
        with SendPipeline(producer, max_in_flight=4) as pipeline:
            for number in range(40):
                pipeline.submit(encode_one(OutgoingMessage("orders", b"%d" % number), producer.ids))
            outcomes = pipeline.flush()
        producer.client.close()
    assert not [outcome.error for outcome in outcomes if outcome.error]
    assert {int(body) for body in received} == set(range(40))


def test_leaving_a_pipeline_forgets_what_is_in_flight() -> None:
    with ScriptedCluster(lambda peer, frame, name: None) as cluster:
        producer = producer_of(cluster)
        with SendPipeline(producer) as pipeline:
            pipeline.submit(encode_one(MESSAGE, producer.ids))
            assert pipeline.unfinished == 1
        assert pipeline.unfinished == 0
        producer.client.close()
