"""The one reader on a real broker: each message of a range once, in order, whatever limits the broker has."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest
from tests.support.patient import patient_producer
from tests.support.settings import broker_settings
from tests.support.topics import TopicFactory, fill, fresh_name
from tests.support.wait import eventually

from pyspark_rocketmq.client import (
    Admin,
    Client,
    ConsumeFromWhere,
    PullConsumer,
    PushConsumer,
    PushOptions,
    SendPipeline,
    encode_many,
    encode_one,
)
from pyspark_rocketmq.client.read.queue_reader import DecodeOptions, read_batches, read_messages
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.errors import DataLossError, OptionError
from pyspark_rocketmq.model import MessageQueue, MessageSelector, OffsetRange, OutgoingMessage, RangeReport

COLUMNS = ("queueId", "queueOffset", "tags", "body")


@pytest.fixture(scope="module", params=["mq", "mq54", "mq49", "proxied"])
def cluster(request: pytest.FixtureRequest) -> DevCluster:
    return request.getfixturevalue(request.param)


@pytest.fixture
def topic(topic: TopicFactory) -> TopicFactory:
    """Make topics at one broker, of the two that have a proxy."""
    return partial(topic, brokers=["broker-a"])


def tagged(topic: str, bodies: list[bytes], tags: list[str]) -> list[OutgoingMessage]:
    return [OutgoingMessage(topic, body, tags=tag) for body, tag in zip(bodies, tags, strict=True)]


def read(
    client: Client, ranges: list[OffsetRange], group: str, **options: object
) -> tuple[pa.Table, list[RangeReport]]:
    reports: list[RangeReport] = []
    decode = DecodeOptions(columns=COLUMNS, max_batch_rows=1_000)
    batches = list(
        read_batches(
            client, ranges, ReadOptions(consumer_group=group, **options), decode, on_report=reports.append
        )
    )
    assert all(batch.num_rows for batch in batches)
    return pa.Table.from_batches(batches, batches[0].schema if batches else pa.schema([])), reports


def whole(offsets: dict[MessageQueue, int]) -> list[OffsetRange]:
    return [OffsetRange(queue, 0, until) for queue, until in sorted(offsets.items())]


def test_every_message_once_and_in_order(
    client: Client, cluster: DevCluster, topic: TopicFactory, group: str
) -> None:
    name = topic(queues=3, cluster=cluster)
    bodies = [b"message %d" % i for i in range(5_000)]
    offsets = fill(client, name, bodies)
    table, reports = read(client, whole(offsets), group)
    rows = table.to_pydict()
    by_queue = {queue.queue_id: bodies[queue.queue_id :: 3] for queue in offsets}
    assert rows["body"] == [body for queue_id in range(3) for body in by_queue[queue_id]]
    assert rows["queueOffset"] == [i for queue_id in range(3) for i in range(len(by_queue[queue_id]))]
    assert [(report.rows, report.filtered, report.gaps, report.lost) for report in reports] == [
        (len(by_queue[queue_id]), 0, 0, ()) for queue_id in range(3)
    ]


def test_parts_of_queues_meet_without_overlap(
    client: Client, cluster: DevCluster, topic: TopicFactory, group: str
) -> None:
    name = topic(queues=2, cluster=cluster)
    offsets = fill(client, name, [b"%d" % i for i in range(1_200)])
    cuts = [0, 1, 2, 31, 32, 33, 64, 250, 599, 600]
    ranges = [OffsetRange(queue, start, end) for queue in offsets for start, end in itertools.pairwise(cuts)]
    table, reports = read(client, ranges, group)
    rows = table.to_pydict()
    assert list(zip(rows["queueId"], rows["queueOffset"], strict=True)) == [
        (queue.queue_id, offset) for queue in offsets for offset in range(600)
    ]
    assert [report.offsets for report in reports] == ranges


def test_empty_ranges_give_nothing(
    client: Client, cluster: DevCluster, topic: TopicFactory, group: str
) -> None:
    (queue,) = client.read_queues(topic(queues=1, cluster=cluster))
    table, reports = read(client, [OffsetRange(queue, 0, 0), OffsetRange(queue, 5, 5)], group)
    assert table.num_rows == 0
    assert [report.rows for report in reports] == [0, 0]


def test_large_messages_shrink_the_answers(
    client: Client, cluster: DevCluster, topic: TopicFactory, group: str
) -> None:
    """Answers are cut at 256 KiB, so of these a pull brings a few at a time, and a different number each."""
    bodies = [bytes([i % 251]) * (3_000 + (i * 7919) % 60_000) for i in range(400)]
    offsets = fill(client, topic(queues=1, cluster=cluster), bodies)
    table, _ = read(client, whole(offsets), group)
    assert table.column("body").to_pylist() == bodies


def test_one_message_larger_than_an_answer(
    client: Client, cluster: DevCluster, topic: TopicFactory, group: str
) -> None:
    bodies = [b"small", b"x" * 3_500_000, b"small again"]
    offsets = fill(client, topic(queues=1, cluster=cluster), bodies)
    table, _ = read(client, whole(offsets), group)
    assert table.column("body").to_pylist() == bodies


@pytest.mark.parametrize("keep", [1, 3, 50, 3_000])
def test_tag_filter_gives_every_match(
    client: Client, cluster: DevCluster, topic: TopicFactory, group: str, keep: int
) -> None:
    bodies = [b"%d" % i for i in range(6_000)]
    tags = ["wanted" if i % keep == 0 else "other" for i in range(len(bodies))]
    name = topic(queues=1, cluster=cluster)
    offsets = fill(client, name, tagged(name, bodies, tags))
    table, (report,) = read(client, whole(offsets), group, selector=MessageSelector.by_tag("wanted"))
    assert table.column("body").to_pylist() == bodies[::keep]
    assert table.column_names == list(COLUMNS)
    assert report.rows + report.filtered == len(bodies)


def test_tags_that_collide_by_hash_are_told_apart(
    client: Client, cluster: DevCluster, topic: TopicFactory, group: str
) -> None:
    """A broker compares Java hashes of tags, and "Aa" and "BB" have the same."""
    name = topic(queues=1, cluster=cluster)
    offsets = fill(client, name, tagged(name, [b"1", b"2", b"3"], ["Aa", "BB", "Aa"]))
    table, (report,) = read(client, whole(offsets), group, selector=MessageSelector.by_tag("BB"))
    assert table.column("body").to_pylist() == [b"2"]
    assert (report.rows, report.filtered) == (1, 2)


def test_messages_one_by_one_are_the_same(
    client: Client, cluster: DevCluster, topic: TopicFactory, group: str
) -> None:
    offsets = fill(client, topic(queues=2, cluster=cluster), [b"%d" % i for i in range(300)])
    ranges = [OffsetRange(queue, 10, 140) for queue in offsets]
    table, _ = read(client, ranges, group)
    messages = list(read_messages(client, ranges, ReadOptions(consumer_group=group)))
    assert [(message.queue_id, message.queue_offset, message.body) for message in messages] == [
        (row["queueId"], row["queueOffset"], row["body"]) for row in table.to_pylist()
    ]


def test_range_behind_the_end_is_lost(
    client: Client, cluster: DevCluster, topic: TopicFactory, group: str
) -> None:
    (queue,) = fill(client, topic(queues=1, cluster=cluster), [b"%d" % i for i in range(10)])
    with pytest.raises(DataLossError, match="failOnDataLoss=false") as info:
        read(client, [OffsetRange(queue, 4, 20)], group, missing_patience_ms=300)
    assert info.value.condition == "OFFSET_WENT_BACK"
    assert (info.value.facts["from_offset"], info.value.facts["until_offset"]) == (10, 20)

    table, (report,) = read(
        client, [OffsetRange(queue, 4, 20)], group, missing_patience_ms=300, fail_on_data_loss=False
    )
    assert table.column("queueOffset").to_pylist() == [4, 5, 6, 7, 8, 9]
    assert [(str(lost.offsets), lost.condition) for lost in report.lost] == [
        (f"{queue}[10, 20)", "OFFSET_WENT_BACK")
    ]


def test_queue_that_does_not_exist_is_lost(
    client: Client, cluster: DevCluster, topic: TopicFactory, group: str
) -> None:
    (queue,) = fill(client, topic(queues=1, cluster=cluster), [b"1", b"2"])
    missing = MessageQueue(queue.topic, queue.broker_name, 7)
    with pytest.raises(DataLossError) as info:
        read(client, [OffsetRange(missing, 0, 2)], group)
    assert info.value.condition == "QUEUE_LOST"
    table, reports = read(
        client, [OffsetRange(missing, 0, 2), OffsetRange(queue, 0, 2)], group, fail_on_data_loss=False
    )
    assert table.column("body").to_pylist() == [b"1", b"2"]
    assert [len(report.lost) for report in reports] == [1, 0]


def test_an_sql_filter_that_does_not_parse_reads_nothing(
    mq: DevCluster, topic: TopicFactory, group: str
) -> None:
    with Client(mq.name_server) as client, broker_settings(mq, enablePropertyFilter="true"):
        (queue,) = client.write_queues(topic(queues=1, cluster=mq))
        messages = [OutgoingMessage(queue.topic, b"%d" % n, properties={"a": str(n)}) for n in range(10)]
        patient_producer(client).send_batch(messages, queue=queue)
        eventually(lambda: client.max_offsets([queue])[queue] == 10, timeout_s=20)
        ranges = [OffsetRange(queue, 0, 10)]
        table, (report,) = read(client, ranges, group, selector=MessageSelector.by_sql("a > 6"))
        assert table.column("body").to_pylist() == [b"7", b"8", b"9"]
        assert (report.rows, report.filtered) == (3, 7)
        # Without the check the broker answers all ten, code 0.
        with pytest.raises(OptionError, match="does not parse"):
            read(client, ranges, group, selector=MessageSelector.by_sql("a >"))


def test_tags_within_inner_batches_are_found(mq: DevCluster, topic: TopicFactory, group: str) -> None:
    """Brokers compare the tag of the outer record, which has none."""
    name = fresh_name(group)
    with Client(mq.name_server) as client:
        Admin(client).create_topic(name, queues=1, attributes={"queue.type": "BatchCQ"})
        (queue,) = client.write_queues(name)
        producer = patient_producer(client)
        for first in (0, 4):
            messages = [OutgoingMessage(name, b"%d" % n, tags="AB"[n % 2]) for n in range(first, first + 4)]
            batch = encode_many(messages, producer.ids)
            batch = replace(batch, properties=f"UNIQ_KEY\x01{producer.ids.next()}\x02")
            with SendPipeline(producer) as pipeline:
                outcomes = [*pipeline.submit(batch, queue), *pipeline.flush()]
            assert [outcome.error for outcome in outcomes] == [None]
        eventually(lambda: client.max_offsets([queue])[queue] == 8, timeout_s=20)
        for begin, end in ((0, 8), (1, 6)):
            found, reports = read(
                client, [OffsetRange(queue, begin, end)], group, selector=MessageSelector.by_tag("B")
            )
            expected = [n for n in range(begin, end) if n % 2]
            assert found.column("queueOffset").to_pylist() == expected
            assert found.column("body").to_pylist() == [b"%d" % n for n in expected]
            assert [(r.rows, r.filtered) for r in reports] == [(len(expected), end - begin - len(expected))]
        bodies = [b"%d" % n for n in range(1, 8, 2)]
        pulled = PullConsumer(group, client=client).pull(queue, "B", 0)
        assert [message.body for message in pulled.messages] == bodies
        pushed: list[bytes] = []
        with PushConsumer(group, mq.name_server, PushOptions(start=ConsumeFromWhere.FIRST_OFFSET)) as member:
            member.subscribe(name, "B")
            member.start(lambda messages: pushed.extend(message.body for message in messages))
            eventually(lambda: sorted(pushed) == bodies, timeout_s=30)


@pytest.mark.needs("cluster")
def test_messages_of_light_queues_have_their_offsets(group: str) -> None:
    settings = {"enableLmq": "true", "enableMultiDispatch": "true"}
    with DevCluster(broker_config=settings) as own, Client(own.name_server) as client:
        Admin(client).create_topic("parent", queues=1)
        (parent,) = client.write_queues("parent")
        producer, lights = patient_producer(client), ("%LMQ%a", "%LMQ%b")
        with SendPipeline(producer) as pipeline:
            for number in range(12):
                names = [lights[0]] * (number % 3 == 0) + [lights[1]] * (number % 2 == 0)
                one = encode_one(OutgoingMessage("parent", b"%d" % number), producer.ids)
                if names:
                    one = replace(
                        one, properties=f"{one.properties}INNER_MULTI_DISPATCH\x01{','.join(names)}\x02"
                    )
                outcomes = [*pipeline.submit(one, parent), *pipeline.flush()]
                assert [outcome.error for outcome in outcomes] == [None]
        eventually(lambda: client.max_offsets([parent])[parent] == 12, timeout_s=20)
        for light, step in zip(lights, (3, 2), strict=True):
            expected = [b"%d" % number for number in range(0, 12, step)]
            queue = MessageQueue(light, parent.broker_name, 0)
            for begin, end in ((0, len(expected)), (1, 3)):
                table, (report,) = read(client, [OffsetRange(queue, begin, end)], group)
                assert table.column("queueOffset").to_pylist() == list(range(begin, end))
                assert table.column("body").to_pylist() == expected[begin:end]
                assert (report.rows, report.gaps, report.lost) == (end - begin, 0, ())
