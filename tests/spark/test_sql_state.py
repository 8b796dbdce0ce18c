"""Rows that are taken back: after each run of a job, its results are those of a batch over all rows."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession
from tests.support.patient import PATIENCE_MS
from tests.support.topics import TopicFactory
from tests.support.wait import eventually

from pyspark_rocketmq.errors import SqlError
from pyspark_rocketmq.sql import execute

pytestmark = pytest.mark.since_spark("4.1")

BIDS = [
    [(1, "a", 5, "1.50"), (2, "a", 3, "2.25"), (3, "b", 9, "0.10"), (1, "a", 7, "1.00")],
    [(4, "b", 9, "3.00"), (2, "a", 8, "0.75"), (5, "c", 1, None), (1, "a", 2, "9.99")],
    [(3, "b", 11, "1.11"), (5, "c", 4, "4.00"), (6, "a", 20, "0.01"), (7, "a", 30, None)],
]
"""Of each run: id, category, price and fee."""

AUCTIONS = [[(1, "x"), (2, "y")], [(3, "x")], [(5, "y"), (6, "x"), (6, "x")]]

QUERIES = {
    "r_average_of_maxima": (
        "category STRING, price BIGINT, PRIMARY KEY (category) NOT ENFORCED",
        """SELECT category, AVG(best) FROM (
          SELECT b.id, b.category, MAX(b.price) AS best FROM bids AS b JOIN auctions AS a ON a.auction = b.id
          GROUP BY b.id, b.category) AS maxima
        GROUP BY category""",
    ),
    "r_of_a_view": (
        "n BIGINT, ids BIGINT, sum_of_best BIGINT, PRIMARY KEY (n) NOT ENFORCED",
        "SELECT n, COUNT(*), SUM(best) FROM per_id GROUP BY n",
    ),
    "r_of_arrays": (
        "n BIGINT, pairs BIGINT, most STRING, PRIMARY KEY (n) NOT ENFORCED",
        """SELECT n, COUNT(DISTINCT ARRAY[id, best]), JSON_STRING(MAX(ARRAY[ROW(best, ARRAY[id])]))
        FROM per_id GROUP BY n""",
    ),
    "r_having": (
        "category STRING, n BIGINT, PRIMARY KEY (category) NOT ENFORCED",
        "SELECT category, COUNT(*) FROM bids GROUP BY category HAVING COUNT(*) < 4",
    ),
    "r_top_without_rank": (
        "id BIGINT, price BIGINT, PRIMARY KEY (id) NOT ENFORCED",
        """SELECT id, price FROM (
          SELECT *, ROW_NUMBER() OVER (ORDER BY price DESC, id) AS place
          FROM (SELECT id, MAX(price) AS price FROM bids GROUP BY id) AS best) AS ranked
        WHERE place <= 3""",
    ),
    "r_top_of_rows": (
        "price BIGINT, id BIGINT, PRIMARY KEY (id, price) NOT ENFORCED",
        """SELECT price, id FROM (
          SELECT id, price, ROW_NUMBER() OVER (PARTITION BY category ORDER BY price DESC, id) AS place
          FROM bids) AS ranked
        WHERE place <= 2""",
    ),
    "r_second_of_rows": (
        "id BIGINT, price BIGINT, PRIMARY KEY (id, price) NOT ENFORCED",
        """SELECT id, price FROM (
          SELECT id, price, ROW_NUMBER() OVER (PARTITION BY category ORDER BY price DESC, id) AS place
          FROM bids) AS ranked
        WHERE place = 2""",
    ),
    "r_key_that_moves": (
        "mark BIGINT, id BIGINT, PRIMARY KEY (mark) NOT ENFORCED",
        "SELECT SUM(price) * 100 + id, id FROM bids GROUP BY id",
    ),
    "r_best_by_its_id": (
        "id BIGINT, category STRING, place BIGINT, PRIMARY KEY (id) NOT ENFORCED",
        """SELECT id, category, place FROM (
          SELECT *, ROW_NUMBER() OVER (PARTITION BY category ORDER BY price DESC, id) AS place
          FROM bids) AS ranked
        WHERE place = 1""",
    ),
    "r_join_of_counts": (
        "id BIGINT, kind STRING, n BIGINT, best BIGINT, PRIMARY KEY (id) NOT ENFORCED",
        """SELECT c.id, a.kind, c.n, c.best FROM
          (SELECT auction, MIN(kind) AS kind FROM auctions GROUP BY auction) AS a
          JOIN per_id AS c ON c.id = a.auction AND c.best > 1""",
    ),
    "r_counts_with_a_name": (
        "id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED",
        "SELECT c.id, name FROM per_id AS c JOIN names ON names.number = c.n",
    ),
    "r_unnested": (
        "id BIGINT, price BIGINT, PRIMARY KEY (id) NOT ENFORCED",
        """SELECT id, price FROM
          (SELECT id, CASE WHEN MAX(price) < 8 THEN ARRAY[MAX(price)] END AS low FROM bids GROUP BY id) AS a
          CROSS JOIN UNNEST(low) AS prices (price)""",
    ),
    "r_left_join_of_counts": (
        "id BIGINT, kinds BIGINT, PRIMARY KEY (id) NOT ENFORCED",
        """SELECT c.id, k.kinds FROM per_id AS c LEFT JOIN
          (SELECT auction, COUNT(*) AS kinds FROM auctions GROUP BY auction HAVING COUNT(*) < 2) AS k
          ON k.auction = c.id WHERE c.n > 0""",
    ),
    "r_join_by_nulls": (
        "id BIGINT, kinds BIGINT, PRIMARY KEY (id) NOT ENFORCED",
        """SELECT c.id, k.kinds FROM
          (SELECT id, NULLIF(COUNT(*), 2) AS n FROM bids GROUP BY id) AS c LEFT JOIN
          (SELECT NULLIF(auction, 1) AS auction, COUNT(*) AS kinds FROM auctions GROUP BY NULLIF(auction, 1))
          AS k ON k.auction = c.n""",
    ),
    "r_of_distinct_rows": (
        "category STRING, ids BIGINT, PRIMARY KEY (category) NOT ENFORCED",
        "SELECT category, COUNT(*) FROM (SELECT DISTINCT category, id FROM bids) AS pairs GROUP BY category",
    ),
    "r_distinct": (
        "id BIGINT, category STRING, PRIMARY KEY (id, category) NOT ENFORCED",
        "SELECT DISTINCT id, category FROM bids",
    ),
    "r_union_of_ids": (
        "id BIGINT, PRIMARY KEY (id) NOT ENFORCED",
        "SELECT id FROM bids WHERE price > 4 UNION SELECT auction FROM auctions",
    ),
    "r_whole_table": (
        """one INT, fees DECIMAL(20, 2), average DECIMAL(10, 6), least BIGINT, most BIGINT, ids BIGINT,
        PRIMARY KEY (one) NOT ENFORCED""",
        "SELECT 1, SUM(fees), AVG(fees), MIN(n), MAX(n), COUNT(DISTINCT n) FROM per_id",
    ),
}
VIEW = (
    "CREATE VIEW per_id AS SELECT id, COUNT(*) AS n, MAX(price) AS best, SUM(fee) AS fees FROM bids "
    "GROUP BY id;\n"
    "CREATE VIEW names AS SELECT 1 AS number, 'one' AS name UNION ALL SELECT 3, 'three';\n"
)


class Store:
    """A SQLite database as the target, and files as the source."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engine = sa.create_engine(f"sqlite:///{folder / 'results.db'}", poolclass=sa.NullPool)
        for name in ("bids", "auctions"):
            (folder / name).mkdir()

    def add(self, run: int) -> None:
        """Add the files of a run."""
        names = {"bids": ("id", "category", "price", "fee"), "auctions": ("auction", "kind")}
        for table, rows in (("bids", BIDS[run]), ("auctions", AUCTIONS[run])):
            bodies = [json.dumps(dict(zip(names[table], row, strict=True))) for row in rows]
            (self.folder / table / f"{run}.json").write_text("\n".join(bodies), encoding="utf-8")

    def tables(self) -> str:
        files = "WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '{}')"
        return (
            f"CREATE TABLE bids (id BIGINT, category STRING, price BIGINT, fee DECIMAL(10, 2)) "
            f"{files.format(self.folder / 'bids')};\n"
            f"CREATE TABLE auctions (auction BIGINT, kind STRING) {files.format(self.folder / 'auctions')};\n"
            f"{VIEW}"
        )

    def target(self, name: str, columns: str) -> str:
        url = f"jdbc:sqlite:{self.folder / 'results.db'}"
        with self.engine.begin() as connection:
            plain = columns.replace("NOT ENFORCED", "").replace("STRING", "TEXT")
            connection.execute(sa.text(f"CREATE TABLE IF NOT EXISTS {name} ({plain})"))
        options = f"'connector' = 'jdbc', 'url' = '{url}', 'table-name' = '{name}'"
        return f"CREATE TABLE {name} ({columns}) WITH ({options});\n"

    def rows(self, name: str) -> list[tuple[str, ...]]:
        with self.engine.connect() as connection:
            return as_texts(connection.execute(sa.text(f"SELECT * FROM {name}")).all())


