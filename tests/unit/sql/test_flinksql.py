"""What the translator makes of queries, and what it refuses."""

from __future__ import annotations

import json
import re

import pytest

from pyspark_rocketmq.errors import OptionError, SqlError
from pyspark_rocketmq.options import parse_options
from pyspark_rocketmq.options.sql import JobOptions
from pyspark_rocketmq.sql.check import check_job
from pyspark_rocketmq.sql.definitions.job_functions import function_type, load_function
from pyspark_rocketmq.sql.flinksql import JobQueries, Relation, Translated, translate, translate_expression
from pyspark_rocketmq.sql.flinksql.relations import WINDOW
from pyspark_rocketmq.sql.parse import parse_statements
from pyspark_rocketmq.sql.statements import CreateFunction, CreateTable, CreateView, Insert, Position, Query

STREAM = Relation(stream=True)
KNOWN = dict.fromkeys(("bid", "auction"), STREAM)
TUMBLE = "TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
CUMULATE = "TABLE(CUMULATE(TABLE bid, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"
SESSION = "TABLE(SESSION(TABLE bid PARTITION BY b, DESCRIPTOR(ts), INTERVAL '9' SECOND))"
WINDOW_JOIN = (
    "SELECT l.a FROM {} l JOIN {} r ON l.window_start = r.window_start AND l.window_end = r.window_end"
)
BY_WINDOW = "GROUP BY auction, window_start, window_end"
TOP = "SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS n FROM bid"


def of(text: str) -> Query:
    return Query(text, frozenset(re.findall(r"\w+", text.lower())), Position(1, 1))


def made(text: str, **known: Relation) -> Translated:
    return translate(of(text), {**KNOWN, **known})


@pytest.mark.parametrize(
    "text",
    [
        "SELECT auction, price * 2 FROM bid WHERE MOD(auction, 123) = 0  -- as it is",
        "SELECT window.start, count(*) FROM bid GROUP BY window(ts, '1 minute')",
        "SELECT a FROM bid LATERAL VIEW explode(items) t AS a",
        "SELECT CAST('a'  AS STRING) FROM bid",
        "SHOW TABLES",
        "SELECT something FROM that only Spark's parser knows |> WHERE",
    ],
)
def test_what_both_dialects_share_is_passed_as_it_is_written(text):
    found = made(text)
    assert (found.text, found.changed, found.rows.changes) == (text, False, False)


@pytest.mark.parametrize(
    "condition",
    [
        "(l.window_start = r.window_start AND l.window_end = r.window_end)",
        "l.a = r.a AND (l.window_start = r.window_start AND (l.window_end = r.window_end))",
    ],
)
def test_windows_are_joined_in_parentheses_too(condition):
    found = made(f"SELECT l.a FROM {TUMBLE} l JOIN {TUMBLE} r ON {condition}")
    assert "AND l.__window = r.__window" in found.text


def test_a_bound_of_ranks_may_be_in_parentheses():
    top = f"SELECT * FROM ({TOP}) AS t WHERE {{}}"
    assert made(top.format("(n <= 3)")).rows == made(top.format("n <= 3")).rows


def test_a_bound_of_ranks_may_be_that_of_between():
    top = f"SELECT * FROM ({TOP}) AS t WHERE {{}}"
    found = made(top.format("n BETWEEN 2 AND 3"))
    assert found.rows == made(top.format("n >= 2 AND n <= 3")).rows
    assert found.text.endswith("WHERE n BETWEEN 2 AND 3")
    for unbound in ("n NOT BETWEEN 2 AND 3", "n BETWEEN 2 AND auction", "n BETWEEN SYMMETRIC 3 AND 2"):
        with pytest.raises(SqlError, match="needs a constant bound"):
            made(top.format(unbound))


def test_full_joins_of_streams_compare_no_nulls():
    """Spark takes NULL for equal to NULL there."""
    join = "SELECT b.a FROM bid AS b {} JOIN auction AS a ON (b.id = a.id AND b.x + 1 = a.x) AND b.t > a.t"
    found = made(join.format("FULL")).text
    assert "NOT (b.id) IS NULL" in found
    assert "NOT (b.x + 1) IS NULL" in found
    assert "IS NULL" not in made(join.format("LEFT")).text
    assert "IS NULL" not in made(join.format("FULL"), auction=Relation()).text
    named = "SELECT id FROM bid AS b FULL JOIN auction AS a USING (id, t)"
    for text in (named, "SELECT id FROM bid AS b NATURAL FULL JOIN auction AS a"):
        with pytest.raises(SqlError, match=r"line 1, column .*: a FULL JOIN of streams needs ON"):
            made(text)
    assert made(named, auction=Relation()).text == named
    assert "USING" in made(named.replace("FULL", "LEFT")).text


def test_a_window_table_function_carries_its_window_to_the_group():
    found = made(
        f"SELECT auction, window_start, count(*) FROM {TUMBLE} GROUP BY auction, window_start, window_end"
    )
    assert "WINDOW(ts, '10 second') AS __window FROM bid" in found.text
    assert found.text.endswith(f"GROUP BY auction, window_start, window_end, {WINDOW}")
    assert not found.rows.changes
    assert WINDOW not in found.text.partition("FROM")[0]


