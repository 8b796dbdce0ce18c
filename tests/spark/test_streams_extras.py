"""Pipelines that begin or end elsewhere: an MQTT broker, tables of PostgreSQL; Kafka is in ``benchmarks``."""

from __future__ import annotations

import functools
import json
import operator
from pathlib import Path

import pytest
import sqlalchemy as sa
from pyspark.errors import StreamingQueryException
from tests.spark.conftest import runs_after_a_failure
from tests.support.mqtt_broker import PASSWORD, USER, mqtt_broker
from tests.support.postgres import PostgresServer
from tests.support.topics import fresh_name
from tests.support.wait import eventually

from pyspark_rocketmq.errors import OptionError, PlanError
from pyspark_rocketmq.streams import StreamBuilder, Time, TumblingWindow
from pyspark_rocketmq.streams.run.job_registry import checkpoint_of

pytestmark = pytest.mark.usefixtures("lean", "home")

PATIENCE_S = 250


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("PYSPARK_ROCKETMQ_STREAMS_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="module")
def mqtt(tmp_path_factory):
    with mqtt_broker(tmp_path_factory.mktemp("mqtt")) as broker:
        yield broker


def source(spark, name):
    return StreamBuilder.dataStream("tests", name, spark)


# --- MQTT -------------------------------------------------------------------------------------


@pytest.mark.timeout(600)
@pytest.mark.needs("mqtt")
def test_mqtt_there_and_back_over_a_restart(spark, mqtt, running):
    """Windows close in silence; what comes while the job is away is kept for it."""
    job, topic = fresh_name("mqtt"), fresh_name("heat")

    def pipeline():
        return (
            source(spark, job)
            .fromMqtt(mqtt.url, job, f"{topic}/+", USER, PASSWORD, True)
            .window(TumblingWindow.of(Time.milliseconds(100)))
            .groupBy("room")
            .count("total")
            .sum("heat", "heat")
            .toDataStream()
            .toMqtt(mqtt.url, job, f"{topic}-sums", USER, PASSWORD)
        )

    def bits(begin, end):
        """Of each message its own, which a sum shows; the first has none, for it is sent again and again."""
        return sum(1 << n for n in range(begin, end) if n)

    def put(begin, end):
        rows = [{"room": f"r{n % 2}", "heat": bits(n, n + 1)} for n in range(begin, end)]
        mqtt.publish(f"{topic}/a", [json.dumps(row) for row in rows])

    def totals():
        rows = [json.loads(text) for _, text in found]
        return sum(row["total"] for row in rows), sum(row["heat"] for row in rows)

    query = running(pipeline())
    with mqtt.listening(f"{topic}-sums") as found:

        def arrives():
            put(0, 1)  # nobody keeps what comes before the job has subscribed
            return totals()[0] > 0

        eventually(arrives, PATIENCE_S, what="the first window")
        put(1, 20)
        eventually(lambda: totals()[1] == bits(0, 20), PATIENCE_S, what="windows in silence")
        plan = query._jsq.explainInternal(True)
        query.stop()
        put(20, 30)
        query = running(pipeline())

        def all_there():  # at least once: what a stop cuts short comes again
            seen = functools.reduce(operator.or_, (int(json.loads(text)["heat"]) for _, text in found))
            assert seen == bits(0, 30), found
            return True

        eventually(all_there, PATIENCE_S, what="what came meanwhile")
    assert PASSWORD not in plan + pipeline().explain() + repr(pipeline().plan())


@pytest.mark.needs("mqtt")
def test_an_mqtt_broker_that_refuses(spark, mqtt, running):
    stream = source(spark, fresh_name("refused")).fromMqtt(mqtt.url, "other", "t", USER, "hidden-wrong")
    query = running(stream.to(lambda df, _: df.count()))
    with pytest.raises(StreamingQueryException, match="refuses the client") as raised:
        query.awaitTermination(PATIENCE_S)
    assert "hidden" not in str(raised.value)
    rows = source(spark, fresh_name("refused")).fromArray(["a"])
    with pytest.raises(Exception, match="refuses the client") as raised:
        rows.toMqtt(mqtt.url, "other", "t", USER, "hidden-wrong").start()
    assert "hidden-wrong" not in str(raised.value)
    with pytest.raises(OptionError, match="tcp://host:port") as raised:
        rows.toMqtt("tcp://u:hidden@h:1", "other", "t")
    assert "hidden" not in str(raised.value)
    with pytest.raises(PlanError, match="does not report its number of messages"):
        stream.to(lambda df, _: df.count()).asyncStart(availableNow=True)
    letters = stream.onError("dead-letters", topic="letters")
    with pytest.raises(PlanError, match="reads the source twice"):
        letters.asyncStart()


# --- databases --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def postgres():
    with PostgresServer() as server:
        yield server


@pytest.mark.timeout(600)
def test_rows_that_are_added_to_tables(spark, postgres, running):
    """From tables that match, joined with one that changes, into a table."""
    url, job = postgres.fresh_database(), fresh_name("tables")
    engine = sa.create_engine(url, poolclass=sa.NullPool)

    def run(*statements):
        with engine.begin() as connection:
            for statement in statements:
                connection.execute(sa.text(statement))

    def rows(query="SELECT id, city FROM results ORDER BY id"):
        with engine.begin() as connection:
            return [tuple(row) for row in connection.execute(sa.text(query))]

    def pipeline():
        return (
            source(spark, job)
            .fromMultipleDB(url, None, "hidden-db", "readings_[0-9]", refreshSeconds=0.2, settleSeconds=0.1)
            .dimJoin(url, None, "hidden-db", "SELECT code, city FROM cities", 0.001)
            .on("(place,==,code)")
            .toDataStream()
            .selectFields("id", "city")
            .map({"id": "cast(id as int)", "city": "city"})
            .toDB(url, None, "hidden-db", "results", key="id")
        )

    table = "(id serial PRIMARY KEY, place text, at timestamptz DEFAULT now(), price numeric DEFAULT 1.5)"
    run(
        f"CREATE TABLE readings_1 {table}",
        "CREATE TABLE readings_x (id int)",
        "CREATE TABLE cities (code text, city text)",
        "INSERT INTO cities VALUES ('a', 'Rom')",
        "CREATE TABLE results (id int PRIMARY KEY, city text)",
        "INSERT INTO readings_1 (place) VALUES ('a'), ('b'), ('a')",
    )
    query = running(pipeline())
    eventually(lambda: rows() == [(1, "Rom"), (3, "Rom")], PATIENCE_S, what="the rows that were there")
    plan = query._jsq.explainInternal(True)
    run(
        "UPDATE cities SET city = 'Roma'",
        "INSERT INTO cities VALUES ('b', 'Wien')",
        f"CREATE TABLE readings_2 {table}",
        "INSERT INTO readings_2 (id, place) VALUES (7, 'b')",
        "INSERT INTO readings_1 (place) VALUES ('a')",
    )
    eventually(lambda: rows()[-2:] == [(4, "Roma"), (7, "Wien")], PATIENCE_S, what="a new row, a new table")
    query.stop()
    forget_last_commit(pipeline().plan().job)  # Spark does the batch again, and then what is new
    run("INSERT INTO readings_1 (id, place) VALUES (9, 'a'), (10, 'b')")
    for _ in runs_after_a_failure():
        query = running(pipeline(), availableNow=True)
        assert query.awaitTermination(PATIENCE_S)
    assert rows()[2:] == [(4, "Roma"), (7, "Wien"), (9, "Roma"), (10, "Wien")]
    assert "hidden" not in plan + pipeline().explain() + repr(pipeline().plan())


def forget_last_commit(job):
    checkpoint = Path(checkpoint_of(job))
    last = max(int(file.name) for file in checkpoint.glob("offsets/[0-9]*"))
    for name in (f"{last}", f".{last}.crc"):
        checkpoint.joinpath("commits", name).unlink(missing_ok=True)


# --- Kafka ------------------------------------------------------------------------------------


def test_kafka_says_which_jar_it_needs(spark):
    needed = rf"spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version}"
    stream = source(spark, "kafka").fromKafka("127.0.0.1:1", "t", "g")
    assert "kafka t as text" in stream.explain()
    with pytest.raises(PlanError, match=needed):
        stream.toPrint().start()
    with pytest.raises(PlanError, match=needed):
        source(spark, "kafka").fromArray(["a"]).toKafka("127.0.0.1:1", "t").start()
