"""Queries that take back rows: which need steps with state, and what each step reads and computes."""

from __future__ import annotations

import re

import pytest

from pyspark_rocketmq.errors import OptionError, SqlError
from pyspark_rocketmq.options import JobOptions, parse_options
from pyspark_rocketmq.sql.flinksql import JobQueries, Relation, Translated, translate
from pyspark_rocketmq.sql.flinksql.state.needs import StateRules
from pyspark_rocketmq.sql.parse import parse_statements
from pyspark_rocketmq.sql.settings import trigger_of_ttl
from pyspark_rocketmq.sql.state.steps import Aggregate, Distinct, Fold, Grouping, Joining, Ranking
from pyspark_rocketmq.sql.statements import CreateTable, CreateView, Insert, Position, Query

STREAM = Relation(stream=True)
KNOWN = {"bid": STREAM, "auction": STREAM, "names": Relation()}
PER_ID = "SELECT id, COUNT(*) AS n FROM bid GROUP BY id"
RANKED = "SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY p DESC, ts) AS rn FROM bid"
WINDOWS = (
    "SELECT window_start, window_end, id, COUNT(*) AS n FROM "
    "TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, id"
)
COUNT = Aggregate(Fold.COUNT, argument=False)


def made(text: str, *, allowed: bool = True, always: bool = False) -> Translated:
    query = Query(text, frozenset(re.findall(r"\w+", text.lower())), Position(1, 1))
    return translate(query, KNOWN, state=StateRules(allowed=allowed, always=always))


def test_an_aggregation_over_an_aggregation_has_a_step_for_each():
    found = made(f"SELECT n, MAX(id) AS most FROM ({PER_ID}) AS c WHERE n > 1 GROUP BY n HAVING MAX(id) > 3")
    inner, outer = found.steps
    assert inner.text == "SELECT id AS __k0 FROM bid"
    assert (inner.operation, inner.changes) == (Grouping(1, (COUNT,)), False)
    assert outer.text == (
        "SELECT n AS __k0, id AS __a0, c.__change AS `__change` FROM "
        f"(SELECT __k0 AS `id`, __r0 AS n, __change FROM {inner.name}) AS c WHERE n > 1"
    )
    assert (outer.operation, outer.changes) == (Grouping(1, (Aggregate(Fold.MAX),)), True)
    assert found.text == f"SELECT __k0 AS `n`, __r0 AS most, __change FROM {outer.name} WHERE (__r0 > 3)"
    assert (found.rows.changelog, found.rows.changes, found.rows.stream) == (True, False, True)


def test_an_aggregate_is_computed_once_with_its_filter_and_distinct():
    found = made(
        "SELECT SUM(n) / COUNT(n), SUM(n), COUNT(DISTINCT n), COUNT(*) FILTER (WHERE n > 1) "
        f"FROM ({PER_ID}) AS c"
    )
    *_, step = found.steps
    assert step.operation == Grouping(
        0,
        (
            Aggregate(Fold.COUNT),
            Aggregate(Fold.SUM),
            Aggregate(Fold.COUNT, distinct=True),
            Aggregate(Fold.COUNT),
        ),
    )
    assert "CASE WHEN n > 1 THEN 1 END AS __a3" in step.text


@pytest.mark.parametrize("first", ["CONCAT(K, 'a')", "concat(`k`, 'a')"])
def test_groups_that_differ_in_the_case_of_a_text_are_two(first):
    found = made(
        f"SELECT {first}, CONCAT(k, 'A'), COUNT(*) AS n FROM bid "
        "GROUP BY concat(k, 'a'), CONCAT(k, 'A') HAVING COUNT(*) < 9"
    )
    assert found.text == (
        f"SELECT __k0 AS `EXPR$0`, __k1 AS `EXPR$1`, __r0 AS n, __change FROM {found.steps[0].name} "
        "WHERE (__r0 < 9)"
    )


