"""``UNNEST`` in joins: which of Spark's generators it is, and joins that are not the same before it."""

from __future__ import annotations

import pytest
from sqlglot import exp

from pyspark_rocketmq.errors import SqlError
from pyspark_rocketmq.sql.flinksql.grammar import parse_query
from pyspark_rocketmq.sql.flinksql.relations import Relation
from pyspark_rocketmq.sql.flinksql.unnest import nested_columns, nested_outputs, unnest
from pyspark_rocketmq.sql.statements import ComputedColumn, Name, PhysicalColumn, Position, Query

SOURCES = {
    "a": Relation(nested={"m": "map", "both": "map"}),
    "b": Relation(nested={"items": "rows", "both": "rows"}),
}


def parsed(text):
    query = Query(text, frozenset(), Position(1, 1))
    tree = parse_query(query)
    assert isinstance(tree, exp.Select)
    return tree, query


def made(text):
    select, query = parsed(text)
    assert unnest(select, SOURCES, query)
    return select.sql(dialect="spark")


def test_columns_that_are_maps_or_arrays_of_rows():
    at = Position(1, 1)
    types = ("MAP<STRING, INT>", "array<struct<a: INT>>", "ARRAY<INT>", "INT")
    columns = [PhysicalColumn(Name(f"C{number}", at), type_) for number, type_ in enumerate(types)]
    computed = ComputedColumn(Name("c9", at), Query("m", frozenset(), at))
    assert nested_columns([computed, *columns]) == {"c0": "map", "c1": "rows"}


@pytest.mark.parametrize(
    ("items", "nested"),
    [
        ("*", {"m": "map", "items": "rows", "both": "rows"}),
        ("A.*", {"m": "map", "both": "map"}),
        ("c.*", {}),
        ("m, a.BOTH AS X, b.both AS y", {"m": "map", "x": "map", "y": "rows"}),
        ("both, b.m, c.m, ABS(m) AS n, 1 AS o", {"both": "map"}),
    ],
)
def test_what_a_query_returns_is_nested_as_in_the_table_that_it_names(items, nested):
    select, _ = parsed(f"SELECT {items} FROM a JOIN b")
    assert nested_outputs(select, SOURCES) == nested


@pytest.mark.parametrize(
    ("joined", "view"),
    [
        ("UNNEST(a.both) AS x (k, v)", "EXPLODE(a.both) x AS k, v"),
        ("UNNEST(b.both) AS x (k, v)", "INLINE(b.both) x AS k, v"),
        ("UNNEST(M) AS x (k, v)", "EXPLODE(M) x AS k, v"),
        ("UNNEST(ITEMS)", "INLINE(ITEMS) __unnested"),
        ("UNNEST(f(id)) AS x (a, b)", "EXPLODE(F(id)) x AS a, b"),
        ("UNNEST(f(id)) AS x (a, b, c)", "INLINE(F(id)) x AS a, b, c"),
        (
            "UNNEST(tags) WITH ORDINALITY AS x (t, n)",
            "INLINE(TRANSFORM(tags, (e, i) -> STRUCT(e, i + 1))) x AS t, n",
        ),
    ],
)
def test_a_generator_has_the_rows_of_its_array_or_map(joined, view):
    assert made(f"SELECT 1 FROM a CROSS JOIN {joined}") == f"SELECT 1 FROM a LATERAL VIEW {view}"


def test_other_joins_stay_before_the_views():
    views = "LATERAL VIEW EXPLODE(tags) x AS t LATERAL VIEW OUTER EXPLODE(more) y AS u"
    unnested = "CROSS JOIN UNNEST(tags) AS x (t) LEFT JOIN UNNEST(more) AS y (u) ON TRUE"
    for others in ("JOIN b ON b.t = a.id AND id > 1", "LEFT JOIN b ON b.x = a.id", "JOIN b USING (id)"):
        written = f"SELECT 1 FROM a {others} {views}"
        assert made(f"SELECT 1 FROM a {unnested} {others}") == written
        assert made(f"SELECT 1 FROM a {others} {unnested}") == written
    select, query = parsed("SELECT 1 FROM a NATURAL JOIN b FULL JOIN c ON a.t = c.t")
    assert not unnest(select, SOURCES, query)
    assert len(select.args["joins"]) == 2


