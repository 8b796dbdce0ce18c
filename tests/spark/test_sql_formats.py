"""Formats of Flink's tables, and changelogs, by Spark's own functions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from tests.support.patient import PATIENCE_MS
from tests.support.topics import fill
from tests.unit.sql.test_formats import translated

from pyspark_rocketmq.client import OutgoingMessage
from pyspark_rocketmq.client.read.message_search import last_messages
from pyspark_rocketmq.options import BadRecords, BodyFormat, Changelog, TableOptions
from pyspark_rocketmq.spark.body_formats import BODY, BodyColumn, Fit, Format, judge
from pyspark_rocketmq.sql import execute
from pyspark_rocketmq.sql.formats.changelogs import (
    CHANGE,
    current_rows,
    decode_changes,
    encode_change,
    latest_changes,
)
from pyspark_rocketmq.sql.formats.flink_options import FormatSettings
from pyspark_rocketmq.sql.parse import parse_statements
from pyspark_rocketmq.sql.statements import CreateTable
from pyspark_rocketmq.sql.tables import Table

COLUMNS = (BodyColumn("id", "INT", nullable=False), BodyColumn("name", "STRING"))
OPTIONS = TableOptions()
JSON = Format(BodyFormat.JSON, COLUMNS, OPTIONS, {})


def bodies(spark: SparkSession, *texts: str | bytes) -> DataFrame:
    rows = [(at, text.encode() if isinstance(text, str) else text) for at, text in enumerate(texts)]
    return spark.createDataFrame(rows, f"queueOffset BIGINT, {BODY} BINARY")


def decoded(form: Format, rows: DataFrame, policy: BadRecords = BadRecords.DROP) -> list[tuple[Any, ...]]:
    judged = judge(form.decode(rows), policy, what="the columns", counted_as=None)
    names = [column.name for column in form.columns]
    found = judged.rows.select(
        *(value.alias(name) for value, name in zip(judged.columns, names, strict=True))
    )
    return [tuple(row) for row in found.collect()]


def test_which_bodies_fit(spark: SparkSession) -> None:
    columns = (*COLUMNS, BodyColumn("n", "INT"))
    texts = ['{"id":1,"name":"a","n":1}', '{"id":2,"name":"b"}', '{"id":3,"name":"c","n":"x"}', "{oops"]
    rows = bodies(spark, *texts)
    form = replace(JSON, columns=columns)
    assert decoded(form, rows) == [(1, "a", 1), (2, "b", None)]
    assert decoded(replace(form, fit=Fit.COMPLETE), rows) == [(1, "a", 1)]
    assert decoded(replace(form, fit=Fit.LENIENT), rows) == [(1, "a", 1), (2, "b", None), (3, "c", None)]
    lines = replace(form, kind=BodyFormat.CSV)
    rows = bodies(spark, "1,a,1", "2,b,x")
    assert decoded(lines, rows) == [(1, "a", 1)]
    assert decoded(replace(lines, fit=Fit.LENIENT), rows) == [(1, "a", 1), (2, "b", None)]


def test_both_standards_of_times_are_read_and_one_is_written(spark: SparkSession) -> None:
    form = replace(JSON, columns=(BodyColumn("at", "TIMESTAMP"),))
    texts = ['{"at":"2026-01-31 08:00:00.125"}', '{"at":"2026-01-31T08:00:00.125"}']
    first, second = decoded(form, bodies(spark, *texts))
    assert first == second != (None,)
    rows = spark.sql("SELECT TIMESTAMP '2026-01-31 08:00:00.125' AS at")
    sql = replace(form, writing={"timestampFormat": "yyyy-MM-dd HH:mm:ss.SSS"})
    assert rows.select(sql.encode({"at": rows["at"]})["body"]).collect() == [(texts[0],)]


def test_raw_texts_have_a_charset(spark: SparkSession) -> None:
    form = Format(BodyFormat.RAW, (BodyColumn("v", "STRING"),), OPTIONS, {}, charset="UTF-16BE")
    assert decoded(form, bodies(spark, "ö".encode("utf-16-be"))) == [("ö",)]
    rows = spark.sql("SELECT 'ö' AS v")
    assert rows.select(form.encode({"v": rows["v"]})["body"]).collect() == [("ö".encode("utf-16-be"),)]


@pytest.mark.parametrize(
    ("charset", "good", "bad"),
    [
        ("US-ASCII", ["", "a~"], [b"\x80", b"a\xff"]),
        ("ISO-8859-1", ["", "\xff"], []),
        ("UTF-16BE", ["", "ö😀" * 5_000], [b"\x00", b"\xd8\x00", b"\xdc\x00\xd8\x00", b"\x00a\xd8\x00\x00a"]),
        ("UTF-16LE", ["", "ö😀" * 5_000], [b"a", b"\x00\xd8", b"\x00\xdc\x00\xd8", b"a\x00\x00\xd8a\x00"]),
        ("UTF-16", ["", "ö😀"], [b"\x00", b"\xd8\x00", b"\xff\xfe\x00\xd8"]),
    ],
)
def test_bytes_that_are_no_text_of_the_charset_are_a_bad_record(
    spark: SparkSession, charset: str, good: list[str], bad: list[bytes]
) -> None:
    form = Format(BodyFormat.RAW, (BodyColumn("v", "STRING"),), OPTIONS, {}, charset=charset)
    encoded = [text.encode(charset) for text in good]
    rows = bodies(spark, *encoded, *bad)
    assert decoded(form, rows) == [(text,) for text in good]
    assert decoded(form, rows, BadRecords.NULL) == [*((text,) for text in good), *((None,) for _ in bad)]


@pytest.mark.parametrize("form", ["csv", "json"])
def test_files_have_the_values_as_they_were(spark: SparkSession, tmp_path: Path, form: str) -> None:
    text = f"""
    SET 'runtimeMode' = 'batch';
    CREATE TABLE f (id INT, v STRING, at TIMESTAMP(6)) WITH ('connector' = 'filesystem',
      'path' = '{tmp_path}/files', 'format' = '{form}');
    INSERT INTO f VALUES (1, ' a ', TIMESTAMP '2026-01-31 08:00:00.123456'), (2, '', NULL), (3, NULL, NULL),
      (4, 'a"b, c', NULL);
    SELECT id, v, unix_micros(at) AS at FROM f ORDER BY id"""
    with execute(spark, text) as job:
        (found,) = job.results
        rows = [tuple(row) for row in found.collect()]
    micros = spark.sql("SELECT unix_micros(TIMESTAMP '2026-01-31 08:00:00.123456')").collect()[0][0]
    assert rows == [(1, " a ", micros), (2, "", None), (3, None, None), (4, 'a"b, c', None)]


def test_digits_in_a_file_are_no_days_since_1970(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "files.json").write_text('{"id": 1, "day": "20260101"}\n{"id": 2, "day": "2026-01-01"}')
    text = f"""
    SET 'runtimeMode' = 'batch';
    CREATE TABLE f (id INT, `day` DATE) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/files.json',
      'format' = 'json');
    SELECT id, CAST(`day` AS STRING) AS d FROM f ORDER BY id"""
    with execute(spark, text) as job:
        (found,) = job.results
        assert [tuple(row) for row in found.collect()] == [(1, None), (2, "2026-01-01")]


@pytest.mark.parametrize("values", ["'x', 'y z'", "'x', CAST(NULL AS STRING)", "'', 'y'"])
def test_keys_that_spaces_would_not_divide_again_are_refused(spark: SparkSession, values: str) -> None:
    text = """CREATE TABLE t (a STRING, b STRING, c INT) WITH ('connector' = 'rocketmq', 'topic' = 't',
      'nameServer' = '127.0.0.1:1', 'keyColumns' = 'a,b', 'writeKeysToBody' = '{}')"""

    def keys(in_body: str, values: str) -> list[Any]:
        (declared,) = parse_statements(text.format(in_body))
        assert isinstance(declared, CreateTable)
        table = Table.of(declared, default_format=BodyFormat.JSON)
        rows = spark.sql(f"SELECT {values}, 1")
        return [row.keys for row in table.messages(rows, table.writable((), declared.position)).collect()]

    assert keys("false", "'x', 'y'") == ["x y"]
    assert keys("true", values)
    with pytest.raises(PySparkException, match="written to the message's keys only, which spaces separate"):
        keys("false", values)


# --- changelogs -------------------------------------------------------------------------------------------


def changes(
    rows: DataFrame,
    changelog: Changelog,
    *,
    given: FormatSettings | None = None,
    columns: tuple[BodyColumn, ...] = COLUMNS,
    policy: BadRecords = BadRecords.DROP,
    keys: frozenset[str] = frozenset({"id"}),
) -> DataFrame:
    found = decode_changes(rows, changelog, columns, given or FormatSettings(), keys=keys)
    judged = judge(found, policy, what="the columns", counted_as=None)
    values = [value.alias(c.name) for value, c in zip(judged.columns, columns, strict=True)]
    return judged.rows.select(*values, CHANGE)


def ops(rows: DataFrame) -> list[tuple[Any, ...]]:
    found = rows.orderBy(f"{CHANGE}.position").select(f"{CHANGE}.op", *rows.columns[:-1])
    return [tuple(row) for row in found.collect()]


A, B = {"id": 1, "name": "a"}, {"id": 1, "name": "b"}
DEBEZIUM = [
    {"before": None, "after": A, "op": "r"},
    {"payload": {"before": A, "after": B, "op": "u"}, "schema": {}},
    {"before": None, "after": {"id": 2, "name": None}, "op": "c"},
    {"before": B, "after": None, "op": "d"},
    {"op": "m"},
]
CANAL = [
    {"data": [{"id": "1", "name": "a"}], "type": "INSERT", "database": "shop", "table": "t"},
    {
        "data": [{"id": "1", "name": "b"}],
        "old": [{"name": "a"}],
        "type": "UPDATE",
        "database": "shop",
        "table": "t",
    },
    {"data": [{"id": "2", "name": None}], "old": None, "type": "INSERT", "database": "shop", "table": "t"},
    {"data": [{"id": "1", "name": "b"}], "type": "DELETE", "database": "shop", "table": "t"},
    {"data": None, "type": "CREATE", "isDdl": True, "database": "shop", "table": "t"},
    {"data": [{"id": "9", "name": "z"}], "type": "INSERT", "database": "other", "table": "t"},
]
MAXWELL = [
    {"data": A, "type": "insert", "database": "shop", "table": "t"},
    {"data": B, "old": {"name": "a"}, "type": "update", "database": "shop", "table": "t"},
    {"data": {"id": 2, "name": None}, "type": "bootstrap-insert", "database": "shop", "table": "t"},
    {"data": B, "type": "delete", "database": "shop", "table": "t"},
    {"type": "table-create", "database": "shop", "table": "t"},
]
CHANGES = [
    ("+I", 1, "a"),
    ("-U", 1, "a"),
    ("+U", 1, "b"),
    ("+I", 2, None),
    ("-D", 1, "b"),
]


@pytest.mark.parametrize(
    ("changelog", "messages"),
    [(Changelog.DEBEZIUM, DEBEZIUM), (Changelog.CANAL, CANAL), (Changelog.MAXWELL, MAXWELL)],
)
def test_changes_are_rows_with_their_kind(
    spark: SparkSession, changelog: Changelog, messages: list[dict[str, Any]]
) -> None:
    rows = bodies(spark, *map(json.dumps, messages), b"")
    filters = {} if changelog is Changelog.DEBEZIUM else {"database": "sh.p", "table": "t|u"}
    given = FormatSettings(filters=filters)
    found = changes(rows, changelog, given=given, policy=BadRecords.FAIL)
    assert ops(found) == CHANGES
    for keys in (("id",), ()):
        assert [tuple(row) for row in current_rows(found, keys).collect()] == [(2, None)]


def test_equal_rows_without_a_key_remain_as_often_as_they_were_inserted(spark: SparkSession) -> None:
    messages = [{"data": A, "type": kind} for kind in ("insert", "insert", "insert", "delete")]
    found = changes(bodies(spark, *map(json.dumps, messages)), Changelog.MAXWELL)
    assert [tuple(row) for row in current_rows(found, ()).collect()] == [(1, "a")] * 2


def test_values_of_changes_have_the_columns_types(spark: SparkSession) -> None:
    kinds = {
        "n": "DECIMAL(9,2)",
        "at": "TIMESTAMP",
        "ok": "BOOLEAN",
        "b": "BINARY",
        "tags": "ARRAY<STRING>",
        "who": "STRUCT<name: STRING, n: INT>",
    }
    columns = tuple(BodyColumn(name, kind) for name, kind in kinds.items())
    row = {"n": "1.50", "at": "2026-01-31 08:00:00", "ok": "1", "b": "YQ==", "tags": ["x"], "who": {"n": 3}}
    body = json.dumps({"data": [row], "type": "INSERT"})
    (found,) = changes(bodies(spark, body), Changelog.CANAL, columns=columns).collect()
    assert (str(found.n), found.at.minute, found.ok, bytes(found.b)) == ("1.50", 0, True, b"a")
    assert (found.tags, found.who.n) == (["x"], 3)


def test_numbers_of_days_and_wrong_fields_of_a_row_are_bad_records(spark: SparkSession) -> None:
    """Debezium's dates are numbers by default, of days since 1970: 20000 is no year."""
    kinds = {"day": "DATE", "at": "TIMESTAMP", "local": "TIMESTAMP_NTZ"}
    kinds["who"] = "ARRAY<STRUCT<n: INT, at: TIMESTAMP>>"
    columns = tuple(BodyColumn(name, kind) for name, kind in kinds.items())
    good = {"day": "2026-01-31", "at": "2026-01-31T08:00:00Z", "local": "2026-01-31 08:00", "who": [{"n": 1}]}
    wrong = [{"day": 20000}, {"day": 2026}, {"at": 20000}, {"local": "2026"}, {"who": [{"n": "x"}]}]
    wrong += [{"who": [{"at": 1764355200000000}]}]  # microseconds, of which Spark makes another time
    texts = [json.dumps({"op": "c", "after": good | each}) for each in ({}, *wrong)]
    rows = bodies(spark, *texts)
    found = changes(rows, Changelog.DEBEZIUM, columns=columns)
    assert [(str(row.day), row.who[0].n) for row in found.collect()] == [("2026-01-31", 1)]
    lenient = FormatSettings(fit=Fit.LENIENT)
    decoded_rows = decode_changes(rows, Changelog.DEBEZIUM, columns, lenient, keys=())
    day, *_, who = decoded_rows.columns
    nulls = decoded_rows.rows.select(day.isNull(), who.getField("n")[0], decoded_rows.bad).collect()
    assert nulls == [
        *((False, 1, False), (True, 1, False), (True, 1, False)),
        *((False, 1, False), (False, 1, False), (False, None, False), (False, None, False)),
    ]


