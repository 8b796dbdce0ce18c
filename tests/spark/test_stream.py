from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from tests.spark.conftest import Batches, runs_after_a_failure, same_messages
from tests.support.cli import CommandLine
from tests.support.wait import eventually


def finish(query) -> None:
    assert query.awaitTermination(240), "the query did not end"


def logged(checkpoint: Path, batch: int) -> dict[str, object]:
    """Return the source's offset in Spark's offset log."""
    return json.loads((checkpoint / "offsets" / str(batch)).read_text().splitlines()[2])


@pytest.mark.since_spark("4.2")
def test_available_now_ends_at_what_was_there_and_the_next_run_goes_on(stream, send, topic):
    name = topic(queues=4)
    there = send(name, 200)
    batches = Batches()
    late: list = []

    def send_more(batch: int) -> None:
        if batch == 0:
            late.extend(send(name, 40))

    batches.on_batch = send_more
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 60}
    query = stream(name, batches, **options)
    finish(query)
    same_messages(batches.all(), there)
    assert [len(rows) for rows in batches.rows.values()] == [60, 60, 60, 20]
    newest = json.loads(query.recentProgress[0]["sources"][0]["latestOffset"])
    assert sum(newest["offsets"][name]["broker-a"].values()) == 200

    batches.on_batch = lambda _: None
    finish(stream(name, batches, **options))
    same_messages(batches.all(), [*there, *late])


def test_a_query_that_is_stopped_is_sent_back(
    stream, send, topic, client, group, mq, tmp_path, capsys, monkeypatch
):
    """To where a group is: the checkpoint is Spark's own, with its checksums."""
    name = topic(queues=2)
    expected = send(name, 40)
    batches = Batches()
    finish(stream(name, batches, startingOffsets="earliest"))
    same_messages(batches.all(), expected)
    first = client.read_queues(name)[0]
    client.commit_offsets(group, {first: 15})
    cli = CommandLine(capsys, monkeypatch, mq.name_server)
    words = ("offsets", "seek", str(tmp_path / "checkpoint"), "--group", group)
    assert "nothing was changed" in cli(*words).out
    assert cli(*words, "--yes").code == 0
    more = send(name, 4)
    again = Batches()
    finish(stream(name, again, startingOffsets="earliest"))
    late = [row for row in expected if row[1] == first.queue_id and row[2] >= 15]
    assert len(late) == 5
    same_messages(again.all(), [*late, *more])


def test_a_failed_first_batch_loses_nothing_that_came_later(stream, send, topic, tmp_path):
    """A moving start is resolved once: batch 0 fails, more is sent, and the restart reads on from there."""
    name = topic(queues=3)
    before = send(name, 30)
    batches = Batches()
    query = stream(name, batches, available_now=False)
    eventually(lambda: 0 in batches.rows, 60, what="the empty first batch")
    query.stop()
    assert batches.all() == []
    expected = send(name, 9)

    def fail(_: int) -> None:
        raise RuntimeError("the sink is down")

    batches.on_batch = fail
    with pytest.raises(StreamingQueryException, match="the sink is down"):
        finish(stream(name, batches))
    expected += send(name, 9)
    batches.on_batch = lambda _: None
    for _ in runs_after_a_failure():
        finish(stream(name, batches))
    same_messages(batches.all(), expected)
    assert sum(logged(tmp_path / "checkpoint", 0)["begin"][name]["broker-a"].values()) == len(before)


def test_a_start_that_moves_is_kept_when_the_very_first_batch_fails(stream, send, topic, tmp_path):
    name = topic(queues=2)
    old = send(name, 10)
    batches = Batches()

    def fail(_: int) -> None:
        send(name, 4)
        raise RuntimeError("the sink is down")

    batches.on_batch = fail
    options = {"startingOffsets": "last:2"}
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="the sink is down"):
            finish(stream(name, batches, **options))
    batches.on_batch = lambda _: None
    expected = [row for row in [*old, *send(name, 4)] if row[2] >= 3]
    for _ in runs_after_a_failure():
        finish(stream(name, batches, **options))
    everything = send.sent[name]
    same_messages(batches.all(), [row for row in everything if row[2] >= 3])
    assert set(expected) <= set(batches.all())


def test_a_running_query_reads_on_and_a_restart_too(stream, send, topic):
    name = topic(queues=2)
    send(name, 5)
    batches = Batches()
    query = stream(name, batches, available_now=False)
    eventually(lambda: 0 in batches.rows, 60, what="the first batch")
    expected = send(name, 6)
    eventually(lambda: len(batches.all()) == 6, 60, what="six messages")
    idle = len(batches.rows)
    expected += send(name, 1)
    eventually(lambda: len(batches.all()) == 7, 60, what="the seventh message")
    assert len(batches.rows) == idle + 1, "an idle query made batches"
    query.stop()
    expected += send(name, 3)
    query = stream(name, batches, available_now=False)
    eventually(lambda: len(batches.all()) == 10, 60, what="ten messages")
    same_messages(batches.all(), expected)


def test_the_long_format_name_streams_too(stream, send, topic):
    name = topic(queues=1)
    expected = send(name, 5)
    batches = Batches()
    finish(stream(name, batches, source="org.apache.rocketmq.spark", startingOffsets="earliest"))
    same_messages(batches.all(), expected)


def test_a_checkpoint_of_another_topic_is_refused(stream, send, topic):
    one, other = topic(queues=1), topic(queues=1)
    send(one, 1)
    send(other, 1)
    finish(stream(one, Batches(), startingOffsets="earliest"))
    with pytest.raises(StreamingQueryException, match=f"the checkpoint was written for {one}"):
        finish(stream(other, Batches(), startingOffsets="earliest"))


def test_a_topic_that_does_not_exist_ends_the_query_with_its_name(stream):
    with pytest.raises(StreamingQueryException, match=r"the topic does not exist.*no-such-topic"):
        finish(stream("no-such-topic", Batches()))
