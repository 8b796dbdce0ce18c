"""What one SELECT groups by and returns."""

from __future__ import annotations

import re

import pytest
from sqlglot import exp

from pyspark_rocketmq.errors import SqlError
from pyspark_rocketmq.options import CompatibilityWarning
from pyspark_rocketmq.sql.flinksql.grammar import parse_query
from pyspark_rocketmq.sql.flinksql.relations import Relation
from pyspark_rocketmq.sql.flinksql.selects import (
    by_spark_window,
    groups_by_processing_time,
    hidden_column,
    is_aggregation,
    is_distinct,
    keys_of_all_rows,
    name_columns,
    name_inner_columns,
    of_processing_time,
    processing_time,
    spark_windows,
    under_other_names,
    untranslated,
    window_outputs,
    window_part,
    without_default_database,
    without_flink_hints,
)
from pyspark_rocketmq.sql.statements import Name, Position, Query


def query(text):
    return Query(text, frozenset(re.findall(r"\w+", text.lower())), Position(1, 1))


def tree(text):
    return parse_query(query(text))


def names(*texts):
    return [Name(text, Position(7, number)) for number, text in enumerate(texts, 1)]


def written(node):
    return node.sql(dialect="spark")


def test_what_only_spark_can_read_may_be_a_stream_or_a_changelog():
    known = {"a": Relation(stream=True), "b": Relation(changelog=True), "c": Relation(keeps_state=True)}
    assert untranslated(query("a |> b"), known) == Relation(stream=True, changelog=True)
    assert untranslated(query("a |> c"), known) == Relation(stream=True)
    assert untranslated(query("d |> c"), known) == Relation()


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("default_catalog.default_database.t", "t"),
        ("Default_Database.t", "t"),
        ("DEFAULT_CATALOG.DEFAULT_DATABASE.t", "t"),
        ("mine.default_database.t", None),
        ("default_catalog.mine.t", None),
        ("default_catalog.t", None),
        ("t", None),
    ],
)
def test_only_flinks_default_database_is_taken_from_a_name(name, plain):
    table = tree(f"SELECT a FROM {name}").find(exp.Table)
    assert without_default_database(table) is (plain is not None)
    assert written(table) == (plain or name)


@pytest.mark.parametrize(
    ("hints", "left"),
    [
        ("LOOKUP('table'='d')", ""),
        ("lookup('table'='d'), NEST_LOOP(b)", ""),
        ("BROADCAST(b), LOOKUP('table'='d')", "/*+ BROADCAST(b) */ "),
        ("BROADCAST(b)", None),
    ],
)
def test_hints_of_flinks_are_taken_from_a_query(hints, left):
    select = tree(f"SELECT /*+ {hints} */ a FROM b")
    assert without_flink_hints(select) is (left is not None)
    assert written(select) == f"SELECT {f'/*+ {hints} */ ' if left is None else left}a FROM b"
    assert not without_flink_hints(tree("SELECT a FROM b"))


def test_a_hint_that_changes_more_than_the_speed_is_told():
    with pytest.warns(CompatibilityWarning, match=r"hints without effect: STATE_TTL \(SET 'table.exec"):
        assert without_flink_hints(tree("SELECT /*+ state_ttl('b'='1d') */ a FROM b"))


def test_the_hidden_column_has_the_name_of_its_source_if_that_has_one():
    assert [written(hidden_column(source)) for source in ("b", "#0")] == ["b.__window", "__window"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("SELECT a, b AS c FROM t", "SELECT a AS `x`, b AS `y` FROM t"),
        (
            "SELECT a, b FROM t UNION ALL SELECT c, d FROM t",
            "SELECT a AS `x`, b AS `y` FROM t UNION ALL SELECT c, d FROM t",
        ),
        ("(SELECT a, b FROM t)", "(SELECT a AS `x`, b AS `y` FROM t)"),
        ("SELECT * FROM t", None),
        ("SELECT a, t.* FROM t", None),
        ("VALUES (1, 2)", None),
    ],
)
def test_the_columns_of_a_query_have_the_names_of_its_view(text, named):
    found = tree(text)
    assert name_columns(found, names("x", "y")) is (named is not None)
    assert written(found) == (named or written(tree(text)))
    assert not name_columns(tree("SELECT a FROM t"), [])