@pytest.mark.parametrize(
    "body",
    [
        "{",
        '{"op": "c", "after": null}',
        '{"op": "c", "after": {"id": "x"}}',
        '{"op": "c", "after": {"name": "no id"}}',
        '{"op": "d", "before": null}',
        '{"no": "op"}',
    ],
)
def test_what_is_no_change_is_a_bad_record(spark: SparkSession, body: str) -> None:
    good = json.dumps(DEBEZIUM[0])
    rows = bodies(spark, good, body)
    assert ops(changes(rows, Changelog.DEBEZIUM)) == [("+I", 1, "a")]
    with pytest.raises(PySparkException, match="a body does not fit"):
        changes(rows, Changelog.DEBEZIUM, policy=BadRecords.FAIL).collect()


def test_a_change_that_is_not_utf_8_is_a_bad_record(spark: SparkSession) -> None:
    good = json.dumps({"data": {"id": 1, "name": "ö"}, "type": "insert"}, ensure_ascii=False)
    rows = bodies(spark, good, good.encode("latin-1"))
    assert ops(changes(rows, Changelog.MAXWELL)) == [("+I", 1, "ö")]


@pytest.mark.parametrize("changelog", [Changelog.CANAL, Changelog.MAXWELL])
def test_a_field_that_comes_twice_does_not_fail_the_query(spark: SparkSession, changelog: Changelog) -> None:
    row, old = '{"id":"1","name":"b","name":"b"}', '{"name":"a","id":null,"name":"a"}'
    if changelog is Changelog.CANAL:
        row, old = f"[{row}]", f"[{old}]"
    body = f'{{"data":{row},"old":{old},"type":"update"}}'
    columns = (BodyColumn("id", "INT"), BodyColumn("name", "STRING"))
    assert ops(changes(bodies(spark, body), changelog, columns=columns)) == [
        ("-U", None, "a"),
        ("+U", 1, "b"),
    ]


