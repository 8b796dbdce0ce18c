"""``OVER`` aggregates of streams: what their step reads and computes."""

from __future__ import annotations

import re

import pytest

from pyspark_rocketmq.errors import SqlError
from pyspark_rocketmq.sql.flinksql import Relation, Translated, translate
from pyspark_rocketmq.sql.flinksql.state.needs import StateRules
from pyspark_rocketmq.sql.state.steps import Aggregate, Fold, Over
from pyspark_rocketmq.sql.statements import Position, Query

KNOWN = {"bid": Relation(stream=True, processing_time=frozenset({"now"})), "names": Relation()}
SUM = "SELECT id, SUM(p) OVER (PARTITION BY id ORDER BY ts {}) AS s FROM bid"
WINDOWS = (
    "SELECT window_start, window_end, window_time, COUNT(*) AS n FROM "
    "TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) "
    "GROUP BY window_start, window_end, window_time"
)


def made(text: str, *, allowed: bool = True) -> Translated:
    query = Query(text, frozenset(re.findall(r"\w+", text.lower())), Position(1, 1))
    return translate(query, KNOWN, state=StateRules(allowed=allowed))


def test_a_step_passes_the_columns_and_adds_the_aggregates():
    found = made(
        "SELECT b.*, p, SUM(p) OVER w - p AS more, COUNT(*) FILTER (WHERE p > 1) OVER w FROM bid AS b "
        "WHERE p > 0 WINDOW w AS (PARTITION BY id, c ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)"
    )
    (step,) = found.steps
    assert step.text == (
        "SELECT id AS `__k0`, c AS `__k1`, ts AS `__o0`, p AS `__a0`, CASE WHEN p > 1 THEN 1 END AS `__a1`, "
        "STRUCT(b.*) AS `__row0`, p AS `__c1` FROM bid AS b WHERE p > 0"
    )
    assert step.operation == Over(2, (Aggregate(Fold.SUM), Aggregate(Fold.COUNT)), rows=True, preceding=2)
    assert found.text == (
        f"SELECT __row0.*, __c1 AS `p`, __r0 - __c1 AS more, __r1 AS `EXPR$3` FROM {step.name}"
    )
    assert (found.rows.stream, found.rows.changes, found.rows.changelog) == (True, False, False)


@pytest.mark.parametrize(
    ("frame", "rows", "preceding"),
    [
        ("", False, None),
        ("ROWS UNBOUNDED PRECEDING", True, None),
        ("ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", True, None),
        ("ROWS BETWEEN 10 PRECEDING AND CURRENT ROW", True, 10),
        ("ROWS CURRENT ROW", True, 0),
        ("RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", False, None),
        ("RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW", False, 3_600_000_000),
        ("RANGE INTERVAL '2' SECOND PRECEDING", False, 2_000_000),
        ("RANGE CURRENT ROW", False, 0),
    ],
)
def test_frames(frame, rows, preceding):
    (step,) = made(SUM.format(frame)).steps
    assert step.operation == Over(1, (Aggregate(Fold.SUM),), rows, preceding)


def test_the_result_of_a_window_is_ordered_by_its_time():
    (step,) = made(f"SELECT *, MAX(n) OVER (ORDER BY window_time) AS most FROM ({WINDOWS}) AS w").steps
    assert "WINDOW_TIME(w.__window) AS `__o0`" in step.text
    assert "STRUCT(* EXCEPT (__window)) AS `__row0`" in step.text


@pytest.mark.parametrize(
    ("query", "error"),
    [
        (SUM.format("DESC"), "ordered by the time of the rows, ascending"),
        (SUM.replace("ts {}", "ts, id"), "ordered by the time of the rows, ascending"),
        (SUM.replace("ts {}", "now"), "by PROCTIME() is not supported"),
        (SUM.format("ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"), "a frame that ends with the row"),
        (SUM.format("ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING"), "a frame that ends with the row"),
        (SUM.format("RANGE BETWEEN 3 PRECEDING AND CURRENT ROW"), "is a number and a unit"),
        (SUM.replace("SUM(p)", "LAG(p)").format(""), "LAG OVER of a stream is not supported: COUNT, SUM"),
        (SUM.replace("SUM(p)", "STDDEV(p)").format(""), "STDDEV OVER of a stream is not supported"),
        (
            SUM.format("").replace("FROM", ", MAX(p) OVER (ORDER BY ts) FROM"),
            "the windows of one query are the same, as in Flink",
        ),
        ("SELECT SUM(p) OVER w FROM bid", "no WINDOW is named w"),
        (
            SUM.replace("id,", "(SELECT id FROM names),").format(""),
            "a query inside an item or HAVING beside aggregates",
        ),
        (SUM.format("") + " GROUP BY id", "OVER of a stream and GROUP BY in one query"),
        (SUM.format("") + " LIMIT 3", "OVER of a stream and LIMIT in one query"),
        (
            "SELECT SUM(n) OVER (ORDER BY n) FROM (SELECT id, COUNT(*) AS n FROM bid GROUP BY id) AS c",
            "OVER cannot read a changelog",
        ),
    ],
)
def test_what_a_stream_cannot_have_is_refused(query, error):
    with pytest.raises(SqlError, match=re.escape(error)):
        made(query)


def test_with_an_output_mode_it_is_refused_and_in_batches_it_is_sparks():
    with pytest.raises(SqlError, match="OVER of a stream needs separate state"):
        made(SUM.format(""), allowed=False)
    query = SUM.format("").replace("bid", "names")
    assert not made(query).steps


def test_what_is_translated_is_shown_with_its_steps():
    found = made(SUM.format(""))
    (step,) = found.steps
    assert found.spark_sql == (
        f"{step.name} is Over of: {step.text}\nSELECT __c0 AS `id`, __r0 AS s FROM {step.name}"
    )
    assert not made("SELECT id FROM bid").spark_sql