@pytest.mark.parametrize(
    ("call", "window"),
    [
        (
            "TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '5' MINUTE)",
            "'1 hour', '1 hour', '5 minute'",
        ),
        (
            "HOP(TABLE bid, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND)",
            "'10 second', '2 second'",
        ),
        (
            "HOP(TIMECOL=>DESCRIPTOR(ts), DATA=>TABLE t, SIZE=>INTERVAL '9' DAY, SLIDE=>INTERVAL '3' DAY)",
            "'9 day', '3 day'",
        ),
        (  # Spark's offsets are shorter than the slide
            "TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' MINUTES, INTERVAL '-16' MINUTES)",
            "'10 minutes', '10 minutes', '240000000 microseconds'",
        ),
        (
            "CUMULATE(DATA=>TABLE b, TIMECOL=>DESCRIPTOR(t), STEP=>INTERVAL '2' DAY, SIZE=>INTERVAL '4' DAY)",
            "'4 day', '2 day'",
        ),
        (
            "CUMULATE(TABLE b, DESCRIPTOR(ts), INTERVAL '2' DAY, INTERVAL '4' DAY, INTERVAL '3' DAY)",
            "'4 day', '2 day', '86400000000 microseconds'",
        ),
        (
            "TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '-60' MINUTES)",
            "'1 hour', '1 hour', '0 microseconds'",
        ),
        (
            "TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '1' MICROSECOND, INTERVAL -'0' SECOND)",
            "'1 microsecond', '1 microsecond', '-0 second'",
        ),
        (
            "CUMULATE(TABLE b, DESCRIPTOR(t), INTERVAL '1' MICROSECOND, INTERVAL '1' MICROSECOND)",
            "'1 microsecond'",
        ),
    ],
)
def test_windows_of_every_form(call, window):
    assert f", {window}) AS" in made(f"SELECT * FROM TABLE({call})").text


def test_cumulative_windows_begin_with_their_size_and_end_with_each_step():
    found = made(f"SELECT window_start, window_end, max(price) FROM {CUMULATE} {BY_WINDOW}")
    start = (
        "TIMESTAMP_MICROS(UNIX_MICROS(__window.end) - 1 - PMOD(UNIX_MICROS(__window.end) - 1 - 0, 10000000))"
    )
    assert "WINDOW(ts, '10 second', '2 second') AS __window, ts AS __at FROM bid" in found.text
    assert f"SELECT * EXCEPT (__at), {start} AS window_start, __window.end AS window_end" in found.text
    assert f"WHERE {start} <= __at" in found.text
    assert found.text.endswith(f"{BY_WINDOW}, {WINDOW}")
    assert not found.rows.changes


def test_the_hidden_column_is_in_no_result():
    assert made(f"SELECT * FROM {TUMBLE}").text.startswith(f"SELECT * EXCEPT ({WINDOW}) FROM")
    assert made(f"SELECT x.*, 1 AS one FROM {TUMBLE} AS x").text.startswith(
        f"SELECT x.* EXCEPT ({WINDOW}), 1"
    )


def test_what_has_no_hidden_column_is_not_asked_to_hide_it():
    """``COUNT(* EXCEPT (…))`` of Spark's counts rows without a NULL only."""
    joined = made(f"SELECT N.*, M.* FROM {TUMBLE} AS M JOIN names AS n ON m.k = n.k", names=Relation())
    assert joined.text.startswith(f"SELECT N.*, M.* EXCEPT ({WINDOW}) FROM")
    counted = f"SELECT COUNT(*) OVER (PARTITION BY k), (SELECT MAX(STRUCT(*)) FROM bid) FROM {TUMBLE}"
    batch = translate(of(counted), {"bid": Relation()}).text
    assert batch.startswith("SELECT COUNT(*) OVER (PARTITION BY k), (SELECT MAX(STRUCT(*)) FROM bid) FROM")


def test_windows_are_joined_by_their_hidden_columns_too():
    side = f"(SELECT auction, window_start AS s, window_end AS e FROM {TUMBLE} {BY_WINDOW})"
    found = made(
        f"SELECT l.auction FROM {side} l JOIN {side} r ON l.s = r.s AND l.e = r.e AND l.auction = r.auction"
    )
    assert found.text.endswith(f"AND l.{WINDOW} = r.{WINDOW}")
    assert made(f"SELECT l.auction FROM {side} l JOIN {side} r ON l.s = r.s").text.endswith("ON l.s = r.s")
    mixed = made(f"SELECT l.auction FROM {side} l JOIN {side} r ON l.s = r.s AND r.e = l.e")
    assert mixed.text.endswith(f"AND l.{WINDOW} = r.{WINDOW}")


def test_windows_over_windows():
    inner = (
        f"(SELECT window_start, window_end, count(*) AS c FROM {TUMBLE} GROUP BY window_start, window_end)"
    )
    found = made(f"SELECT window_start, max(c) FROM {inner} GROUP BY window_start, window_end")
    assert found.text.count(WINDOW) > 4
    assert not found.rows.changes
    again = made(
        "SELECT count(*) FROM TABLE(TUMBLE(TABLE w, DESCRIPTOR(window_time), INTERVAL '1' MINUTE)) "
        "GROUP BY window_start",
        w=Relation(stream=True, window={"window_time": "time"}),
    )
    assert f"WINDOW({WINDOW}, '1 minute')" in again.text


@pytest.mark.parametrize(
    ("group", "items", "spark"),
    [
        (
            "TUMBLE(ts, INTERVAL '5' MINUTE)",
            "TUMBLE_START(ts, INTERVAL '5' MINUTE)",
            "WINDOW(ts, '5 minute')",
        ),
        ("HOP(ts, INTERVAL '1' HOUR, INTERVAL '1' DAY)", "count(*)", "WINDOW(ts, '1 day', '1 hour')"),
        (
            "SESSION(ts, INTERVAL '9' SECOND)",
            "SESSION_END(ts, INTERVAL '9' SECOND)",
            "SESSION_WINDOW(ts, '9 second')",
        ),
    ],
)
def test_group_windows(group, items, spark):
    found = made(f"SELECT {items} AS x, count(*) AS n FROM bid GROUP BY auction, {group}")
    assert found.text.endswith(f"GROUP BY auction, {spark}")
    assert not found.rows.changes
    assert "TUMBLE" not in found.text