def test_a_query_with_another_number_of_columns_is_refused_at_the_first_name():
    with pytest.raises(SqlError, match=r"^line 7, column 1: 2 columns are named, and the query has 1$"):
        name_columns(tree("SELECT a FROM t"), names("x", "y"))


def test_the_columns_of_inner_queries_have_their_names():
    text = (
        "WITH c (x) AS (SELECT a FROM t) SELECT y, z FROM c CROSS JOIN (SELECT a FROM t) AS s (y) "
        "CROSS JOIN (SELECT * FROM t) AS r (z)"
    )
    found = tree(text)
    name_inner_columns(found, query(text))
    assert written(found) == (
        "WITH c AS (SELECT a AS `x` FROM t) SELECT y, z FROM c CROSS JOIN (SELECT a AS `y` FROM t) AS s "
        "CROSS JOIN (SELECT * FROM t) AS r(z)"
    )
    wrong = "SELECT y FROM (SELECT a FROM t) AS s (y, z)"
    with pytest.raises(SqlError, match=rf"column {wrong.index('(y') + 2}: 2 columns are named"):
        name_inner_columns(tree(wrong), query(wrong))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("SELECT -id AS id FROM o ORDER BY id LIMIT 1", False),
        ("SELECT id, n FROM o ORDER BY x", False),
        ("SELECT id, n FROM o ORDER BY -n", False),
        ("SELECT id FROM o UNION ALL SELECT k FROM p ORDER BY id", False),
        ("SELECT id, n AS y FROM o ORDER BY Y", True),
        ("SELECT id, n FROM o ORDER BY o.id, m", True),
    ],
)
def test_columns_that_order_a_query_keep_their_names(text, named):
    found = tree(text)
    given = names("x", "y")[: len(found.selects)]
    assert name_columns(found, given) is named
    assert ("`x`" in written(found)) is named


def test_rows_under_other_names_keep_what_has_no_name():
    rows = Relation(stream=True, changes=True, changelog=True, processing_time=frozenset({"p"}))
    assert under_other_names(rows, names("x")) == Relation(stream=True, changes=True, changelog=True)
    with pytest.raises(SqlError, match=r"^line 7, column 1: name the columns of a window"):
        under_other_names(Relation(window={"a": "start"}), names("x"))


@pytest.mark.parametrize(
    ("text", "aggregates"),
    [
        ("SELECT a FROM t GROUP BY a", True),
        ("SELECT 1 + SUM(a) FROM t", True),
        ("SELECT a FROM t HAVING COUNT(*) > 1", True),
        ("SELECT ABS(a) FROM t", False),
        ("SELECT SUM(a) OVER (ORDER BY b) FROM t", False),
        ("SELECT (SELECT SUM(a) FROM s) FROM t", False),
        ("SELECT a FROM t WHERE a > (SELECT SUM(a) FROM s)", False),
    ],
)
def test_which_queries_aggregate(text, aggregates):
    assert is_aggregation(tree(text)) is aggregates
    assert is_distinct(tree(text.replace("SELECT", "SELECT DISTINCT", 1))) is not aggregates
    assert not is_distinct(tree(text))


def test_which_unions_are_distinct():
    kinds = ("UNION", "UNION DISTINCT", "UNION ALL", "INTERSECT")
    found = [is_distinct(tree(f"SELECT a FROM t {kind} SELECT a FROM s")) for kind in kinds]
    assert found == [True, True, False, False]


