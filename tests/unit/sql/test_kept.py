"""What tells the state of one query from that of another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.sql.test_versions import made

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.sql.plan.state_record import keeping_state_record

SUM = "SELECT cur, SUM(id) AS s FROM orders WHERE id > 1 GROUP BY cur"
WINDOW = (
    "SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' HOUR)) "
    "GROUP BY window_start, window_end"
)
TOP = (
    "SELECT cur, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY cur ORDER BY id DESC) AS n FROM orders) "
    "WHERE n <= 2"
)
COLUMNS = (
    "SELECT a, b, n FROM (SELECT id AS a, ids AS b, ROW_NUMBER() OVER (PARTITION BY cur ORDER BY id) AS n "
    "FROM orders) WHERE n <= 2"
)
OVER = "SELECT id AS a, ids AS b, COUNT(x) OVER (PARTITION BY cur ORDER BY at) AS n FROM orders AS o"
LOOKED_UP = (
    "SELECT o.id FROM orders AS o JOIN log AS l ON o.cur = l.cur AND o.at BETWEEN l.since AND l.since "
    "JOIN files FOR SYSTEM_TIME AS OF o.now AS r ON o.cur = r.cur"
)
JOIN = "SELECT o.id FROM orders AS o JOIN log AS l ON o.cur = l.cur AND o.at BETWEEN l.since AND l.since"

COMMA_JOIN = "SELECT o.id FROM orders AS o, log AS l WHERE o.cur = l.cur AND o.at = l.since"


@pytest.mark.parametrize(
    ("query", "old", "new"),
    [
        (SUM, "SUM(id)", "COUNT(id)"),
        (SUM, "SUM(id)", "SUM(DISTINCT id)"),
        (SUM, "SUM(id)", "SUM(id) FILTER (WHERE id > 3)"),
        (SUM, "BY cur", "BY UPPER(cur)"),
        (SUM, "SUM(id) AS s", "MAX(id) AS s, SUM(id)"),
        (WINDOW, "'1' HOUR", "'2' HOUR"),
        (WINDOW, "COUNT(*)", "SUM(id)"),
        (TOP, "BY id DESC", "BY at DESC"),
        (TOP, "PARTITION BY cur", "PARTITION BY id"),
        (TOP, "n <= 2", "n <= 3"),
        (TOP, "SELECT *,", "SELECT id, cur,"),
        (COLUMNS, "id AS a, ids AS b", "ids AS a, id AS b"),
        (OVER, "id AS a, ids AS b", "ids AS a, id AS b"),
        (JOIN, "o.cur = l.cur", "o.cur = l.rate"),
        (JOIN, "SELECT o.id", "SELECT l.cur"),
        (JOIN, "JOIN", "LEFT JOIN"),
        (JOIN.replace("o.cur = l.cur", "o.id = l.rate"), "o.id = l.rate", "l.id = o.rate"),
        (JOIN.replace("SELECT o.id", "SELECT o.id, l.rate"), "o.id, l.rate", "l.id, o.rate"),
        (COMMA_JOIN.replace("o.cur = l.cur", "o.id = l.rate"), "o.id = l.rate", "l.id = o.rate"),
        ("SELECT DISTINCT cur FROM orders", "cur", "id"),
        ("SELECT id FROM orders UNION SELECT rate FROM log", "id", "id + 1"),
        ("SELECT id FROM orders UNION (SELECT id FROM log UNION ALL SELECT rate FROM log)", "rate", "id"),
        ("SELECT COUNT(*) FROM (SELECT id FROM orders UNION SELECT rate FROM log)", "id", "2 * id"),
        (COMMA_JOIN, "o.cur = l.cur", "l.cur = UPPER(o.cur)"),
        (COMMA_JOIN.replace("o.cur = l.cur", "(o.cur = l.cur AND o.id > 1)"), "l.cur", "UPPER(l.cur)"),
        (f"{JOIN} WHERE o.id > 1", "o.id > 1", "o.id > 1 AND o.id = l.rate"),
        ("SELECT window(at, '1 hour'), COUNT(*) FROM orders GROUP BY window(at, '1 hour')", "1 h", "2 h"),
    ],
)
def test_what_state_depends_on_is_in_its_description(query, old, new):
    assert made(query, "streaming").state != made(query.replace(old, new), "streaming").state


@pytest.mark.parametrize(
    ("query", "old", "new"),
    [
        (SUM, "WHERE id > 1 ", ""),
        (SUM, "cur, SUM(id) AS s", "UPPER(cur), sum( `id` ) + 1 AS total"),
        (SUM, "cur, SUM(id) AS s FROM orders", "x.cur, SUM(x.id) AS s FROM orders AS x"),
        (SUM, "BY cur", "BY 1"),
        (SUM, "BY cur", "BY cur HAVING SUM(id) > 3"),
        (TOP, "WHERE n <= 2", "WHERE n <= 2 AND id > 3"),
        (COLUMNS, "id AS a, ids AS b", "orders.id AS c, ids AS d"),
        (OVER, "id AS a, ids AS b", "o.id + 1 AS c, id AS d, o.ids"),
        (JOIN, "SELECT o.id", "SELECT o.id + 1 AS next, o.id AS this"),
        (JOIN.replace("o.id", "o.id, l.cur"), "o.id, l.cur", "l.cur, o.id"),
        (LOOKED_UP, "o.id", "o.id, r.rate"),
        (JOIN.replace("o.", "x.").replace(" o ", " x "), "x", "another"),
        ("SELECT id FROM orders UNION SELECT rate FROM log", "id FROM orders", "id FROM orders WHERE id > 1"),
        ("SELECT id FROM orders UNION ALL SELECT rate FROM log", "id", "id + 1"),
        (COMMA_JOIN, "l.since", "l.since AND o.id > 3 AND l.rate = 2"),
        (LOOKED_UP, "o.cur = r.cur", "o.cur = r.cur WHERE o.id = r.cur"),
        (SUM, "FROM orders", "FROM orders JOIN files FOR SYSTEM_TIME AS OF now AS f ON id = f.cur"),
    ],
)
def test_what_does_not_matter_for_state_may_change(query, old, new):
    assert made(query, "streaming").state == made(query.replace(old, new), "streaming").state


def test_a_query_has_the_state_of_its_views():
    view = "SELECT cur, MAX(rate) FROM latest GROUP BY cur"
    (own, limit, inner) = made(view, "streaming").state
    assert own == "GROUP BY CUR; MAX(RATE)"
    assert limit == "1 ROWS"
    assert inner == "ROW_NUMBER() OVER (PARTITION BY CUR ORDER BY SINCE DESC); KEEPS *"
    assert made("SELECT id FROM orders WHERE id > 1", "streaming").state == ()
    assert made(SUM, "batch").state == ()


def start(checkpoint: Path, *state: str) -> None:
    with keeping_state_record(f"file://{checkpoint}", "totals", state):
        (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)


def test_state_is_not_taken_for_that_of_something_else(tmp_path):
    """Spark compares types only: a count would continue from the sum."""
    checkpoint = tmp_path / "totals"
    start(checkpoint, "SUM(V)")
    start(checkpoint, "COUNT(V)")  # nothing has begun
    (checkpoint / "offsets" / "0").touch()
    start(checkpoint, "COUNT(V)")
    with pytest.raises(OptionError, match=r"totals has changed: .* of 'COUNT\(V\)', .* of 'SUM\(V\) \| MIN"):
        start(checkpoint, "SUM(V)", "MIN(V)")
    start(checkpoint)
    start(checkpoint, "COUNT(V)")
    (record,) = checkpoint.glob("*.json")
    texts = json.loads(record.read_text())
    record.write_text(json.dumps({**texts, "form": "another"}))  # of another version of the parser
    start(checkpoint, "SUM(V)")


def test_a_checkpoint_on_another_file_system_has_no_record(tmp_path):
    with keeping_state_record("hdfs://host/totals", "totals", ["SUM(V)"]):
        pass
    with keeping_state_record(str(tmp_path / "on the default file system"), "totals", ["SUM(V)"]):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "query",
    [
        "SELECT cur FROM orders PIVOT (SUM(id) FOR at IN (1))",
        f"SELECT {'(' * 9_000}1{')' * 9_000} FROM orders",
        "SELECT * FROM orders CROSS JOIN UNNEST(items) AS x(y)",
    ],
)
def test_what_is_not_understood_is_not_compared(query):
    assert made(query, "streaming", dialect="spark").state == ()
