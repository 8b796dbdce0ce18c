"""Pipelines on a real broker: the article's program, silence, restarts, growing topics, groups."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime

import pytest
from pyspark.errors import StreamingQueryException
from tests.spark.streams_support import CLICKS, FLOWS, table
from tests.support.patient import PATIENCE_MS, patient_producer
from tests.support.topics import fill, fresh_name
from tests.support.wait import eventually

from pyspark_rocketmq.client import Admin, OutgoingMessage
from pyspark_rocketmq.client.read.message_search import last_messages
from pyspark_rocketmq.offsets.stream_offset import offset_of_rocketmq
from pyspark_rocketmq.streams import StreamBuilder, Time, TumblingWindow, late_rows, skipped_rows

pytestmark = pytest.mark.usefixtures("lean")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.setenv("PYSPARK_ROCKETMQ_STREAMS_HOME", str(tmp_path / "home"))
    return tmp_path


def source(spark, name):
    return StreamBuilder.dataStream("tests", name, spark)


def collected(rows):
    return lambda df, _: rows.extend(row.asDict() for row in df.collect())


@pytest.mark.parametrize("mode", ["skip", "fail"])
def test_a_body_that_does_not_decode_is_a_malformed_record(spark, mq, topic, client, here, group, mode):
    name, rows = topic(queues=1), []
    fill(client, name, ['{"n": 1}', b"\xff", '{"n": 2}'], queues=1)

    def run(stream):
        query = stream.onError(mode).to(collected(rows)).asyncStart(availableNow=True)
        try:
            assert query.awaitTermination(240)
        finally:
            query.stop()
        return skipped_rows(query)

    def read(is_json):
        job = fresh_name("json" if is_json else "text")
        return source(spark, job).fromRocketmq(name, group, is_json, mq.name_server)

    if mode == "fail":
        with pytest.raises(StreamingQueryException, match="not UTF-8"):
            run(read(True).selectFields("n"))
        return
    assert run(read(True).selectFields("n")) == {"selectFields#2": 1}
    assert [row["n"] for row in rows] == ["1", "2"]
    rows.clear()
    assert run(read(False)) == {}
    assert [row["value"] for row in rows] == ['{"n": 1}', '{"n": 2}']


def test_the_articles_program(spark, mq, topic, client, here, running, group):
    name, rows = topic(queues=4), []
    fill(client, name, FLOWS[:2] + FLOWS[3:] + FLOWS[2:3], queues=3)  # one stays silent
    pipeline = (
        source(spark, fresh_name("article"))
        .fromRocketmq(name, group, False, mq.name_server)
        .map(lambda message: json.loads(message))  # noqa: PLW0108 - as the article writes it
        .window(TumblingWindow.of(Time.seconds(10)))
        .groupBy("ProjectName", "LogStore")
        .sum("InFlow", "InFlow")
        .sum("OutFlow", "OutFlow")
        .count("total")
        .waterMark(5)
        .setLocalStorageOnly(True)
        .toDataStream()
        .to(collected(rows))
    )
    query, plans, first = running(pipeline), set(), []

    def all_out():
        if not first and query.lastProgress:
            first.append(datetime.now(UTC).timestamp())
        plans.add(query._jsq.explainInternal(False))
        return sum(row["total"] for row in rows) == 10

    eventually(all_out, 120, what="closed windows, with no new message")
    seen = datetime.now(UTC).timestamp()
    ends = [datetime.fromisoformat(row["end_time"] + "+00:00").timestamp() for row in rows]
    assert seen >= max(ends) + 5, "not before its time"
    assert seen <= max(*ends, first[0]) + 60, "in silence, soon after the watermark's 5 seconds"
    sums = {}
    for row in rows:  # the ten records may fall into two windows
        before = sums.get(row["ProjectName"], (0, 0, 0))
        found = (row["InFlow"], row["OutFlow"], row["total"])
        sums[row["ProjectName"]] = tuple(map(sum, zip(before, found, strict=True)))
        assert set(row) >= {"start_time", "end_time", "fire_time", "LogStore"}
    assert sums == {"ProjectName-0": (22, 18, 4), "ProjectName-1": (15, 12, 3), "ProjectName-2": (18, 15, 3)}
    assert "python" not in pipeline.explain()
    read = [plan for plan in plans if "BatchScan" in plan]
    assert read, plans
    assert not [plan for plan in plans if re.search(r"InArrow|InPandas|EvalPython", plan)]
    query.stop()
    end = offset_of_rocketmq(query.lastProgress.sources[0].endOffset)
    expected = {queue: offset for queue, offset in end.offsets.items()}  # noqa: C416
    eventually(
        lambda: client.committed_offsets(group, list(expected)) == expected,
        20,
        what="the last batch's commit",
    )


def test_without_heartbeats_a_silent_topic_closes_nothing(spark, mq, topic, client, here, running, group):
    name, rows = topic(queues=1), []
    fill(client, name, FLOWS)
    pipeline = (
        source(spark, fresh_name("silent"))
        .fromRocketmq(name, group, True, mq.name_server, heartbeatInterval="off")
        .window(TumblingWindow.of(Time.milliseconds(100)))
        .count("total")
        .toDataStream()
        .to(collected(rows))
    )
    query = running(pipeline)
    query.processAllAvailable()
    assert rows == []
    fill(client, name, FLOWS[:1])
    query.processAllAvailable()
    assert [row["total"] for row in rows] == [10]


@pytest.mark.since_spark("4.2")
def test_queues_that_are_apart_in_time(spark, mq, topic, client, here, running, group):
    """By default none runs ahead; with that turned off the other one's rows are late, and counted so."""
    name = topic(queues=2)
    for queue in client.write_queues(name):
        patient_producer(client).send_batch([OutgoingMessage(name, b"{}")] * 12, queue)
        time.sleep(0.1)  # apart in time, as the test says

    def start(**options):
        rows = []
        pipeline = (
            source(spark, fresh_name("apart"))
            .fromRocketmq(name, group, True, mq.name_server, maxOffsetsPerTrigger=4, **options)
            .window(TumblingWindow.of(Time.milliseconds(10)))
            .count("total")
            .toDataStream()
            .to(collected(rows))
        )
        query = running(pipeline)
        eventually(
            lambda: sum(row["total"] for row in rows) + late_rows(query) == 24, 120, what="closed windows"
        )
        return late_rows(query)

    assert start() == 0
    assert start(eventTimeAlignment="off") > 0


