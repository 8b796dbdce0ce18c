"""Constructs of Flink SQL, one by one: each is translated, or refused with its place and what to write."""

from __future__ import annotations

import re

import pytest

from pyspark_rocketmq.errors import SqlError
from pyspark_rocketmq.options import CompatibilityWarning, JobOptions, parse_options
from pyspark_rocketmq.sql.check import check_job
from pyspark_rocketmq.sql.flinksql import JobQueries, Translated
from pyspark_rocketmq.sql.parse import parse_statements
from pyspark_rocketmq.sql.statements import CreateTable, CreateView, DropTable, Insert, SparkStatement

COLUMNS = (
    "id INT, ts TIMESTAMP(3), tags ARRAY<STRING>, m MAP<STRING, INT>, items ARRAY<ROW<sku STRING, n INT>>"
)
TABLE = f"CREATE TABLE bid ({COLUMNS}, pt AS PROCTIME()) WITH ('connector' = 'rocketmq', 'topic' = 't');"


def translated(query: str, more: str = "") -> Translated:
    queries, options = JobQueries(), parse_options(JobOptions, {})
    *before, last = parse_statements(f"{TABLE}{more}{query}")
    for statement in before:
        if isinstance(statement, CreateTable):
            queries.table(statement, options)
        elif isinstance(statement, CreateView):
            queries.view(statement, ["bid"], options)
    assert isinstance(last, SparkStatement)
    return queries.query(last.whole, ["bid"], options)


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("SELECT id, t FROM bid CROSS JOIN UNNEST(tags) AS x (t)", "LATERAL VIEW EXPLODE(tags) x AS t"),
        ("SELECT id, t FROM bid, UNNEST(tags) AS x (t)", "LATERAL VIEW EXPLODE(tags) x AS t"),
        (
            "SELECT id, t FROM bid LEFT JOIN UNNEST(tags) AS x (t) ON TRUE",
            "LATERAL VIEW OUTER EXPLODE(tags) x AS t",
        ),
        (
            "SELECT t, n FROM bid CROSS JOIN UNNEST(tags) WITH ORDINALITY AS x (t, n)",
            "LATERAL VIEW INLINE(TRANSFORM(tags, (e, i) -> STRUCT(e, i + 1))) x AS t, n",
        ),
        ("SELECT k, v FROM bid CROSS JOIN UNNEST(m) AS x (k, v)", "LATERAL VIEW EXPLODE(m) x AS k, v"),
        ("SELECT id FROM bid CROSS JOIN UNNEST(tags)", "LATERAL VIEW EXPLODE(tags) __unnested"),
        ("SELECT id FROM bid INNER JOIN UNNEST(tags) AS x ON TRUE", "LATERAL VIEW EXPLODE(tags) x"),
        ("SELECT k FROM bid CROSS JOIN UNNEST(f(id)) AS x (k, v)", "LATERAL VIEW EXPLODE(F(id)) x AS k, v"),
        (
            "SELECT a FROM bid CROSS JOIN UNNEST(f(id)) AS x (a, b, c)",
            "LATERAL VIEW INLINE(F(id)) x AS a, b, c",
        ),
        ("SELECT s, n FROM bid CROSS JOIN UNNEST(items) AS x (s, n)", "LATERAL VIEW INLINE(items) x AS s, n"),
        ("SELECT x.sku FROM bid AS b CROSS JOIN UNNEST(b.items) AS x", "LATERAL VIEW INLINE(b.items) x"),
        (
            "SELECT s FROM (SELECT items AS i FROM bid) AS b CROSS JOIN UNNEST(b.i) AS x (s, n)",
            "LATERAL VIEW INLINE(b.i) x AS s, n",
        ),
    ],
)
def test_unnest_is_a_lateral_view(query, wanted):
    assert translated(query).text.endswith(wanted)


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("SELECT id BETWEEN SYMMETRIC 5 AND 1 FROM bid", "(id BETWEEN LEAST(5, 1) AND GREATEST(5, 1))"),
        ("SELECT ARRAY[id, 1] FROM bid", "SELECT ARRAY(id, 1) FROM bid"),
        ("SELECT id FROM bid FETCH FIRST 3 ROWS ONLY", "FROM bid LIMIT 3"),
        ("SELECT id FROM default_catalog.default_database.bid AS b", "FROM bid AS b"),
        ("SELECT id FROM `default_database`.`bid`", "FROM `bid`"),
        ("SELECT FLOOR(ts TO WEEK) FROM bid", "DATE_TRUNC('WEEK', ts + INTERVAL '1' DAY) - INTERVAL '1' DAY"),
        ("SELECT CEIL(ts TO QUARTER) FROM bid", "DATE_TRUNC('QUARTER', ts) + INTERVAL '3' MONTH"),
        ("SELECT EXTRACT(ISODOW FROM ts) FROM bid", "EXTRACT(DAYOFWEEK_ISO FROM ts)"),
        ("SELECT ts IS JSON OBJECT FROM bid", "SCHEMA_OF_VARIANT(TRY_PARSE_JSON(ts)) LIKE 'OBJECT%'"),
        ("SELECT /*+ LOOKUP('table'='d'), BROADCAST(b) */ id FROM bid", "SELECT /*+ BROADCAST(b) */ id"),
        ("SELECT /*+ LOOKUP('table'='d') */ id FROM bid", "SELECT id"),
    ],
)
def test_what_spark_writes_otherwise(query, wanted):
    assert wanted in translated(query).text