@pytest.mark.parametrize("kind", ["RIGHT", "FULL"])
def test_an_outer_join_after_unnest_is_refused(kind):
    """Spark joins first: a row without a match has no array, and would be dropped."""
    text = f"SELECT 1 FROM a CROSS JOIN UNNEST(tags) AS x {kind} JOIN b ON a.id = b.id"
    with pytest.raises(SqlError, match="Spark joins before UNNEST") as failure:
        made(text)
    assert failure.value.column == text.index("b ON") + 1
    assert made(f"SELECT 1 FROM a {kind} JOIN b ON a.id = b.id CROSS JOIN UNNEST(tags) AS x")


@pytest.mark.parametrize(
    "joined",
    [
        "JOIN b ON b.tag = X.t",
        "LEFT JOIN b ON b.tag = T",
        "JOIN b ON b.tag = y.z AND b.id = a.id",
        "JOIN b USING (id, t)",
        "NATURAL JOIN b",
        "CROSS JOIN LATERAL TABLE(f(t)) AS l",
    ],
)
def test_a_join_by_columns_of_an_unnest_before_it_is_refused(joined):
    unnested = "CROSS JOIN UNNEST(tags) AS x (t) LEFT JOIN UNNEST(more) AS y (u) ON TRUE"
    with pytest.raises(SqlError, match="write UNNEST in an inner query"):
        made(f"SELECT 1 FROM a {unnested} {joined}")


def test_a_star_has_the_columns_of_an_unnest_where_it_is_joined():
    unnested = "CROSS JOIN UNNEST(tags) AS x (t)"
    assert made(f"SELECT *, 1 FROM a {unnested} JOIN b ON b.id = a.id").startswith(
        "SELECT a.*, x.*, b.*, 1 FROM a JOIN b "
    )
    assert made(f"SELECT * FROM a JOIN b ON b.id = a.id {unnested}").startswith("SELECT * FROM")
    assert made(f"SELECT b.*, COUNT(*) FROM a {unnested} JOIN b").startswith("SELECT b.*, COUNT(*) FROM a")
    for joined in ("JOIN b USING (id)", "JOIN (SELECT 1) ON TRUE"):
        with pytest.raises(SqlError, match=r"name the columns instead of \*"):
            made(f"SELECT * FROM a {unnested} {joined}")


@pytest.mark.parametrize(
    ("joined", "reason"),
    [
        ("JOIN UNNEST(tags) AS x (t) ON FALSE", "joined ON TRUE"),
        ("JOIN UNNEST(tags) AS x (t) ON 1", "joined ON TRUE"),
        ("JOIN UNNEST(tags) AS x (t) USING (t)", "joined ON TRUE"),
        ("NATURAL JOIN UNNEST(tags) AS x (t)", "joined ON TRUE"),
        ("LEFT SEMI JOIN UNNEST(tags) AS x (t) ON TRUE", "joined ON TRUE"),
        ("LEFT ANTI JOIN UNNEST(tags) AS x (t) ON TRUE", "joined ON TRUE"),
        ("RIGHT JOIN UNNEST(tags) AS x (t) ON TRUE", "JOIN or LEFT JOIN"),
        ("FULL JOIN UNNEST(tags) AS x (t) ON TRUE", "JOIN or LEFT JOIN"),
        ("CROSS JOIN UNNEST(tags, more) AS x (t)", "takes one array or map"),
        ("CROSS JOIN UNNEST(m) WITH ORDINALITY AS x (k, n)", "of rows or of a map"),
        ("CROSS JOIN UNNEST(tags) WITH ORDINALITY AS x (t, u, n)", "of rows or of a map"),
        ("CROSS JOIN UNNEST(tags) WITH ORDINALITY AS x (n)", "needs names"),
        ("CROSS JOIN UNNEST(tags) WITH ORDINALITY", "needs names"),
    ],
)
def test_what_unnest_cannot_be_is_told_at_its_argument(joined, reason):
    text = f"SELECT 1 FROM a {joined}"
    with pytest.raises(SqlError, match=reason) as failure:
        made(text)
    assert failure.value.column == text.index("(") + 2
