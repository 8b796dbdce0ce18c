"""Where pipelines begin and end without a topic: files, rows, frames; files, tables, standard output."""

from __future__ import annotations

import json
import os
import sqlite3
import warnings
from contextlib import closing

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader
from tests.spark.streams_support import at, table

from pyspark_rocketmq.errors import OptionError, PlanError, RocketMQError
from pyspark_rocketmq.streams import (
    CheckpointStrategy,
    HoppingWindow,
    SessionWindow,
    ShuffleStrategy,
    StreamBuilder,
    Time,
    TumblingWindow,
    WindowStrategy,
    late_rows,
)

pytestmark = pytest.mark.usefixtures("lean")


def source(spark, name="ends"):
    return StreamBuilder.dataStream("tests", name, spark)


AGES = [{"name": "a", "age": 30}, {"name": "b", "age": 3}]


def ages_source(**options):
    class Reader(DataSourceReader):
        def read(self, partition):  # noqa: ARG002
            yield options["name"], int(options["age"])
            yield "b", int(options["other"])

    class Ages(DataSource):  # in a function: Spark's processes get its code, they cannot import tests
        def schema(self):
            return "name string, age int"

        def reader(self, schema):  # noqa: ARG002
            assert dict(self.options) == options
            return Reader()

    return Ages(options)


def test_sources_that_end_close_their_windows(spark, tmp_path, capsys):
    (tmp_path / "ages.csv").write_text("name,age\na,30\nb,3\n")
    (tmp_path / "ages.txt").write_text("".join(f"{json.dumps(row)}\n" for row in AGES))
    frame = spark.createDataFrame([("a", 30), ("b", 3)], "name string, age int")
    streams = [
        source(spark).fromCsv(str(tmp_path / "ages.csv")),
        source(spark).fromFile(str(tmp_path / "ages.txt")),
        source(spark).fromFile(str(tmp_path / "ages.txt"), False).map(json.loads),
        source(spark).fromArray([json.dumps(row) for row in AGES]).map(json.loads),
        source(spark).fromCollection(*AGES, schema="name string, age int"),
        source(spark).from_(frame),
        source(spark).from_(ages_source(name="a", age="30", other="3")),
    ]
    for stream in streams:
        sums = stream.window(TumblingWindow.of(Time.hours(1))).sum("age").toDataStream()
        assert sums.selectFields("age").toPrint().start() is None
        assert capsys.readouterr().out == '{"age": 33}\n'
    with pytest.raises(PlanError, match="file not found"):
        source(spark).fromFile(str(tmp_path / "nope")).toPrint().start()


def test_the_field_of_times_of_a_frame_may_have_a_dot(spark):
    first, other = "timestamp'2030-01-01 00:00:05'", "timestamp'2030-01-01 00:00:15'"
    frame = spark.sql(
        f"SELECT {first} AS `event.time`, struct({other} AS time) AS event, struct({other} AS at) AS n"
    )
    for field, second in (("event.time", 5), ("Event.Time", 5), ("`event.time`", 5), ("n.at", 15)):
        stream = source(spark).from_(frame, timeField=field)
        windows = stream.window(TumblingWindow.of(Time.seconds(10))).count("n").toDataStream()
        (row,) = windows.toDF().select("start_time").collect()
        assert row[0] == f"2030-01-01 00:00:{second // 10}0", field


def test_a_number_is_in_milliseconds_also_as_the_time_of_a_frame(spark):
    """Seconds, as Spark's cast takes it, would be fifty thousand years later."""
    frame = spark.sql(
        "SELECT 1893456005000 AS n, '1893456005000' AS text, '2030-01-01 00:00:05' AS shown "
        "UNION ALL SELECT NULL, 'x', '99999-01-01'"
    )
    for field in frame.columns:
        stream = source(spark).from_(frame, timeField=field)
        windows = stream.window(TumblingWindow.of(Time.seconds(10))).count("n").toDataStream()
        rows = windows.toDF().select("start_time", "n").collect()
        assert [tuple(row) for row in rows] == [("2030-01-01 00:00:00", 1)], field