@pytest.mark.parametrize("changelog", list(Changelog))
def test_values_of_changes_come_back_as_they_were(spark: SparkSession, changelog: Changelog) -> None:
    kinds = {
        "at": ("TIMESTAMP", "TIMESTAMP '2026-01-31 08:00:00.123456'"),
        "local": ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ '2026-01-31 08:00:00.000001'"),
        "price": ("DECIMAL(38,18)", "CAST('12345678901234567890.123456789012345678' AS DECIMAL(38,18))"),
        "tiny": ("DECIMAL(38,18)", "CAST('0.000000000000000001' AS DECIMAL(38,18))"),
        "ratio": ("DOUBLE", "CAST('NaN' AS DOUBLE)"),
        "bytes": ("BINARY", "X'00FF'"),
        "text": ("STRING", "concat('ö😀', char(0), '\"\\\\')"),
        "empty": ("STRING", "''"),
        "prices": (
            "ARRAY<DECIMAL(38,18)>",
            "array(CAST('1234567890123.123456789012345678' AS DECIMAL(38,18)))",
        ),
        "times": ("ARRAY<TIMESTAMP>", "array(TIMESTAMP '2026-01-31 08:00:00.123456')"),
    }
    columns = tuple(BodyColumn(name, kind) for name, (kind, _) in kinds.items())
    rows = spark.sql("SELECT " + ", ".join(f"{value} AS {name}" for name, (_, value) in kinds.items()))
    body = encode_change(changelog, F.struct(*rows.columns), F.lit(False), {}).cast("binary")
    written = rows.select(F.lit(0).alias("queueOffset"), body.alias(BODY))
    found = changes(written, changelog, columns=columns, policy=BadRecords.FAIL).drop(CHANGE)
    for name in kinds:  # each alone, as one that fails hides the others
        assert repr(found.select(name).collect()) == repr(rows.select(name).collect()), name