@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        (f"SELECT *, 1 AS one FROM {TUMBLE}", "window_start, window_end, window_time"),
        (
            (
                f"SELECT window_start, window_end, window_time AS wt, COUNT(*) AS n FROM {TUMBLE} "
                "GROUP BY window_start, window_end, window_time"
            ),
            "window_start, window_end",
        ),
        (
            (
                "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end "
                f"ORDER BY a) AS n FROM {TUMBLE}) WHERE n <= 2"
            ),
            "window_start, window_end, window_time",
        ),
    ],
)
def test_a_window_over_windows_replaces_the_bounds_that_its_rows_have(rows, columns):
    time = "wt" if "wt" in rows else "window_time"
    found = made(
        f"WITH w AS ({rows}) SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE w, DESCRIPTOR({time}), "
        "INTERVAL '1' HOUR)) GROUP BY window_start, window_end"
    )
    assert f"SELECT * EXCEPT (__window, {columns}), WINDOW(__window, '1 hour') AS __window" in found.text


def test_a_group_window_over_the_time_of_a_window_keeps_its_watermark():
    """Flink's ``TUMBLE_ROWTIME`` and ``window_time`` are times of further windows; Spark's are structs."""
    inner = (
        "SELECT TUMBLE_ROWTIME(ts, INTERVAL '1' MINUTE) AS rt, sum(price) AS s FROM bid "
        "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)"
    )
    found = made(
        f"SELECT HOP_END(rt, INTERVAL '1' HOUR, INTERVAL '2' HOUR) AS x, sum(s) FROM ({inner}) "
        "GROUP BY HOP(rt, INTERVAL '1' HOUR, INTERVAL '2' HOUR)"
    )
    assert found.text.endswith(f"GROUP BY WINDOW({WINDOW}, '2 hour', '1 hour')")
    again = made(
        "SELECT count(*) FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) AS w "
        "GROUP BY TUMBLE(w.window_time, INTERVAL '1' HOUR)"
    )
    assert again.text.endswith(f"GROUP BY WINDOW(w.{WINDOW}, '1 hour')")


def test_a_part_of_a_group_window_may_be_written_in_other_words():
    found = made(
        "SELECT TUMBLE_START(b.TS, INTERVAL '60' SECOND) FROM bid AS b "
        "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)"
    )
    assert found.text == "SELECT WINDOW(ts, '1 minute').start FROM bid AS b GROUP BY WINDOW(ts, '1 minute')"


@pytest.mark.parametrize(
    "call",
    [
        "SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '9' SECOND)",
        "SESSION(TABLE bid PARTITION BY (bidder), DESCRIPTOR(ts), INTERVAL '9' SECOND)",
        "SESSION(TABLE bid, DESCRIPTOR(ts), DESCRIPTOR(bidder), INTERVAL '9' SECOND)",
        "SESSION(DATA=>TABLE bid PARTITION BY bidder, TIMECOL=>DESCRIPTOR(ts), GAP=>INTERVAL '9' SECOND)",
        "SESSION(TABLE bid, DESCRIPTOR(ts), KEY=>DESCRIPTOR(bidder), GAP=>INTERVAL '9' SECOND)",
    ],
)
def test_a_session_table_becomes_a_group_window(call):
    found = made(
        f"SELECT bidder, window_start, count(*) FROM TABLE({call}) GROUP BY bidder, window_start, window_end"
    )
    assert found.text == (
        "SELECT bidder, SESSION_WINDOW(ts, '9 second').start AS window_start, COUNT(*) FROM bid "
        "GROUP BY bidder, SESSION_WINDOW(ts, '9 second')"
    )


@pytest.mark.parametrize(
    "rows",
    [
        "TABLE(SESSION(TABLE bid, DESCRIPTOR(ts), INTERVAL '9' SECOND)) GROUP BY window_start, window_end",
        "bid GROUP BY SESSION(ts, INTERVAL '9' SECOND)",
        "bid GROUP BY SESSION_WINDOW(ts, '9 second')",
    ],
)
def test_a_session_of_all_rows_of_a_stream_has_another_key(rows):
    found = made(f"SELECT count(*) AS n FROM {rows}")
    assert found.text.endswith("GROUP BY SESSION_WINDOW(ts, '9 second'), ts IS NULL")
    assert not found.rows.changes


@pytest.mark.parametrize("bound", ["n <= 3", "n < 4", "3 >= n", "n <= 3 AND n > 1"])
def test_top_n_of_a_stream_is_a_bounded_aggregation(bound):
    found = made(f"SELECT auction, n FROM ({TOP}) WHERE {bound}")
    assert "MAX_BY(STRUCT(*), STRUCT(price), 3) AS __top FROM bid GROUP BY auction" in found.text
    assert found.rows.changes
    assert "ROW_NUMBER" not in found.text


def test_the_rank_of_a_row_stays_in_its_place():
    rank = "ROW_NUMBER() OVER (ORDER BY price DESC) AS n"
    first = made(f"SELECT * FROM (SELECT {rank}, a, b FROM bid) WHERE n <= 3").text
    assert "(SELECT CAST(__position + 1 AS BIGINT) AS n, __row.* FROM (SELECT MAX_BY(STRUCT(a, b)," in first
    middle = made(f"SELECT * FROM (SELECT a.*, {rank}, b FROM bid AS a) WHERE n <= 3").text
    assert "(SELECT __row.__before.*, CAST(__position + 1 AS BIGINT) AS n, __row.__after.* FROM (" in middle
    assert "MAX_BY(STRUCT(STRUCT(a.*) AS __before, STRUCT(b) AS __after), STRUCT(price), 3)" in middle


