"""What the steps of queries have in common: their sources, their items and their aggregates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NoReturn

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.functions import AGGREGATES
from pyspark_rocketmq.sql.flinksql.grammar import position_of
from pyspark_rocketmq.sql.flinksql.operators.forms import IS_AVERAGE, called
from pyspark_rocketmq.sql.flinksql.relations import CHANGE, Relation
from pyspark_rocketmq.sql.state.steps import RESULT, Aggregate, Fold
from pyspark_rocketmq.sql.statements import Query

__all__ = [
    "NO_PLACE",
    "FoldedAggregates",
    "change_column",
    "hidden_alias",
    "named_item",
    "of_source",
    "read_step",
]

_SOURCE: Final = ("from_", "joins", "where", "laterals")
_FOLDS: Final = frozenset(fold.value for fold in Fold)
NO_PLACE: Final = {"distinct": "DISTINCT", "order": "ORDER BY", "limit": "LIMIT", "offset": "OFFSET"}
"""Clauses that a query with a step leaves to the query around it."""


def hidden_alias(value: exp.Expression, name: str) -> exp.Expression:
    """Return a value under a name that is written as it is."""
    return exp.Alias(this=value, alias=exp.to_identifier(name, quoted=True))


def of_source(select: exp.Select) -> exp.Select:
    """Return a query without items that reads what another one reads."""
    source = exp.Select()
    for name in _SOURCE:
        part = select.args.get(name)
        if part is not None:
            source.set(name, [each.copy() for each in part] if isinstance(part, list) else part.copy())
    return source


def read_step(select: exp.Select, name: str) -> None:
    """Make a query read the result of a step."""
    for part in (*_SOURCE, "group", "having", "distinct", "hint"):
        select.set(part, None)
    select.set("from_", exp.From(this=exp.Table(this=exp.to_identifier(name))))


def change_column(sources: Mapping[str, Relation]) -> list[exp.Expression]:
    """Return the column `CHANGE` of a source that has it."""
    return [
        hidden_alias(exp.column(CHANGE, table=None if name.startswith("#") else name), CHANGE)
        for name, rows in sources.items()
        if rows.changelog
    ]


def named_item(item: exp.Expression, at: int) -> exp.Expression:
    """Return an item with a name; without one it has Flink's."""
    if isinstance(item, exp.Alias):
        return item.copy()
    if isinstance(item, exp.Column):
        return hidden_alias(item.copy(), item.name)
    return hidden_alias(item.copy(), f"EXPR${at}")


class FoldedAggregates:
    """The aggregates of a query, which a step computes.

    Parameters
    ----------
    query : Query
    what : str
        Of what rows they are, for errors.
    """

    def __init__(self, query: Query, what: str) -> None:
        self.aggregates: list[Aggregate] = []
        self.arguments: list[exp.Expression | None] = []
        self._query = query
        self._what = what
        self._found: dict[str, int] = {}

    def replace_calls(self, part: exp.Expression) -> None:
        """Replace the calls of aggregates in an item by the columns with their results."""
        for quotient in list(part.find_all(exp.Div)):
            if quotient.meta.get(IS_AVERAGE):  # a step computes it as AVG
                total = next(call for call in quotient.this.find_all(exp.Anonymous) if called(call) == "SUM")
                total.set("this", "AVG")
                quotient.replace(quotient.this.copy())
        for call in list(part.find_all(exp.Anonymous)):
            if called(call) not in AGGREGATES:
                continue
            if (inner := call.find_ancestor(exp.Select)) is not None:
                self.refuse_inner(inner)
            whole: exp.Expression = call
            while isinstance(whole.parent, exp.Filter | exp.Window) and whole.parent.this is whole:
                whole = whole.parent
            number = self._found.setdefault(whole.sql(dialect="spark"), len(self.aggregates))
            if number == len(self.aggregates):
                self._add(call, whole)
            whole.replace(exp.column(f"{RESULT}{number}"))

    def refuse_inner(self, inner: exp.Expression) -> NoReturn:
        """Refuse a query inside an item or HAVING: what it names may be of the step.

        Raises
        ------
        SqlError
        """
        position_of(self._query, inner).fail(
            "a query inside an item or HAVING beside aggregates with separate state is not supported: write "
            "it in WHERE, if it is compared with keys, in the WHERE of a query around this one, or join it "
            "before"
        )

    def _add(self, call: exp.Anonymous, whole: exp.Expression) -> None:
        name = called(call)
        around = whole.parent
        is_type = name == "ANY_VALUE" and isinstance(around, exp.Anonymous) and called(around) == "TYPEOF"
        if name not in _FOLDS or (name == "ANY_VALUE" and not is_type):
            position_of(self._query, call).fail(
                f"{name} {self._what} is not supported: it cannot take back a row. COUNT, SUM, AVG, "
                "MIN and MAX can; SET 'execution.runtime-mode' = 'batch' runs it once"
            )
        values = call.expressions
        distinct = bool(values) and isinstance(values[0], exp.Distinct)
        if distinct:
            values = values[0].expressions
        if len(values) > 1:
            position_of(self._query, call).fail(f"{name} {self._what} takes one argument")
        argument: exp.Expression | None = None if not values or values[0].is_star else values[0].copy()
        if isinstance(call.parent, exp.Filter):
            given = argument or exp.Literal.number(1)
            argument = exp.Case(ifs=[exp.If(this=call.parent.expression.this.copy(), true=given)])
        self.aggregates.append(Aggregate(Fold(name), argument is not None, distinct))
        self.arguments.append(argument)
