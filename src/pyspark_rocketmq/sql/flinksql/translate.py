"""Translate queries of Flink SQL to Spark SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot.errors import ParseError, TokenError

from pyspark_rocketmq.sql.flinksql.expressions import translate_expressions
from pyspark_rocketmq.sql.flinksql.functions import FUNCTIONS, UNKNOWN
from pyspark_rocketmq.sql.flinksql.grammar import parse_query
from pyspark_rocketmq.sql.flinksql.relations import Relation
from pyspark_rocketmq.sql.flinksql.selects import (
    name_columns,
    name_inner_columns,
    under_other_names,
    untranslated,
)
from pyspark_rocketmq.sql.flinksql.state.needs import (
    StateRules,
)
from pyspark_rocketmq.sql.flinksql.state.rewrite import (
    inline_queries,
)
from pyspark_rocketmq.sql.flinksql.state.temporal import versions_of_view
from pyspark_rocketmq.sql.flinksql.translator import Translator
from pyspark_rocketmq.sql.state.steps import Step
from pyspark_rocketmq.sql.statements import Insert, Name, Position, Query

__all__ = ["Translated", "translate", "translate_expression"]

_STATE_RULES: Final = StateRules()
_FLINK_ONLY: Final = frozenset({"descriptor", "match_recognize", "tumble", "hop", "cumulate"})
_TRANSLATED: Final = frozenset(name.lower() for name in FUNCTIONS.keys() | UNKNOWN.keys())


@dataclass(frozen=True, slots=True)
class Translated:
    """A query in Spark's SQL.

    Parameters
    ----------
    text : str
        Spark's text: the query as written, in its place, if nothing had to be translated.
    changed : bool
    rows : Relation
        What is known of its rows.
    steps : tuple of Step
        What is run before, in this order: the text reads their results.
    state : tuple of str
        What the query's state depends on, see `describe_state`.
    """

    text: str
    changed: bool
    rows: Relation
    steps: tuple[Step, ...] = ()
    state: tuple[str, ...] = ()

    @property
    def spark_sql(self) -> str:
        """What Spark is given instead of the query, with its steps; empty if nothing is translated."""
        if not self.changed:
            return ""
        texts = []
        for step in self.steps:
            kind = type(step.operation).__name__
            texts.append(f"{step.name} is {kind} of: {step.text}")
            if step.other is not None:
                texts.append(f"  with: {step.other}")
        return "\n".join([*texts, self.text.strip()])

    def within(self, insert: Insert) -> Translated:
        """Return the whole statement of an INSERT with this query."""
        if not self.changed:
            return replace(self, text=insert.whole.padded)
        padded = insert.query.padded
        start = len(padded) - len(padded.lstrip())
        return replace(self, text=insert.whole.padded[:start] + self.text.lstrip())


def translate(
    query: Query,
    known: Mapping[str, Relation],
    *,
    hidden: bool = False,
    columns: Sequence[Name] = (),
    state: StateRules = _STATE_RULES,
) -> Translated:
    """Translate a query.

    Parameters
    ----------
    query : Query
    known : mapping of str to Relation
        The tables and views that it may name, by name in lower case.
    hidden : bool
        Keep the hidden column of a window, for a view.
    columns : sequence of Name
        The view's names of the columns. Empty: the query's.
    state : StateRules

    Raises
    ------
    SqlError
        A construct of Flink's has no counterpart in Spark, or is invalid.
    """
    try:
        tree = parse_query(query)
    except (ParseError, TokenError) as error:
        if query.names & _FLINK_ONLY:
            _place(query, error).fail(_reason(error))
        if functions := query.names & _TRANSLATED:
            _place(query, error).fail(
                f"{_reason(error)}. The query cannot be translated, and {min(functions).upper()} means "
                "something else in Spark: SET 'dialect' = 'spark' passes it unchanged"
            )
        plain = untranslated(query, known)
        if plain.changelog:
            _place(query, error).fail(f"{_reason(error)}. A query of a changelog must be translated")
        return Translated(query.padded, False, plain)  # Spark reports what is wrong
    name_inner_columns(tree, query)
    named = name_columns(tree, columns)
    changed = translate_expressions(tree, query) or named
    written = tree.copy()
    translator = Translator(query, tree, state)
    translator.changed = changed
    rows = None if state.always else translator.rows_without_state(known, hidden=hidden)
    if rows is None:
        inline_queries(written, known, query)
        translator = Translator(query, written, replace(state, always=True))
        translator.changed = True
        rows = translator.rows(known, hidden=hidden)
    if hidden and rows.changes:
        rows = replace(rows, query=written)
    if hidden and (versions := versions_of_view(written)) is not None:
        rows = replace(rows, versions=versions)
    if columns and not named:
        rows = under_other_names(rows, columns)
    if not translator.changed:
        return Translated(query.padded, False, rows)
    before = "\n" * (query.position.line - 1)  # Spark reports the line of the query
    text = translator.tree.sql(dialect="spark", comments=False)
    return Translated(before + text, True, rows, tuple(translator.steps))


def translate_expression(expression: Query) -> str:
    """Translate the expression of a computed column.

    Raises
    ------
    SqlError
    """
    selected = replace(expression, padded=_prefixed(expression))
    return translate(selected, {}).text.strip().removeprefix("SELECT").strip()


def _prefixed(expression: Query) -> str:
    """Return the expression as a query, in its place if there is room before it."""
    text, word = expression.padded, "SELECT "
    start = len(text) - len(text.lstrip())
    room = start >= len(word) and "\n" not in text[start - len(word) : start]
    return (
        f"{text[: start - len(word)]}{word}{text[start:]}" if room else f"{text[:start]}{word}{text[start:]}"
    )


def _place(query: Query, error: ParseError | TokenError) -> Position:
    details = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
    start = details.get("start")
    return query.position if start is None else Position.of(query.padded, int(start))


def _reason(error: ParseError | TokenError) -> str:
    return str(error).partition("\n")[0]