@pytest.mark.parametrize(
    ("query", "operations"),
    [
        ("SELECT DISTINCT id, p FROM bid", [Distinct()]),
        ("SELECT id FROM bid UNION SELECT id FROM auction", [Distinct()]),
        ("SELECT id, COUNT(*) FROM (SELECT DISTINCT id, p FROM bid) GROUP BY id", [Distinct(), Grouping]),
        (f"SELECT DISTINCT n FROM ({PER_ID})", [Grouping, Grouping(1, ())]),
        (f"SELECT MAX(n) FROM ({WINDOWS})", [Grouping(0, (Aggregate(Fold.MAX),))]),
        (f"SELECT id, n FROM ({PER_ID}) AS c WHERE n < 3", [Grouping]),
        (f"{PER_ID} HAVING COUNT(*) < 3", [Grouping]),
        (f"{PER_ID} HAVING MAX(p) > 2 AND COUNT(*) BETWEEN 1 AND 2", [Grouping]),
        (f"WITH c AS ({PER_ID}) SELECT n, COUNT(*) FROM c GROUP BY n", [Grouping, Grouping]),
        (f"SELECT id, name FROM ({PER_ID}) AS c JOIN names ON names.number = c.n", [Grouping]),
        (f"SELECT id, name FROM ({PER_ID}) AS c JOIN names ON number = n", [Grouping]),
        (f"SELECT id, name FROM ({PER_ID}) AS c JOIN names AS m ON m.id = c.id AND n > m.least", [Grouping]),
        (f"SELECT n, name FROM ({PER_ID}) AS c JOIN names USING (n)", [Grouping]),
        (f"SELECT id, n FROM ({PER_ID}) AS c LEFT SEMI JOIN names ON names.number = c.n", [Grouping]),
        (f"SELECT k, rn, name FROM ({RANKED}) AS r JOIN names AS m ON m.id = r.p WHERE rn <= 3", [Ranking]),
        (f"SELECT id, p FROM ({RANKED}) WHERE rn <= 3", [Ranking]),
        (f"SELECT id, p FROM (SELECT * FROM ({RANKED}) WHERE rn <= 3) AS t", [Ranking]),
        (f"SELECT id, p FROM ({RANKED}) WHERE rn = 1", [Ranking]),
        (f"SELECT k, rn FROM ({RANKED}) WHERE rn <= 3 AND p > 0", [Ranking]),
        (f"SELECT a.p, c.n FROM bid AS a JOIN ({PER_ID}) AS c ON a.id = c.id", [Grouping, Joining]),
        (f"SELECT a.p, c.n FROM bid AS a, ({PER_ID}) AS c WHERE a.id = c.id", [Grouping, Joining]),
        (
            f"SELECT c.n, COUNT(*) FROM bid AS a JOIN ({PER_ID}) AS c ON a.id = c.id GROUP BY c.n",
            [Grouping, Joining, Grouping],
        ),
    ],
)
def test_queries_that_need_state(query, operations):
    found = made(query)
    kinds = [step.operation for step in found.steps]
    assert len(kinds) == len(operations)
    for kind, wanted in zip(kinds, operations, strict=True):
        assert isinstance(kind, wanted) if isinstance(wanted, type) else kind == wanted


@pytest.mark.parametrize(
    "query",
    [
        PER_ID,
        f"{PER_ID} HAVING COUNT(*) > 3",
        f"{PER_ID} HAVING 3 <= MAX(p) AND (COUNT(*) >= 2)",
        WINDOWS,
        f"{WINDOWS} HAVING COUNT(*) < 3",
        f"SELECT * FROM ({RANKED}) WHERE rn <= 3",
        f"SELECT id, rn AS place FROM ({RANKED}) WHERE rn <= 3",
        f"SELECT k, p FROM ({RANKED}) WHERE rn = 1",
        f"SELECT c.id, name FROM ({PER_ID}) AS c JOIN names AS m ON m.id = c.id AND m.name > 'a'",
        f"SELECT c.id, name FROM ({PER_ID}) AS c JOIN names ON id = number",
        f"SELECT id, name FROM ({PER_ID}) AS c JOIN names USING (id)",
        f"SELECT id, name FROM ({PER_ID}) AS c LEFT JOIN names ON number = c.n",
        f"SELECT id, name FROM ({PER_ID}) AS c CROSS JOIN names",
        f"SELECT k, rn, name FROM ({RANKED}) AS r JOIN names AS m ON m.id = r.k WHERE rn <= 3",
        "SELECT a.id, COUNT(*) FROM bid AS b JOIN auction AS a ON a.id = b.id GROUP BY a.id",
    ],
)
def test_what_sparks_own_operators_do_has_no_steps(query):
    assert made(query).steps == ()