@pytest.mark.parametrize(
    ("query", "place", "reason"),
    [
        ("SELECT id SIMILAR TO 'a' FROM bid", (2, 8), "use LIKE, or REGEXP"),
        ("SELECT (ts, ts) OVERLAPS (ts, ts) FROM bid", (2, 9), "compare the times"),
        ("SELECT id, CAST(id AS TIME) FROM bid", (2, 17), "the type TIME is not supported"),
        ("SELECT TIME '10:00:00' FROM bid", (2, 13), "the type TIME is not supported"),
        (r"SELECT id, E'a\nb' FROM bid", (2, 12), "the prefix E are not supported"),
        ("SELECT _UTF8'a' FROM bid", (2, 8), "the prefix _UTF8 are not supported"),
        (r"SELECT U&'\00' FROM bid", (2, 8), "four hexadecimal digits"),
        ("SELECT LOCALTIME FROM bid", (2, 8), "LOCALTIME is a TIME"),
        ("SELECT EXTRACT(EPOCH FROM ts) FROM bid", (2, 27), "use UNIX_TIMESTAMP"),
        ("SELECT JSON_QUERY('{}', '$.a' WITH WRAPPER) FROM bid", (2, 31), "clauses of JSON_QUERY are not"),
        ("SELECT JSON_EXISTS('{}', '$' TRUE ON ERROR) FROM bid", (2, 30), "except FALSE ON ERROR"),
        ("SELECT JSON_OBJECTAGG(KEY id VALUE ts) FROM bid", (2, 27), "use to_json(map_from_entries"),
        ("SELECT ts IS JSON WITH UNIQUE KEYS FROM bid", (2, 8), "leave UNIQUE KEYS out"),
        (
            "SELECT t FROM bid JOIN UNNEST(tags) AS x (t) ON t > 'a'",
            (2, 31),
            "other conditions in WHERE",
        ),
        (
            "SELECT t FROM bid RIGHT JOIN UNNEST(tags) AS x (t) ON TRUE",
            (2, 37),
            "JOIN or LEFT JOIN",
        ),
        *(
            (f"SELECT k FROM bid CROSS JOIN UNNEST({value}) WITH ORDINALITY AS x {names}", (2, 37), reason)
            for value, names, reason in (
                ("m", "(k, v, n)", "of rows or of a map"),
                ("m", "(k, n)", "of rows or of a map"),
                ("items", "(k, n)", "of rows or of a map"),
                ("tags", "(a, b, n)", "of rows or of a map"),
                ("tags", "", "AS t (value, number)"),
                ("tags", "(n)", "AS t (value, number)"),
            )
        ),
        *(
            (f"SELECT a FROM bid {joined}", (2, column), "other conditions in WHERE")
            for joined, column in (
                ("JOIN UNNEST(tags) AS x (id) USING (id)", 31),
                ("NATURAL JOIN UNNEST(tags) AS x (id)", 39),
                ("LEFT SEMI JOIN UNNEST(tags) AS x (a) ON TRUE", 41),
                ("LEFT ANTI JOIN UNNEST(tags) AS x (a) ON TRUE", 41),
            )
        ),
        *(
            (f"SELECT COUNT(*) FROM bid GROUP BY {kind}({given})", (2, 35), f"{kind} takes {takes}")
            for kind, takes, wrong in (
                ("TUMBLE", "a time and its size", ("", "ts", "ts, {0}, {0}, {0}")),
                ("HOP", "a time, its slide and its size", ("", "ts", "ts, {0}", "ts, {0}, {0}, {0}, {0}")),
                ("SESSION", "a time and its gap", ("", "ts", "ts, {0}, {0}")),
            )
            for given in (each.format("INTERVAL '1' SECOND") for each in wrong)
        ),
        ("SELECT a FROM bid CROSS JOIN UNNEST(tags, tags) AS x (a, b)", (2, 37), "takes one array or map"),
        (
            "SELECT id FROM bid /*+ OPTIONS('scan.startup.mode'='earliest') */",
            (2, 16),
            "in WITH (…) of the table",
        ),
        (
            "INSERT INTO bid (id) SELECT id FROM bid\n/*+ OPTIONS('a'='b') */",
            (2, 37),
            "in WITH (…) of the table",
        ),
    ],
)
def test_a_construct_without_counterpart_is_refused(query, place, reason):
    with pytest.raises(SqlError, match=re.escape(reason)) as caught:
        translated(f"\n{query}")
    assert (caught.value.line, caught.value.column) == place


