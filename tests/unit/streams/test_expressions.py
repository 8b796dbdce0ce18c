"""Conditions and scripts as SQL, and the fields that they name."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.spark.body_formats import quote
from pyspark_rocketmq.streams.plan.expressions import (
    compare_fields,
    comparisons,
    condition_sql,
    names_in,
    quoted_names,
    script_lines,
)


class Spelled:
    """A Column, which spells itself."""

    def __init__(self, text):
        self.text = text

    def __str__(self):
        return f"Column<'{self.text}'>"


def test_a_name_with_backquotes_is_one_name():
    assert quote("a`b``") == "`a``b`````"


@pytest.mark.parametrize(
    ("script", "lines"),
    [
        ("a=b+1;c = d == e", [("a", "b+1"), ("c", "d == e")]),
        ("a=1\n\n b=2 ;; ", [("a", "1"), ("b", "2")]),
        ("a='x=y'", [("a", "'x=y'")]),
        (
            "a=concat(x, ';', \";\");b='it''s;\n\\';'",
            [("a", "concat(x, ';', \";\")"), ("b", "'it''s;\n\\';'")],
        ),
        ("a=`b;c`;d='open;e=1", [("a", "`b;c`"), ("d", "'open"), ("e", "1")]),
    ],
)
def test_a_script_is_statements_on_lines_or_with_semicolons(script, lines):
    assert list(script_lines(script, step="s")) == lines


@pytest.mark.parametrize("line", ["a", "=1", "a b=1", "a=", "a= ", "a==1", "1"])
def test_what_is_no_statement_is_refused(line):
    with pytest.raises(PlanError, match=r"name=expression.*s#1"):
        script_lines(f"x=1;{line}", step="s#1")


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("a > 1 AND b IS NOT NULL or upper(c) = 'd e'", {"a", "b", "c"}),
        ("`a b` + x.y", {"a b", "x"}),
        ("'a' || `b`", {"b"}),
        ("Case WHEN a then b END", {"a", "b"}),
        (Spelled("(a > 1)"), {"a"}),
        ("a >", {"a"}),
    ],
)
def test_names_are_fields_and_no_keywords_functions_or_texts(expression, names):
    found = names_in(expression)
    assert names <= found
    assert found - names <= {"x.y"}


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ('name = "NAME"', {"name"}),
        ("CAST(date AS DATE) > DATE '2030-01-01'", {"date"}),
        ("date::DATE = current_date", {"date"}),
        ("extract(YEAR FROM year) > 2000", {"year"}),
        ("timestampadd(HOUR, 1, hour) > t", {"hour", "t"}),
        ("comment = 'Comment'", {"comment"}),
        ("`End`.x = 1 OR end = 2", {"End", "end"}),
        ("名 = '1'", {"名"}),
    ],
)
def test_texts_types_and_units_are_no_names_in_another_case(expression, names):
    assert names_in(expression) == names


def test_texts_of_conditions_are_no_names():
    assert quoted_names("`a` = 'b `c`' AND `d``e` > 1") >= {"a"}
    assert "c" not in quoted_names("`a` = 'b `c`'")


def test_fields_are_ordered_as_numbers_if_both_are_and_compared_as_they_are():
    assert compare_fields("`a`", "=", "`b`") == "`a` = `b`"
    both = "try_cast(CAST(`a` AS STRING) AS {0}) < try_cast(CAST(`b` AS STRING) AS {0})"
    decimal, double = both.format("DECIMAL(38, 10)"), both.format("DOUBLE")
    assert compare_fields("`a`", "<", "`b`") == f"coalesce({decimal}, {double}, `a` < `b`)"
    assert condition_sql("(a,<,`b`)", step="s") == f"({compare_fields('`a`', '<', '`b`')})"


@pytest.mark.parametrize(
    ("right", "sql"),
    [
        ("123456789012345", "(try_cast(`a` AS DOUBLE) = 123456789012345)"),
        ("1234567890123456", None),
        ("0.12345678901234567", "(try_cast(`a` AS DOUBLE) = 0.12345678901234567)"),
        ("''", "(`a` = '')"),
        ("'", r"(`a` = '\'')"),
        ("`", "(`a` = '`')"),
    ],
)
def test_right_sides(right, sql):
    found = condition_sql(f"(a,==,{right})", step="s")
    assert found == sql if sql else found.startswith("(coalesce(try_cast(`a` AS DECIMAL(38, 10))")


@pytest.mark.parametrize("text", ["", "(a,==,1", "((a,==,1)", "(a,~,1)", "a"])
def test_a_malformed_condition_names_its_step(text):
    with pytest.raises(PlanError, match="s#1"):
        condition_sql(text, step="s#1")


@pytest.mark.parametrize("text", ["", "(a,==,b)|(c,==,d)", "a,==,b|c,==,d", "(a,~,b)"])
def test_a_malformed_condition_of_a_join_names_its_step(text):
    with pytest.raises(PlanError, match="s#1"):
        comparisons(text, step="s#1")
