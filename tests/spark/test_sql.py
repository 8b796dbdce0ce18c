"""Jobs in SQL from a real session on a real broker."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.support.patient import PATIENCE_MS
from tests.support.topics import fill

from pyspark_rocketmq.client import OutgoingMessage
from pyspark_rocketmq.client.read.message_search import last_messages
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.errors import RocketMQError, SqlError
from pyspark_rocketmq.spark.monitor.written_rows import WrittenRows
from pyspark_rocketmq.sql import SqlJob, execute
from pyspark_rocketmq.sql.plan.plan_check import plan_job

Run = Callable[..., SqlJob]

SOURCE = """
CREATE TABLE rocketmq_source (
`user_id` BIGINT,
`item_id` BIGINT,
`behavior` STRING
) WITH (
'connector' = 'rocketmq',
'topic' = 'user_behavior',
'consumerGroup' = 'behavior_consumer_group',
'nameServerAddress' = '127.0.0.1:9876'
);
"""
SINK = """
CREATE TABLE rocketmq_sink (
`user_id` BIGINT,
`item_id` BIGINT,
`behavior` STRING
) WITH (
'connector' = 'rocketmq',
'topic' = 'user_behavior',
'produceGroup' = 'behavior_produce_group',
'nameServerAddress' = '127.0.0.1:9876'
);
"""
WITH_METADATA = """
CREATE TABLE rocketmq_source (
`topic` STRING METADATA VIRTUAL,
`user_id` BIGINT,
`item_id` BIGINT,
`behavior` STRING
) WITH (
'connector' = 'rocketmq',
'topic' = 'user_behavior',
'consumerGroup' = 'behavior_consumer_group',
'nameServerAddress' = '127.0.0.1:9876'
);
"""
ROWS = [(1, 10, "buy"), (2, 20, None), (3, None, "a 'quoted' \u4f60\u597d, value")]
VALUES = (
    "INSERT INTO rocketmq_sink VALUES (1, 10, 'buy'), (2, 20, NULL), (3, NULL, 'a \\'quoted\\' 你好, value');"
)


@pytest.fixture
def run(spark: SparkSession, mq: DevCluster, tmp_path: Path) -> Iterator[Run]:
    """``run(text, topic, setting=value)``: a job whose places are the test's, stopped at the end."""
    jobs: list[SqlJob] = []

    patience = f"'connector' = 'rocketmq', 'sendTimeoutMs' = '{PATIENCE_MS}'"

    def start(text: str, topic: str | None = None, **settings: str) -> SqlJob:
        text = text.replace("127.0.0.1:9876", mq.name_server).replace("'connector' = 'rocketmq'", patience)
        if topic is not None:
            text = text.replace("'user_behavior'", f"'{topic}'")
        job = execute(spark, text, checkpoint_location=str(tmp_path / "checkpoint"), settings=settings)
        jobs.append(job)
        return job

    yield start
    for job in jobs:
        job.stop()


def rows_of(job: SqlJob) -> list[tuple[object, ...]]:
    return sorted((tuple(row) for row in job.results[-1].collect()), key=repr)


def test_the_guides_sink_and_source_round_trip_the_same_columns(run, topic, settled):
    name = topic()
    job = run(SINK + VALUES + "INSERT INTO rocketmq_sink SELECT 1, 2, 'x' WHERE false", name)
    assert job.written == [WrittenRows("rocketmq_sink", 3), WrittenRows("rocketmq_sink", 0)]
    settled(name, 3)
    job = run("SET 'runtimeMode' = 'batch';" + SOURCE + "SELECT * FROM rocketmq_source", name)
    assert rows_of(job) == sorted(ROWS, key=repr)
    job = run("SET 'runtimeMode' = 'batch';" + WITH_METADATA + "SELECT * FROM rocketmq_source", name)
    assert rows_of(job) == sorted([(name, *row) for row in ROWS], key=repr)


