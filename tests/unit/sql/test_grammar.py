"""The grammar of Flink SQL's queries: window table functions, calls, and what they cannot be."""

from __future__ import annotations

import re

import pytest
from sqlglot import exp
from sqlglot.errors import ParseError

from pyspark_rocketmq.errors import SqlError
from pyspark_rocketmq.sql.flinksql.grammar import (
    RoundTime,
    WindowTable,
    parse_expression,
    parse_query,
    position_of,
)
from pyspark_rocketmq.sql.statements import Position, Query


def query(text):
    return Query(text, frozenset(), Position(1, 1))


def window(arguments):
    found = parse_query(query(f"SELECT a FROM {arguments}")).find(WindowTable)
    return None if found is None else {name: _text(each) for name, each in found.args.items() if each}


def _text(part):
    return part.sql(dialect="spark") if isinstance(part, exp.Expr) else part


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (
            "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)",
            {"kind": "TUMBLE", "column": "ts", "size": "INTERVAL '1' MINUTE"},
        ),
        (
            "hop(data=>table t, timecol=>descriptor(a), size=>interval '3' day, slide=>interval '2' day)",
            {"kind": "HOP", "size": "INTERVAL '3' DAY", "slide": "INTERVAL '2' DAY"},
        ),
        (
            "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '5' SECOND, INTERVAL '3' SECOND)",
            {"slide": "INTERVAL '1' SECOND", "size": "INTERVAL '5' SECOND", "offset": "INTERVAL '3' SECOND"},
        ),
        (
            "CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '5' SECOND)",
            {"step": "INTERVAL '1' SECOND", "size": "INTERVAL '5' SECOND"},
        ),
        (
            "SESSION(TABLE t PARTITION BY (a, b), DESCRIPTOR(ts), INTERVAL '1' MINUTE)",
            {"partition": "(a, b)", "column": "ts", "size": "INTERVAL '1' MINUTE"},
        ),
        (
            "SESSION(TABLE t PARTITION BY a, b, DESCRIPTOR(ts), INTERVAL '1' MINUTE)",
            {"partition": "(a, b)", "column": "ts"},
        ),
        (
            "SESSION(DATA => TABLE t PARTITION BY a, TIMECOL => DESCRIPTOR(ts), GAP => INTERVAL '1' MINUTE)",
            {"partition": "(a)", "column": "ts", "size": "INTERVAL '1' MINUTE"},
        ),
        (
            "SESSION(TABLE t, DESCRIPTOR(ts), DESCRIPTOR(a, b), INTERVAL '1' MINUTE)",
            {"partition": "(a, b)", "column": "ts"},
        ),
        (
            "SESSION(DATA => TABLE t, KEY => DESCRIPTOR(a), TIMECOL => DESCRIPTOR(b), INTERVAL '1' DAY)",
            {"partition": "(a)", "column": "b"},
        ),
    ],
)
def test_a_window_table_function_has_its_parts(call, parts):
    for written in (f"TABLE({call})", call):
        found = window(written)
        assert found["this"] == "t"
        assert found["at"] == len("SELECT a FROM ")
        assert {name: found.get(name) for name in parts} == parts


@pytest.mark.parametrize("source", ["tumble", "hop AS h", "tumble(t)", "TABLE(explode(t))"])
def test_other_tables_and_functions_are_no_window(source):
    assert window(source) is None


def test_a_window_has_a_name_and_what_is_joined_with_it():
    call = "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
    tree = parse_query(query(f"SELECT w.a FROM TABLE({call}) AS w JOIN u ON w.a = u.a"))
    found = tree.find(WindowTable)
    assert found.args["alias"].name == "w"
    assert [join.this.name for join in tree.args["joins"]] == ["u"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("TUMBLE(TABLE t, DESCRIPTOR(ts))", "TUMBLE is given no size"),
        ("TUMBLE(TABLE t, INTERVAL '1' MINUTE)", "TUMBLE is given no DESCRIPTOR(…)"),
        ("TUMBLE(DESCRIPTOR(ts), INTERVAL '1' MINUTE)", "TUMBLE is given no TABLE …"),
        ("TUMBLE(TABLE t, 5)", "TUMBLE takes TABLE …, DESCRIPTOR(…) and intervals, found '5'"),
        ("TUMBLE(SIZE => 5)", "TUMBLE takes TABLE …, DESCRIPTOR(…) and intervals, found '5'"),
        (
            "SESSION(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' MINUTE)",
            "SESSION takes TABLE …, DESCRIPTOR(…) and intervals, found 'INTERVAL'",
        ),
        ("TUMBLE(SLIDE => INTERVAL '1' SECOND)", "TUMBLE has no parameter SLIDE, found 'INTERVAL'"),
        ("TUMBLE(WIDTH => INTERVAL '1' SECOND)", "TUMBLE has no parameter WIDTH, found 'INTERVAL'"),
        ("TUMBLE(TABLE t, DESCRIPTOR(a), DESCRIPTOR(b))", "TUMBLE takes one DESCRIPTOR, of the column with"),
        ("TUMBLE(KEY => DESCRIPTOR(a))", "TUMBLE takes one DESCRIPTOR, of the column with the time"),
        (
            "SESSION(TABLE t PARTITION BY a, DESCRIPTOR(ts), DESCRIPTOR(b))",
            "SESSION takes one DESCRIPTOR, of the column with the time",
        ),
        ("TUMBLE(TABLE t, DESCRIPTOR(a, b))", "the DESCRIPTOR of the time names one column, found ')'"),
        ("TUMBLE(TABLE t, DESCRIPTOR(a), INTERVAL '1' MINUTE", "found the end of the query"),
        ("TUMBLE(TABLE t, DESCRIPTOR(a), INTERVAL '1' MINUTE x", "found 'x'"),
    ],
)
def test_what_a_window_table_function_cannot_be(call, message):
    with pytest.raises(ParseError, match=re.escape(message)):
        parse_query(query(f"SELECT a FROM TABLE({call})"))