def test_a_bound_of_another_tables_column_is_none_of_the_ranks():
    joined = f"SELECT r.auction, r.n FROM ({TOP}) AS r JOIN places AS p ON p.id = r.auction"
    found = made(f"{joined} WHERE p.n <= 3 AND r.n <= 10", places=Relation())
    assert "STRUCT(price), 10) AS __top" in found.text
    found = made(f"{joined} WHERE p.n <= 3 AND n <= 10", places=Relation())
    assert "STRUCT(price), 10) AS __top" in found.text
    with pytest.raises(SqlError, match="needs a constant bound"):
        made(f"{joined} WHERE p.n <= 3", places=Relation())
    with pytest.raises(SqlError, match="needs a constant bound"):
        made(f"SELECT auction FROM ({TOP}) JOIN places AS p ON id = auction WHERE p.n = 1", places=Relation())


def test_the_first_row_of_a_key_and_mixed_orders():
    first = TOP.replace("price DESC", "ts ASC")
    assert "ARRAY(MIN_BY(STRUCT(*), STRUCT(ts)))" in made(f"SELECT * FROM ({first}) WHERE n = 1").text
    mixed = TOP.replace("price DESC", "price DESC, ts")
    assert (
        "MAX_BY(STRUCT(*), STRUCT(price, CASE WHEN ts IS NULL"
        in made(f"SELECT * FROM ({mixed}) WHERE n = 1").text
    )


@pytest.mark.parametrize(
    ("order", "spark"),
    [
        ("price NULLS FIRST", "ARRAY(MIN_BY(STRUCT(*), STRUCT(price)))"),
        ("price NULLS LAST", "ARRAY(MIN_BY(STRUCT(*), STRUCT(price IS NULL, price)))"),
        ("price DESC NULLS LAST", "ARRAY(MAX_BY(STRUCT(*), STRUCT(price)))"),
        ("price DESC NULLS FIRST, ts DESC", "ARRAY(MAX_BY(STRUCT(*), STRUCT(price IS NULL, price, ts)))"),
        ("price DESC, ts NULLS FIRST", "MAX_BY(STRUCT(*), STRUCT(price, CASE WHEN ts IS NULL"),
        ("price DESC, ts NULLS LAST", "MAX_BY(STRUCT(*), STRUCT(price, NOT ts IS NULL, CASE WHEN ts IS NULL"),
    ],
)
def test_top_n_honors_the_place_of_nulls(order, spark):
    text = f"SELECT * FROM ({TOP.replace('price DESC', order)}) WHERE n = 1"
    assert spark in made(text).text


@pytest.mark.parametrize(
    ("items", "rest", "place"),
    [
        ("auction, count(*) AS c", "GROUP BY auction", (2, 10)),
        ("auction, count(*) AS c", "GROUP BY auction HAVING count(*) > 1", (2, 10)),
        ("max(price) AS p", "", (1, 23)),
        ("DISTINCT auction", "", (1, 32)),
        ("auction", "LIMIT 3", (1, 23)),
    ],
)
def test_a_ranked_query_of_a_stream_only_ranks(items, rest, place):
    rank = "ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS n"
    with pytest.raises(SqlError, match="rank an inner query, SELECT") as caught:
        made(f"SELECT * FROM (SELECT {items}, {rank} FROM bid\n{rest}) WHERE n <= 3")
    assert (caught.value.line, caught.value.column) == place


def test_a_top_n_keeps_what_chooses_its_rows():
    rank = "ROW_NUMBER() OVER (PARTITION BY b.auction ORDER BY b.price DESC) AS n"
    joined = "big AS b JOIN auction AS a ON a.id = b.auction"
    rows = f"{joined} LATERAL VIEW EXPLODE(b.tags) t AS tag WHERE tag > 3"
    ranked = f"WITH big AS (SELECT * FROM bid WHERE price > 9) SELECT b.auction, {rank} FROM {rows}"
    text = made(f"SELECT auction, n FROM ({ranked}) WHERE n <= 3").text
    assert text.startswith("WITH big AS (SELECT * FROM bid WHERE price > 9) SELECT auction, n FROM (")
    assert "JOIN auction AS a ON a.id = b.auction" in text
    assert "LATERAL VIEW EXPLODE(b.tags) t AS tag WHERE tag > 3 GROUP BY b.auction" in text


def test_a_constant_partition_of_a_top_n_is_no_position_in_group_by():
    text = made(f"SELECT * FROM ({TOP.replace('BY auction', 'BY 1')}) WHERE n = 1").text
    assert "GROUP BY ARRAY()" in text


def test_ranks_may_be_selected_from_a_common_table_or_a_view():
    wanted = made(f"SELECT r.auction, r.n FROM ({TOP}) AS r WHERE r.n <= 3").text
    assert made(f"WITH r AS ({TOP}) SELECT r.auction, r.n FROM r WHERE r.n <= 3").text == wanted
    view = translate(of(TOP), KNOWN, hidden=True)
    assert view.text == TOP
    assert made("SELECT r.auction, r.n FROM r WHERE r.n <= 3", r=view.rows).text == wanted
    with pytest.raises(SqlError, match="needs a constant bound"):
        made("SELECT * FROM r", r=view.rows)


def test_row_number_of_a_batch_stays():
    text = f"SELECT * FROM ({TOP}) WHERE n <= 3"
    assert translate(of(text), {"bid": Relation()}).text == text


def test_distinct_values_of_a_stream_are_counted_in_a_set():
    found = made("SELECT count(DISTINCT bidder) FILTER (WHERE price > 1) FROM bid GROUP BY auction")
    assert "CAST(SIZE((COLLECT_SET(bidder) FILTER(WHERE price > 1))) AS BIGINT)" in found.text
    assert "DISTINCT" not in found.text