def test_an_update_without_the_old_row_needs_a_key(spark: SparkSession) -> None:
    rows = bodies(spark, json.dumps({"before": None, "after": A, "op": "u"}))
    assert ops(changes(rows, Changelog.DEBEZIUM)) == [("+U", 1, "a")]
    assert ops(changes(rows, Changelog.DEBEZIUM, keys=frozenset())) == []


def test_a_deleted_row_has_its_key_only(spark: SparkSession) -> None:
    """As PostgreSQL writes it without REPLICA IDENTITY FULL; the other columns are NOT NULL all the same."""
    columns = (BodyColumn("id", "INT", nullable=False), BodyColumn("name", "STRING", nullable=False))
    gone = bodies(
        spark,
        json.dumps({"before": {"id": 1, "name": None}, "after": None, "op": "d"}),
        json.dumps({"before": {"id": 2}, "after": A, "op": "u"}),
    )
    found = changes(gone, Changelog.DEBEZIUM, columns=columns, policy=BadRecords.FAIL)
    assert ops(found) == [("-D", 1, None), ("-U", 2, None), ("+U", 1, "a")]
    for row in ({"before": {"name": "a"}, "op": "d"}, {"after": {"id": 1, "name": None}, "op": "c"}):
        rows = bodies(spark, json.dumps(row))
        assert ops(changes(rows, Changelog.DEBEZIUM, columns=columns)) == []
    rows = bodies(spark, json.dumps({"before": {"id": 1}, "op": "d"}))
    assert ops(changes(rows, Changelog.DEBEZIUM, columns=columns, keys=frozenset())) == []


