"""Offsets that are used again, in queues that have grown past the checkpoint."""

from __future__ import annotations

import json

import pytest
from tests.support.clocks import FakeClock
from tests.unit.spark.fake_rocketmq import FakeRocketMQ

from pyspark_rocketmq.errors import (
    CorruptMessageError,
    DataLossError,
    NameServerError,
    PermissionDeniedError,
    RequestTimeoutError,
    RocketMQError,
)
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.offsets.stream_offset import SourceOffset, Witness
from pyspark_rocketmq.offsets.topic_recreation import choose_witnesses
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.remoting.codes import ResponseCode
from pyspark_rocketmq.spark.read.schema import read_schema
from pyspark_rocketmq.spark.read.stream import RocketMQStreamReader

A0, A1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
B0 = MessageQueue("orders", "broker-b", 0)


def reader(mq: FakeRocketMQ, **options: str) -> RocketMQStreamReader:
    given = {"nameServer": "127.0.0.1:9876", "topic": "orders", "startingOffsets": "earliest"} | options
    parsed = parse_options(SourceOptions, given, where="readStream", environ={})
    return RocketMQStreamReader(parsed, read_schema(None), connect=lambda _: mq, clock=mq.clock)


def go_on(mq: FakeRocketMQ, start: dict[str, object] | None = None, **options: str) -> dict[str, object]:
    """Plan one batch with a new reader, as a new run of the query does."""
    stream = reader(mq, **options)
    start = start or stream.initialOffset()
    return json.loads(json.dumps(stream.latestOffset(start, stream.getDefaultReadLimit())))


@pytest.fixture
def mq() -> FakeRocketMQ:
    mq = FakeRocketMQ(FakeClock(), [A0, A1, B0])
    mq.send(A0, A0, A1, B0)
    return mq


def test_the_end_of_a_batch_names_a_message_a_topic_and_broker(mq: FakeRocketMQ):
    end = SourceOffset.from_dict(go_on(mq))
    assert end.witnesses == {A0: Witness(1, mq.logs[A0][1][0]), B0: Witness(0, mq.logs[B0][0][0])}


def test_the_message_named_is_of_the_queue_of_which_most_was_read(mq: FakeRocketMQ):
    mq.send(A0, A1, A1)
    positions, until = {A0: 2, A1: 0, B0: 1}, {A0: 3, A1: 3, B0: 1}
    found = choose_witnesses(mq, {}, positions, until, group="g")
    assert found == {A1: Witness(2, mq.logs[A1][2][0])}, "nothing of broker-b was read"
    assert mq.calls.count("stored_at") == 1


def test_while_no_broker_tells_the_former_message_stays_named(mq: FakeRocketMQ):
    former = {A0: Witness(0, mq.logs[A0][0][0])}
    mq.dead.add("broker-a")
    assert choose_witnesses(mq, former, {A0: 1}, {A0: 2}, group="g") == former


def test_what_was_not_read_on_keeps_its_witness(mq: FakeRocketMQ):
    end = go_on(mq)
    before = SourceOffset.from_dict(end).witnesses
    mq.send(A1)
    after = SourceOffset.from_dict(go_on(mq, end)).witnesses
    assert after == {A1: Witness(1, mq.logs[A1][1][0]), B0: before[B0]}


def test_a_topic_created_anew_and_grown_past_the_checkpoint_is_told(mq: FakeRocketMQ):
    end = go_on(mq)
    for log in mq.logs.values():
        log.clear()
    mq.send(*[A0, A1, B0] * 4)
    with pytest.raises(DataLossError, match="the topic was created again") as caught:
        go_on(mq, end)
    assert caught.value.condition == "OFFSET_WENT_BACK"
    assert caught.value.facts["offset"] == 1


def test_it_goes_on_where_it_was_when_told_so(mq: FakeRocketMQ, caplog: pytest.LogCaptureFixture):
    end = go_on(mq)
    for log in mq.logs.values():
        log.clear()
    mq.send(*[A0, A1, B0] * 4)
    after = go_on(mq, end, failOnDataLoss="false")
    assert "another message is at offset 1 of orders" in caplog.text
    assert reader(mq).partitions(end, after), "the rest is read"
    assert go_on(mq, after) == after, "the new messages are the witnesses now"