@pytest.mark.parametrize(
    ("call", "spark"),
    [
        ("AVG(DISTINCT price)", "AVG(DISTINCT price)"),
        ("AVG(DISTINCT price) FILTER (WHERE a > 1)", "AVG(DISTINCT price) FILTER(WHERE a > 1)"),
        ("LISTAGG(DISTINCT a)", "ARRAY_JOIN(COLLECT_SET(a), ',')"),
        ("LISTAGG(DISTINCT a, '-')", "ARRAY_JOIN(COLLECT_SET(a), '-')"),
        ("FIRST_VALUE(DISTINCT a)", "FIRST(a, TRUE)"),
        ("SUM(DISTINCT a), AVG(b)", "SUM(DISTINCT a)"),
    ],
)
def test_distinct_values_of_a_batch(call, spark):
    text = translate(of(f"SELECT {call} FROM bid"), {"bid": Relation()}).text
    assert spark in text
    assert "(DISTINCT" not in re.sub(r"(AVG|SUM|COUNT)\(DISTINCT (price|a)\)", "", text)


@pytest.mark.parametrize(
    ("call", "form"),
    [
        ("SUM(DISTINCT a)", "CAST(NULL AS BIGINT)"),
        ("SUM(DISTINCT CAST(a AS INT))", "CAST(NULL AS BIGINT)"),
        ("SUM(DISTINCT CAST(a AS FLOAT))", "CAST(NULL AS DOUBLE)"),
        ("SUM(DISTINCT CAST(a AS DECIMAL(10, 2)))", "CAST(NULL AS DECIMAL(20, 2))"),
        ("SUM(DISTINCT CAST(a AS DECIMAL))", "CAST(NULL AS DECIMAL(20, 0))"),
    ],
)
def test_distinct_values_of_a_stream_are_added_in_their_type(call, form):
    text = made(f"SELECT {call} FILTER (WHERE b > 1) FROM bid GROUP BY auction").text
    assert form in text
    assert "COLLECT_SET" in text
    assert ("RAISE_ERROR" in text) is ("CAST(a" not in call)  # the type of a column is known to Spark only


def test_a_lookup_join_reads_the_table_as_it_is():
    rows = "(SELECT *, PROCTIME() AS p FROM bid)"
    text = f"SELECT s.v FROM {rows} b JOIN side FOR SYSTEM_TIME AS OF b.p AS s ON b.k = s.k"
    assert made(text).text.endswith("AS b JOIN side AS s ON b.k = s.k")


def test_tables_after_a_comma_are_an_inner_join():
    text = "SELECT SPLIT_INDEX(b.a, ',', 0) FROM bid AS b, auction AS a WHERE a.id = b.auction"
    assert "FROM bid AS b INNER JOIN auction AS a WHERE" in made(text).text


def test_top_n_of_windows_keeps_the_watermark():
    inner = "SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) AS n"
    found = made(f"SELECT * FROM ({inner} FROM {TUMBLE}) WHERE n <= 3")
    assert "GROUP BY window_start, window_end, __window) AS __tops" in found.text
    assert "STRUCT(* EXCEPT (__window))" in found.text
    assert found.text.startswith("SELECT * EXCEPT (__window) FROM (SELECT __row.*, ")
    assert not found.rows.changes