# --- jobs -------------------------------------------------------------------------------------------------

JOB = """
CREATE TABLE changes (id INT, name STRING, n INT, PRIMARY KEY (id) NOT ENFORCED)
WITH ({connection}, 'topic' = '{first}', 'format' = 'canal-json', 'startingOffsets' = 'earliest');
CREATE TABLE latest (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ({connection}, 'topic' = '{second}', 'value.fields-include' = 'EXCEPT_KEY');
CREATE TABLE every (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ({connection}, 'topic' = '{third}', 'format' = 'debezium-json');
CREATE TABLE shown (name STRING, id INT) WITH ('connector' = 'print');
"""
INSERTS = """
INSERT INTO latest SELECT id, upper(name) FROM changes WHERE n > 0;
INSERT INTO every SELECT id, name FROM (SELECT * FROM changes) AS c;
INSERT INTO shown SELECT name, id FROM changes;
"""


def canal(kind: str, *rows: tuple[int, str, int], old: dict[str, Any] | None = None) -> str:
    data = [{"id": str(one), "name": name, "n": str(n)} for one, name, n in rows]
    return json.dumps({"data": data, "old": None if old is None else [old], "type": kind})


@pytest.fixture
def connection(name_server: str) -> str:
    return f"'connector' = 'rocketmq', 'nameServer' = '{name_server}', 'sendTimeoutMs' = '{PATIENCE_MS}'"