def test_a_missing_argument_is_told_at_the_function():
    with pytest.raises(ParseError) as failure:
        parse_query(query("SELECT a FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts)))"))
    assert failure.value.errors == [{"start": len("SELECT a FROM ")}]


@pytest.mark.parametrize(
    ("call", "up", "unit"),
    [
        ("FLOOR(ts TO HOUR)", False, "HOUR"),
        ("CEIL(ts TO day)", True, "day"),
        ("CEILING(t TO YEAR)", True, "YEAR"),
    ],
)
def test_times_are_rounded_up_or_down(call, up, unit):
    found = parse_expression(call)
    assert isinstance(found, RoundTime)
    assert (found.args["up"], found.args["unit"].name) == (up, unit)
    assert found.this.name in {"ts", "t"}


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("FLOOR(ts TO)", "found ')'"),
        ("FLOOR(ts TO 'HOUR')", "found a text between quotes"),
        ("CEIL(ts TO 5)", "found '5'"),
        ("CEIL(ts, 2 TO HOUR)", "found ')'"),
        ("FLOOR(ts TO", "found the end of the query"),
    ],
)
def test_a_time_is_rounded_to_one_unit(call, found):
    with pytest.raises(ParseError, match=rf"\w+\(time TO unit\) takes a time and a unit, {re.escape(found)}"):
        parse_query(query(f"SELECT {call}"))


def test_calls_keep_their_name_and_their_arguments():
    for call in ("SUBSTRING(a FROM 2 FOR 3)", "SUBSTRING(a, 2, 3)"):
        found = parse_expression(call)
        assert (found.name, [one.sql() for one in found.expressions]) == ("SUBSTRING", ["a", "2", "3"])
    for call in ("JSON_ARRAY(a, b)", "JSON_ARRAY(a, b ABSENT ON NULL)", "JSON_OBJECTAGG(KEY a VALUE b)"):
        found = parse_expression(call)
        name = call.partition("(")[0]
        assert (found.name, [one.sql() for one in found.expressions]) == (name, ["a", "b"])
    for defaults in ("WITHOUT WRAPPER", "NULL ON EMPTY NULL ON ERROR", "WITHOUT ARRAY WRAPPER NULL ON ERROR"):
        assert len(parse_expression(f"JSON_QUERY(a, '$' {defaults})").expressions) == 2
    assert parse_expression("OVERLAY()").expressions == []
    assert parse_expression("FLOOR(a)").name == "FLOOR"


@pytest.mark.parametrize("call", ["CAST(a AS VARCHAR(3))", "cast(a as varchar(3))", "TRY_CAST(a AS CHAR(3))"])
def test_types_keep_their_length(call):
    assert [one.sql() for one in parse_expression(call).args["to"].expressions] == ["3"]


def test_a_type_that_spark_does_not_have_is_told():
    with pytest.raises(ParseError, match="Expected TYPE after CAST, found 'money'"):
        parse_query(query("SELECT CAST(a AS money)"))


def test_the_type_that_a_call_returns_keeps_its_length():
    found = parse_expression("json_value(a, '$.b' returning varchar(3))").find(exp.DataType)
    assert [one.sql() for one in found.expressions] == ["3"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("JSON_OBJECTAGG(KEY a VALUE b NULL ON NULL)", "clauses of JSON_OBJECTAGG are not supported"),
        (
            "JSON_EXISTS(a, '$.b' TRUE ON ERROR)",
            "clauses of JSON_EXISTS are not supported, except FALSE ON ERROR",
        ),
        (
            "JSON_QUERY(a, '$.b' ERROR ON EMPTY)",
            (
                "JSON_QUERY(… ERROR …): clauses of JSON_QUERY are not supported, except WITHOUT ARRAY "
                "WRAPPER, WITHOUT WRAPPER, NULL ON EMPTY, NULL ON ERROR"
            ),
        ),
        (
            "JSON_ARRAY(a NULL ON NULL)",
            "clauses of JSON_ARRAY are not supported, except ABSENT ON NULL",
        ),
    ],
)
def test_clauses_that_change_a_call_are_refused(call, message):
    with pytest.raises(SqlError, match=f"{re.escape(message)}$") as failure:
        parse_query(query(f"SELECT\n {call}"))
    clause = re.search(r"\w+ ON \w+", call)
    assert (failure.value.line, failure.value.column) == (2, 1 + clause.start() + 1)