def test_table_functions():
    assert made("SELECT w FROM bid, LATERAL TABLE(explode(a)) AS t(w)").text == (
        "SELECT w FROM bid CROSS JOIN LATERAL EXPLODE(a) AS t(w)"
    )
    assert "EXPLODE(a)" in made("SELECT x FROM bid CROSS JOIN UNNEST(a) AS u (x)").text


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("SELECT *\nFROM bid MATCH_RECOGNIZE (PATTERN (a))", (2, 10), "use a self-join"),
        (
            "SELECT * FROM\n TABLE(CUMULATE(TABLE bid, DESCRIPTOR(ts), INTERVAL '5' HOUR, INTERVAL '1' DAY))",
            (2, 2),
            "the size of CUMULATE is a multiple of its step",
        ),
        (f"SELECT window_start, COUNT(*) FROM {CUMULATE} GROUP BY window_start", None, "begin together"),
        (
            f"SELECT * FROM ({TOP}) WHERE n < 9".replace("auction", "window_start").replace("bid", CUMULATE),
            None,
            "begin together",
        ),
        *(
            (f"SELECT * FROM {TUMBLE}".replace("SECOND", unit), (1, 64), "s has no fixed length: use DAY")
            for unit in ("MONTH", "MONTHS", "QUARTER", "YEAR")
        ),
        (f"SELECT * FROM {TUMBLE}".replace("'10'", "a"), (1, 64), "is a number and a unit: INTERVAL '10'"),
        (f"SELECT * FROM {TUMBLE}".replace("'10' SECOND", "'10'"), (1, 64), "is a number and a unit"),
        (
            f"SELECT * FROM {TUMBLE}".replace("SECOND", "SECOND, INTERVAL 'x' HOUR"),
            (1, 86),
            "x hour is no interval: INTERVAL '10' SECOND",
        ),
        (
            f"SELECT * FROM {TUMBLE}".replace("'10' SECOND", "'x' SECOND, INTERVAL '1' HOUR"),
            (1, 64),
            "x second is no interval",
        ),
        *(
            (
                f"SELECT * FROM {TUMBLE}".replace("SECOND", f"SECOND, INTERVAL '{number}' HOUR"),
                (1, 86),
                f"{number} hour is no interval",
            )
            for number in ("NaN", "Infinity")
        ),
        (
            f"SELECT * FROM {TUMBLE}".replace("'10' SECOND", "'0' SECOND, INTERVAL '1' HOUR"),
            (1, 64),
            "the interval of a window is positive",
        ),
        (
            "SELECT 1 FROM\n TABLE(CUMULATE(DATA=>TABLE b, TIMECOL=>DESCRIPTOR(t), SIZE=>INTERVAL '1' DAY))",
            (2, 2),
            "CUMULATE is given no step",
        ),
        *(
            (
                CUMULATE.replace(f"'{number}'", "'0'").join(("SELECT * FROM ", "")),
                (1, 15),
                "both are positive",
            )
            for number in (2, 10)
        ),
        (
            f"SELECT b FROM\n {SESSION} GROUP BY window_start, window_end",
            (2, 2),
            "Spark has sessions for aggregations only",
        ),
        (f"SELECT 1 FROM {SESSION}", (1, 15), "Spark has sessions for aggregations only"),
        *(
            (f"SELECT 1 FROM TABLE({table}) GROUP BY window_start, window_end", place, "no fixed length")
            for table, place in (
                ("HOP(TABLE b, DESCRIPTOR(t), INTERVAL '1' MONTH, INTERVAL '9' DAY)", (1, 58)),
                ("SESSION(TABLE b, DESCRIPTOR(t), INTERVAL '1' MONTH)", (1, 62)),
            )
        ),
        *(
            (CUMULATE.replace(f"'{number}'", "'x'").join(("SELECT * FROM ", "")), place, "x second is no")
            for number, place in ((2, (1, 66)), (10, (1, 87)))
        ),
        (
            f"SELECT * FROM {CUMULATE}".replace("'10' SECOND", "'10' SECOND, INTERVAL 'x' DAY"),
            (1, 109),
            "x day is no interval",
        ),
        ("SELECT 1 FROM bid GROUP BY TUMBLE(ts, INTERVAL '1' MONTH)", (1, 48), "no fixed length"),
        (
            "SELECT 1 FROM bid GROUP BY TUMBLE(ts, INTERVAL '1' DAY), SESSION(ts, INTERVAL '1' HOUR)",
            (1, 58),
            "a query groups by one window",
        ),
        (
            f"SELECT b FROM {SESSION} GROUP BY b, window_end",
            (1, 15),
            "Spark has sessions for aggregations only",
        ),
        (
            WINDOW_JOIN.format(TUMBLE, CUMULATE),
            None,
            "windows of the same kind and size",
        ),
        (
            "SELECT * FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), DESCRIPTOR(id), INTERVAL '1' HOUR))",
            (1, 69),
            "TUMBLE takes one DESCRIPTOR",
        ),
        ("SELECT CURRENT_WATERMARK(ts) FROM bid", (1, 8), "Spark drops late rows itself"),
        ("SELECT a,\n SPLIT_INDEX(b, ',') FROM bid", (2, 2), "SPLIT_INDEX takes 3 arguments, not 2"),
        ("SELECT sum(price) OVER (PARTITION BY auction) FROM bid", (1, 8), "OVER of a stream is ordered by"),
        (f"SELECT n FROM ({TOP})", (1, 26), "WHERE n <= 10"),
        (
            "SELECT b.a FROM bid AS b JOIN (SELECT a, max(price) AS x FROM bid GROUP BY a) AS m ON b.a < m.a",
            None,
            "needs equal values in ON: … = m.…",
        ),
        (
            "SELECT 1 FROM bid b JOIN auction FOR SYSTEM_TIME AS OF b.ts AS a ON b.x = a.x",
            (1, 26),
            "declare its PRIMARY KEY",
        ),
        ("SELECT TUMBLE_START(ts, INTERVAL '1' HOUR) FROM bid", (1, 8), "belongs to GROUP BY TUMBLE"),
        (
            "SELECT TUMBLE_START(ts, INTERVAL '2' HOUR) FROM bid GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)",
            (1, 8),
            "takes what GROUP BY TUMBLE(…) takes",
        ),
        (
            "SELECT TUMBLE_START(at, INTERVAL '1' HOUR) FROM bid GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)",
            (1, 8),
            "takes what GROUP BY TUMBLE(…) takes",
        ),
        (
            "SELECT a FROM bid GROUP BY GROUPING SETS ((a, TUMBLE(ts, INTERVAL '1' HOUR)))",
            (1, 47),
            "read TABLE(TUMBLE(…)), and group by window_start and window_end",
        ),
        (
            "SELECT a FROM bid GROUP BY a, CUMULATE(ts, INTERVAL '1' HOUR, INTERVAL '2' HOUR)",
            (1, 31),
            "read TABLE(CUMULATE(…)), and group by window_start and window_end",
        ),
        ("SELECT stddev(DISTINCT price) FROM bid GROUP BY auction", (1, 8), "use COUNT(DISTINCT"),
        ("SELECT AVG(DISTINCT price) FROM bid GROUP BY auction", (1, 8), "AVG(DISTINCT …) of a stream"),
        ("SELECT a,\n LAST_VALUE(DISTINCT b) FROM bid", (2, 2), "LAST_VALUE takes no DISTINCT"),
        ("SELECT GREATEST(DISTINCT a, b) FROM bid", (1, 8), "GREATEST takes no DISTINCT"),
        (
            "SELECT SUM(DISTINCT CAST(a AS DECIMAL(28, 9))) FROM bid GROUP BY b",
            (1, 8),
            "at most 27 digits",
        ),
        (
            "SELECT SUM(DISTINCT CAST(a AS DECIMAL(10, x))) FROM bid GROUP BY b",
            (1, 8),
            "DECIMAL(p, s) with two numbers, not DECIMAL(10, X)",
        ),
        ("SELECT SUM(DISTINCT CAST(a AS DATE)) FROM bid GROUP BY b", (1, 8), "adds numbers"),
        ("SELECT b.items[0] FROM bid b", (1, 8), "indexed from 1"),
        (
            "SELECT DATE_FORMAT(ts,\n 'YYYY') FROM bid",
            (2, 2),
            "the letter Y of a pattern of times is none of Spark's: y is the year",
        ),
        ("SELECT DATE_FORMAT(ts, 'uu') FROM bid", (1, 24), "is none of Spark's: y is the year"),
        (
            "SELECT DATE_FORMAT(ts, 'ww') FROM bid",
            (1, 24),
            "the letter w of a pattern of times is none of Spark's",
        ),
        ("SELECT LISTAGG(DISTINCT a, b, c) FROM bid", (1, 8), "takes 1 or 2 arguments, not 3"),
        ("SELECT JSON_VALUE(a, '$.b' ERROR ON EMPTY) FROM bid", (1, 19), "use a DEFAULT"),
        (f"SELECT * FROM ({TOP.replace(' ORDER BY price DESC', '')}) WHERE n < 3", (1, 26), "needs ORDER BY"),
        (
            "SELECT GREATEST(a, b) FROM bid WHERE = 1",
            (1, 40),
            (
                "an expression is missing, found the end of the query. The query cannot be translated, and "
                "GREATEST means something else in Spark: SET 'dialect'"
            ),
        ),
        ("SELECT a FROM bid /*+ OPTIONS('x'='y') */", (1, 15), "in WITH"),
        (f"SELECT * FROM {TUMBLE[:-1]}", (1, 75), "found the end of the query"),
    ],
)
def test_what_has_no_counterpart_is_refused_with_its_place_and_what_to_write(text, place, reason):
    with pytest.raises(SqlError, match=re.escape(reason)) as caught:
        made(text)
    assert place is None or (caught.value.line, caught.value.column) == place


