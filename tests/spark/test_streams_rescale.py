"""A job's state in more partitions, and in fewer: the same rows for each key, and exact totals."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest
from tests.support.cli import CommandLine
from tests.support.topics import fill, fresh_name
from tests.support.wait import eventually

from pyspark_rocketmq import streams
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.streams import StreamBuilder, Time, TumblingWindow
from pyspark_rocketmq.streams.run.job_registry import find_job, job_lock

pytestmark = [pytest.mark.usefixtures("lean"), pytest.mark.since_spark("4.2")]

START_MS = 1_900_000_000_000
KEYS = 40


@pytest.fixture
def cli(mq, capsys, monkeypatch, tmp_path) -> CommandLine:
    monkeypatch.setenv("PYSPARK_ROCKETMQ_STREAMS_HOME", str(tmp_path / "home"))
    return CommandLine(capsys, monkeypatch, mq.name_server)


def test_the_state_is_spread_anew_and_totals_are_exact(spark, mq, topic, client, group, cli, tmp_path):
    name, job = topic(queues=2), fresh_name("rescaled")
    with closing(sqlite3.connect(tmp_path / "r.db")) as connection, connection:
        connection.execute("CREATE TABLE totals (key TEXT, n INTEGER, total REAL)")

    def put(begin: int, end: int, at_s: int = 0) -> None:
        bodies = [
            json.dumps({"time": START_MS + at_s * 1000 + n, "key": f"k{n % KEYS}", "value": n})
            for n in range(begin, end)
            for _ in client.write_queues(name)
        ]
        fill(client, name, bodies)

    def run() -> None:
        source = StreamBuilder.dataStream("tests", job, spark)
        query = (
            source.fromRocketmq(name, group, True, mq.name_server, heartbeatInterval="off")
            .window(TumblingWindow.of(Time.seconds(10), "time"))
            .groupBy("key")
            .count("n")
            .sum("value", "total")
            .toDataStream()
            .selectFields("key", "n", "total")
            .toDB(f"sqlite:///{tmp_path}/r.db", None, None, "totals")
            .asyncStart(availableNow=True)
        )
        try:
            assert query.awaitTermination(240)
        finally:
            query.stop()

    def state() -> tuple[set[int], dict[str, tuple[int, float]]]:
        rows = spark.read.format("statestore").load(str(tmp_path / "home/checkpoints" / f"tests.{job}"))
        found = rows.selectExpr("partition_id", "key.key", "value.count", "value.sum").collect()
        return {row[0] for row in found}, {row[1]: (row[2], row[3]) for row in found}

    def finish() -> None:
        eventually(lambda: not find_job(f"tests.{job}").is_running(), 20, what="the job's lock")

    put(0, 200)
    run()
    finish()
    places, rows = state()
    assert (places, len(rows)) == ({0}, KEYS)
    streams.rescale(f"tests.{job}", 4, spark=spark)
    spread, same = state()
    assert same == rows
    assert len(spread) > 1
    put(200, 300)
    run()
    finish()
    told = cli("streams", "rescale", f"tests.{job}", "2", "--json")
    assert told.json() == {"job": f"tests.{job}", "partitions": 2}, told.err
    assert cli("streams", "rescale", f"tests.{job}", "2").out.endswith("has 2 partitions\n"), "as it was"
    assert len(state()[0]) == 2
    put(300, 400)
    put(0, 1, at_s=60)
    run()
    with closing(sqlite3.connect(tmp_path / "r.db")) as connection, connection:
        found = connection.execute("SELECT key, n, total FROM totals").fetchall()
    expected = [(f"k{key}", 20, 2.0 * sum(n for n in range(400) if n % KEYS == key)) for key in range(KEYS)]
    assert sorted(found) == sorted(expected)


def test_what_cannot_be_spread(spark, cli, tmp_path):
    with pytest.raises(OptionError, match="there is no job 'nope'"):
        streams.rescale("nope", 2, spark=spark)
    with pytest.raises(OptionError, match="at least one partition"):
        streams.rescale("nope", 0, spark=spark)
    (tmp_path / "empty").mkdir()
    with pytest.raises(OptionError, match="has finished no batch yet"):
        streams.rescale("nope", 2, checkpoint=str(tmp_path / "empty"), spark=spark)
    (tmp_path / "broken" / "commits").mkdir(parents=True)
    with (
        job_lock("nope", str(tmp_path / "broken"), standby=False, clock=SYSTEM_CLOCK),
        pytest.raises(RocketMQError, match="is running: stop it first"),
    ):
        streams.rescale("nope", 2, checkpoint=str(tmp_path / "broken"), spark=spark)
    with pytest.raises(RocketMQError, match="cannot be rewritten"):
        streams.rescale("nope", 2, checkpoint=str(tmp_path / "broken"), spark=spark)
