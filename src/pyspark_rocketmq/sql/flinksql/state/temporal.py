"""``FOR SYSTEM_TIME AS OF`` a versioned stream: as a step that waits for the watermarks of both sides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NoReturn

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.changes import rank_limit, ranked
from pyspark_rocketmq.sql.flinksql.grammar import position_of
from pyspark_rocketmq.sql.flinksql.relations import CHANGE, Relation, Versions
from pyspark_rocketmq.sql.flinksql.row_changes import refuse_changelog
from pyspark_rocketmq.sql.flinksql.state.pairs import equal_values, read_structs, struct_of
from pyspark_rocketmq.sql.flinksql.state.parts import hidden_alias
from pyspark_rocketmq.sql.state.steps import KEPT, KEY, OP, ORDER, POSITION, VERSION, Step, Versioned
from pyspark_rocketmq.sql.statements import Query

__all__ = ["version_step", "versioned_joins", "versions_of_view"]

_WHAT: Final = "FOR SYSTEM_TIME AS OF a stream"


def versioned_joins(select: exp.Select, sources: Mapping[str, Relation]) -> list[exp.Join]:
    """Return the joins with the versions of streams; a table of Spark's may be joined as it was once."""
    return [
        join
        for join in select.args.get("joins") or []
        if isinstance(join.this, exp.Table)
        and join.this.args.get("version")
        and sources[join.this.alias_or_name.lower()].stream
    ]


def version_step(
    select: exp.Select,
    join: exp.Join,
    sources: Mapping[str, Relation],
    name: str,
    query: Query,
) -> tuple[Step, dict[str, Relation]]:
    """Make a query with such a join read its result from a step, in place.

    Returns
    -------
    Step
    dict of str to Relation
        What the query reads then.

    Raises
    ------
    SqlError
        It is no join of a stream with the versions of a key.
    """
    joins = select.args["joins"]
    if joins[-1] is not join:
        _fail(joins[-1], "is the last join of its query: write other joins in a query around it", query)
    alias = join.this.alias_or_name
    versions = sources[alias.lower()].versions
    assert versions is not None
    left = {each: rows for each, rows in sources.items() if each != alias.lower()}
    for each, rows in left.items():
        if rows.changelog:
            refuse_changelog(select, "a join FOR SYSTEM_TIME AS OF", query)
        if each.startswith("#") or not rows.stream or rows.changes:
            _fail(join.this, "joins streams that have a name, and whose rows do not change", query)
    outer = join.side == "LEFT"
    equal, others = equal_values(join.args["on"], alias)
    missing = [key for key in versions.keys if key.lower() not in equal]
    if missing:
        _fail(join.this, f"joins by its whole primary key: add {alias}.{missing[0]} = … to ON", query)
    wanted = {key.lower() for key in versions.keys}
    keys = [equal[key.lower()][0] for key in versions.keys]
    others += [condition for key, (_, condition) in equal.items() if key not in wanted]
    if others and outer:
        _fail(join.this, "has no other conditions in LEFT JOIN than those of the key: use WHERE", query)
    time = join.this.args["version"].expression
    kept = {each: f"{KEPT}{at}" for at, each in enumerate(left)}
    source = exp.Select(from_=select.args["from_"].copy(), joins=[each.copy() for each in joins[:-1]] or None)
    source.set(
        "expressions",
        [
            *(hidden_alias(key.copy(), f"{KEY}{at}") for at, key in enumerate(keys)),
            hidden_alias(time.copy(), f"{ORDER}0"),
            *(hidden_alias(struct_of(each, left[each]), place) for each, place in kept.items()),
        ],
    )
    is_log = sources[alias.lower()].changelog
    star = exp.Star(except_=[exp.to_identifier(CHANGE)]) if is_log else exp.Star()
    op = exp.column("op", table=CHANGE) if is_log else exp.Literal.string("+I")
    place = [exp.column(part, table="position", db=CHANGE) for part in ("queueOffset", "index")]
    position = exp.Anonymous(this="array", expressions=place) if is_log else exp.null()
    of_versions = exp.select(
        *(hidden_alias(exp.column(key, quoted=True), f"{KEY}{at}") for at, key in enumerate(versions.keys)),
        hidden_alias(exp.column(versions.time, quoted=True), f"{ORDER}0"),
        hidden_alias(op, OP),
        hidden_alias(position, POSITION),
        hidden_alias(exp.Anonymous(this="struct", expressions=[star]), VERSION),
    ).from_(
        exp.Table(this=exp.to_identifier(join.this.name, quoted=True))
        if versions.query is None
        else versions.query.copy().subquery("__versions")
    )
    texts = [each.sql(dialect="spark", comments=False) for each in (source, of_versions)]
    read_structs(select, {**kept, alias: VERSION}, name)
    if others:
        select.where(*others, copy=False)
    read = {
        each: replace(rows, window={}, versions=None, changes=False, changelog=False, keeps_state=True)
        for each, rows in sources.items()
    }
    return Step(name, texts[0], Versioned(len(keys), texts[1], tuple(kept.values()), outer)), read


def versions_of_view(view: exp.Expression) -> Versions | None:
    """Return the versions that a view has: of each key the row with the latest time; None for other views."""
    from_ = view.args.get("from_") if isinstance(view, exp.Select) else None
    source: exp.Expression | None = from_ and from_.this
    inner = source.this if isinstance(source, exp.Subquery) else None
    rank = ranked(inner) if isinstance(inner, exp.Select) else None
    if not isinstance(view, exp.Select) or not isinstance(inner, exp.Select) or rank is None:
        return None
    assert source is not None
    where = view.args.get("where")
    is_first = (
        where is not None and isinstance(where.this, exp.EQ | exp.LTE) and rank_limit(view, rank.alias) == 1
    )
    window = rank.this
    keys = window.args.get("partition_by") or []
    ordered = window.args["order"].expressions if window.args.get("order") else []
    is_latest = len(ordered) == 1 and bool(ordered[0].args.get("desc"))
    others = any(
        view.args.get(part) for part in ("joins", "group", "having", "distinct", "limit", "laterals")
    )
    if not (is_first and is_latest and keys) or others:
        return None
    columns = [*keys, ordered[0].this]
    names = {item.alias_or_name.lower() for item in view.expressions if isinstance(item, exp.Column)}
    is_all = any(item.is_star for item in view.expressions)
    if not all(isinstance(each, exp.Column) and (is_all or each.name.lower() in names) for each in columns):
        return None
    rows = inner.copy()
    rows.set("expressions", [item.copy() for item in inner.expressions if item is not rank])
    query = exp.Select(
        expressions=[item.copy() for item in view.expressions],
        from_=exp.From(this=rows.subquery(source.alias_or_name or "__rows")),
    )
    return Versions(tuple(key.name for key in keys), ordered[0].this.name, query)


def _fail(node: exp.Expression, message: str, query: Query) -> NoReturn:
    position_of(query, node).fail(f"{_WHAT} {message}")