def as_texts(rows: Sequence[Sequence[object]]) -> list[tuple[str, ...]]:
    def text(value: object) -> str:
        number = str(value)
        return number.rstrip("0").rstrip(".") if "." in number else number

    return sorted(tuple(map(text, row)) for row in rows)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def run_once(spark: SparkSession, store: Store, job: str) -> None:
    """Run a job from its checkpoint over what has come since."""
    place, settings = str(store.folder / "checkpoints"), {"trigger": "availableNow"}
    with execute(spark, job, checkpoint_location=place, settings=settings) as running:
        assert running.await_termination(600)


def check(spark: SparkSession, store: Store, queries: dict[str, tuple[str, str]], runs: int) -> None:
    targets = "".join(store.target(name, columns) for name, (columns, _) in queries.items())
    inserts = "".join(f"INSERT INTO {name} {query};\n" for name, (_, query) in queries.items())
    job = store.tables() + targets + inserts
    selects = "".join(f"{query};\n" for _, query in queries.values())
    batch = "SET 'runtimeMode' = 'batch';\n" + store.tables() + selects
    for run in range(runs):
        store.add(run)
        run_once(spark, store, job)
        with execute(spark, batch) as all_rows:
            results = zip(queries, all_rows.results, strict=True)
            wanted = {name: as_texts(rows.collect()) for name, rows in results}
        found = {name: store.rows(name) for name in queries}
        assert found == wanted, f"after run {run}"
    assert spark.sql("SHOW VIEWS LIKE '__state*'").collect() == []