def read_so_far(query, topic: str) -> int:
    """Return how many offsets of a topic finished batches have."""
    if query.lastProgress is None:
        return 0
    end = offset_of_rocketmq(query.lastProgress["sources"][0]["endOffset"])
    return sum(offset for queue, offset in end.offsets.items() if queue.topic == topic)


def test_page_clicks_to_a_topic_and_again_after_a_restart(spark, mq, topic, client, here, running, group):
    name, out = topic(queues=2), topic(queues=1)
    job = fresh_name("clicks")

    def pipeline():
        return (
            source(spark, job)
            .fromRocketmq(name, group, True, mq.name_server)
            .window(TumblingWindow.of(Time.minutes(1), "eventTime"))
            .groupBy("userId")
            .count("total")
            .waterMark(5)
            .setMaxMsgGap(2)
            .toDataStream()
            .toRocketmq(out, mq.name_server, sendTimeoutMs=PATIENCE_MS)
        )

    fill(client, name, CLICKS)
    query = running(pipeline())
    # Not processAllAvailable: where a batch takes longer than a heartbeat, there is always more.
    eventually(lambda: read_so_far(query, name) == len(CLICKS), 120, what="the clicks in finished batches")
    query.stop()
    query = running(pipeline())  # what is open is in the checkpoint
    queues = client.read_queues(out)
    eventually(lambda: sum(client.max_offsets(queues).values()) == 7, 120, what="seven results")
    messages = last_messages(client, queues, 20)
    rows = [json.loads(message.body) for message in messages]
    assert table(rows, "userId", "total") == [
        *[("1", 2), ("1", 2), ("2", 1), ("2", 2), ("3", 1), ("3", 1), ("4", 1)]
    ]
    assert len({message.keys for message in messages}) == 7, "a result is told by its key"