def test_a_join_keeps_the_rows_of_both_sides():
    found = made(
        f"SELECT a.*, c.n FROM bid AS b JOIN auction AS a ON a.id = b.id JOIN ({PER_ID}) AS c "
        "ON c.id = b.id AND a.p = c.n AND c.n > b.p WHERE b.p > 0"
    )
    grouping, join = found.steps
    assert join.text == (
        "SELECT b.id AS `__k0`, a.p AS `__k1`, STRUCT(b.*) AS `__c0`, STRUCT(a.*) AS `__c1` "
        "FROM bid AS b JOIN auction AS a ON a.id = b.id"
    )
    right = (
        "SELECT c.id AS `__k0`, c.n AS `__k1`, STRUCT(c.* EXCEPT (__change)) AS `__c2`, c.__change AS "
        f"`__change` FROM (SELECT __k0 AS `id`, __r0 AS n, __change FROM {grouping.name}) AS c"
    )
    assert join.operation == Joining(2, right, (("__c0", "__c1"), ("__c2",)), (False, False))
    views = " ".join(f"LATERAL VIEW INLINE(ARRAY(__c{at})) {name}" for at, name in enumerate("bac"))
    assert found.text == (
        f"SELECT a.*, c.n, __change AS __change FROM {join.name} {views} WHERE b.p > 0 AND c.n > b.p"
    )
    for kind, outer in (("LEFT", (True, False)), ("RIGHT", (False, True)), ("FULL", (True, True))):
        *_, join = made(f"SELECT a.p FROM bid AS a {kind} JOIN ({PER_ID}) AS c ON a.id = c.id").steps
        assert isinstance(join.operation, Joining)
        assert join.operation.outer == outer


@pytest.mark.parametrize(
    ("query", "reads"),
    [
        ("SELECT id FROM ({}) WHERE rn <= 3", False),
        ("SELECT id FROM ({}) AS t WHERE t.rn < 4 AND p > 0", False),
        ("SELECT id FROM ({}) WHERE 3 >= rn", False),
        ("SELECT id FROM ({}) WHERE rn = 1", False),
        ("SELECT id FROM ({}) WHERE rn = 3", True),
        ("SELECT id FROM ({}) AS t WHERE t.rn <= 3 AND 2 <= rn", True),
        ("SELECT id FROM ({}) WHERE rn <= 3 AND rn <= 2", True),
        ("SELECT id FROM ({}) WHERE rn <= 3 AND MOD(rn, 2) = 0", True),
        ("SELECT id FROM ({}) WHERE rn BETWEEN 2 AND 3", True),
        ("SELECT COUNT(*) FROM ({}) WHERE rn <= 3 GROUP BY k, rn", True),
        ("SELECT COUNT(*) FROM ({}) WHERE rn <= 3 GROUP BY k HAVING MAX(rn) > 1", True),
        ("SELECT b.id FROM ({}) AS t JOIN bid AS b ON b.p = t.rn WHERE t.rn <= 3", True),
    ],
)
def test_a_row_whose_rank_alone_changes_is_replaced_where_the_query_reads_ranks(query, reads):
    steps = made(query.format(RANKED), always=True).steps
    (ranking,) = [step.operation for step in steps if isinstance(step.operation, Ranking)]
    assert ranking.shows_rank is reads


@pytest.mark.parametrize(
    ("items", "row", "read"),
    [
        ("id, {}", "STRUCT(id) AS __row", "*"),
        ("{}, id, p", "STRUCT(id, p) AS __row", "rn, * EXCEPT (rn)"),
        (
            "t.*, {}, p AS `a b`",
            "STRUCT(STRUCT(t.*) AS __before, STRUCT(p AS `a b`) AS __after) AS __row",
            "__before.*, rn, __after.*, __change",
        ),
    ],
)
def test_a_rank_stays_in_its_place(items, row, read):
    ranked = f"SELECT {items.format('ROW_NUMBER() OVER (PARTITION BY k ORDER BY p) AS rn')} FROM bid AS t"
    found = made(f"SELECT * FROM ({ranked}) WHERE rn <= 3", always=True)
    (step,) = found.steps
    assert row in step.text
    assert f"FROM (SELECT {read} FROM {step.name}) WHERE" in found.text


