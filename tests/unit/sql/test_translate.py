"""A query in Spark's SQL: its text, in its place, and the places of what cannot be translated."""

from __future__ import annotations

import re

import pytest

from pyspark_rocketmq.errors import SqlError
from pyspark_rocketmq.sql.flinksql import Relation, translate, translate_expression
from pyspark_rocketmq.sql.flinksql.state.needs import StateRules
from pyspark_rocketmq.sql.parse import parse_statements
from pyspark_rocketmq.sql.state.steps import Grouping
from pyspark_rocketmq.sql.statements import Insert, Position, Query

STREAM = {"bid": Relation(stream=True)}


def query(text: str) -> Query:
    """Return a query whose place in the job is where the text begins."""
    start = len(text) - len(text.lstrip())
    return Query(text, frozenset(re.findall(r"\w+", text.lower())), Position.of(text, start))


@pytest.mark.parametrize(("item", "written"), [("a", "a"), ("LN(a)", None)])
def test_an_insert_has_its_query_in_its_place(item: str, written: str | None) -> None:
    (insert,) = parse_statements(f"\nINSERT INTO x (y)\n  SELECT {item} FROM bid")
    assert isinstance(insert, Insert)
    found = translate(insert.query, STREAM)
    text = found.within(insert).text
    assert found.changed is (written is None)
    assert text.startswith("\nINSERT INTO x (y)\n  SELECT ")
    assert text.endswith(" FROM bid")
    assert (text == insert.whole.padded) is (written is not None)


def test_a_translated_query_keeps_its_line_and_has_no_comments() -> None:
    found = translate(query("\n\n  SELECT ARRAY[a], b /* one */ FROM bid"), STREAM)
    assert found.text == "\n\nSELECT ARRAY(a), b FROM bid"


def test_state_that_is_wanted_always_is_kept_in_a_step() -> None:
    grouped = query("SELECT a, COUNT(*) FROM bid GROUP BY a")
    assert not translate(grouped, STREAM).steps
    (step,) = translate(grouped, STREAM, state=StateRules(always=True)).steps
    assert isinstance(step.operation, Grouping)


def test_a_query_of_a_changelog_that_cannot_be_translated_is_refused_where_it_fails() -> None:
    changes = {"c": Relation(stream=True, changelog=True)}
    text = query("\n SELECT a FROM c |> WHERE")
    assert not translate(text, STREAM).changed
    with pytest.raises(
        SqlError,
        match=r"^line 2, column 21: an expression is missing, found the end of the query\. "
        "A query of a changelog must be translated$",
    ):
        translate(text, changes)


def test_a_text_that_does_not_end_is_told_at_the_query() -> None:
    with pytest.raises(SqlError, match=r"^line 3, column 2: [^\n]+$"):
        translate(query("\n\n SELECT tumble('a"), STREAM)


def view(text: str) -> dict[str, Relation]:
    """Return what is known if a stream has a view."""
    return {**STREAM, "v": translate(query(text), STREAM, hidden=True).rows}


ALWAYS = StateRules(always=True)


def test_a_query_with_state_reads_a_view_whose_rows_change_by_its_query() -> None:
    found = translate(query("SELECT n FROM v"), view("SELECT COUNT(*) AS n FROM bid"), state=ALWAYS)
    (step,) = found.steps
    assert step.text == "SELECT 1 AS __k FROM bid"
    assert f"FROM (SELECT __r0 AS n, __change FROM {step.name}) AS v" in found.text


def test_a_query_with_state_reads_other_views_by_their_name() -> None:
    grouped = query("SELECT a, COUNT(*) FROM v GROUP BY a")
    (step,) = translate(grouped, view("SELECT a FROM bid"), state=ALWAYS).steps
    assert step.text == "SELECT a AS __k0 FROM v"


def test_a_query_that_needs_no_state_is_translated_where_state_is_always_kept() -> None:
    found = translate(query("SELECT ARRAY[a] FROM bid"), STREAM, state=ALWAYS)
    assert (found.spark_sql, found.steps) == ("SELECT ARRAY(a) FROM bid", ())


def test_a_view_keeps_the_hidden_column_of_its_window_where_state_is_always_kept() -> None:
    windows = query(
        "SELECT window_end, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(t), INTERVAL '1' HOUR)) "
        "GROUP BY window_start, window_end"
    )
    shown = "SELECT window_end, COUNT(*) AS n"
    assert translate(windows, STREAM, state=ALWAYS).text.startswith(f"{shown} FROM ")
    kept = translate(windows, STREAM, hidden=True, state=ALWAYS)
    assert kept.text.startswith(f"{shown}, __window AS __window FROM ")


def test_an_expression_that_cannot_be_read_is_left_to_spark() -> None:
    assert translate_expression(query("a |> WHERE")) == "a |> WHERE"


@pytest.mark.parametrize(
    ("before", "line", "column"),
    [
        (" " * 20, 1, 21),  # SELECT is written before it
        (" " * 7, 1, 8),
        (" " * 6, 1, 14),  # no room: what follows moves
        ("\n" * 7 + "  ", 8, 10),
        ("\n" + " " * 7, 2, 8),
    ],
)
def test_the_place_in_an_expression_is_its_own(before: str, line: int, column: int) -> None:
    with pytest.raises(SqlError, match="LOCALTIME is a TIME") as failure:
        translate_expression(query(f"{before}LOCALTIME"))
    assert (failure.value.line, failure.value.column) == (line, column)