def test_insert_into_is_a_streaming_query_that_goes_on_from_its_checkpoint(run, topic, settled):
    first, second = topic(), topic()
    sink = SINK.replace("rocketmq_sink", "copies").replace("'user_behavior'", f"'{second}'")
    text = (
        SOURCE.replace("'connector'", "'startingOffsets' = 'earliest', 'connector'")
        + sink
        + "SET 'queryName' = 'doubled';"
        + "INSERT INTO copies SELECT user_id, item_id * 2, upper(behavior) FROM rocketmq_source"
    )
    run(SINK + VALUES, first)
    settled(first, 3)
    job = run(text, first, trigger="availableNow")
    assert job.await_termination(240)
    assert [query.name for query in job.queries] == ["doubled"]
    settled(second, 3)
    run(SINK + "INSERT INTO rocketmq_sink VALUES (4, 40, 'late')", first)
    settled(first, 4)
    job = run(text, first)  # without end
    settled(second, 4)
    assert job.queries[0].isActive
    job.stop()
    read = "SET 'runtimeMode' = 'batch';" + SINK.replace("'user_behavior'", f"'{second}'")
    rows = rows_of(run(read + "SELECT user_id, item_id, behavior FROM rocketmq_sink"))
    assert rows == sorted(
        [(1, 20, "BUY"), (2, 40, None), (3, None, ROWS[2][2].upper()), (4, 80, "LATE")], key=repr
    )


READ = "SET 'runtimeMode' = 'batch';"


def with_options(columns: str, options: str) -> str:
    return (
        f"CREATE TABLE t ({columns}) WITH ('connector' = 'rocketmq', 'topic' = 'user_behavior', "
        f"'nameServerAddress' = '127.0.0.1:9876'{options});"
    )


def test_changed_rows_of_an_aggregation_are_messages_with_their_key(run, topic, settled, client):
    first, second = topic(), topic()
    run(SINK + VALUES.replace("'buy'), (2, 20, NULL)", "'buy'), (2, 20, 'buy')"), first)
    settled(first, 3)
    sink = SINK.replace("rocketmq_sink", "counts").replace("'user_behavior'", f"'{second}'")
    sink = sink.replace("'connector'", "'keyColumns' = 'item_id', 'connector'")
    text = SOURCE.replace("'connector'", "'startingOffsets' = 'earliest', 'connector'") + sink
    text += "INSERT INTO counts SELECT count(*), length(behavior), 'n' FROM rocketmq_source GROUP BY behavior"
    job = run(text, first, trigger="availableNow", outputMode="update")
    assert job.await_termination(240)
    settled(second, 2)
    run(SINK + "INSERT INTO rocketmq_sink VALUES (4, 40, 'buy')", first)
    settled(first, 4)
    job = run(text, first, trigger="availableNow", outputMode="update")
    assert job.await_termination(240)
    settled(second, 3)
    found = last_messages(client, client.read_queues(second), 3)
    assert sorted(message.keys for message in found) == ["20", "3", "3"], (
        "the changed group, and no other, again"
    )
    changed = sorted((m for m in found if m.keys == "3"), key=lambda m: m.queue_offset)
    assert [json.loads(m.body)["user_id"] for m in changed] == [2, 3], "in one queue, the latest one last"
    assert len({m.queue_id for m in changed}) == 1


def test_a_transactional_query_of_changed_rows_begins_again_without_its_checkpoint(
    run, topic, settled, tmp_path
):
    first, second = topic(queues=1), topic(queues=1)
    run(SINK + VALUES, first)
    settled(first, 3)
    sink = SINK.replace("rocketmq_sink", "counts").replace("'user_behavior'", f"'{second}'")
    once = f"'deliveryGuarantee' = 'transactional', 'transactionLog' = '{tmp_path}/log', "
    sink = sink.replace("'connector'", f"{once} 'connector'")
    text = SOURCE.replace("'connector'", "'startingOffsets' = 'earliest', 'connector'") + sink
    text += "INSERT INTO counts SELECT count(*), 1, behavior FROM rocketmq_source GROUP BY behavior"
    for written in (3, 6):
        job = run(text, first, trigger="availableNow", outputMode="update")
        assert job.await_termination(240)
        settled(second, written)
        shutil.rmtree(tmp_path / "checkpoint")