def test_changes_reach_topics_with_keys(spark, connection, topic, settled, client, tmp_path, capsys) -> None:
    first, second, third = topic(queues=1), topic(), topic()
    texts = [
        canal("INSERT", (1, "a", 1), (2, "b", 1), (3, "c", 1), (4, "d", 0)),
        canal("UPDATE", (1, "aa", 1), old={"name": "a"}),
        canal("UPDATE", (2, "b", 0), old={"n": "1"}),
        canal("DELETE", (3, "c", 1)),
    ]
    fill(client, first, [OutgoingMessage(first, text.encode()) for text in texts])
    names = {"connection": connection, "first": first, "second": second, "third": third}
    settings = {"trigger": "availableNow"}
    with execute(
        spark, JOB.format(**names) + INSERTS, checkpoint_location=str(tmp_path), settings=settings
    ) as job:
        assert job.await_termination(400)
    settled(second, 3)
    found = {message.keys: message for message in last_messages(client, client.read_queues(second), 10)}
    assert {key: json.loads(message.body) for key, message in found.items()} == {
        "1": {"name": "AA"},
        "2": {},
        "3": {},
    }
    assert [found[key].properties.get("op") for key in "123"] == [None, "-D", "-D"]
    printed = capsys.readouterr().out.splitlines()
    assert printed == [
        "+I[a, 1]",
        "+I[b, 2]",
        "+I[c, 3]",
        "+I[d, 4]",
        "-U[a, 1]",
        "+U[aa, 1]",
        "-U[b, 2]",
        "+U[b, 2]",
        "-D[c, 3]",
    ]
    read = JOB.format(**names) + "SELECT id, name FROM every; SELECT id, name, n FROM changes"
    batch = execute(spark, read, settings={"runtimeMode": "batch"})
    every, remaining = (sorted(tuple(row) for row in rows.collect()) for rows in batch.results)
    assert every == [(1, "aa"), (2, "b"), (4, "d")]
    assert remaining == [(1, "aa", 1), (2, "b", 0), (4, "d", 0)]
    back = JOB.format(**names) + "INSERT INTO latest VALUES (7, 'x'); SELECT id, name FROM latest"
    batch = execute(spark, back, settings={"runtimeMode": "batch"})
    settled(second, 4)
    rows = {tuple(row) for row in batch.results[0].collect()}
    assert {(1, "AA"), (7, "x"), (2, None)} <= rows, "columns that are not in the body come from the keys"


def test_a_row_that_a_filter_no_longer_selects_is_removed_without_the_old_row(spark: SparkSession) -> None:
    """PostgreSQL's default: an update has no old row, and a delete has its key only."""
    texts = [
        *({"before": None, "after": {"id": one, "name": "open"}, "op": "c"} for one in range(6)),
        {"before": None, "after": {"id": 1, "name": "closed"}, "op": "u"},
        {"before": {"id": 2, "name": None}, "after": None, "op": "d"},
        {"before": None, "after": {"id": 3, "name": None}, "op": "u"},
        {"before": {"id": 4, "name": "open"}, "after": {"id": 4, "name": "closed"}, "op": "u"},
        {"before": None, "after": {"id": 5, "name": "closed"}, "op": "u"},
        {"before": None, "after": {"id": 5, "name": "open"}, "op": "u"},
        {"before": {"id": 9, "name": "closed"}, "after": None, "op": "d"},
    ]
    rows = changes(bodies(spark, *map(json.dumps, texts)), Changelog.DEBEZIUM)
    rows.createOrReplaceTempView("changes")
    query = "SELECT * FROM (SELECT id, name FROM changes WHERE name = 'open') AS c WHERE id < 9"
    selected = spark.sql(translated(query).text)
    spark.catalog.dropTempView("changes")
    last = {row.id: row[CHANGE].op for row in latest_changes(selected, ["id"]).collect()}
    assert last == {0: "+I", 1: "-U", 2: "-U", 3: "-U", 4: "-U", 5: "+U"}