def test_joined_rankings_have_their_own_bounds():
    joined = f"({RANKED}) AS a JOIN ({RANKED}) AS b ON a.k = b.k"
    first, second, _ = made(f"SELECT a.id, b.rn FROM {joined} WHERE a.rn <= 1 AND b.rn <= 2").steps
    assert isinstance(first.operation, Ranking)
    assert isinstance(second.operation, Ranking)
    assert (first.operation.limit, second.operation.limit) == (1, 2)


def test_a_ranking_says_its_order_and_whether_a_rank_is_shown():
    (step,) = made(f"SELECT id, p FROM ({RANKED}) WHERE rn <= 3").steps
    assert step.text == "SELECT k AS __k0, p AS __o0, ts AS __o1, STRUCT(*) AS __row FROM bid"
    assert step.operation == Ranking(1, ((True, False), (False, True)), 3, "rn", shows_rank=False)
    (step,) = made(f"SELECT *, rn AS place FROM ({RANKED}) WHERE rn <= 3 AND p > 0").steps
    assert step.operation == Ranking(1, ((True, False), (False, True)), 3, "rn", shows_rank=True)
    *_, outer = made(
        f"SELECT * FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY n) AS rn FROM ({PER_ID}) AS c) WHERE rn <= 2"
    ).steps
    assert "STRUCT(* EXCEPT (__change)) AS __row, c.__change AS `__change`" in outer.text
    assert outer.changes


@pytest.mark.parametrize(
    ("query", "grouped", "joined"),
    [
        (
            "SELECT bid.p FROM (WITH bid AS (SELECT * FROM auction) {}) AS c JOIN bid ON bid.id = c.id",
            "(SELECT * FROM auction) AS bid",
            "bid",
        ),
        (
            "WITH c AS ({}), bid AS (SELECT * FROM auction) SELECT bid.p FROM c JOIN bid ON bid.id = c.id",
            "bid",
            "(SELECT * FROM auction) AS bid",
        ),
        (
            "WITH bid AS (SELECT p FROM bid), c AS ({}) SELECT 1 FROM c JOIN auction ON auction.id = c.id",
            "(SELECT p FROM bid) AS bid",
            "auction",
        ),
    ],
)
def test_a_common_table_is_read_where_its_name_is_known(query, grouped, joined):
    first, join = made(query.format("SELECT id, COUNT(*) AS n FROM bid GROUP BY id")).steps
    assert first.text == f"SELECT id AS __k0 FROM {grouped}"
    assert isinstance(join.operation, Joining)
    assert join.other is not None
    assert join.other.endswith(f" FROM {joined}")


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT DISTINCT id FROM bid LIMIT 2", "SELECT id FROM bid"),
        (
            "SELECT id FROM bid UNION SELECT id FROM auction LIMIT 2",
            "SELECT id FROM bid UNION ALL SELECT id FROM auction",
        ),
    ],
)
def test_a_limit_is_one_of_the_rows_that_are_distinct(query, rows):
    found = made(query)
    (step,) = found.steps
    assert step.text == rows
    assert found.text == f"SELECT * FROM {step.name} LIMIT 2"


def test_the_window_of_distinct_rows_stays_until_it_ends():
    found = made(
        "SELECT DISTINCT window_start, id FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
    )
    (step,) = found.steps
    assert "__window AS __window FROM" in step.text
    assert found.text == f"SELECT * EXCEPT (__window) FROM {step.name}"


