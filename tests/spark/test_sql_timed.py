"""What waits for the watermark: CUMULATE, OVER and versioned joins of streams, compared with plain Python."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.support.topics import TopicFactory, fill

from pyspark_rocketmq.client import Client, OutgoingMessage
from pyspark_rocketmq.errors import SqlError
from pyspark_rocketmq.sql import execute

RUNS = ((0, 40), (36, 80), (76, 120))
"""The seconds of each run's rows. The watermark is 5 seconds behind the latest one."""
FLUSH = 3_000

Bid = tuple[int, str, int]
"""Its second, key and price."""


def stamp(second: int) -> str:
    return f"2026-01-31T08:{second // 60:02d}:{second % 60:02d}.000000Z"


def minute(second: int) -> str:
    return f"{second // 60:02d}:{second % 60:02d}"


def bids() -> list[list[Bid]]:
    """Return the rows of each run, out of order; a key has one row at most in a second."""
    chosen = random.Random(7)
    runs = []
    done: set[tuple[int, str]] = set()
    for start, end in RUNS:
        places = [(second, key) for second in range(start, end) for key in "ab" if (second, key) not in done]
        picked = chosen.sample(places, 25)
        done |= set(picked)
        runs.append([(second, key, chosen.randrange(100)) for second, key in picked])
    runs[-1].append((FLUSH, "end", 0))
    return runs