def test_a_hint_that_bounds_state_is_said_to_have_no_effect():
    with pytest.warns(
        CompatibilityWarning, match=r"without effect: STATE_TTL \(SET 'table.exec.state.ttl' bounds"
    ):
        assert translated("SELECT /*+ STATE_TTL('bid'='1d') */ id FROM bid").text == "SELECT id FROM bid"


@pytest.mark.parametrize("kind", ["TUMBLE(pt, {})", "SESSION(pt, {})", "HOP(PROCTIME(), {}, {})"])
def test_a_group_window_of_the_time_of_processing_has_changes(kind):
    window = kind.replace("{}", "INTERVAL '1' MINUTE")
    assert translated(f"SELECT COUNT(*) FROM bid GROUP BY {window}").rows.changes
    assert not translated("SELECT COUNT(*) FROM bid GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)").rows.changes


@pytest.mark.parametrize("time", ["pt", "ts"])
@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM bid GROUP BY TUMBLE({}, {}), id HAVING {{}}",
        """SELECT id FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR({}), {})) GROUP BY window_start, window_end, id
        HAVING {{}}""",
    ],
)
def test_a_result_of_a_window_of_the_time_of_processing_does_not_stop_meeting_having(query, time):
    """Until its window ends, each micro-batch writes it again, and nothing takes it back."""
    query = query.format(time, "INTERVAL '1' MINUTE")
    for condition in ("COUNT(*) > 3 AND id < 9", "(2 <= MAX(id))", "COUNT(DISTINCT id) > 1"):
        assert translated(query.format(condition)).rows.changes is (time == "pt")
    named = query.replace("SELECT id", "SELECT id, COUNT(*) AS n")
    assert translated(named.format("n > 3")).rows.changes is (time == "pt")
    for condition in ("COUNT(*) < 3", "id > 3 AND MIN(id) > 2", "n < 3"):
        query = named
        if time == "ts":
            assert not translated(query.format(condition)).rows.changes
        else:
            with pytest.raises(SqlError, match="one that stops meeting HAVING would stay"):
                translated(query.format(condition))


@pytest.mark.parametrize("time", ["pt", "ts"])
@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ("id, tags", "one that leaves it would stay: return its rank"),
        ("id, tags, r", ""),
        ("*", ""),
    ],
)
def test_rows_that_leave_a_top_n_of_a_window_of_the_time_of_processing_do_not_stay(items, reason, time):
    query = f"""SELECT {items} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end
    ORDER BY id) AS r FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR({time}), INTERVAL '1' MINUTE))) WHERE r <= 3"""
    if time == "ts" or not reason:
        assert translated(query).rows.changes is (time == "pt")
    else:
        with pytest.raises(SqlError, match=reason):
            translated(query)