def test_queues_that_come_and_go(spark, mq, topic, client, here, running, group):
    name, rows = topic(queues=4), []
    pipeline = (
        source(spark, fresh_name("queues"))
        .fromRocketmq(name, group, True, mq.name_server, routeRefreshMs=100)
        .selectFields("InFlow")
        .to(collected(rows))
    )
    running(pipeline)
    fill(client, name, FLOWS)
    eventually(lambda: len(rows) == 10, 120, what="the first rows")
    for queues in (8, 4):
        Admin(client).alter_topic(name, queues=queues, read_queues=queues)
        client.invalidate(name)
        before = len(rows)
        fill(client, name, FLOWS)
        eventually(lambda b=before: len(rows) == b + 10, 120, what=f"rows of {queues} queues")
    assert sorted(row["InFlow"] for row in rows) == sorted([str(n) for n in range(1, 11)] * 3)


def test_dead_letters_go_to_their_topic(spark, mq, topic, client, here, running, group):
    name, letters, rows = topic(queues=1), topic(queues=1), []
    fill(client, name, ['{"n": 1}', "not json"])
    pipeline = (
        source(spark, fresh_name("letters"))
        .fromRocketmq(name, group, True, mq.name_server)
        .selectFields("n")
        .onError("dead-letters", topic=letters, namesrvAddr=mq.name_server)
        .to(collected(rows))
    )
    running(pipeline)
    queues = client.read_queues(letters)
    eventually(lambda: sum(client.max_offsets(queues).values()) == 1, 120, what="the dead letter")
    (letter,) = last_messages(client, queues, 5)
    assert letter.body == b"not json"
    assert letter.properties["deadLetterCause"] == "selectFields#2: malformed JSON"
    eventually(lambda: [row["n"] for row in rows] == ["1"], 120, what="the good record")


def test_a_run_that_ends_has_sent_its_dead_letters(spark, mq, topic, client, here, group):
    name, letters, rows = topic(queues=1), topic(queues=1), []
    fill(client, name, ['{"n": 1}', "not json"])
    stream = source(spark, fresh_name("ends")).fromRocketmq(name, group, True, mq.name_server)
    stream = stream.selectFields("n").onError("dead-letters", topic=letters, namesrvAddr=mq.name_server)
    stream.to(collected(rows)).start(availableNow=True)
    assert [row["n"] for row in rows] == ["1"]
    assert [letter.body for letter in last_messages(client, client.read_queues(letters), 5)] == [b"not json"]


def fail_at_bad(row):
    if row["n"] == "bad":
        raise ValueError("no number")
    return row


def test_a_changed_job_sends_the_dead_letters_of_its_new_steps(spark, mq, topic, client, here, group):
    """Each step that may fail is a source of their query, and Spark starts none that has another number."""
    name, letters, job, rows = topic(queues=1), topic(queues=1), fresh_name("changed"), []

    def run(*functions):
        stream = source(spark, job).fromRocketmq(name, group, True, mq.name_server)
        for function in functions:
            stream = stream.map(function)
        stream = stream.selectFields("n").onError("dead-letters", topic=letters, namesrvAddr=mq.name_server)
        stream.to(collected(rows)).start(availableNow=True)

    fill(client, name, ['{"n": 1}', "not json"])
    run()
    fill(client, name, ['{"n": 2}', '{"n": "bad"}'])
    run(lambda row: row | {"m": 1}, fail_at_bad)
    assert [str(row["n"]) for row in rows] == ["1", "2"]
    found = last_messages(client, client.read_queues(letters), 5)
    assert {letter.body for letter in found} == {b"not json", b'{"n": "bad"}'}


def fail_at_b(row):
    if row["k"] == "b":
        raise ValueError("b is no group")
    return row