@pytest.mark.parametrize(
    ("options", "columns", "bodies"),
    [
        (
            "",
            "a INT, b STRING, c TIMESTAMP(3)",
            ['{"a":1,"b":"x y","c":"2026-01-31T08:00:00.000000Z"}', '{"a":2}'],
        ),
        (", 'format' = 'csv', 'csv.field-delimiter' = '|'", "a INT, b STRING", ["1|x y", "2|"]),
        (", 'format' = 'delimited'", "a INT, b STRING", ["1\u0001x y", "2\u0001"]),
        (", 'format' = 'raw'", "b STRING", ["x y", "z"]),
        (", 'format' = 'raw'", "b BYTES", ["x y", "z"]),
        (", 'format' = 'key-value'", "id INT, address STRING", ["x y", "z"]),
    ],
)
def test_formats_of_spark_itself_write_what_they_read(run, topic, settled, read, options, columns, bodies):
    name = topic()
    table = with_options(columns, options)
    values = {
        "a INT, b STRING, c TIMESTAMP(3)": "(1, 'x y', TIMESTAMP '2026-01-31 08:00:00'), (2, NULL, NULL)",
        "a INT, b STRING": "(1, 'x y'), (2, NULL)",
        "b STRING": "('x y'), ('z')",
        "b BYTES": "(X'782079'), (X'7a')",
        "id INT, address STRING": "(1, 'x y'), (2, 'z')",
    }[columns]
    run(f"{table} INSERT INTO t VALUES {values}", name)
    settled(name, 2)
    assert sorted(row.body for row in read(name, bodyAs="string").collect()) == bodies
    job = run(f"{READ} {table} SELECT * FROM t EXCEPT ALL VALUES {values}; SELECT count(*) FROM t", name)
    assert job.results[0].collect() == []
    assert rows_of(job) == [(2,)]


GOOD, BAD = '{"a": 1, "b": "x"}', ["{", '{"a": "one", "b": "x"}', '{"b": "no a"}']


def numbered(topic: str, bodies: Sequence[str]) -> list[OutgoingMessage]:
    """Return messages with the keys k0, k1, ..."""
    return [OutgoingMessage(topic, body.encode(), keys=f"k{at}", tags="T") for at, body in enumerate(bodies)]


def test_bad_records_fail_and_say_where_they_are(run, topic, settled, client):
    name = topic(queues=1)
    fill(client, name, numbered(name, [GOOD, BAD[0]]))
    job = run(READ + with_options("a INT, b STRING", "") + "SELECT a FROM t", name)
    with pytest.raises(PySparkException, match=f"topic={name} brokerName=broker-a queueId=0 queueOffset=1"):
        job.results[0].collect()


@pytest.mark.parametrize("connector", ["rocketmq", "blackhole"])
def test_a_null_for_a_column_that_is_not_null_fails_the_insert(run, topic, connector):
    table = with_options("a INT NOT NULL, b STRING", "")
    if connector == "blackhole":
        table = "CREATE TABLE t (a INT NOT NULL, b STRING) WITH ('connector' = 'blackhole');"
    with pytest.raises(SqlError, match="column 'a' of t is NOT NULL, and a row has NULL for it"):
        run(READ + table + "INSERT INTO t VALUES (1, 'x'), (CAST(NULL AS INT), 'y')", topic())
    run(READ + table + "INSERT INTO t VALUES (1, NULL)", topic())


def test_bad_records_are_null_or_dropped(run, topic, settled, client):
    name = topic()
    fill(client, name, numbered(name, [GOOD, *BAD]))
    columns = "a INT NOT NULL, b STRING, k STRING METADATA FROM 'keys' VIRTUAL"
    job = run(READ + with_options(columns, ", 'badRecords' = 'null'") + "SELECT * FROM t", name)
    assert rows_of(job) == sorted(
        [(1, "x", "k0"), (None, None, "k1"), (None, None, "k2"), (None, None, "k3")], key=repr
    )
    job = run(READ + with_options(columns, ", 'badRecords' = 'drop'") + "SELECT * FROM t", name)
    assert rows_of(job) == [(1, "x", "k0")]


def test_bad_records_go_to_a_topic_with_cause_place_and_bytes_and_are_counted(
    run, topic, settled, client, read
):
    name, dead, good = topic(queues=1), topic(), topic()
    fill(client, name, numbered(name, [GOOD, *BAD]))
    text = with_options(
        "a INT NOT NULL, b STRING",
        f", 'startingOffsets' = 'earliest', 'badRecords' = 'dead-letter', 'badRecordsTopic' = '{dead}'",
    )
    sink = with_options("a INT, b STRING", "").replace("user_behavior", good).replace("TABLE t", "TABLE good")
    job = run(text + sink + "INSERT INTO good SELECT * FROM t", name, trigger="availableNow")
    assert job.await_termination(240)
    settled(dead, 3)
    settled(good, 1)
    letters = read(dead, columns="body,keys,tags,properties", bodyAs="string").collect()
    assert sorted((row.body, row["keys"], row.tags) for row in letters) == sorted(
        (body, f"k{at}", "T") for at, body in enumerate(BAD, 1)
    )
    assert {row.properties["deadLetterQueueOffset"] for row in letters} == {"1", "2", "3"}
    assert {row.properties["deadLetterTopic"] for row in letters} == {name}
    assert all("format json" in row.properties["deadLetterCause"] for row in letters)
    progress = next(query for query in job.queries if query.name == "good").recentProgress
    counts = [p.observedMetrics["badRecords.t"] for p in progress if "badRecords.t" in p.observedMetrics]
    assert (sum(c.bad for c in counts), sum(c.rows for c in counts)) == (3, 4)