@pytest.mark.parametrize("time", ["pt", "ts"])
@pytest.mark.parametrize(
    "query",
    [
        "SELECT MAX(n) FROM ({}) AS a GROUP BY window_start, window_end",
        """SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY n) AS r
        FROM ({}) AS a) WHERE r <= 3""",
    ],
)
def test_results_of_a_window_of_the_time_of_processing_are_not_aggregated(query, time):
    """Spark refuses it, too, in words about late rows."""
    counts = f"""SELECT window_start, window_end, id, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE bid,
    DESCRIPTOR({time}), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, id"""
    if time == "ts":
        assert not translated(query.format(counts)).rows.changes
    else:
        with pytest.raises(SqlError, match="cannot read an aggregation over windows of PROCTIME"):
            translated(query.format(counts))


@pytest.mark.parametrize("time", ["pt", "ts"])
@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT * FROM {} AS a WHERE n < 3", "stops meeting WHERE"),
        ("SELECT id FROM {} AS a WHERE EXISTS (SELECT 1 FROM d WHERE d.a = a.n)", "stops meeting WHERE"),
        ("SELECT a.id FROM {} AS a JOIN d ON d.a = a.n", "a join or UNNEST drops"),
        ("SELECT a.id FROM {} AS a LEFT SEMI JOIN d ON d.a = a.n", "a join or UNNEST drops"),
        ("SELECT id, t FROM {} AS a CROSS JOIN UNNEST(all_tags) AS u (t)", "a join or UNNEST drops"),
        ("SELECT DISTINCT n FROM {} AS a", "DISTINCT has seen"),
        ("SELECT * FROM {} AS a WHERE id < 3 AND s > TIMESTAMP '2026-01-01 00:00:00'", ""),
        ("SELECT * FROM {} AS a WHERE id IN (SELECT n FROM d)", ""),
        ("SELECT a.n FROM {} AS a JOIN d ON d.n = a.id", ""),
        ("SELECT a.n FROM {} AS a LEFT JOIN d ON d.a = a.n", ""),
        ("SELECT id, t FROM {} AS a LEFT JOIN UNNEST(all_tags) AS u (t) ON TRUE", ""),
        ("SELECT DISTINCT id, s FROM {} AS a", ""),
    ],
)
def test_a_result_of_a_window_of_the_time_of_processing_does_not_leave_the_query_around_it(
    query, reason, time
):
    size = "INTERVAL '1' MINUTE"
    rows = f"""(SELECT *, id AS n, window_start AS s, tags AS all_tags
    FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR({time}), {size})))"""
    assert not translated(query.format(rows)).rows.changelog, "rows of a window do not change"
    inner = f"""(SELECT id, TUMBLE_START({time}, {size}) AS s, COUNT(*) AS n, MAX(tags) AS all_tags FROM bid
    GROUP BY id, TUMBLE({time}, {size}))"""
    if time == "ts" or not reason:
        assert translated(query.format(inner)).rows.changes is (time == "pt")
    else:
        with pytest.raises(SqlError, match=f"one that {reason} would stay"):
            translated(query.format(inner))


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("CREATE CATALOG c WITH ('type' = 'jdbc')", (1, 1), "CREATE CATALOG is Flink's, and not supported"),
        ("USE CATALOG c", (1, 1), "USE CATALOG is Flink's"),
        ("LOAD MODULE hive", (1, 1), "LOAD MODULE is Flink's"),
        ("EXPLAIN PLAN FOR SELECT 1", (1, 1), "--explain shows the plans"),
        ("SHOW JOBS", (1, 1), "a command of the shell"),
        ("COMPILE PLAN 'x' FOR INSERT INTO t SELECT 1", (1, 1), "continues from its checkpoint"),
        ("CREATE TABLE t (a INT) WITH ('type' = 'rocketmq')", (1, 24), "WITH (…) needs 'connector', one of"),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'datagen')", (1, 44), "USING rate"),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'mysql-cdc')", (1, 44), "'format' = 'debezium-json'"),
        ("CREATE TABLE t WITH ('connector' = 'print') LIKE u", (1, 50), "LIKE u: the job declares no such"),
        ("CREATE TABLE t WITH ('connector' = 'print') AS SELECT 1", (1, 45), "then INSERT INTO t"),
        ("CREATE TABLE t (a TIME(3)) WITH ('connector' = 'print')", (1, 19), "type TIME: declare a STRING"),
        (
            "CREATE TABLE t (a MULTISET<INT>) WITH ('connector' = 'print')",
            (1, 19),
            "type MULTISET: declare a MAP",
        ),
    ],
)
def test_a_statement_without_counterpart_is_refused(text, place, reason):
    with pytest.raises(SqlError, match=re.escape(reason)) as caught:
        parse_statements(text)
    assert (caught.value.line, caught.value.column) == place


