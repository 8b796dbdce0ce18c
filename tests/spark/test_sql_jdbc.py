"""Tables of databases in jobs: a real PostgreSQL is written, a real Derby in Spark's JVM is read."""

from __future__ import annotations

import json
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession
from tests.support.patient import PATIENCE_MS
from tests.support.postgres import PostgresServer
from tests.support.topics import fill

from pyspark_rocketmq.client import OutgoingMessage
from pyspark_rocketmq.devcluster.jars import resolve
from pyspark_rocketmq.errors import SqlError
from pyspark_rocketmq.spark.stores.database_connection import _LOCK_WAITS, open_engine
from pyspark_rocketmq.sql import execute

BATCH = {"runtimeMode": "batch"}


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def shanghai(spark: SparkSession) -> Iterator[dict[str, str]]:
    """Settings of a job in that zone; the session's zone is restored."""
    before = spark.conf.get("spark.sql.session.timeZone")
    yield {"table.local-time-zone": "Asia/Shanghai"}
    spark.conf.set("spark.sql.session.timeZone", before)


class Database:
    """A database of the test's own."""

    def __init__(self, url: str) -> None:
        self.sqlalchemy_url = url
        self.url = url.replace("postgresql+psycopg://", "jdbc:postgresql://")
        self._engine = sa.create_engine(url, poolclass=sa.NullPool)

    def run(self, *statements: str) -> None:
        with self._engine.begin() as connection:
            for statement in statements:
                connection.execute(sa.text(statement))

    def rows(self, query: str) -> list[tuple[object, ...]]:
        with self._engine.connect() as connection:
            return [tuple(row) for row in connection.execute(sa.text(query))]

    @contextmanager
    def locked(self, table: str) -> Iterator[None]:
        with self._engine.begin() as connection:
            connection.execute(sa.text(f"LOCK TABLE {table}"))
            yield

    def table(self, name: str, columns: str, target: str = "") -> str:
        return (
            f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'jdbc', 'url' = '{self.url}', "
            f"'table-name' = '{target or name}');\n"
        )


@pytest.fixture
def database(postgres: PostgresServer) -> Database:
    return Database(postgres.fresh_database())


def canal(kind: str, *rows: tuple[int, str], old: dict[str, str] | None = None) -> bytes:
    data = [{"id": str(one), "name": name, "at": "2026-01-31 08:00:00"} for one, name in rows]
    return json.dumps({"data": data, "old": None if old is None else [old], "type": kind}).encode()