def test_each_insert_of_a_batch_sends_the_bad_records_that_came_since_the_last_one(
    run, topic, client, read, settled
):
    name, dead, good = topic(queues=1), topic(), topic()
    fill(client, name, numbered(name, [GOOD, BAD[0]]))
    table = with_options(
        "a INT NOT NULL, b STRING", f", 'badRecords' = 'dead-letter', 'badRecordsTopic' = '{dead}'"
    )
    sink = with_options("a INT, b STRING", "").replace("user_behavior", good).replace("TABLE t", "TABLE good")
    insert = "INSERT INTO good SELECT * FROM t;"
    job = run(READ + table + sink + insert, name)
    job.run_text(insert, pytest.fail)
    fill(client, name, numbered(name, BAD[1:]))
    job.run_text(insert, pytest.fail)
    letters = WrittenRows("t-bad-records", 1), WrittenRows("t-bad-records", 2)
    inserted = WrittenRows("good", 1)
    assert job.written == [inserted, letters[0], inserted, inserted, letters[1]]
    settled(dead, 3)
    found = read(dead, columns="properties").collect()
    assert sorted(row.properties["deadLetterQueueOffset"] for row in found) == ["1", "2", "3"]


def test_metadata_is_read_and_written(run, topic, settled):
    name = topic(queues=1)
    columns = (
        "a INT, k STRING METADATA FROM 'keys', tags STRING METADATA, p MAP<STRING, STRING> METADATA FROM "
        "'properties', s STRING METADATA FROM 'shardingKey', `offset` BIGINT METADATA VIRTUAL, "
        "doubled AS a * 2, ts TIMESTAMP(3) METADATA FROM 'storeTimestamp' VIRTUAL"
    )
    table = with_options(columns, "")
    run(
        table + "INSERT INTO t VALUES (1, 'k1', 'T1', map('x', 'y'), 's1'), (2, NULL, NULL, NULL, NULL)", name
    )
    settled(name, 2)
    job = run(
        READ + table + "SELECT a, k, tags, p['x'], s, `offset` < 2, doubled, ts > '2020-01-01' FROM t", name
    )
    assert rows_of(job) == [
        (1, "k1", "T1", "y", "s1", True, 2, True),
        (2, None, None, None, None, True, 4, True),
    ]


def test_keys_and_tags_come_from_columns(run, topic, settled, read):
    name = topic()
    options = ", 'keyColumns' = 'a,b', 'dynamicTagColumn' = 'b', 'dynamicTagColumnWriteIncluded' = 'false'"
    run(with_options("a INT, b STRING, c INT", options) + "INSERT INTO t (c, b, a) VALUES (3, 'x', 1)", name)
    settled(name, 1)
    (row,) = read(name, bodyAs="string").collect()
    assert (row["keys"], row.tags, row.body) == ("1 x", "x", '{"a":1,"c":3}')


def test_keys_may_be_left_out_of_the_body_and_tags_unset(run, topic, settled, read):
    name = topic()
    given = {"keyColumns": "a", "writeKeysToBody": "false", "dynamicTagColumn": "b", "isDynamicTag": "false"}
    options = "".join(f", '{option}' = '{value}'" for option, value in given.items())
    run(with_options("a INT, b STRING, c INT", options) + "INSERT INTO t VALUES (1, 'x', 3)", name)
    settled(name, 1)
    (row,) = read(name, bodyAs="string").collect()
    assert (row["keys"], row.tags, row.body) == ("1", None, '{"b":"x","c":3}')