def test_an_average_of_maxima_arrays_a_top_without_rank_unnest_and_a_join_with_a_table(
    spark: SparkSession, store: Store
) -> None:
    names = ("r_average_of_maxima", "r_top_without_rank", "r_of_arrays", "r_counts_with_a_name", "r_unnested")
    check(spark, store, {name: QUERIES[name] for name in names}, runs=2)


@pytest.mark.needs("programs")
def test_results_whose_rows_are_taken_back_are_those_of_a_batch(spark: SparkSession, store: Store) -> None:
    check(spark, store, QUERIES, runs=len(BIDS))


def test_of_rows_with_equal_times_the_first_and_the_last_one_are_those_that_came_first_and_last(
    spark: SparkSession, store: Store
) -> None:
    ranked = (
        "(SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY {}) AS n FROM seen) AS ranked WHERE n = 1"
    )
    queries = {
        "e_first": ("id", "now"),
        "e_last": ("id", "now DESC"),
        "e_last_by_time": ("id", "at DESC"),
        "e_last_without_its_key": ("kind", "now DESC"),
        "e_last_by_time_without_its_key": ("kind", "at DESC"),
    }
    job = (
        "CREATE TABLE seen (id BIGINT, kind STRING, at TIMESTAMP(3), now AS PROCTIME(), WATERMARK FOR at AS "
        f"at) WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '{store.folder / 'seen'}');\n"
        + "".join(
            store.target(name, f"id BIGINT, kind STRING, PRIMARY KEY ({key}) NOT ENFORCED")
            + f"INSERT INTO {name} SELECT id, kind FROM {ranked.format(order)};\n"
            for name, (key, order) in queries.items()
        )
    )
    (store.folder / "seen").mkdir()
    for run, kinds in enumerate(("abc", "de")):
        lines = [json.dumps({"id": 1, "kind": kind, "at": "2026-01-31T08:00:00Z"}) for kind in kinds]
        (store.folder / "seen" / f"{run}.json").write_text("\n".join(lines), encoding="utf-8")
        run_once(spark, store, job)
        found = {name: [kind for _, kind in store.rows(name)] for name in queries}
        assert found == {name: ["a" if name == "e_first" else kinds[-1]] for name in queries}