@pytest.mark.parametrize(
    ("query", "place", "error"),
    [
        (f"SELECT STDDEV(n) FROM ({PER_ID})", 8, "STDDEV of rows that change is not supported"),
        (f"SELECT LISTAGG(n) FROM ({PER_ID})", 16, "COLLECT_LIST of rows that change is not supported"),
        (f"SELECT COUNT(DISTINCT id, n) FROM ({PER_ID})", 8, "COUNT of rows that change takes one argument"),
        (f"SELECT id, MAX(n) FROM ({PER_ID}) AS c GROUP BY n", 8, "id is neither in GROUP BY nor in an aggr"),
        (f"SELECT n, COUNT(*) FROM ({PER_ID}) GROUP BY ROLLUP (n)", None, "ROLLUP and CUBE of rows that ch"),
        (f"SELECT MAX(n) FROM ({PER_ID}) LIMIT 3", 8, "LIMIT in an aggregation whose rows change"),
        (
            f"SELECT c.id FROM ({PER_ID}) AS c LEFT JOIN auction AS a ON a.id = c.id AND a.x > c.n",
            None,
            "has no other conditions in an outer join",
        ),
        (
            f"SELECT a.id FROM bid AS a JOIN ({PER_ID}) AS b ON a.id = b.id JOIN names AS c ON c.id = a.id",
            None,
            "has a stream on both sides: join other tables in a query around it",
        ),
        (
            f"SELECT a.id FROM ({PER_ID}) AS a JOIN bid AS b ON a.id = b.id JOIN auction AS c ON c.id = a.id",
            None,
            "joins two sides: write the first join in an inner query",
        ),
        (f"SELECT a.id FROM ({PER_ID}) AS a JOIN bid AS b USING (id) WHERE a.n = b.p", None, "is JOIN … ON"),
        (f"SELECT a.id FROM ({PER_ID}) AS a NATURAL JOIN bid AS b WHERE a.n = b.p", None, "is JOIN … ON"),
        (f"SELECT a.id FROM ({PER_ID}) AS a LEFT SEMI JOIN bid AS b ON a.n = b.p", None, "is JOIN … ON"),
        (f"SELECT a.id FROM ({PER_ID}) AS a LEFT ANTI JOIN bid AS b ON a.n = b.p", None, "is JOIN … ON"),
        (
            "WITH c (a) AS (SELECT * FROM bid) SELECT a, COUNT(*) FROM c GROUP BY a HAVING COUNT(*) < 3",
            9,
            "name the columns of a common table in its query, without *",
        ),
        (
            "WITH c (a, b) AS (SELECT id FROM bid) SELECT a FROM c",
            9,
            "2 columns are named, and the query has 1",
        ),
        (f"SELECT ANY_VALUE(n) FROM ({PER_ID})", 8, "ANY_VALUE of rows that change is not supported"),
        (
            "SELECT b.id FROM bid AS b JOIN auction AS a ON a.p = b.p GROUP BY a.id HAVING COUNT(*) < 3",
            8,
            "id is neither in GROUP BY nor in an aggregate",
        ),
        (f"SELECT n FROM ({PER_ID}) JOIN bid AS b ON n = b.p", 68, "needs a name for each side"),
        (f"SELECT n FROM bid AS b JOIN ({PER_ID}) ON n = b.p", 53, "needs a name for each side"),
        (f"SELECT a.id FROM bid AS b, ({PER_ID}) AS a", 52, "needs equal values in ON: … = a.…"),
        (
            f"SELECT n, MAX(id), (SELECT MAX(id) FROM names) FROM ({PER_ID}) AS c GROUP BY n",
            None,
            "a query inside an item or HAVING beside aggregates with separate state",
        ),
        (
            "SELECT id FROM bid GROUP BY id HAVING COUNT(*) > 2 AND id IN (SELECT p FROM names)",
            None,
            "write it in WHERE, if it is compared with keys, in the WHERE of a query around this one",
        ),
        (
            f"SELECT id FROM bid WHERE id IN (SELECT n FROM ({PER_ID}) WHERE n < 2)",
            None,
            "a condition",
        ),
    ],
)
def test_what_cannot_be_taken_back_is_refused_with_its_place(query, place, error):
    with pytest.raises(SqlError, match=re.escape(error)) as raised:
        made(query)
    assert place is None or raised.value.column == place


@pytest.mark.parametrize(
    ("query", "fixed"),
    [
        ("SELECT id, COUNT(*) AS n FROM bid GROUP BY id", {"id"}),
        ("SELECT b.id AS k, UPPER(c) || '!' AS u, 1 AS one, MAX(p) AS m FROM bid AS b GROUP BY id, UPPER(c)",
         {"k", "u", "one"}),
        ("SELECT COUNT(*), UPPER(c) FROM bid GROUP BY UPPER(c)", {"#1"}),
        ("SELECT NOW() AS t, COUNT(*) AS n FROM bid", set()),
        ("SELECT id, c, COUNT(*) AS n FROM bid GROUP BY ROLLUP (id, c)", {"id", "c"}),
        (f"SELECT n AS a, id AS b, n + id AS c FROM ({PER_ID})", {"b"}),
        (f"SELECT c.*, a.x FROM ({PER_ID}) AS c JOIN names AS a ON a.id = c.id", {"id"}),
        (f"{PER_ID} UNION ALL SELECT p, COUNT(*) AS m FROM auction GROUP BY p", {"id"}),
        (f"{PER_ID} UNION ALL SELECT MAX(p) AS x, p FROM auction GROUP BY p", set()),
        (f"SELECT * FROM ({RANKED}) WHERE rn <= 3", {"k", "rn"}),
        (f"SELECT id, rn AS place FROM ({RANKED}) WHERE rn <= 3", {"place"}),
        (f"SELECT k, p FROM ({RANKED}) WHERE rn = 1", {"k"}),
        ("SELECT id FROM bid", set()),
    ],
)  # fmt: skip
def test_what_a_row_has_in_common_with_its_replacement(query, fixed):
    assert made(query).rows.fixed == fixed