def test_a_job_sets_the_format_of_tables_that_set_none(run, topic, settled, read, client):
    name = topic(queues=1)
    fill(client, name, numbered(name, ["1|a;2|b|c;3;"]))
    rows = []
    for check in ("NONE", "PAD"):
        options = f", 'lineDelimiter' = ';', 'fieldDelimiter' = '|', 'lengthCheck' = '{check}'"
        table = with_options("n INT, s STRING", options)
        rows.append(rows_of(run(f"SET 'defaultFormat' = 'delimited'; {READ} {table} SELECT * FROM t", name)))
    assert rows == [[(1, "a"), (2, "b")], [(1, "a"), (2, "b"), (3, None)]]


READ_ONLY = "CREATE TABLE s (x INT,\n topic STRING METADATA) USING rocketmq OPTIONS (topic 'x');"
WRITE_ONLY = "CREATE TABLE s (x INT, d INT METADATA FROM 'delayLevel') USING rocketmq OPTIONS (topic 'x');"
WRONG_START = (
    "CREATE TABLE s (x INT) USING rocketmq OPTIONS (topic 'x', nameServer '127.0.0.1:1',\n "
    "startingOffsets 'x');"
)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("SELECT nope\nFROM t", (2, 8), "nope"),
        ("SELECT a\n FROM nowhere", (3, 7), "nowhere"),
        ("SELECT a\n FORM t", (3, 7), "Syntax error at or near 't'"),
        ("INSERT INTO t SELECT 1, 2", (2, 15), "has 2 columns, but t is given 1"),
        ("INSERT INTO t (x) SELECT 1", (2, 16), "no column 'x'"),
        ("INSERT OVERWRITE t SELECT 1", (2, 18), "cannot be overwritten"),
        ("INSERT INTO t SELECT * FROM t", (2, 1), "checkpointLocation"),
        ("SET 'triger' = '1s'", (2, 1), "did you mean trigger"),
        ("CREATE TABLE t (b INT) USING rocketmq", (2, 14), "already exists, since line 1"),
        (READ_ONLY + "INSERT INTO s VALUES (1, 'x')", (3, 72), "declared at line 3, column 2, is metadata"),
        (WRITE_ONLY + "SELECT * FROM s", (2, 24), "can only be written"),
        ("CREATE TABLE s (x INT, d INT METADATA) USING rocketmq OPTIONS (topic 'x')", (2, 24), "no metadata"),
        (
            "CREATE TABLE s (x INT) USING rocketmq OPTIONS (topic 'x',\n consumerGrop 'x')",
            (3, 2), "did you mean consumerGroup",
        ),
        (WRONG_START + "SELECT * FROM s", (3, 2), "startingOffsets is malformed"),
        (
            "CREATE TABLE s (x INT, y INT) USING rocketmq OPTIONS (topic 'x',\n format 'raw')",
            (3, 2), "one column",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_has_a_place(spark, text, place, message):
    table = "CREATE TABLE t (a INT) USING rocketmq OPTIONS (topic 'x', nameServer '127.0.0.1:1');\n"
    with pytest.raises(SqlError, match=re.escape(message)) as failure:
        execute(spark, table + text)
    assert (failure.value.line, failure.value.column) == place, failure.value


def test_tables_without_columns_are_messages(run, topic, settled):
    name = topic()
    table = (
        "CREATE TABLE t USING rocketmq OPTIONS (topic 'user_behavior', nameServer '127.0.0.1:9876', "
        "columns 'tags,body');"
    )
    run(table + "INSERT INTO t SELECT 'x' AS body, 'T' AS tags", name)
    settled(name, 1)
    assert rows_of(run(READ + table + "SELECT tags, string(body) FROM t", name)) == [("T", "x")]


@pytest.mark.parametrize("policy", ["fail", "null"])
def test_json_is_parsed_once_and_by_spark_itself(run, policy):
    table = with_options("a INT, b STRING", f", 'badRecords' = '{policy}'")
    rows = run(READ + table + "SELECT a, b FROM t WHERE a > 1").results[0]
    plan = rows._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("from_json(") == 1, plan
    assert not [name for name in ("EvalPython", "MapInArrow", "PythonUDF") if name in plan]


def test_columns_come_from_a_sample(run, topic, settled, client):
    name = topic()
    fill(client, name, numbered(name, ['{"a": 1, "b": {"c": [1.5]}}', '{"a": 2, "d": true}']))
    table = with_options("", ", 'inferSchema' = 'true'").replace("TABLE t ()", "TABLE t")
    job = run(READ + table + "SELECT a, b.c[1], d FROM t", name)
    assert rows_of(job) == [(1, 1.5, None), (2, None, True)]


def test_a_sample_is_the_newest_messages(run, topic, settled, client):
    name = topic(queues=1)
    fill(client, name, numbered(name, ['{"old": 1}', '{"a": 2}', '{"b": 3}']))
    table = with_options("", ", 'inferSchema' = 'true', 'inferSample' = '2'").replace("TABLE t ()", "TABLE t")
    job = run(READ + table + "SELECT * FROM t", name)
    assert job.results[-1].columns == ["a", "b"]


def test_inserting_into_a_table_of_sparks(run, spark, topic, settled, client, tmp_path):
    name = topic()
    fill(client, name, numbered(name, [GOOD, GOOD]))
    streamed = (
        "CREATE TABLE streamed (n BIGINT, at TIMESTAMP(3), b STRING) USING csv "
        f"OPTIONS (header 'true', sep '|') PARTITIONED BY (b) LOCATION '{tmp_path}/streamed';"
    )
    try:
        source = with_options("a INT, b STRING", ", 'startingOffsets' = 'earliest'")
        found = f"CREATE TABLE found (a INT, b STRING) USING parquet LOCATION '{tmp_path}/found';"
        job = run(READ + source + found + "INSERT INTO found (b, a) SELECT b, a FROM t", name)
        assert job.written == [WrittenRows("found", 2)]
        assert [tuple(row) for row in spark.table("found").collect()] == [(1, "x")] * 2
        insert = source + "INSERT INTO streamed (b, n) SELECT upper(b), a FROM t"
        assert run(streamed + insert, name, trigger="availableNow").await_termination(240)
        fill(client, name, numbered(name, [GOOD]))
        assert run(insert, name, trigger="availableNow").await_termination(240)  # from its checkpoint
        assert [tuple(row) for row in spark.table("streamed").collect()] == [(1, None, "X")] * 3
        assert [path.name for path in (tmp_path / "streamed").glob("b=*")] == ["b=X"]
        for wrong in ("(nope)", "PARTITION (b = 'x')"):
            with pytest.raises(SqlError, match=r"no column 'nope'|PARTITION is for INSERTs"):
                run(f"{source} INSERT INTO streamed {wrong} SELECT a FROM t", name)
    finally:
        for table in ("found", "streamed"):
            spark.sql(f"DROP TABLE IF EXISTS {table}")


def test_a_plan_is_checked_without_a_broker(spark, tmp_path):
    table = (
        "CREATE TABLE t (k INT, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '2' SECOND) "
        "USING rocketmq OPTIONS (topic 'no_broker');\n"
        "SET 'checkpointLocation' = '/c';\n"
    )
    made = f"CREATE TABLE made (n BIGINT) USING parquet LOCATION '{tmp_path}/made';"
    count = "SELECT count(*) FROM t GROUP BY "
    (window, changed) = plan_job(
        spark,
        f"{table}{made} INSERT INTO made {count} window(at, '1 minute');"
        f"SET 'outputMode' = 'update'; INSERT INTO made {count} k; SELECT * FROM made",
    )
    assert (window.name, changed.position.line) == ("made", 3)
    assert "EventTimeWatermark" in window.explain()
    assert not spark.catalog.tableExists("made")
    assert not (tmp_path / "made").exists()
    for wrong, message in [
        (
            f"{made} INSERT INTO made {count} k",
            "line 3, column .* Group by a window of the column of WATERMARK",
        ),
        (f"{made} INSERT INTO made SELECT nope FROM t", "line 3, column .*nope"),
    ]:
        with pytest.raises(SqlError, match=message):
            plan_job(spark, table + wrong)


def test_blackhole_print_and_files_and_one_topic_twice(run, spark, topic, settled, client, tmp_path, capsys):
    name, out = topic(queues=1), topic(queues=1)
    fill(client, name, numbered(name, [GOOD, '{"a": 2}']))
    files = (
        "CREATE TABLE f (a BIGINT, b STRING) PARTITIONED BY (b) WITH ('connector' = 'filesystem', "
        f"'path' = '{tmp_path}/f', 'format' = 'csv', 'csv.field-delimiter' = '|');"
    )
    others = (
        "CREATE TABLE shown (a INT, b STRING) WITH ('connector' = 'print', 'print-identifier' = 'p');"
        "CREATE TABLE hole (a INT) WITH ('connector' = 'blackhole');"
    )
    source = with_options("a INT, b STRING", ", 'startingOffsets' = 'earliest'")
    sink = with_options("a INT", "").replace("user_behavior", out).replace("TABLE t", "TABLE o")
    inserts = (
        "INSERT INTO f (b, a) SELECT coalesce(b, 'none'), a FROM t; INSERT INTO o SELECT a FROM t;"
        "INSERT INTO o SELECT a + 10 FROM t"
    )
    job = run(source + files + sink + inserts, name, trigger="availableNow")
    assert job.await_termination(240)
    assert [query.name for query in job.queries] == ["f", "o", "o-2"]
    settled(out, 4)
    batch = (
        files + others + "INSERT INTO hole SELECT a FROM f; INSERT INTO shown SELECT * FROM f WHERE a = 1;"
    )
    job = run(READ + batch + "INSERT INTO shown (a) VALUES (3); SELECT a, b FROM f")
    assert rows_of(job) == [(1, "x"), (2, "none")]
    assert [written.rows for written in job.written] == [2, 1, 1]
    assert capsys.readouterr().out.splitlines() == ["p> +I[1, x]", "p> +I[3, null]"]
    assert sorted(path.name for path in (tmp_path / "f").glob("b=*")) == ["b=none", "b=x"]


def test_rows_for_files_are_written_and_stay_readable(spark, tmp_path):
    """Spark's readers see only what the log of a stream names, and a stream writes no number twice."""
    name = f"kept_{tmp_path.name.replace('-', '_')}"
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "1.json").write_text('{"a": 1}')
    tables = "".join(
        f"CREATE TABLE {table} (a BIGINT) WITH ('connector' = 'filesystem', 'format' = 'json', "
        f"'path' = '{tmp_path / table}');"
        for table in ("given", "out")
    )

    def insert(target, checkpoint, mode="streaming"):
        text = f"{tables} SET 'runtimeMode' = '{mode}'; INSERT INTO {target} SELECT a FROM given"
        place, settings = str(tmp_path / checkpoint), {"trigger": "availableNow"}
        with execute(spark, text, checkpoint_location=place, settings=settings) as job:
            assert job.await_termination(240)

    try:
        spark.sql(f"CREATE TABLE {name} (a BIGINT) USING parquet")
        for target in ("out", name):
            insert(target, "one")
            with pytest.raises(RocketMQError, match=r"up to batch 0, .* does not know: .* not be written"):
                insert(target, "two")
            with pytest.raises(RocketMQError, match="would not see those of a batch"):
                insert(target, "two", "batch")
        (tmp_path / "given" / "2.json").write_text('{"a": 2}')
        insert(name, "one")
        assert sorted(row.a for row in spark.table(name).collect()) == [1, 2]
        spark.sql(f"DROP TABLE {name}")
        spark.sql(f"CREATE TABLE {name} (a BIGINT) USING parquet")
        spark.sql(f"INSERT INTO {name} VALUES (3)")
        with pytest.raises(RocketMQError, match="has files that no stream has written"):
            insert(name, "three")
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def job_of_files(folder: Path, columns: str, mode: str, insert: str) -> str:
    """Return a job that inserts the rows of JSON files, in a new folder, into a table of Spark's."""
    (folder / "given").mkdir()
    return f"""CREATE TABLE given ({columns})
    WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '{folder / "given"}');
    SET 'runtimeMode' = '{mode}';
    {insert}"""