def forget_last_commit(checkpoint: Path) -> None:
    """Have the query's next start repeat its last batch, as after a kill before its end."""
    last = max((p for p in (checkpoint / "commits").iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def test_rows_that_change_are_upserted_and_deleted(
    spark: SparkSession, database: Database, topic, client, name_server: str, tmp_path: Path, shanghai
) -> None:
    database.run(
        "CREATE TABLE people (id INT PRIMARY KEY, name TEXT, at TIMESTAMP, since TIMESTAMPTZ)",
        "CREATE TABLE counts (product TEXT, n BIGINT, best BIGINT, UNIQUE (product))",
        "INSERT INTO people VALUES (9, 'stays', NULL, NULL)",
    )
    changes, files = topic(queues=1), tmp_path / "sales"
    job = (
        f"""CREATE TABLE changes (id INT, name STRING, at TIMESTAMP(3), PRIMARY KEY (id) NOT ENFORCED)
        WITH ('connector' = 'rocketmq', 'nameServer' = '{name_server}', 'topic' = '{changes}',
        'requestTimeoutMs' = '{PATIENCE_MS}', 'format' = 'canal-json', 'startingOffsets' = 'earliest');
        CREATE TABLE sales (product STRING, price BIGINT)
        WITH ('connector' = 'filesystem', 'path' = '{files}', 'format' = 'json');"""
        + database.table(
            "people", "id INT PRIMARY KEY NOT ENFORCED, name STRING, at TIMESTAMP(3), since TIMESTAMP(3)"
        )
        + database.table("counts", "product STRING PRIMARY KEY NOT ENFORCED, n BIGINT, best BIGINT")
        + """INSERT INTO people SELECT id, upper(name), at, at FROM changes;
        INSERT INTO counts SELECT product, COUNT(*), MAX(price) FROM sales GROUP BY product;"""
    )

    def run() -> None:
        settings = {"trigger": "availableNow", **shanghai}
        with execute(spark, job, checkpoint_location=str(tmp_path / "job"), settings=settings) as running:
            assert running.await_termination(400)

    def send(*bodies: bytes) -> None:
        fill(client, changes, [OutgoingMessage(changes, body) for body in bodies])

    def sell(name: str, *sales: tuple[str, int]) -> None:
        files.mkdir(exist_ok=True)
        lines = [json.dumps({"product": product, "price": price}) for product, price in sales]
        (files / f"{name}.json").write_text("\n".join(lines))

    send(canal("INSERT", (1, "a"), (2, "b"), (3, "c")), canal("UPDATE", (1, "aa"), old={"name": "a"}))
    sell("one", ("tea", 3), ("tea", 5), ("cake", 4))
    run()
    at = datetime(2026, 1, 31, 8)  # noqa: DTZ001 - the database's column has no zone
    people = "SELECT id, name, at, since AT TIME ZONE 'Asia/Shanghai' FROM people WHERE id < 9 ORDER BY id"
    assert database.rows(people) == [(1, "AA", at, at), (2, "B", at, at), (3, "C", at, at)]
    assert database.rows("SELECT * FROM counts ORDER BY 1") == [("cake", 1, 4), ("tea", 2, 5)]

    send(canal("DELETE", (2, "b")), canal("UPDATE", (4, "c"), old={"id": "3"}))
    sell("two", ("tea", 9))
    for replayed in (False, True):
        if replayed:
            for name in ("people", "counts"):
                forget_last_commit(tmp_path / "job" / name)
        run()
        assert database.rows(people) == [(1, "AA", at, at), (4, "C", at, at)]
        assert database.rows("SELECT * FROM counts ORDER BY 1") == [("cake", 1, 4), ("tea", 3, 9)]
    assert database.rows("SELECT name FROM people WHERE id = 9") == [("stays",)]


def test_a_batch_is_upserted_by_its_key_and_appended_without_one(
    spark: SparkSession, database: Database
) -> None:
    database.run(
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.totals (a INT, b INT, note TEXT, amount NUMERIC(9, 2), raw BYTEA, "
        "PRIMARY KEY (a, b))",
        "CREATE TABLE log (a INT)",
    )
    keyed = "a INT, b INT, note STRING, amount DECIMAL(12, 2), raw BYTES, PRIMARY KEY (b, a) NOT ENFORCED"
    job = (
        database.table("totals", keyed, "shop.totals")
        + database.table("log", "a INT")
        + "INSERT INTO totals VALUES (1, 1, 'x', 2.50, X'00ff'), (1, 2, 'y', 3, NULL);"
        "INSERT INTO totals (b, a) VALUES (1, 1);"
        "INSERT INTO log VALUES (1); INSERT INTO log VALUES (1), (2);"
    )
    with execute(spark, job, settings=BATCH):
        pass
    (one, two) = database.rows("SELECT a, b, note, amount, raw FROM shop.totals ORDER BY a, b")
    assert one == (1, 1, None, None, None)
    assert (two[2], str(two[3])) == ("y", "3.00")
    assert database.rows("SELECT a, COUNT(*) FROM log GROUP BY a ORDER BY a") == [(1, 2), (2, 1)]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("absent", "for example with: CREATE TABLE absent"),
        ("lacks", "table lacks has no column 'name'; it has id"),
        ("keyless", "table keyless has no primary key or unique index of exactly (id)"),
    ],
)
def test_a_table_that_takes_no_such_rows_is_said_before_the_query_starts(
    spark: SparkSession, database: Database, target: str, message: str
) -> None:
    database.run("CREATE TABLE lacks (id INT PRIMARY KEY)", "CREATE TABLE keyless (id INT, name TEXT)")
    table = database.table("t", "id INT PRIMARY KEY NOT ENFORCED, name STRING", target)
    with pytest.raises(SqlError) as raised:
        execute(spark, table + "INSERT INTO t VALUES (1, 'a')", settings=BATCH)
    assert message in str(raised.value)
    assert str(raised.value).startswith("line 2, column 1: ")


def test_a_refused_row_leaves_no_part_of_its_batch(spark: SparkSession, database: Database) -> None:
    database.run("CREATE TABLE strict (id INT PRIMARY KEY, n INT CHECK (n > 0))")
    table = database.table("strict", "id INT PRIMARY KEY NOT ENFORCED, n INT")
    refused = "line 2, column 1: the database refuses a statement: new row for"
    with pytest.raises(SqlError, match=refused) as raised:
        execute(spark, table + "INSERT INTO strict VALUES (1, 1), (4710 + 1, 0)", settings=BATCH)
    assert database.rows("SELECT * FROM strict") == []
    assert "4711" not in "".join(traceback.format_exception(raised.value)), "the row is in no log"


def test_a_batch_does_not_wait_for_the_lock_of_another_for_good(
    spark: SparkSession, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run("CREATE TABLE held (id INT PRIMARY KEY)")
    given = sa.make_url(database.sqlalchemy_url)
    for url, limit in ((given, "1min"), (given.update_query_dict({"options": "-c lock_timeout=7s"}), "7s")):
        with open_engine(url.render_as_string(hide_password=False)).connect() as connection:
            assert connection.execute(sa.text("SHOW lock_timeout")).scalar() == limit
    short = _LOCK_WAITS["postgresql"].replace("60s", "100ms")
    monkeypatch.setitem(_LOCK_WAITS, "postgresql", short)
    table = database.table("held", "id INT PRIMARY KEY NOT ENFORCED")
    with database.locked("held"), pytest.raises(SqlError, match=r"lock timeout; check .* table held"):
        execute(spark, table + "INSERT INTO held VALUES (1)", settings=BATCH)


def test_a_table_is_read_and_joined_as_it_is_now(spark: SparkSession, tmp_path: Path) -> None:
    url = f"jdbc:derby:memory:{tmp_path.name};create=true"
    names = spark.createDataFrame([(1, "tea", 7), (2, "cake", 8)], "ID INT, NAME STRING, UNUSED INT")
    names.write.jdbc(url, "products")
    (tmp_path / "sales").mkdir()
    (tmp_path / "sales" / "one.json").write_text('{"product": 1}\n{"product": 1}\n{"product": 3}')
    jdbc = f"WITH ('connector' = 'jdbc', 'url' = '{url}', 'table-name' = 'products')"
    job = f"""CREATE TABLE products (id BIGINT, name STRING, loud AS upper(name)) {jdbc};
    CREATE TABLE sales (product BIGINT, at AS PROCTIME())
    WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/sales', 'format' = 'json');
    CREATE TABLE named (product BIGINT, name STRING)
    WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/named', 'format' = 'json');
    INSERT INTO named SELECT s.product, p.loud FROM sales AS s
    LEFT JOIN products FOR SYSTEM_TIME AS OF s.at AS p ON s.product = p.id;"""
    settings = {"trigger": "availableNow"}
    with execute(spark, job, checkpoint_location=str(tmp_path / "c"), settings=settings) as running:
        assert running.await_termination(300)
    found = spark.read.schema("product BIGINT, name STRING").json(str(tmp_path / "named"))
    assert sorted(map(tuple, found.collect()), key=str) == [(1, "TEA"), (1, "TEA"), (3, None)]
    (rows,) = execute(
        spark, f"CREATE TABLE p (id INT, name STRING) {jdbc}; SELECT * FROM p WHERE id > 1"
    ).results
    assert [tuple(row) for row in rows.collect()] == [(2, "cake")], "it is no stream, so it can be shown"
    with pytest.raises(SqlError, match="line 1, column 17: table products has no column 'price'; it has ID"):
        execute(spark, f"CREATE TABLE p (price INT) {jdbc}; SELECT * FROM p")
    wrong = jdbc.replace("derby:memory", "nothing:memory")
    with pytest.raises(SqlError, match="Spark has no JDBC driver to read table products"):
        execute(spark, f"CREATE TABLE p (id INT) {wrong}; SELECT * FROM p")


def test_a_time_without_a_zone_is_read_as_one_of_the_sessions_zone(
    spark: SparkSession, tmp_path: Path, shanghai: dict[str, str]
) -> None:
    """As it is written. Java's own zone is another one."""
    url, text = f"jdbc:derby:memory:{tmp_path.name};create=true", "2026-01-31 08:00:00.123"
    spark.sql(f"SELECT TIMESTAMP_NTZ '{text}' AS AT").write.jdbc(url, "times")
    job = f"""CREATE TABLE times (at TIMESTAMP(3))
    WITH ('connector' = 'jdbc', 'url' = '{url}', 'table-name' = 'times');
    SELECT CAST(at AS STRING) AS at FROM times WHERE at = TIMESTAMP '{text}'"""
    for zone in (shanghai, {"table.local-time-zone": spark._jvm.java.util.TimeZone.getDefault().getID()}):
        (rows,) = execute(spark, job, settings={**BATCH, **zone}).results
        assert [row.at for row in rows.collect()] == [text]


@pytest.mark.needs("programs")
def test_a_driver_among_sparks_jars_is_found(tmp_path: Path) -> None:
    """As a user does: the command line, with PostgreSQL's jar. The driver finds no server."""
    (jar,) = (jar for jar in resolve(["org.postgresql:postgresql:42.7.7"]) if "postgresql" in jar.name)
    job = tmp_path / "job.sql"
    url = "jdbc:postgresql://127.0.0.1:1/shop"
    job.write_text(
        f"""SET 'execution.runtime-mode' = 'batch';
        CREATE TABLE t (a INT) WITH ('connector' = 'jdbc', 'url' = '{url}', 'table-name' = 't');
        SELECT a FROM t;"""
    )
    command = [sys.executable, "-m", "pyspark_rocketmq", "sql", str(job), "--master", "local[1]"]
    command += ["--conf", f"spark.jars={jar}"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert "table t of the database cannot be read: " in run.stderr
    assert "no JDBC driver" not in run.stderr


def test_a_target_may_be_called_as_its_column(spark: SparkSession, database: Database) -> None:
    """Only tables that are read need a driver of Spark's."""
    database.run("CREATE TABLE total (total BIGINT)")
    job = database.table("total", "total BIGINT") + "INSERT INTO total SELECT SUM(id) AS total FROM RANGE(4)"
    execute(spark, job, settings=BATCH)
    assert database.rows("SELECT total FROM total") == [(6,)]


@pytest.mark.parametrize("driver", ["", ", 'driver' = 'no.such.Driver'"])
def test_a_driver_that_is_missing_is_named(spark: SparkSession, driver: str) -> None:
    options = f"'connector' = 'jdbc', 'url' = 'jdbc:sqlite:/f', 'table-name' = 't'{driver}"
    with pytest.raises(SqlError, match=r"no JDBC driver to read table t: add org\.xerial:sqlite-jdbc"):
        execute(spark, f"CREATE TABLE t (a INT) WITH ({options}); SELECT a FROM t", settings=BATCH)