def test_aggregates_of_many_groups_have_the_rows_in_the_order_in_which_they_came(
    spark: SparkSession, store: Store
) -> None:
    """Spark takes another way for more than 128 groups of a task."""
    values = "id BIGINT, first BIGINT, last BIGINT, every STRING"
    items = "id, FIRST_VALUE(n), LAST_VALUE(n), LISTAGG(CAST(n AS STRING))"
    windows = "TABLE(TUMBLE(TABLE seen, DESCRIPTOR(at), INTERVAL '1' MINUTE))"
    job = (
        "CREATE TABLE seen (id BIGINT, n BIGINT, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ("
        f"'connector' = 'filesystem', 'format' = 'json', 'path' = '{store.folder / 'seen'}');\n"
        + store.target("of_all", f"{values}, PRIMARY KEY (id) NOT ENFORCED")
        + store.target("of_window", values)
        + f"INSERT INTO of_all SELECT {items} FROM seen GROUP BY id;\n"
        + f"INSERT INTO of_window SELECT {items} FROM {windows} GROUP BY window_start, window_end, id;\n"
    )
    (store.folder / "seen").mkdir()
    came: dict[int, list[int]] = {}
    numbers = iter(range(3_000))
    for run in range(2):
        places = [(number * 7919 % 300, number) for _, number in zip(range(1_500), numbers, strict=False)]
        for key, number in places:
            came.setdefault(key, []).append(number)
        rows = [{"id": key, "n": number, "at": "2026-01-31T08:00:00Z"} for key, number in places]
        if run:
            rows.append({"id": 300, "n": 0, "at": "2026-01-31T09:00:00Z"})
            came[300] = [0]
        (store.folder / "seen" / f"{run}.json").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        run_once(spark, store, job)
    wanted = as_texts([(key, each[0], each[-1], ",".join(map(str, each))) for key, each in came.items()])
    assert store.rows("of_all") == wanted
    assert store.rows("of_window") == [row for row in wanted if row[0] != "300"]