JOB = """
CREATE TABLE bid (ts TIMESTAMP(3), price BIGINT) WITH ('connector' = 'rocketmq', 'topic' = 'bids');
CREATE VIEW windowed AS SELECT * FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '1' HOUR));
INSERT INTO bid SELECT window_start, count(*) FROM windowed GROUP BY window_start, window_end;
"""


def test_a_view_keeps_its_window_for_the_queries_that_read_it():
    queries, options = JobQueries(), parse_options(JobOptions, {})
    table, view, insert = parse_statements(JOB)
    assert isinstance(table, CreateTable)
    assert isinstance(view, CreateView)
    assert isinstance(insert, Insert)
    queries.table(table, options)
    assert f"AS {WINDOW} FROM" in queries.view(view, ["bid"], options).text
    assert queries.query(insert.query, ["bid"], options).text.endswith(
        f"FROM windowed GROUP BY window_start, window_end, windowed.{WINDOW}"
    )


def test_the_dialect_follows_the_tables_and_the_setting():
    text = of(r"SELECT REGEXP_EXTRACT(a, '\d') FROM bid")
    table, *_ = parse_statements(JOB)
    assert isinstance(table, CreateTable)
    for settings, with_table, translated in (
        ({}, False, False),
        ({}, True, True),
        ({"dialect": "spark"}, True, False),
        ({"dialect": "flink"}, False, True),
    ):
        queries, options = JobQueries(), parse_options(JobOptions, settings)
        if with_table:
            queries.table(table, options)
        assert queries.query(text, ["bid"] * with_table, options).changed is translated


def test_a_whole_statement_holds_the_translated_query():
    (insert,) = parse_statements("\nINSERT INTO t SELECT SPLIT_INDEX(a, ',', 0) FROM b")
    assert isinstance(insert, Insert)
    text = translate(insert.query, {}).within(insert).text
    assert text.startswith("\nINSERT INTO t SELECT GET(SPLIT(")


def test_computed_columns_of_flinks_tables_are_translated():
    columns = "a STRING, b AS SPLIT_INDEX(a, ',', 0), p AS PROCTIME(), c AS a"
    text = f"CREATE TABLE t ({columns}) WITH ('connector' = 'rocketmq')"
    (table,) = parse_statements(text)
    assert isinstance(table, CreateTable)
    queries, options = JobQueries(), parse_options(JobOptions, {})
    _, b, p, c = queries.table(table, options).columns
    assert [column.expression.text[:9] for column in (b, p, c)] == ["GET(SPLIT", "CURRENT_T", "a"]
    window = of(
        "SELECT count(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(p), INTERVAL '9' SECOND)) "
        "GROUP BY window_start"
    )
    assert queries.query(window, ["t"], options).rows.changes


def count_char(text: str, character: str) -> int:
    return text.count(character)


def test_job_functions_have_the_types_of_their_annotations():
    assert function_type(count_char, "count_char") == "bigint"
    with pytest.raises(OptionError, match="annotate"):
        function_type(lambda text: text, "twice")
    (statement,) = parse_statements("CREATE TEMPORARY FUNCTION f AS 'json.no_such' LANGUAGE PYTHON")
    assert isinstance(statement, CreateFunction)
    with pytest.raises(OptionError, match=r"json\.no_such: .*no_such"):
        load_function(statement.path)
    assert load_function("json.dumps") is json.dumps


def test_ceiling_rounds_times_as_ceil_does():
    wanted = translate_expression(of("CEIL(ts TO HOUR)"))
    assert "DATE_TRUNC('HOUR', ts)" in wanted
    assert translate_expression(of("CEILING(ts TO HOUR)")) == wanted
    assert translate_expression(of("CEILING(a)")) == translate_expression(of("CEIL(a)"))


def test_a_pattern_in_a_column_is_any():
    assert translate_expression(of("DATE_FORMAT(ts, Y)")).endswith("ELSE ts END, Y)")


def test_a_random_argument_is_evaluated_once():
    assert translate_expression(of("FLOOR(RAND() * 6)")) == (
        "GET(TRANSFORM(ARRAY((RAND() * 6)), once1 -> "
        "(ROUND(once1, 0) - CASE WHEN ROUND(once1, 0) > once1 THEN 1 ELSE 0 END)), 0)"
    )
    assert "once1 -> CASE" in translate_expression(of("REGEXP_EXTRACT(UUID(), 'a')"))  # names it twice
    assert "TRANSFORM" not in translate_expression(of("FROM_UNIXTIME(RAND() * 6)"))  # names it once
    assert "TRANSFORM" not in made("SELECT AVG(RAND()) FROM t", t=Relation()).text