@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_a_column_that_an_insert_does_not_name_has_its_default(spark, tmp_path, mode):
    """As by an INSERT of Spark's."""
    name = f"defaults_{mode}_{tmp_path.name.replace('-', '_')}"
    text = job_of_files(tmp_path, "a BIGINT", mode, f"INSERT INTO {name} (a) SELECT a FROM given")
    (tmp_path / "given" / "1.json").write_text('{"a": 1}')
    try:
        columns = "a BIGINT, n BIGINT DEFAULT 5, t STRING DEFAULT 'x''y', o INT"
        spark.sql(f"CREATE TABLE {name} ({columns}) USING parquet")
        place, settings = str(tmp_path / "checkpoints"), {"trigger": "availableNow"}
        with execute(spark, text, checkpoint_location=place, settings=settings) as job:
            assert job.await_termination(240)
        assert [tuple(row) for row in spark.table(name).collect()] == [(1, 5, "x'y", None)]
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_a_text_that_is_longer_than_its_column_is_not_written(spark, tmp_path, mode):
    name = f"lengths_{mode}_{tmp_path.name.replace('-', '_')}"
    text = job_of_files(tmp_path, "a STRING, b STRING", mode, f"INSERT INTO {name} SELECT a, b FROM given")
    place, settings = str(tmp_path / "checkpoints"), {"trigger": "availableNow"}

    def insert(a, b):
        for path in (tmp_path / "given").glob("*.json"):
            path.unlink()
        (tmp_path / "given" / f"{a}{b}.json").write_text(json.dumps({"a": a, "b": b}), encoding="utf-8")
        with execute(spark, text, checkpoint_location=place, settings=settings) as job:
            assert job.await_termination(240)

    try:
        spark.sql(f"CREATE TABLE {name} (a VARCHAR(2), b CHAR(3)) USING parquet")
        insert("é  ", "xy")
        for a, b in (("abc", "x"), ("a", "wxyz")):
            with pytest.raises(Exception, match=r"Exceeds char/varchar type length limitation: [23]"):
                insert(a, b)
        assert [tuple(row) for row in spark.table(name).collect()] == [("é ", "xy ")]
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