def test_expired_messages_say_nothing(mq: FakeRocketMQ):
    end = go_on(mq)
    mq.send()
    mq.first = {A0: 2, A1: 1, B0: 1}
    assert SourceOffset.from_dict(go_on(mq, end)).offsets == {A0: 3, A1: 2, B0: 2}


def test_one_run_looks_once(mq: FakeRocketMQ):
    end = go_on(mq)
    stream = reader(mq)
    mq.calls.clear()
    for _ in range(3):
        assert stream.latestOffset(end, stream.getDefaultReadLimit()) == end
    assert mq.calls.count("stored_at") == 1


def recreated(mq: FakeRocketMQ, messages: int) -> None:
    for log in mq.logs.values():
        log.clear()
    mq.clock.now_s += 1
    mq.send(*[A0, A1, B0] * messages)


def test_a_topic_recreated_and_regrown_while_the_query_runs_is_told(mq: FakeRocketMQ):
    stream = reader(mq)
    limit = stream.getDefaultReadLimit()
    end = stream.latestOffset(stream.initialOffset(), limit)
    mq.send()
    end = stream.latestOffset(end, limit)
    recreated(mq, 8)
    with pytest.raises(DataLossError, match="the topic was created again") as caught:
        stream.latestOffset(end, limit)
    assert caught.value.condition == "OFFSET_WENT_BACK"


def test_a_running_query_goes_on_where_it_was_when_told_so(
    mq: FakeRocketMQ, caplog: pytest.LogCaptureFixture
):
    stream = reader(mq, failOnDataLoss="false")
    limit = stream.getDefaultReadLimit()
    end = stream.latestOffset(stream.initialOffset(), limit)
    recreated(mq, 8)
    end = stream.latestOffset(end, limit)
    assert "another message is at offset 1 of orders" in caplog.text
    assert SourceOffset.from_dict(end).offsets == {A0: 8, A1: 8, B0: 8}
    caplog.clear()
    mq.send()
    stream.latestOffset(end, limit)
    assert caplog.text == "", "the new messages are the witnesses now"


@pytest.mark.parametrize(
    "error", [RequestTimeoutError("no answer"), NameServerError("none answers"), CorruptMessageError("magic")]
)
def test_a_witness_that_cannot_be_looked_at_is_kept_until_it_can(mq: FakeRocketMQ, error: RocketMQError):
    stream = reader(mq)
    limit = stream.getDefaultReadLimit()
    end = stream.latestOffset(stream.initialOffset(), limit)
    recreated(mq, 8)
    look = mq.stored_at

    def no_answer(offsets, group):
        raise error

    mq.stored_at = no_answer
    end = stream.latestOffset(end, limit)
    mq.stored_at = look
    mq.send()
    with pytest.raises(DataLossError, match="the topic was created again"):
        stream.latestOffset(end, limit)


def test_a_permission_that_is_denied_ends_the_query(mq: FakeRocketMQ):
    end = go_on(mq)

    def denied(offsets, group):
        raise PermissionDeniedError("no", code=ResponseCode.NO_PERMISSION)

    mq.stored_at = denied
    with pytest.raises(PermissionDeniedError):
        go_on(mq, end)


def test_a_witness_that_was_seen_is_not_asked_for_again_while_another_broker_is_away(mq: FakeRocketMQ):
    end = go_on(mq)
    mq.hidden.add("broker-b")
    stream = reader(mq)
    mq.calls.clear()
    for _ in range(3):
        assert stream.latestOffset(end, stream.getDefaultReadLimit()) == end
    assert mq.calls.count("stored_at") == 1


def test_a_broker_that_was_away_is_looked_at_later(mq: FakeRocketMQ):
    end = go_on(mq)
    mq.hidden.add("broker-b")
    stream = reader(mq)
    assert stream.latestOffset(end, stream.getDefaultReadLimit()) == end
    mq.hidden.clear()
    mq.logs[B0].clear()
    mq.send(B0, B0)
    with pytest.raises(DataLossError, match="the topic was created again"):
        stream.latestOffset(end, stream.getDefaultReadLimit())