class Job:
    """A job over files, whose results are files."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.text = ""

    def table(self, name: str, columns: str, *, target: bool = False) -> None:
        path = self.folder / ("out" if target else "in") / name
        path.mkdir(parents=True)
        options = f"'connector' = 'filesystem', 'format' = 'json', 'path' = '{path}'"
        self.text += f"CREATE TABLE {name} ({columns}) WITH ({options});\n"

    def add(self, table: str, run: int, rows: Sequence[dict[str, Any]]) -> None:
        path = self.folder / "in" / table / f"{run}.json"
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")

    def run(self) -> None:
        settings = {"trigger": "availableNow"}
        checkpoint = str(self.folder / "checkpoints")
        with execute(self.spark, self.text, checkpoint_location=checkpoint, settings=settings) as running:
            assert running.await_termination(600)

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        files = (self.folder / "out" / table).glob("*.json")
        lines = [line for path in files for line in path.read_text(encoding="utf-8").splitlines()]
        return sorted((tuple(json.loads(line).values()) for line in lines), key=repr)


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Job:
    return Job(spark, tmp_path)


def run_bids(job: Job, queries: dict[str, tuple[str, str]]) -> list[Bid]:
    """Run queries over the bids; return those that are complete."""
    job.table("bids", "ts TIMESTAMP(3), k STRING, p BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND")
    for name, (columns, _) in queries.items():
        job.table(name, columns, target=True)
    job.text += "".join(f"INSERT INTO {name} {query};\n" for name, (_, query) in queries.items())
    runs = bids()
    for number, rows in enumerate(runs):
        job.add("bids", number, [{"ts": stamp(second), "k": key, "p": price} for second, key, price in rows])
        job.run()
    return sorted(row for rows in runs for row in rows if row[0] != FLUSH)


def windows_of(second: int, offset: int = 0) -> list[tuple[int, int]]:
    """Return the windows of a second that begin with a minute and grow by 20 seconds."""
    start = (second - offset) // 60 * 60 + offset
    return [(start, start + size) for size in (20, 40, 60) if second < start + size]


OFFSET = ", INTERVAL '70' SECOND"
WINDOW = "DATE_FORMAT(window_start, 'mm:ss') AS s, DATE_FORMAT(window_end, 'mm:ss') AS e"


def test_cumulative_windows_grow_until_their_size(job: Job) -> None:
    cumulate = "TABLE(CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '20' SECOND, INTERVAL '1' MINUTE{}))"
    by = "GROUP BY window_start, window_end"
    per_key = f"SELECT window_start, window_end, k, SUM(p) AS total FROM {cumulate.format('')} {by}, k"
    found = run_bids(
        job,
        {
            "totals": (
                "s STRING, e STRING, k STRING, total BIGINT",
                f"SELECT {WINDOW}, k, total FROM ({per_key})",
            ),
            "moved": (
                "s STRING, e STRING, n BIGINT",
                f"SELECT {WINDOW}, COUNT(*) FROM {cumulate.format(OFFSET)} {by}",
            ),
            "best": (
                "s STRING, e STRING, k STRING, total BIGINT",
                f"""SELECT {WINDOW}, k, total FROM (SELECT *, ROW_NUMBER() OVER (
                  PARTITION BY window_start, window_end ORDER BY total DESC, k) AS place FROM ({per_key}))
                WHERE place <= 1""",
            ),
        },
    )
    totals: dict[tuple[str, str, str], int] = {}
    moved: dict[tuple[str, str], int] = {}
    for second, key, price in found:
        for start, end in windows_of(second):
            place = (minute(start), minute(end), key)
            totals[place] = totals.get(place, 0) + price
        for start, end in windows_of(second, 10):
            moved_place = ("59:10" if start < 0 else minute(start), minute(end))
            moved[moved_place] = moved.get(moved_place, 0) + 1
    assert job.rows("totals") == sorted(((*place, total) for place, total in totals.items()), key=repr)
    assert job.rows("moved") == sorted(((*place, count) for place, count in moved.items()), key=repr)
    best: dict[tuple[str, str], tuple[str, int]] = {}
    for (begin, until, key), total in sorted(totals.items()):
        if (begin, until) not in best or total > best[begin, until][1]:
            best[begin, until] = (key, total)
    assert job.rows("best") == sorted(((*place, *row) for place, row in best.items()), key=repr)


def test_sessions_of_all_rows_of_a_stream_need_no_key(job: Job) -> None:
    """Without another key, Spark refused them when the first micro-batch began."""
    runs, gap = bids(), 2
    job.table("bid", "k STRING, p BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND")
    job.table("of_all", "s STRING, e STRING, n BIGINT, total BIGINT", target=True)
    job.text += (
        "INSERT INTO of_all SELECT DATE_FORMAT(window_start, 'mm:ss'), DATE_FORMAT(window_end, 'mm:ss'), "
        f"COUNT(*), SUM(p) FROM TABLE(SESSION(TABLE bid, DESCRIPTOR(ts), INTERVAL '{gap}' SECOND)) "
        "GROUP BY window_start, window_end"
    )
    for number, rows in enumerate(runs):
        job.add("bid", number, [{"k": key, "p": price, "ts": stamp(second)} for second, key, price in rows])
        job.run()
    sessions: list[list[Bid]] = []
    for bid in sorted(bid for rows in runs for bid in rows if bid[0] < FLUSH):
        if sessions and bid[0] <= sessions[-1][-1][0] + gap:
            sessions[-1].append(bid)
        else:
            sessions.append([bid])
    assert len(sessions) > 5
    assert job.rows("of_all") == sorted(
        (minute(rows[0][0]), minute(rows[-1][0] + gap), len(rows), sum(price for *_, price in rows))
        for rows in sessions
    )


@pytest.mark.since_spark("4.1")
def test_over_aggregates_of_a_stream_are_those_of_all_rows(job: Job) -> None:
    time = "DATE_FORMAT(ts, 'mm:ss') AS t"
    rows = "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW"
    hop = "TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '20' SECOND))"
    per_window = (
        f"SELECT window_start, window_end, window_time, COUNT(*) AS n FROM {hop} "
        "GROUP BY window_start, window_end, window_time"
    )
    found = run_bids(
        job,
        {
            "last_rows": (
                "t STRING, k STRING, p BIGINT, n BIGINT, total BIGINT, mean BIGINT",
                f"""SELECT {time}, k, p, COUNT(*) OVER w, SUM(p) OVER w, AVG(p) OVER w FROM bids
                WINDOW w AS (PARTITION BY k ORDER BY ts {rows})""",
            ),
            "last_seconds": (
                "t STRING, k STRING, more BIGINT",
                f"""SELECT {time}, k, MAX(p) OVER (ORDER BY ts RANGE BETWEEN INTERVAL '7' SECOND PRECEDING
                AND CURRENT ROW) - p FROM bids""",
            ),
            "running": (
                "ts TIMESTAMP(3), k STRING, p BIGINT, total BIGINT",
                "SELECT *, SUM(p) FILTER (WHERE p > 20) OVER (PARTITION BY k ORDER BY ts) AS total FROM bids",
            ),
            "of_windows": (
                "s STRING, n BIGINT, most BIGINT",
                f"""SELECT DATE_FORMAT(window_start, 'mm:ss'), n, MAX(n) OVER (ORDER BY window_time ROWS
                UNBOUNDED PRECEDING) FROM ({per_window}) AS w""",
            ),
        },
    )
    by_key = {key: [row for row in found if row[1] == key] for key in "ab"}
    last_rows, running = [], []
    for each in by_key.values():
        for at, (second, key, price) in enumerate(each):
            prices = [p for _, _, p in each[max(at - 2, 0) : at + 1]]
            last_rows.append(
                (minute(second), key, price, len(prices), sum(prices), sum(prices) // len(prices))
            )
            before = [p for _, _, p in each[: at + 1] if p > 20]
            running.append((stamp(second), key, price, *([sum(before)] if before else [])))
    assert job.rows("last_rows") == sorted(last_rows, key=repr)
    assert job.rows("running") == sorted(running, key=repr)
    last_seconds = [
        (minute(second), key, max(p for t, _, p in found if second - 7 <= t <= second) - price)
        for second, key, price in found
    ]
    assert job.rows("last_seconds") == sorted(last_seconds, key=repr)
    counts = [sum(start <= second < start + 20 for second, _, _ in found) for start in range(0, 120, 20)]
    of_windows = [(minute(at * 20), n, max(counts[: at + 1])) for at, n in enumerate(counts)]
    assert job.rows("of_windows") == of_windows


RATES = [
    [(2, "x", 10), (30, "x", 20), (1, "y", 5), (1, None, 1)],
    [(50, "x", 30), (77, "y", 6)],
    [(3, "w", 7), (FLUSH, "end", 0)],
]
"""The version of w comes after later ones of other keys, as in a table that is read in parts."""
ORDERS = [
    [(1, "x", 1), (2, "x", 2), (29, "x", 3), (30, "y", 4), (12, "z", 5), (15, None, 11)],
    [(60, "x", 6), (49, "x", 7), (70, "y", 8)],
    [(90, "y", 9), (95, "x", 10), (96, "w", 12), (FLUSH, "end", 0)],
]
"""Of each run: second, key and number. A key that is NULL has no version."""


@pytest.mark.since_spark("4.1")
def test_a_stream_is_joined_with_the_version_that_was_valid(job: Job) -> None:
    mark = "WATERMARK FOR {0} AS {0} - INTERVAL '5' SECOND"
    job.table("orders", f"id BIGINT, cur STRING, at TIMESTAMP(3), p AS PROCTIME(), {mark.format('at')}")
    rates_columns = f"cur STRING, rate BIGINT, since TIMESTAMP(3), {mark.format('since')}"
    job.table("rates", f"{rates_columns}, PRIMARY KEY (cur) NOT ENFORCED")
    job.table("history", rates_columns)
    job.table("names", "cur STRING, name STRING")
    job.add("names", 0, [{"cur": "x", "name": "ex"}, {"cur": "y", "name": "why"}])
    job.text += (
        "CREATE VIEW latest AS SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY cur ORDER BY since "
        "DESC) AS n FROM history) WHERE n = 1;\n"
    )
    of = "FROM orders AS o {0} JOIN {1} FOR SYSTEM_TIME AS OF o.at AS r ON o.cur = r.cur"
    queries = {
        "joined": ("id BIGINT, amount BIGINT", f"SELECT o.id, o.id * r.rate {of.format('', 'rates')}"),
        "kept": (
            "id BIGINT, rate BIGINT, since TIMESTAMP(3)",
            f"SELECT id, rate, r.since {of.format('LEFT', 'rates')} WHERE o.id > 0",
        ),
        "of_view": ("id BIGINT, rate BIGINT", f"SELECT o.id, r.rate {of.format('', 'latest')}"),
        "named": (
            "id BIGINT, name STRING",
            "SELECT o.id, n.name FROM orders AS o JOIN names FOR SYSTEM_TIME AS OF o.p AS n ON n.cur = o.cur",
        ),
    }
    for name, (columns, _) in queries.items():
        job.table(name, columns, target=True)
    job.text += "".join(f"INSERT INTO {name} {query};\n" for name, (_, query) in queries.items())
    for run in range(3):
        job.add("orders", run, [{"id": n, "cur": cur, "at": stamp(at)} for at, cur, n in ORDERS[run]])
        for table in ("rates", "history"):
            rates = [{"cur": cur, "rate": rate, "since": stamp(since)} for since, cur, rate in RATES[run]]
            job.add(table, run, rates)
        job.run()
    versions = [version for versions in RATES for version in versions]
    joined, kept = [], []
    for at, cur, number in (order for orders in ORDERS for order in orders if order[0] != FLUSH):
        valid = max((v for v in versions if v[1] == cur is not None and v[0] <= at), default=None)
        kept.append((number,) if valid is None else (number, valid[2], stamp(valid[0])))
        if valid is not None:
            joined.append((number, valid[2]))
    assert job.rows("joined") == sorted(((n, n * rate) for n, rate in joined), key=repr)
    assert job.rows("kept") == sorted(kept, key=repr)
    assert job.rows("of_view") == sorted(joined, key=repr)
    known = {"x": "ex", "y": "why"}
    named = [(n, known[cur]) for orders in ORDERS for _, cur, n in orders if cur in known]
    assert job.rows("named") == sorted(named, key=repr)


CHANGES = [
    ("INSERT", {"cur": "x", "rate": 1, "since": 1}, None),
    ("INSERT", {"cur": "y", "rate": 2, "since": 1}, None),
    ("UPDATE", {"cur": "x", "rate": 3, "since": 10}, {"rate": 1, "since": 1}),
    ("UPDATE", {"cur": "z", "rate": 3, "since": 20}, {"cur": "x", "since": 20}),
    ("DELETE", {"cur": "y", "rate": 2, "since": 30}, None),
    ("INSERT", {"cur": "y", "rate": 4, "since": 30}, None),
    ("UPDATE", {"cur": "x", "rate": 5, "since": 40}, {"cur": "z"}),
]
"""Of a changelog: a type, the new row, and the values that it replaces. Rows have the times of changes."""


@pytest.mark.since_spark("4.1")
def test_a_stream_is_joined_with_the_versions_of_a_changelog(
    job: Job, topic: TopicFactory, client: Client, name_server: str
) -> None:
    def texts(row: dict[str, Any]) -> dict[str, str]:
        return {name: stamp(each) if name == "since" else str(each) for name, each in row.items()}

    rates = topic(queues=1)
    mark = "WATERMARK FOR {0} AS {0} - INTERVAL '5' SECOND"
    job.table("orders", f"cur STRING, at TIMESTAMP(3), {mark.format('at')}")
    job.table("joined", "cur STRING, at TIMESTAMP(3), rate BIGINT", target=True)
    job.text += f"""CREATE TABLE rates (cur STRING, rate BIGINT, since TIMESTAMP(3), {mark.format("since")},
      PRIMARY KEY (cur) NOT ENFORCED) WITH ('connector' = 'rocketmq', 'nameServer' = '{name_server}',
      'topic' = '{rates}', 'format' = 'canal-json', 'startingOffsets' = 'earliest');
    INSERT INTO joined SELECT o.cur, o.at, r.rate FROM orders AS o
      LEFT JOIN rates FOR SYSTEM_TIME AS OF o.at AS r ON o.cur = r.cur;"""
    flush = ("INSERT", {"cur": "end", "rate": 0, "since": FLUSH}, None)
    for run, (some, seconds) in enumerate(((CHANGES[:4], range(0, 25, 5)), (CHANGES[4:], range(25, 50, 5)))):
        bodies = [
            json.dumps({"data": [texts(row)], "old": old and [texts(old)], "type": kind})
            for kind, row, old in (*some, *([flush] if run else []))
        ]
        fill(client, rates, [OutgoingMessage(rates, body.encode()) for body in bodies])
        orders = [{"cur": cur, "at": stamp(at)} for at in seconds for cur in "xyz"]
        job.add("orders", run, [*orders, *([{"cur": "end", "at": stamp(FLUSH)}] if run else [])])
        job.run()
    wanted = []
    for at in range(0, 50, 5):
        now: dict[str, int] = {}
        for kind, row, old in CHANGES:
            if row["since"] > at:
                break
            now.pop({**row, **(old or {})}["cur"], None)
            if kind != "DELETE":
                now[row["cur"]] = row["rate"]
        wanted += [(cur, stamp(at), *([now[cur]] if cur in now else [])) for cur in "xyz"]
    assert job.rows("joined") == sorted(wanted, key=repr)


def test_a_full_join_of_streams_has_no_pairs_of_nulls(job: Job) -> None:
    for table in ("orders", "payments"):
        job.table(table, "id INT, k STRING, at TIMESTAMP(3), WATERMARK FOR at AS at")
        rows = [(1, "a"), (2, None), (3, table)]
        flush = {"id": 9, "k": "end", "at": stamp(FLUSH)}
        job.add(table, 0, [*({"id": one, "k": key, "at": stamp(one)} for one, key in rows), flush])
    for name in ("by_time", "by_window"):
        job.table(name, "one INT, other INT", target=True)
    windows = "(SELECT * FROM TABLE(TUMBLE(TABLE {0}, DESCRIPTOR(at), INTERVAL '1' MINUTE))) AS {1}"
    job.text += f"""INSERT INTO by_time SELECT o.id, p.id FROM orders AS o FULL JOIN payments AS p
      ON o.k = p.k AND p.at BETWEEN o.at - INTERVAL '3' SECOND AND o.at + INTERVAL '3' SECOND;
    INSERT INTO by_window SELECT o.id, p.id FROM {windows.format("orders", "o")}
      FULL JOIN {windows.format("payments", "p")}
      ON o.window_start = p.window_start AND o.window_end = p.window_end AND o.k = p.k;"""
    job.run()
    wanted = [(1, 1), (2,), (2,), (3,), (3,)]
    for name in ("by_time", "by_window"):
        assert [row for row in job.rows(name) if row != (9, 9)] == wanted, name


@pytest.mark.since_spark("4.1")
def test_a_time_without_a_watermark_is_refused_before_the_query_starts(job: Job) -> None:
    job.table("plain", "ts TIMESTAMP(3), p BIGINT")
    job.table("out", "p BIGINT", target=True)
    job.add("plain", 0, [{"ts": stamp(1), "p": 1}])
    job.text += "INSERT INTO out SELECT SUM(p) OVER (ORDER BY ts) FROM plain"
    with pytest.raises(SqlError, match=r"line 3, column 1: ORDER BY of OVER of a stream needs a time"):
        job.run()


@pytest.mark.since_spark("4.1")
def test_versions_without_a_watermark_are_refused_before_the_query_starts(job: Job) -> None:
    job.table("orders", "cur STRING, at TIMESTAMP(3), WATERMARK FOR at AS at")
    job.table("history", "cur STRING, since TIMESTAMP(3)")
    job.table("out", "cur STRING", target=True)
    job.text += (
        "CREATE VIEW latest AS SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY cur ORDER BY since "
        "DESC) AS n FROM history) WHERE n = 1;\n"
        "INSERT INTO out SELECT o.cur FROM orders AS o JOIN latest FOR SYSTEM_TIME AS OF o.at AS r "
        "ON o.cur = r.cur"
    )
    with pytest.raises(SqlError, match=r"FOR SYSTEM_TIME AS OF a stream needs a time with a watermark"):
        job.run()


@pytest.mark.since_spark("4.1")
def test_over_passes_nested_columns_as_they_are(job: Job) -> None:
    nested = "name ROW<a STRING, t TIMESTAMP(3)>, times ARRAY<TIMESTAMP(3)>"
    job.table("rows", f"id BIGINT, ts TIMESTAMP(3), {nested}, WATERMARK FOR ts AS ts")
    job.table("named", f"id BIGINT, {nested}, absent BOOLEAN, n BIGINT", target=True)
    job.table("all_of", f"id BIGINT, {nested}, n BIGINT", target=True)
    over = "COUNT(*) OVER (ORDER BY ts) AS n FROM rows"
    job.text += f"INSERT INTO named SELECT id, name, times, name IS NULL, {over};\n"
    job.text += f"INSERT INTO all_of SELECT id, name, times, n FROM (SELECT *, {over});\n"
    name, times = {"a": "x", "t": stamp(1)}, [stamp(2)]
    rows = [{"id": 1, "ts": stamp(1)}, {"id": 2, "ts": stamp(2), "name": name, "times": times}]
    job.add("rows", 0, rows)
    job.run()
    assert job.rows("named") == [(1, True, 1), (2, name, times, False, 2)]
    assert job.rows("all_of") == [(1, 1), (2, name, times, 2)]