def test_bytes_that_are_no_utf_8_are_replaced_as_in_javas_clients(spark, tmp_path, capsys):
    (tmp_path / "in.txt").write_bytes(b'{"a": "\xe9"}\n{"a": "\xc3\xa9"}\n')
    for step in (None, json.loads, lambda text: {**json.loads(text)}):
        lines = source(spark).fromFile(str(tmp_path / "in.txt"), False)
        (lines if step is None else lines.map(step)).toPrint().start()
        assert capsys.readouterr().out.splitlines() == ['{"a": "\ufffd"}', '{"a": "é"}']


def test_sinks_of_each_kind(spark, tmp_path):
    with closing(sqlite3.connect(tmp_path / "r.db")) as connection, connection:
        connection.execute("CREATE TABLE ages (name TEXT PRIMARY KEY, age INTEGER)")
        connection.execute("INSERT INTO ages VALUES ('a', 1)")
    stream = source(spark).fromCollection(*AGES, schema="name string, age int")
    seen = []
    for end in (
        stream.toFile(str(tmp_path / "text")),
        stream.toJson(str(tmp_path / "json")),
        stream.toCsv(str(tmp_path / "csv")),
        stream.toParquet(str(tmp_path / "parquet")),
        stream.toDB(f"sqlite:///{tmp_path}/r.db", None, None, "ages", key="name"),
        stream.to(lambda df, number: seen.append((number, df.count()))),
    ):
        last = end
    last.start()
    found = {
        "text": [json.loads(row[0]) for row in spark.read.text(str(tmp_path / "text")).collect()],
        "json": [row.asDict() for row in spark.read.json(str(tmp_path / "json")).collect()],
        "parquet": [row.asDict() for row in spark.read.parquet(str(tmp_path / "parquet")).collect()],
        "csv": [
            row.asDict()
            for row in spark.read.schema("name string, age int").csv(str(tmp_path / "csv")).collect()
        ],
    }
    for kind, rows in found.items():
        assert table(rows, "name", "age") == [("a", 30), ("b", 3)], kind
    with closing(sqlite3.connect(tmp_path / "r.db")) as connection, connection:
        assert connection.execute("SELECT * FROM ages ORDER BY name").fetchall() == [("a", 30), ("b", 3)]
    assert seen == [(0, 2)]


@pytest.fixture
def run(spark, tmp_path, monkeypatch):
    """Run a pipeline over files, one a batch, and return its query."""
    monkeypatch.setenv("PYSPARK_ROCKETMQ_STREAMS_HOME", str(tmp_path / "home"))

    def finish(end):
        query = end.asyncStart(availableNow=True)
        try:
            assert query.awaitTermination(240)
        finally:
            query.stop()
        return query

    return finish


def batches(folder, *rows):
    folder.mkdir(exist_ok=True)
    for row in rows:
        lines = "".join(json.dumps({"t": int(time * 1000), **record}) + "\n" for time, record in row)
        age = len(list(folder.iterdir()))
        file = folder / f"{age:03d}.json"
        file.write_text(lines)
        os.utime(file, (1_600_000_000 + age, 1_600_000_000 + age))  # Spark takes the oldest first


@pytest.mark.parametrize(
    ("window", "late"),
    [
        (TumblingWindow.of(Time.seconds(10), "t"), 300),
        (HoppingWindow.of(Time.seconds(10), Time.seconds(5), "t"), 600),
        (SessionWindow.of(Time.seconds(3), "t"), 300),
    ],
)
def test_late_rows_are_counted_row_by_row_over_a_restart(spark, tmp_path, run, window, late):
    """Spark's own count has one row for the 150 of a batch, which have one key."""
    rows = tmp_path / "in"

    def pipeline():
        files = source(spark, "late").fromFile(str(rows), tail=True, maxFilesPerTrigger=1)
        counts = files.window(window).groupBy("k").count("n").waterMark(2).toDataStream()
        return counts.toTable("late_counts").with_(CheckpointStrategy.local(str(tmp_path / "checkpoint")))

    behind = [[at(40, k="a")], [at(41, k="a")], [at(1, k="a")] * 150]
    columns = "k string, n bigint, start_time string, end_time string, fire_time string"
    spark.sql(f"CREATE TABLE late_counts ({columns}) USING parquet LOCATION '{tmp_path}/table'")
    try:
        batches(rows, [at(1, k="a"), at(2, k="b")], *behind)
        first = run(pipeline())
        assert late_rows(first) == late / 2
        batches(rows, [at(2, k="a")] * 150)
        second = run(pipeline())
        assert (late_rows(first), late_rows(second)) == (late / 2, late / 2)
        assert {row.k: row.n for row in spark.table("late_counts").collect()}["b"] == 1
    finally:
        spark.sql("DROP TABLE late_counts")
    with pytest.raises(OptionError, match="not started by a pipeline"):
        late_rows(type("Query", (), {"runId": "x", "name": "x"})())