def test_a_function_of_a_table_is_lateral():
    tree = parse_query(query("SELECT * FROM t, lateral table(f(a)) AS x (b)"))
    found = tree.find(exp.Lateral)
    assert (found.this.name, found.alias, [one.name for one in found.args["alias"].columns]) == (
        "f",
        "x",
        ["b"],
    )
    plain = parse_query(query("SELECT * FROM t, LATERAL (SELECT 1 AS b) AS x")).find(exp.Lateral)
    assert isinstance(plain.this, exp.Subquery)


@pytest.mark.parametrize("text", ["SELECT a FROM", "SELECT a FROM t JOIN", "SELECT a FROM TABLE("])
def test_a_missing_table_is_told(text):
    with pytest.raises(ParseError):
        parse_query(query(text))


@pytest.mark.parametrize(
    ("text", "message", "at"),
    [
        ("SELECT a FROM t WHERE a = ", "an expression is missing, found the end of the query", "="),
        ("SELECT a + FROM t", "an expression is missing, found 'FROM'", "FROM"),
        ("SELECT f(a 'secret')", "Expecting ), found a text between quotes", "'secret'"),
        ("SELECT f(a U&'secret')", "Expecting ), found a text between quotes", "U&"),
        ("SELECT a, FROM ", "Expected table name, found the end of the query", "FROM"),
        ("SELECT CASE WHEN a THEN b c, d", "Expected END after CASE, found 'c'", "c,"),
        ("SELECT a FROM t JOIN d ON", "the join's condition is missing, found the end of the query", "ON"),
        ("SELECT a FROM t JOIN d ON WHERE a", "the join's condition is missing, found 'WHERE'", "WHERE"),
        (
            "SELECT a FROM t JOIN d USING",
            "the join's condition is missing, found the end of the query",
            "USING",
        ),
        (
            "SELECT a FROM t JOIN d USING () WHERE a",
            "the join's condition is missing, found 'WHERE'",
            "WHERE",
        ),
        ("SELECT CASE WHEN a THEN b", "Expected END after CASE, found the end of the query", "b"),
        ("SELECT a FROM t LIMIT 1 LIMIT 2 x", "Found multiple 'LIMIT' clauses, found 'LIMIT'", "LIMIT 2"),
    ],
)
def test_a_mistake_is_told_in_words_of_the_query_and_where_it_is(text, message, at):
    with pytest.raises(ParseError, match=f"^{re.escape(message)}$") as failure:
        parse_query(query(text))
    assert failure.value.errors == [{"start": text.index(at)}]


def test_patterns_of_rows_are_refused_where_they_begin():
    with pytest.raises(
        ParseError, match="MATCH_RECOGNIZE has no counterpart in Spark: use a self-join"
    ) as failure:
        parse_query(query("SELECT a FROM t match_recognize (PATTERN (A))"))
    assert failure.value.errors == [{"start": len("SELECT a FROM t ")}]


@pytest.mark.parametrize("text", ["SELECT id, E'a'", "SELECT id, _UTF8'a'"])
def test_a_text_with_a_prefix_is_refused_where_it_begins(text):
    with pytest.raises(SqlError, match="texts with the prefix") as failure:
        parse_query(query(text))
    assert failure.value.column == len("SELECT id, ") + 1


@pytest.mark.parametrize(
    "text", ["SELECT a AS E, 'a'", "SELECT 'E''a'", "SELECT xyz, 'a'", "SELECT CONCAT('a')"]
)
def test_a_text_beside_a_word_has_no_prefix(text):
    assert parse_query(query(text))


def test_a_hint_with_options_is_refused_at_its_table():
    with pytest.raises(SqlError, match=r"write these options in WITH \(…\) of the table") as failure:
        parse_query(query("SELECT a FROM t /*+ options('a'='b') */"))
    assert failure.value.column == len("SELECT a FROM ") + 1
    assert parse_query(query("SELECT a FROM t /* OPTIONS of t */"))


def test_nodes_of_a_written_expression_have_no_place():
    assert not any(node.meta for node in parse_expression("a + b(c)").walk())
    wanted = query("SELECT a + bb FROM t")
    tree = parse_query(wanted)
    assert position_of(wanted, tree.find(exp.Add)) == Position(1, 8)
    assert position_of(wanted, exp.Star()) == wanted.position
    windowed = query("SELECT a FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))")
    assert position_of(windowed, parse_query(windowed).find(WindowTable)) == Position(1, 15)