def test_a_view_that_names_its_columns_is_translated_like_others():
    view = "CREATE TEMPORARY VIEW v (a COMMENT 'x', s) COMMENT 'y' AS SELECT id, window_start FROM {} AS w;"
    window = "TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '1' HOUR))"
    queries, options = JobQueries(), parse_options(JobOptions, {})
    table, named = parse_statements(TABLE + view.format(window))
    assert isinstance(table, CreateTable)
    assert isinstance(named, CreateView)
    queries.table(table, options)
    found = queries.view(named, ["bid"], options)
    assert "SELECT id AS `a`, window_start AS `s`, " in found.text
    assert found.rows.window["s"] == "start"
    for items, source, reason in (
        ("*", window, "name the columns of a window"),
        ("id", "bid", "2 columns are named, and the query has 1"),
    ):
        with pytest.raises(SqlError, match=re.escape(reason)):
            translated("SELECT 1", f"CREATE VIEW v (a, b) AS SELECT {items} FROM {source};")
    assert translated("SELECT * FROM v", "CREATE VIEW v (a, b) AS SELECT * FROM bid;").rows.stream


def test_views_and_temporary_tables_are_dropped():
    texts = ("DROP VIEW v", "DROP TEMPORARY VIEW IF EXISTS v", "DROP TEMPORARY TABLE bid", "DROP TABLE d.t")
    found = [parse_statements(text)[0] for text in texts]
    assert all(isinstance(each, DropTable) for each in found)
    assert [each.whole.text for each in found if isinstance(each, DropTable)] == [
        "DROP VIEW v",
        "DROP VIEW IF EXISTS v",
        "DROP TABLE bid",
        "DROP TABLE d.t",
    ]
    (function,) = parse_statements("DROP TEMPORARY SYSTEM FUNCTION IF EXISTS f")
    assert isinstance(function, SparkStatement)
    assert function.whole.text == "DROP TEMPORARY FUNCTION IF EXISTS f"
    view = "CREATE VIEW v AS SELECT id FROM bid;"
    assert check_job(f"{TABLE}{view} DROP VIEW v; {view}") == 4
    with pytest.raises(SqlError, match="v already exists"):
        check_job(f"{TABLE}{view} {view}")


def test_settings_of_flink_that_change_nothing_are_accepted_with_a_reason():
    for name in ("table.dml-sync", "execution.target", "pipeline.max-parallelism"):
        with pytest.warns(CompatibilityWarning, match=name):
            check_job(f"SET '{name}' = '1'")
    assert check_job("SET 'table.exec.resource.default-parallelism' = '4'") == 1


def test_a_partition_of_an_insert_is_refused():
    hole = "CREATE TABLE hole (a INT, b INT) WITH ('connector' = 'blackhole');"
    with pytest.raises(SqlError, match="column 85: PARTITION is for tables of Spark's: name the columns"):
        check_job(f"{hole} INSERT INTO hole PARTITION (a = 1) SELECT 1")


def test_the_default_database_of_a_target_is_the_jobs():
    (insert,) = parse_statements("INSERT INTO default_catalog.default_database.sink SELECT 1")
    assert isinstance(insert, Insert)
    assert insert.target.text == "sink"


def test_values_are_translated_like_queries():
    assert translated(r"VALUES (1, ROW(3), 'a\d'), (2, NULL, '')").text.strip() == (
        r"VALUES (1, STRUCT(3), 'a\\d'), (2, NULL, '')"
    )
    assert translated("VALUES (1, 'a')").text.strip() == "VALUES (1, 'a')"
    with pytest.raises(SqlError, match="the type TIME is not supported"):
        translated("VALUES (CAST('10:00' AS TIME))")