def test_sets_of_groups_in_a_window_are_final_once(spark: SparkSession, store: Store) -> None:
    rows = [("00:10", "a"), ("00:20", "b"), ("00:30", "a"), ("01:10", "b"), ("30:00", "z")]
    (store.folder / "timed").mkdir()
    lines = [json.dumps({"at": f"2026-01-31T08:{at}Z", "kind": kind}) for at, kind in rows]
    (store.folder / "timed" / "0.json").write_text("\n".join(lines), encoding="utf-8")
    windows = "FROM TABLE(TUMBLE(TABLE timed, DESCRIPTOR(at), INTERVAL '1' MINUTE))"
    sets = {
        "r_sets": "GROUP BY GROUPING SETS ((window_start, window_end, kind), (window_start, window_end))",
        "r_rollup": "GROUP BY window_start, window_end, ROLLUP (kind)",
        "r_cube": "GROUP BY window_start, window_end, CUBE (kind)",
    }
    job = (
        "CREATE TABLE timed (at TIMESTAMP(3), kind STRING, WATERMARK FOR at AS at) WITH ('connector' = "
        f"'filesystem', 'format' = 'json', 'path' = '{store.folder / 'timed'}');\n"
        + "".join(store.target(name, "kind STRING, n BIGINT") for name in sets)
        + "".join(f"INSERT INTO {name} SELECT kind, COUNT(*) {windows} {by};\n" for name, by in sets.items())
    )
    # The times of both tables have a watermark, of which a step with state takes one at most.
    job += store.target("r_times", "one INT, most BIGINT, PRIMARY KEY (one) NOT ENFORCED")
    job += """INSERT INTO r_times SELECT 1, MAX(n) FROM (
      SELECT a.kind, COUNT(*) AS n, MAX(a.at) AS latest, MIN(b.at) AS earliest
      FROM timed AS a JOIN timed AS b ON a.kind = b.kind GROUP BY a.kind) AS kinds"""
    run_once(spark, store, job)
    assert store.rows("r_times") == [("1", "4")]
    wanted = [("None", "1"), ("None", "3"), ("a", "2"), ("b", "1"), ("b", "1")]
    assert {name: store.rows(name) for name in sets} == dict.fromkeys(sets, wanted)


def test_a_deleted_row_reaches_a_topic_and_its_readers(
    spark: SparkSession, store: Store, topic: TopicFactory, name_server: str
) -> None:
    names = ("r_having", "r_key_that_moves")
    queries = {name: QUERIES[name] for name in names}
    topics = {name: topic(queues=2) for name in names}
    targets, readers = "", ""
    for name, (columns, _) in queries.items():
        options = f"'connector' = 'rocketmq', 'nameServer' = '{name_server}', 'topic' = '{topics[name]}'"
        targets += f"CREATE TABLE {name} ({columns}) WITH ({options}, 'sendTimeoutMs' = '{PATIENCE_MS}');\n"
        given = columns.partition(", PRIMARY")[0]
        place = (
            "p MAP<STRING, STRING> METADATA FROM 'properties' VIRTUAL, o BIGINT METADATA FROM 'queueOffset'"
        )
        readers += f"CREATE TABLE {name} ({given}, {place} VIRTUAL) WITH ({options});\n"
        readers += f"SELECT *, p['op'] AS op FROM {name};\n"
    inserts = "".join(f"INSERT INTO {name} {query};\n" for name, (_, query) in queries.items())
    selects = "".join(f"{query};\n" for _, query in queries.values())
    batch = "SET 'runtimeMode' = 'batch';\n"
    deleted = 0

    def current() -> list[list[tuple[str, ...]]]:
        """Return what a reader of each topic keeps: of each key the last row, unless it is deleted."""
        nonlocal deleted
        found = []
        with execute(spark, batch + readers) as job:
            for rows in job.results:
                kept: dict[str, tuple[object, ...]] = {}
                for row in sorted(rows.collect(), key=lambda row: row.o):  # a key has one queue
                    key = str(row[0])
                    kept.pop(key, None)
                    if row.op is None:
                        kept[key] = tuple(row[:2])
                    else:
                        assert (row.op, row[1]) == ("-D", None), "only its keys"
                        deleted += 1
                found.append(as_texts(list(kept.values())))
        return found

    for run in range(2):
        store.add(run)
        run_once(spark, store, store.tables() + targets + inserts)
        with execute(spark, batch + store.tables() + selects) as all_rows:
            wanted = [as_texts(rows.collect()) for rows in all_rows.results]
        eventually(lambda wanted=wanted: current() == wanted, 120, what=f"the rows of run {run}")
    assert deleted