EVENTS = "k INT, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '2' SECOND"


def events(numbers: Sequence[int]) -> list[str]:
    return [f'{{"k": {n % 2}, "at": "2026-01-31T08:00:{n:02d}.000Z"}}' for n in numbers]


@pytest.mark.since_spark("4.2")  # a run is one micro-batch before it, which emits no window
def test_two_windows_of_one_table_are_joined(run, topic, settled, client):
    name, out = topic(queues=1), topic(queues=1)
    fill(client, name, [*events(range(20)), '{"k": 9, "at": "2026-01-31T09:00:00.000Z"}'])
    sink = with_options("k INT, n BIGINT, most BIGINT", "").replace("user_behavior", out)
    window = "window(at, '10 seconds')"
    text = (
        with_options(EVENTS, ", 'startingOffsets' = 'earliest'")
        + sink.replace("TABLE t", "TABLE o")
        + "SET 'dialect' = 'spark'; CREATE VIEW known AS SELECT k, at FROM t WHERE k IS NOT NULL;"
        + "INSERT INTO o SELECT a.k, a.n, b.most "
        + f"FROM (SELECT {window} AS w, k, count(*) AS n FROM known GROUP BY {window}, k) a "
        + "JOIN (SELECT w, max(n) AS most FROM "
        + f"(SELECT {window} AS w, count(*) AS n FROM known GROUP BY {window}, k) GROUP BY w) b ON a.w = b.w"
    )
    assert run(text, name, trigger="availableNow").await_termination(240)
    settled(out, 4)
    bodies = sorted(message.body for message in last_messages(client, client.read_queues(out), 9))
    assert bodies == [b'{"k":0,"n":5,"most":5}'] * 2 + [b'{"k":1,"n":5,"most":5}'] * 2


def test_a_silent_table_does_not_hold_up_a_join(run, topic, settled, client):
    left, right, out = topic(queues=1), topic(queues=1), topic(queues=1)
    fill(client, left, events([1, 2]))
    tables = [
        with_options(EVENTS, ", 'startingOffsets' = 'earliest'").replace("TABLE t", f"TABLE {name}")
        for name in ("l", "r")
    ]
    sink = with_options("k INT, other INT", "").replace("TABLE t", "TABLE o")
    text = "SET 'dialect' = 'spark';" + "".join(
        table.replace("user_behavior", name)
        for table, name in zip([*tables, sink], [left, right, out], strict=True)
    )
    windowed = "SELECT window(at, '10 seconds') AS w, k FROM"
    text += (
        f"INSERT INTO o SELECT l.k, r.k FROM ({windowed} l) l LEFT JOIN ({windowed} r) r "
        "ON l.w = r.w AND l.k = r.k"
    )
    job = run(text, **{"table.exec.source.idle-timeout": "1 s"})
    settled(out, 2)
    assert job.queries[0].isActive
    bodies = sorted(message.body for message in last_messages(client, client.read_queues(out), 9))
    assert bodies == [b'{"k":0}', b'{"k":1}'], "and no row for a heartbeat"
