"""A batch write returns when its rows can be read, not only stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from tests.support.clocks import FakeClock

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.client.send.readable import wait_until_readable
from pyspark_rocketmq.options import SinkOptions, parse_options
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.frame import decode_frame, encode_frame
from pyspark_rocketmq.spark.write import writer
from pyspark_rocketmq.spark.write.writer import RocketMQBatchWriter
from pyspark_rocketmq.testing import Damage, MockCluster, Refuse, Silence

MAX_OFFSET = RequestCode.GET_MAX_OFFSET
ROWS = pa.RecordBatch.from_pydict({"body": [f"m{number}" for number in range(100)]})


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with MockCluster({"orders": 2}) as cluster:
        yield cluster


def behind() -> Damage:
    """The broker has not added the last message to its queue yet."""

    def change(frame: bytes) -> bytes:
        answer = decode_frame(memoryview(frame))
        fields = {**answer.command.fields, "offset": str(int(answer.command.fields["offset"]) - 1)}
        return encode_frame(replace(answer.command, fields=fields), bytes(answer.body))

    return Damage(change)


def write(mq: MockCluster, rows: pa.RecordBatch = ROWS, **given: str) -> None:
    options = parse_options(
        SinkOptions, {"nameServer": mq.name_server, "topic": "orders"} | given, environ={}
    )
    made = RocketMQBatchWriter(options, from_arrow_schema(rows.schema), overwrite=False)
    made.commit([made.write(iter([rows]))])


def test_a_write_ends_when_every_queue_has_its_rows(mq: MockCluster) -> None:
    late = mq.inject(behind(), on=MAX_OFFSET, times=5)
    write(mq)
    assert late.hits == 5
    assert sum(len(mq.messages("orders", queue)) for queue in mq.queues("orders")) == 100


def test_each_write_waits_for_its_own_rows(mq: MockCluster) -> None:
    write(mq)
    asked = mq.asked[MAX_OFFSET]
    late = mq.inject(behind(), on=MAX_OFFSET, times=1)
    write(mq)
    assert late.hits == 1
    assert mq.asked[MAX_OFFSET] > asked


@pytest.mark.parametrize("delay", [{"delayLevel": "2"}, {}])
def test_delayed_rows_are_not_waited_for(mq: MockCluster, delay: dict[str, str]) -> None:
    rows = ROWS if delay else ROWS.slice(0, 3).append_column("delayLevel", pa.array([1, 1, 1], pa.int32()))
    write(mq, rows.slice(0, 3), **delay)
    assert mq.asked[MAX_OFFSET] == 0


def test_a_writer_that_may_not_read_writes(mq: MockCluster) -> None:
    refused = mq.inject(Refuse(ResponseCode.NO_PERMISSION), on=MAX_OFFSET, times=None)
    write(mq)
    assert refused.hits >= 1


@pytest.mark.parametrize(
    "fault", [Refuse(ResponseCode.NO_PERMISSION), Refuse(ResponseCode.SYSTEM_BUSY), Silence()]
)
def test_a_broker_that_does_not_answer_does_not_end_the_wait_for_others(
    fault: Refuse | Silence, caplog: pytest.LogCaptureFixture
) -> None:
    with MockCluster({"orders": 1}, brokers=("broker-a", "broker-b")) as mq:
        mq.inject(fault, on=MAX_OFFSET, times=None, broker="broker-b")
        late = mq.inject(behind(), on=MAX_OFFSET, times=5, broker="broker-a")
        write(mq, batchSize="10")  # several sends, so that both brokers get some
        assert late.hits == 5
        assert sum(len(mq.messages("orders", queue)) for queue in mq.queues("orders")) == 100
    assert caplog.text.count("not known to be readable") == 1


def test_rows_that_stay_unreadable_fail_no_write(
    mq: MockCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writer, "_READABLE_MS", 50)
    mq.inject(behind(), on=MAX_OFFSET, times=None)
    write(mq)
    assert caplog.text.count("not known to be readable") == 1


def test_the_wait_has_an_end_and_growing_pauses(mq: MockCluster) -> None:
    clock = FakeClock()
    options = parse_options(SinkOptions, {"nameServer": mq.name_server, "topic": "orders"}, environ={})
    with Client(options.client, clock=clock) as client:
        (queue, *_) = mq.queues("orders")
        assert wait_until_readable(client, {}, timeout_ms=0)
        assert wait_until_readable(client, {queue: 0}, timeout_ms=1_000)
        assert not wait_until_readable(client, {queue: 1}, timeout_ms=1_000)
    assert sum(clock.sleeps) == pytest.approx(1.0)
    assert clock.sleeps[:2] == [0.002, 0.004]
    assert max(clock.sleeps) == 0.1