def test_a_job_that_sets_the_output_mode_has_no_steps():
    assert made(f"{PER_ID} HAVING COUNT(*) < 3", allowed=False).steps == ()
    assert made("SELECT DISTINCT id FROM bid", allowed=False).steps == ()
    with pytest.raises(SqlError, match="an aggregation of a stream cannot read an aggregation"):
        made(f"SELECT MAX(n) FROM ({PER_ID})", allowed=False)


def job(text: str, **settings: str) -> list[Translated]:
    queries, options = JobQueries(), parse_options(JobOptions, settings)
    tables = "CREATE TABLE bid (id INT, p INT) WITH ('connector' = 'rocketmq', 'topic' = 't');"
    found, names = [], set()
    for statement in parse_statements(tables + text):
        match statement:
            case CreateTable():
                queries.table(statement, options)
                names.add(statement.name.key)
            case CreateView():
                found.append(queries.view(statement, names, options))
            case Insert():
                found.append(queries.query(statement.query, names, options))
    return found


def test_a_view_whose_rows_change_is_translated_again_where_its_rows_are_taken_back():
    text = (
        f"CREATE VIEW c AS {PER_ID}; INSERT INTO t SELECT * FROM c; INSERT INTO t SELECT MAX(n) FROM c AS x"
    )
    view, plain, maximum = job(text)
    assert view.steps == plain.steps == ()
    assert plain.rows.changes
    assert [step.operation for step in maximum.steps] == [
        Grouping(1, (COUNT,)),
        Grouping(0, (Aggregate(Fold.MAX),)),
    ]


def test_with_a_time_to_live_every_aggregation_without_a_window_keeps_its_state():
    text = f"INSERT INTO t {PER_ID}; INSERT INTO t SELECT id, p FROM bid"
    counted, plain = job(text, stateTtl="1 h")
    assert [step.operation for step in counted.steps] == [Grouping(1, (COUNT,))]
    assert plain.steps == ()
    assert [found.steps for found in job(text, stateTtl="0")] == [(), ()]
    assert [found.steps for found in job(text, stateTtl="1 h", runtimeMode="batch")] == [(), ()]
    assert made(f"SELECT * FROM ({RANKED}) WHERE rn <= 3", always=True).steps != ()
    assert made(WINDOWS, always=True).steps == ()


def test_a_query_with_a_time_to_live_has_a_trigger():
    assert trigger_of_ttl(parse_options(JobOptions, {"trigger": "5 s"})) == 5_000
    assert trigger_of_ttl(parse_options(JobOptions, {})) == 1_000
    with pytest.raises(OptionError, match="has no end: SET 'trigger' to an interval"):
        trigger_of_ttl(parse_options(JobOptions, {"trigger": "availableNow"}))


def test_a_top_n_reads_elements_of_arrays_and_versions_like_other_queries():
    ranked = (
        "SELECT id, tag FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY p, id) AS rn FROM bid CROSS JOIN "
        "UNNEST(tags) AS t (tag)) WHERE rn <= 3"
    )
    (step,) = made(ranked).steps
    assert step.text.endswith("FROM bid LATERAL VIEW EXPLODE(tags) t AS tag")


@pytest.mark.parametrize(
    "call", ["SUM(price / 2) / 2", "MAX(price / 2) FILTER (WHERE price > 1) / 2", "AVG(price) / 2"]
)
def test_the_type_of_a_quotient_is_asked_of_any_value_also_where_rows_are_taken_back(call):
    found = made(f"SELECT auction, {call} FROM bid GROUP BY auction", always=True)
    assert [type(step.operation).__name__ for step in found.steps] == ["Grouping"]