@pytest.mark.parametrize(
    ("group", "keys"),
    [
        ("a, b", ["a", "b"]),
        ("GROUPING SETS ((a, b), (a))", ["a"]),
        ("GROUPING SETS ((a, b), a), c", ["a", "c"]),
        ("GROUPING SETS (a, b)", []),
        ("GROUPING SETS ((a, b), (a, b, c))", ["a", "b"]),
        ("c, GROUPING SETS ((b, a))", ["c", "b", "a"]),
        ("ROLLUP (a), b", ["b"]),
        ("CUBE (a, b)", []),
    ],
)
def test_the_keys_of_every_row(group, keys):
    node = tree(f"SELECT 1 FROM t GROUP BY {group}").args["group"]
    assert [written(key) for key in keys_of_all_rows(node)] == keys


SOURCES = {
    "t": Relation(window={"s": "start", "e": "end", "": ""}, processing_time=frozenset({"p"})),
    "u": Relation(spark_windows=frozenset({"w"})),
}


@pytest.mark.parametrize(
    ("group", "by_spark", "by_processing"),
    [
        ("GROUP BY a, window(ts, '1 minute')", True, False),
        ("GROUP BY a, SESSION_WINDOW(ts, '1 minute')", True, False),
        ("GROUP BY W", True, False),
        ("GROUP BY U.w", True, False),
        ("GROUP BY t.w", False, False),
        ("GROUP BY a, ABS(w)", False, False),
        ("GROUP BY TUMBLE(P, INTERVAL '1' SECOND)", False, True),
        ("GROUP BY TUMBLE(u.p, INTERVAL '1' SECOND)", False, False),
        ("GROUP BY a, HOP(CURRENT_TIMESTAMP(), INTERVAL '1' SECOND)", False, True),
        ("GROUP BY SESSION(a, INTERVAL '1' SECOND)", False, False),
        ("GROUP BY ABS(p)", False, False),
        ("GROUP BY TUMBLE(a, p), TUMBLE()", False, False),
        ("", False, False),
    ],
)
def test_what_a_query_groups_by(group, by_spark, by_processing):
    select = tree(f"SELECT 1 FROM t {group}")
    assert by_spark_window(select, SOURCES) is by_spark
    assert groups_by_processing_time(select, SOURCES) is by_processing


@pytest.mark.parametrize(
    ("items", "windows", "times", "parts"),
    [
        ("a", set(), set(), {}),
        ("*", {"w"}, {"p"}, {"s": "start", "e": "end"}),
        ("t.*", set(), {"p"}, {"s": "start", "e": "end"}),
        ("T.*", set(), {"p"}, {"s": "start", "e": "end"}),
        ("u.*", {"w"}, set(), {}),
        ("u.*, t.*", {"w"}, {"p"}, {"s": "start", "e": "end"}),
        ("u.W AS X", {"x"}, set(), {}),
        ("t.w, u.p", set(), set(), {}),
        ("window(ts, '1 minute')", {"window"}, set(), {}),
        ("SESSION_WINDOW(ts, '1 minute') AS V", {"v"}, set(), {}),
        ("P", set(), {"p"}, {}),
        ("p AS Q, CURRENT_TIMESTAMP() AS R, CURRENT_TIMESTAMP()", set(), {"q", "r"}, {}),
        ("S AS begun, t.E", set(), set(), {"begun": "start", "e": "end"}),
        ("u.s, ABS(s)", set(), set(), {}),
    ],
)
def test_what_a_query_returns(items, windows, times, parts):
    select = tree(f"SELECT {items} FROM t JOIN u")
    assert spark_windows(select, SOURCES) == windows
    assert processing_time(select, SOURCES) == times
    assert window_outputs(select, SOURCES) == parts


def test_the_part_of_a_window_that_a_column_is():
    assert window_part(exp.column("S", table="T"), SOURCES) == ("t", "start")
    assert window_part(exp.column("s", table="u"), SOURCES) is None
    assert window_part(None, SOURCES) is None
    assert window_part(exp.Literal.string("s"), SOURCES) is None


def test_rows_change_only_by_windows_of_the_time_of_processing_if_all_that_change_have_one():
    still, windowed, other = Relation(), Relation(changes=True, window={"s": "start"}), Relation(changes=True)
    assert of_processing_time({"a": still, "b": windowed})
    assert not of_processing_time({"a": windowed, "b": other})