def test_results_that_change_may_be_dead_letters(spark, mq, topic, client, here, group):
    name, letters, rows = topic(queues=1), topic(queues=1), []
    fill(client, name, ['{"k": "a"}', '{"k": "b"}', "not json"])
    stream = source(spark, fresh_name("changes")).fromRocketmq(name, group, True, mq.name_server)
    window = stream.window(TumblingWindow.of(Time.days(1))).groupBy("k").count("n")
    changing = window.emitBeforeFire(Time.seconds(1)).toDataStream().map(fail_at_b)
    job = changing.onError("dead-letters", topic=letters, namesrvAddr=mq.name_server)
    job.to(collected(rows)).start(availableNow=True)
    assert [json.loads(row["value"])["k"] for row in rows] == ["a"]
    found = last_messages(client, client.read_queues(letters), 5)
    causes = sorted(letter.properties["deadLetterCause"].split(": ")[-1] for letter in found)
    assert causes == ["b is no group", "malformed JSON"]


def test_changed_counts_go_to_a_topic_with_their_keys(spark, mq, topic, client, here, running):
    name, out = topic(queues=2), topic(queues=8)
    fill(client, name, [json.dumps({"user": user}) for user in "aab"])
    builder = StreamBuilder(fresh_name("counts"), spark)
    users = builder.source(name, namesrv=mq.name_server).keyBy(lambda record: record["user"])
    query = running(users.count().toRStream().sink(out, namesrvAddr=mq.name_server))

    def counted(wanted):
        assert query.isActive, query.exception()
        found, places = {}, {}
        for message in sorted(
            last_messages(client, client.read_queues(out), 100), key=lambda m: m.queue_offset
        ):
            value = json.loads(message.body)
            assert message.keys == value["key"]
            assert places.setdefault(message.keys, message.queue_id) == message.queue_id
            found[value["key"]] = value["value"]  # the last one in its queue is the latest
        return found == wanted

    eventually(lambda: counted({"a": 2, "b": 1}), 120, what="the first counts")
    fill(client, name, [json.dumps({"user": "a"})])
    eventually(lambda: counted({"a": 3, "b": 1}), 120, what="the changed count")


def test_results_before_a_windows_end_go_to_a_topic_under_one_key(
    spark, mq, topic, client, here, running, group
):
    name, out = topic(queues=1), topic(queues=1)
    first = 1_893_456_000_000  # the start of 2030
    fill(client, name, [json.dumps({"t": first, "user": user, "n": 1}) for user in "aab"])
    pipeline = (
        source(spark, fresh_name("early"))
        .fromRocketmq(name, group, True, mq.name_server)
        .window(TumblingWindow.of(Time.hours(1), "t"))
        .groupBy("user")
        .sum("n")
        .emitBeforeFire(Time.seconds(1))
        .toDataStream()
        .toRocketmq(out, mq.name_server, sendTimeoutMs=PATIENCE_MS)
    )
    query = running(pipeline)

    def sent():
        assert query.isActive, query.exception()
        messages = last_messages(client, client.read_queues(out), 100)
        return [(message.keys, json.loads(message.body)["n"]) for message in messages]

    a, b = (f"{user}|2030-01-01_00:00:00" for user in "ab")
    eventually(lambda: set(sent()) == {(a, 2), (b, 1)}, 120, what="the first results")
    fill(client, name, [json.dumps({"t": first + 1, "user": "a", "n": 5})])
    eventually(lambda: (a, 7) in sent(), 120, what="the changed result, with the window still open")
    assert [n for key, n in sent() if key == b] == [1], "only windows that change are sent again"


def test_a_serializers_bytes_are_the_body_under_the_groups_key(spark, mq, topic, client, here, running):
    name, out = topic(queues=1), topic(queues=1)
    fill(client, name, ['{"user": "a"}'])
    users = StreamBuilder(fresh_name("bytes"), spark).source(name, namesrv=mq.name_server)
    counts = users.keyBy(lambda record: record["user"]).count()
    options = {"namesrvAddr": mq.name_server, "sendTimeoutMs": PATIENCE_MS}
    query = running(counts.sink(out, lambda found: b"\xff%d" % found["value"], **options))

    def sent():
        assert query.isActive, query.exception()
        return [(message.keys, message.body) for message in last_messages(client, client.read_queues(out), 5)]

    eventually(lambda: sent() == [("a", b"\xff1")], 120, what="the serialized count")