def test_expressions_of_computed_columns():
    assert translate_expression(of("REGEXP_REPLACE(a, 'x', '$')")).startswith("REGEXP_REPLACE(a, 'x', ")
    assert translate_expression(of("to_date(a)")).startswith("TRY_CAST(a AS DATE)")
    assert translate_expression(of("a + 1")) == "a + 1"


def test_a_check_refuses_what_the_job_would():
    head = JOB.partition("CREATE VIEW")[0]
    check_job(JOB, checkpoint_location="/c")
    with pytest.raises(SqlError, match="line 3, column 43: MATCH_RECOGNIZE"):
        check_job(
            f"{head}INSERT INTO bid SELECT price, ts FROM bid MATCH_RECOGNIZE (PATTERN (a))",
            checkpoint_location="/c",
        )


@pytest.mark.parametrize(
    ("query", "column", "name"),
    [
        ("SELECT a FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR))", 21, "TUMBLE"),
        (
            "SELECT a FROM TABLE(HOP(TABLE t, DESCRIPTOR (ts), INTERVAL '1' HOUR, INTERVAL '2' HOUR))",
            34,
            "DESCRIPTOR",
        ),
        ("SELECT TUMBLE_START(ts, INTERVAL '1' HOUR) FROM t", 8, "TUMBLE_START"),
        ("SELECT PROCTIME() FROM t", 8, "PROCTIME"),
    ],
)
def test_a_query_of_sparks_dialect_says_that_a_call_is_flinks(query, column, name):
    table = "CREATE TABLE t (a INT, ts TIMESTAMP) USING rocketmq OPTIONS (topic 't', nameServer 'a:1');\n"
    batch = "SET 'runtimeMode' = 'batch';\n"
    with pytest.raises(SqlError, match=f"{name} is Flink's, and this query is in Spark's dialect") as raised:
        check_job(table + batch + query)
    assert (raised.value.line, raised.value.column) == (3, column)
    assert check_job(f"{table}{batch}SELECT tumble, 'TUMBLE(' FROM t -- PROCTIME()") == 3


def test_the_type_of_a_quotient_over_rows_is_asked_of_the_same_rows():
    found = made("SELECT SUM(price / 2) OVER (PARTITION BY auction) / 2 FROM t", t=Relation())
    assert "TYPEOF(ANY_VALUE(price) OVER (PARTITION BY auction)) IN" in found.text


@pytest.mark.parametrize("chain", ["a{}", "1000000 / (a{})", "SUM(a{})"])
def test_the_text_of_a_quotient_does_not_double_with_each_operand(chain):
    texts = [made(f"SELECT {chain.format(' / b' * count)} FROM t", t=Relation()).text for count in (4, 8)]
    assert len(texts[1]) < 4 * len(texts[0])


def test_a_backslash_escapes_nothing_in_like():
    found = made(r"SELECT * FROM t WHERE a NOT LIKE 'b\_%'", t=Relation())
    assert found.text == r"SELECT * FROM t WHERE a NOT LIKE 'b\\\\_%'"


def test_a_text_of_one_backslash_is_written_by_its_code():
    assert made(r"SELECT U&'\005C' AS a").text == r"SELECT '\\' AS a"


@pytest.mark.parametrize("at", ["VERSION AS OF 3", "TIMESTAMP AS OF '2026-01-31'"])
def test_a_table_of_sparks_is_read_as_it_was_at_a_version(at):
    assert made(f"SELECT a / 2 FROM d {at}").text.endswith(f" FROM d {at}")
    join = made(f"SELECT t.a[1] FROM t JOIN d {at} AS e ON t.b = e.b", t=Relation()).text
    assert f" JOIN d {at} AS e ON " in join
    rows = made("SELECT a FROM d FOR SYSTEM_TIME AS OF TIMESTAMP '2026-01-31 00:00:00'").text
    assert rows == "SELECT a FROM d TIMESTAMP AS OF CAST('2026-01-31 00:00:00' AS TIMESTAMP)"


def test_a_table_of_sparks_is_joined_as_it_is_at_the_time_of_processing_only():
    rows = Relation(processing_time=frozenset({"now"}))
    query = "SELECT 1 FROM t JOIN d FOR SYSTEM_TIME AS OF {} ON t.a = d.a"
    for time in ("PROCTIME()", "t.now"):
        assert made(query.format(time), t=rows).text == "SELECT 1 FROM t JOIN d ON t.a = d.a"
    for time in ("t.ts", "ts", "t.now - INTERVAL '1' HOUR"):
        with pytest.raises(SqlError, match=r"rows that d had at that time, .* use PROCTIME\(\)") as caught:
            made(query.format(time), t=rows)
        assert caught.value.facts["column"] == 22


@pytest.mark.parametrize("rows", ["10 PERCENT ROWS ONLY", "2 ROWS WITH TIES"])
def test_a_part_of_the_rows_is_a_number_of_them(rows):
    with pytest.raises(SqlError, match="FETCH … PERCENT and WITH TIES are not supported"):
        made(f"SELECT a FROM t ORDER BY a FETCH FIRST {rows}", t=Relation())
    assert made("SELECT a FROM t FETCH FIRST 2 ROWS ONLY", t=Relation()).text == "SELECT a FROM t LIMIT 2"


@pytest.mark.parametrize("length", ["MAX", "9" * 5000])
@pytest.mark.parametrize("kind", ["CHAR", "VARCHAR", "BINARY", "VARBINARY"])
def test_the_length_of_a_type_is_a_number(kind, length):
    with pytest.raises(SqlError, match=rf"column 1\d: the length of {kind} is a number"):
        made(f"SELECT CAST(price AS {kind}({length})) FROM bid")


def test_an_interval_of_thousands_of_digits_is_refused_before_it_is_parsed():
    with pytest.raises(SqlError, match="column 17: an interval of 200000 characters is too long"):
        made(f"SELECT INTERVAL '{'9' * 200_000}' SECOND FROM bid")