def test_what_is_there_for_parity_only_says_so_once(spark):
    stream = source(spark).fromArray(["x"])
    strategies = [
        ShuffleStrategy.shuffleWithMQ(),
        ShuffleStrategy.shuffleInMemory(),
        WindowStrategy.highPerformance(),
    ]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        stream.with_(*strategies, *strategies)
    assert len(told) == 3
    assert all("has no effect" in str(warning.message) for warning in told)
    assert stream.with_(WindowStrategy.exactlyOnce("/c")).toPrint().plan().checkpoint == "/c"
    with pytest.raises(PlanError, match=r"with_\(CheckpointStrategy.remote"):
        source(spark).fromArray(["x"]).window(TumblingWindow.of(Time.seconds(1))).count().setLocalStorageOnly(
            False
        ).toDataStream().toPrint().plan()


def test_results_are_not_taken_for_those_of_another_checkpoint(spark, tmp_path, monkeypatch):
    """Spark writes no number of a batch twice: a job with a new checkpoint would write nothing at first."""
    monkeypatch.setenv("PYSPARK_ROCKETMQ_STREAMS_HOME", str(tmp_path / "home"))
    (tmp_path / "in").mkdir()

    def write(name, out, *, sinks=1):
        stream = source(spark, name).fromFile(str(tmp_path / "in"), tail=True).selectFields("n")
        stream.toJson(str(tmp_path / out))
        if sinks > 1:
            stream.to(lambda *_: None)
        stream.start(availableNow=True)

    def found(out):
        return sorted(json.loads(row[0])["n"] for row in spark.read.text(str(tmp_path / out)).collect())

    (tmp_path / "in" / "1").write_text('{"n": 1}\n')
    write("first", "one")
    write("several", "two", sinks=2)
    (tmp_path / "in" / "2").write_text('{"n": 2}\n')
    for out, sinks, effect in (("one", 1, "not be written"), ("two", 2, "replace them")):
        with pytest.raises(RocketMQError, match=f"up to batch 0, .* does not know: .* {effect}"):
            write("other", out, sinks=sinks)
    for name, out, sinks in (("first", "one", 2), ("several", "two", 1)):
        with pytest.raises(RocketMQError, match="readers would see"):
            write(name, out, sinks=sinks)
    write("first", "one")
    write("several", "two", sinks=2)
    assert found("one") == found("two") == ["1", "2"]


def test_rows_of_tables_and_folders_are_written_and_stay_readable(spark, tmp_path, monkeypatch):
    """Spark's readers see only what the log of a stream names, and a stream writes no number twice."""
    monkeypatch.setenv("PYSPARK_ROCKETMQ_STREAMS_HOME", str(tmp_path / "home"))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1").write_text('{"n": 1}\n')
    name = f"results_{tmp_path.name.replace('-', '_')}"

    def rows(job, *, tail=True):
        return source(spark, job).fromFile(str(tmp_path / "in"), tail=tail).selectFields("n")

    def found():
        return sorted(row.n for row in spark.table(name).collect())

    try:
        rows("first").toTable(name).start(availableNow=True)
        (tmp_path / "in" / "2").write_text('{"n": 2}\n')
        with pytest.raises(RocketMQError, match=r"up to batch 0, .* does not know: .* not be written"):
            rows("second").toTable(name).start(availableNow=True)
        with pytest.raises(RocketMQError, match="would not see those of a batch"):
            rows("bounded", tail=False).toTable(name).start()
        rows("first").toTable(name).start(availableNow=True)
        assert found() == ["1", "2"]
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {name}")
    rows("backfill", tail=False).toJson(str(tmp_path / "out")).start()
    with pytest.raises(RocketMQError, match="has files that no stream has written"):
        rows("live").toJson(str(tmp_path / "out")).start(availableNow=True)
    rows("live").toJson(str(tmp_path / "live")).start(availableNow=True)
    with pytest.raises(RocketMQError, match="would not see those of a batch"):
        rows("backfill", tail=False).toJson(str(tmp_path / "live")).start()