def test_a_target_that_only_appends_or_has_no_key_is_refused(spark: SparkSession, store: Store) -> None:
    topic = "'connector' = 'rocketmq', 'topic' = 't', 'nameServer' = '127.0.0.1:1'"
    files = f"'connector' = 'filesystem', 'format' = 'json', 'path' = '{store.folder / 'out'}'"
    (store.folder / "bids" / "0.json").write_text("{}")
    table = f"CREATE TABLE t (n BIGINT PRIMARY KEY NOT ENFORCED, c BIGINT) WITH ({topic})"
    query = "INSERT INTO t SELECT COUNT(*) AS n, id FROM bids GROUP BY id"
    text = f"{store.tables()} SET 'outputMode' = 'update'; {table}; {query}"
    with pytest.raises(SqlError, match="t needs the rows that the query replaces: its key changes"):
        execute(spark, text, checkpoint_location=str(store.folder / "c"))
    for options, error in (
        (topic, "the rows for t are updated and deleted: declare its PRIMARY KEY"),
        (files, "t only appends rows, and those of the query are updated and deleted"),
    ):
        job = f"CREATE TABLE t (n BIGINT, c BIGINT) WITH ({options}); INSERT INTO t {{}}"
        query = QUERIES["r_of_a_view"][1].replace(", SUM(best)", "")
        with pytest.raises(SqlError, match=error):
            execute(spark, store.tables() + job.format(query), checkpoint_location=str(store.folder / "c"))


@pytest.mark.needs("programs")
def test_a_key_without_new_rows_is_forgotten_after_the_time_to_live(
    spark: SparkSession, store: Store
) -> None:
    job = (
        "SET 'table.exec.state.ttl' = '1 s';\n"
        + store.tables()
        + store.target("counts", "id BIGINT, n BIGINT, PRIMARY KEY (id) NOT ENFORCED")
        + "INSERT INTO counts SELECT id, COUNT(*) FROM bids GROUP BY id"
    )

    def bid(name: str, count: int) -> None:
        new = store.folder / f"{name}.new"
        new.write_text("\n".join(['{"id": 1}'] * count), encoding="utf-8")
        new.rename(store.folder / "bids" / f"{name}.json")

    bid("one", 2)
    with execute(spark, job, checkpoint_location=str(store.folder / "checkpoints")):
        eventually(lambda: store.rows("counts") == [("1", "2")], 300, what="the first count")
        forgotten = time.monotonic() + 2
        eventually(lambda: time.monotonic() > forgotten, 60, what="the end of the time to live")
        bid("two", 3)
        eventually(lambda: store.rows("counts") == [("1", "3")], 300, what="a count from the beginning")
    with pytest.raises(SqlError, match="whose state has a time to live has no end"):
        execute(
            spark,
            job,
            checkpoint_location=str(store.folder / "other"),
            settings={"trigger": "availableNow"},
        )


def test_rows_in_the_state_are_not_read_with_other_columns(spark: SparkSession, store: Store) -> None:
    """The state has values only: a join would give prices as ids."""
    target = store.target("joined", "id BIGINT, price BIGINT, n BIGINT, PRIMARY KEY (id, price) NOT ENFORCED")
    job = (
        store.tables()
        + target
        + """INSERT INTO joined SELECT b.id, b.price, a.n FROM bids AS b LEFT JOIN
        (SELECT auction, COUNT(*) AS n FROM auctions GROUP BY auction) AS a ON a.auction = b.id;"""
    )
    store.add(0)
    run_once(spark, store, job)
    store.add(1)
    for old, new in (
        ("id BIGINT, category STRING, price BIGINT", "price BIGINT, category STRING, id BIGINT"),
        ("fee DECIMAL(10, 2)", "fee DECIMAL(10, 2), other STRING"),
    ):
        with pytest.raises(SqlError, match="the query joined has changed: the state in its checkpoint"):
            run_once(spark, store, job.replace(old, new))
    assert ("3", "9", "None") in store.rows("joined")
    run_once(spark, store, job)
    assert ("3", "9", "1") in store.rows("joined")
