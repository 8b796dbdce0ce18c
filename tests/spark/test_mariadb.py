"""What MySQL and MariaDB do in a way of their own; ``test_transactional.py`` has what all databases share."""

from __future__ import annotations

import datetime
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession
from tests.support.mariadb import PASSWORD, USER, MariaDBServer
from tests.support.topics import fresh_name
from tests.support.wait import eventually

from pyspark_rocketmq.devcluster.jars import resolve
from pyspark_rocketmq.errors import DataLossError, OptionError, SqlError
from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.planning.batch_replay import BatchId, StoredProgress
from pyspark_rocketmq.spark import SqlOffsetStore, append_to, upsert_into
from pyspark_rocketmq.spark.stores.database_connection import open_engine
from pyspark_rocketmq.sql import execute
from pyspark_rocketmq.streams import StreamBuilder

pytestmark = pytest.mark.needs("mariadb")

QUEUE = MessageQueue("orders", "broker-a", 0)
SNAPSHOTS = "init_command=SET%20innodb_snapshot_isolation%3DON"
"""How MariaDB 11.6 and later begin."""


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDBServer]:
    with MariaDBServer(time_zone="+05:00") as server:
        yield server


@pytest.fixture(params=["mysql", "mariadb"])
def url(request: pytest.FixtureRequest, server: MariaDBServer) -> str:
    """A database of the test's own, under either name that SQLAlchemy has for it."""
    return server.fresh_database().replace("mysql", request.param, 1)


@pytest.fixture
def database(url: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(url)
    yield engine
    engine.dispose()


@pytest.fixture
def run(database: sa.Engine) -> Callable[..., list[tuple[object, ...]]]:
    """``run(statement)``: its rows, in a transaction of its own."""

    def run(statement: str) -> list[tuple[object, ...]]:
        with database.begin() as connection:
            found = connection.execute(sa.text(statement))
            return [tuple(row) for row in found] if found.returns_rows else []

    return run


def test_a_statement_does_not_wait_hours_for_a_host_that_is_gone(url):
    with open_engine(url).connect() as connection:
        used = connection.connection.driver_connection._sock
        idle, interval, count, unanswered_ms = (
            used.getsockopt(socket.IPPROTO_TCP, option)
            for option in (
                socket.TCP_KEEPIDLE,
                socket.TCP_KEEPINTVL,
                socket.TCP_KEEPCNT,
                socket.TCP_USER_TIMEOUT,
            )
        )
        assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert idle + interval * count == unanswered_ms / 1000 == 120


@pytest.mark.parametrize("settings", ["", SNAPSHOTS])
@pytest.mark.parametrize("first", [True, False])
def test_a_writer_that_waited_for_another_one_is_refused(url, run, settings, first):
    """Both have read the same progress; the second waits at the row until the first has committed."""
    before = StoredProgress()
    stores = [SqlOffsetStore(f"{url}?{settings}", job="orders") for _ in range(2)]
    if not first:
        with stores[0].transaction() as transaction:
            transaction.advance(before, BatchId("q", 0), [OffsetRange(QUEUE, 0, 5)])
    begin = 0 if first else 5
    batch, ranges = BatchId("q", 7), [OffsetRange(QUEUE, begin, 9)]

    def second():
        with stores[1].transaction() as transaction:
            transaction.advance(transaction.progress(), batch, ranges)

    with ThreadPoolExecutor(1) as pool:
        with stores[0].transaction() as transaction:
            transaction.advance(transaction.progress(), batch, ranges)
            late = pool.submit(second)
            waiting = "SHOW GLOBAL STATUS LIKE 'innodb_row_lock_current_waits'"
            eventually(lambda: run(waiting)[0][1] == "1", 30, what="the second writer at the row")
        with pytest.raises(DataLossError, match="another query writes"):
            late.result(60)
    assert stores[0].offsets() == {QUEUE: 9}
    for store in stores:
        store.close()


def test_names_that_differ_by_case_and_tables_that_roll_back(url, server, run):
    run("SET GLOBAL default_storage_engine = MyISAM")
    try:
        stores = [SqlOffsetStore(url, job=job) for job in ("orders", "Orders")]
        for number, store in enumerate(stores, 1):
            with store.transaction() as transaction:
                transaction.advance(StoredProgress(), BatchId("q", 0), [OffsetRange(QUEUE, 0, number)])
    finally:
        run("SET GLOBAL default_storage_engine = InnoDB")
    assert [store.offsets() for store in stores] == [{QUEUE: 1}, {QUEUE: 2}]
    engines = "SELECT DISTINCT engine FROM information_schema.tables WHERE table_schema = DATABASE()"
    assert run(engines) == [("InnoDB",)]
    for store in stores:
        store.close()


def test_rows_are_inserted_and_updated_as_they_are(spark: SparkSession, database, run):
    """Instants stay instants in TIMESTAMP, whatever the time zones of Spark and the server."""
    run(
        "CREATE TABLE results (id BIGINT AUTO_INCREMENT PRIMARY KEY, product VARCHAR(20) COLLATE utf8mb4_bin,"
        " n BIGINT, price DECIMAL(9, 2), raw BLOB, at TIMESTAMP(6) NULL, clock DATETIME(6),"
        " utc DATETIME(6), UNIQUE (product)) CHARACTER SET utf8mb4"
    )
    columns = "product string, n long, price decimal(9, 2), raw binary, at timestamp, clock timestamp_ntz"
    columns += ", utc timestamp"
    at = datetime.datetime(2026, 10, 25, 0, 30, 0, 250_000, datetime.UTC)  # Vienna has this clock twice
    clock = datetime.datetime.fromisoformat("2026-03-29 02:30")  # and this one never
    first = [("büro 🚀", 1, Decimal("1.10"), b"\0'%s\xff", at, clock, at), ("Büro 🚀", 1, *[None] * 5)]
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Vienna")
    try:
        write = upsert_into("results", key=["product"])
        for rows in (first, [(first[0][0], 2, *first[0][2:])]):
            with database.begin() as connection:
                write(connection, spark.createDataFrame(rows, columns))
                assert connection.scalar(sa.text("SELECT @@session.time_zone")) == "+05:00"
        many = spark.range(12_000).selectExpr("concat('p', id) AS product", "id AS n")
        with database.begin() as connection:
            write(connection, many)
            append_to("results")(
                connection, spark.createDataFrame([(None, at)], "product string, at timestamp")
            )
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    found = run(
        "SELECT product, n, price, raw, unix_timestamp(at), clock, utc FROM results WHERE product LIKE 'b%'"
    )
    in_utc = at.replace(tzinfo=None)
    assert found == [(first[0][0], 2, *first[0][2:4], Decimal(f"{at.timestamp():.6f}"), clock, in_utc)]
    assert run("SELECT n, price, raw, at, clock FROM results WHERE product LIKE 'B%'") == [(1, *[None] * 4)]
    assert run("SELECT unix_timestamp(at) FROM results WHERE product IS NULL") == [found[0][4:5]]
    assert run("SELECT count(*), max(n) FROM results WHERE product LIKE 'p%'") == [(12_000, 11_999)]


def test_tables_in_which_something_else_would_happen_are_refused(spark: SparkSession, database, run):
    run("CREATE TABLE loose (product VARCHAR(20) PRIMARY KEY, n INT) ENGINE = MyISAM")
    run("CREATE TABLE keyless (product VARCHAR(20), n INT)")
    run("CREATE TABLE twice (product VARCHAR(20) PRIMARY KEY, n INT UNIQUE)")
    run("CREATE TABLE letters (product VARCHAR(20), n INT, UNIQUE (product(3)))")
    batch = spark.createDataFrame([("a", 1)], "product string, n int")

    def refused(write, message):
        with pytest.raises(OptionError, match=message), database.begin() as connection:
            write(connection, batch)

    refused(append_to("loose"), "has no transactions.*engine=MyISAM")
    refused(upsert_into("loose", key=["product"]), "has no transactions.*engine=MyISAM")
    refused(upsert_into("keyless", key=["product"]), "no primary key or unique index")
    refused(upsert_into("twice", key=["product"]), "any unique key.*other=n")
    refused(upsert_into("letters", key=["product"]), "any unique key.*other=product")
    for table in ("loose", "keyless", "twice", "letters"):
        assert run(f"SELECT * FROM {table}") == []


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("lean")
def test_a_stream_from_tables_over_a_table_into_a_table(spark: SparkSession, url, run, tmp_path, monkeypatch):
    """With a URL of JDBC; a batch that comes again changes nothing, with and without a key."""
    monkeypatch.setenv("PYSPARK_ROCKETMQ_STREAMS_HOME", str(tmp_path / "home"))
    made = sa.make_url(url)
    jdbc = f"jdbc:{made.get_backend_name()}://127.0.0.1:{made.port}/{made.database}?useSSL=false"
    place, job = (jdbc, USER, PASSWORD), fresh_name("maria")
    run("CREATE TABLE readings_1 (id INT AUTO_INCREMENT PRIMARY KEY, place TEXT, at TIMESTAMP DEFAULT now())")
    run("CREATE TABLE cities (code TEXT, city TEXT)")
    run("CREATE TABLE latest (place VARCHAR(9) PRIMARY KEY, id INT)")
    run("CREATE TABLE every (id INT, city TEXT)")
    run("INSERT INTO cities VALUES ('a', 'Rom'), ('b', 'Wien')")

    def pipeline(name):
        stream = StreamBuilder.dataStream("tests", f"{job}-{name}", spark).fromMultipleDB(
            *place, "readings_[0-9]", refreshSeconds=0.2, settleSeconds=0.1
        )
        if name == "latest":
            return stream.map({"place": "place", "id": "cast(id as int)"}).toDB(*place, "latest", key="place")
        cities = stream.dimJoin(*place, "SELECT code, city FROM cities", 0.001).on("(place,==,code)")
        return cities.toDataStream().map({"id": "cast(id as int)", "city": "city"}).toDB(*place, "every")

    def go():
        for name in ("latest", "every"):
            query = pipeline(name).asyncStart(availableNow=True)
            try:
                assert query.awaitTermination(200)
            finally:
                query.stop()

    run("INSERT INTO readings_1 (place) VALUES ('a'), ('b'), ('a')")
    go()
    run("INSERT INTO readings_1 (place) VALUES ('b')")
    go()
    for commits in (tmp_path / "home").rglob("commits"):
        last = max(int(file.name) for file in commits.glob("[0-9]*"))
        for file in (f"{last}", f".{last}.crc"):
            commits.joinpath(file).unlink(missing_ok=True)
    go()
    assert run("SELECT * FROM latest ORDER BY place") == [("a", 3), ("b", 4)]
    assert run("SELECT * FROM every ORDER BY id") == [(1, "Rom"), (2, "Wien"), (3, "Rom"), (4, "Wien")]
    assert PASSWORD not in pipeline("every").explain() + json.dumps(repr(pipeline("every").plan()))


@pytest.mark.since_spark("4.1")
def test_a_job_upserts_deletes_and_inserts(spark: SparkSession, url, run, tmp_path) -> None:
    """The connector jdbc under both names of the driver; the second run updates and deletes."""
    key = "product VARCHAR(20) COLLATE utf8mb4_bin PRIMARY KEY"
    run(f"CREATE TABLE totals ({key}, n BIGINT, best DECIMAL(9, 2))")
    run(f"CREATE TABLE rare ({key}, n BIGINT)")
    run("CREATE TABLE log (product VARCHAR(20), price DECIMAL(9, 2))")
    given = sa.make_url(url)
    jdbc = f"jdbc:{given.drivername.partition('+')[0]}://{given.host}:{given.port}/{given.database}"
    options = f"'connector' = 'jdbc', 'url' = '{jdbc}', 'username' = '{USER}', 'password' = '{PASSWORD}'"
    files = tmp_path / "sales"
    files.mkdir()
    job = f"""CREATE TABLE sales (product STRING, price DECIMAL(9, 2))
          WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '{files}');
        CREATE TABLE totals (product STRING, n BIGINT, best DECIMAL(9, 2), PRIMARY KEY (product) NOT ENFORCED)
          WITH ({options}, 'table-name' = 'totals');
        CREATE TABLE rare (product STRING, n BIGINT, PRIMARY KEY (product) NOT ENFORCED)
          WITH ({options}, 'table-name' = 'rare');
        CREATE TABLE log (product STRING, price DECIMAL(9, 2)) WITH ({options}, 'table-name' = 'log');
        INSERT INTO totals SELECT product, COUNT(*), MAX(price) FROM sales GROUP BY product;
        INSERT INTO rare SELECT product, COUNT(*) FROM sales GROUP BY product HAVING COUNT(*) < 2;
        INSERT INTO log SELECT product, price FROM sales;"""
    for name, sales in (("one", [("tea", 3), ("cake", 4.25)]), ("two", [("tea", 5.5), ("Tea", 1)])):
        lines = [json.dumps({"product": product, "price": price}) for product, price in sales]
        (files / f"{name}.json").write_text("\n".join(lines))
        settings = {"trigger": "availableNow"}
        with execute(spark, job, checkpoint_location=str(tmp_path / "job"), settings=settings) as running:
            assert running.await_termination(400)
    assert run("SELECT product, n, best FROM totals ORDER BY n, product") == [
        ("Tea", 1, Decimal("1.00")),
        ("cake", 1, Decimal("4.25")),
        ("tea", 2, Decimal("5.50")),
    ]
    assert run("SELECT product, n FROM rare ORDER BY product") == [("Tea", 1), ("cake", 1)]
    assert run("SELECT COUNT(*) FROM log") == [(4,)]
    without_key = job.replace("n BIGINT, PRIMARY KEY (product) NOT ENFORCED)", "n BIGINT)")
    with pytest.raises(SqlError, match="declare its PRIMARY KEY"):
        execute(spark, without_key, checkpoint_location=str(tmp_path / "other"))


@pytest.mark.needs("programs")
def test_a_job_reads_and_joins_with_the_databases_own_driver(server, tmp_path) -> None:
    """As a user does: the command line, with MariaDB's jar. Rows are those of the database's table."""
    url = sa.make_url(server.fresh_database())
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE products (id BIGINT PRIMARY KEY, name VARCHAR(20))"))
        connection.execute(sa.text("INSERT INTO products VALUES (1, 'tea'), (2, 'cake')"))
    (jar,) = resolve(["org.mariadb.jdbc:mariadb-java-client:3.5.3"])
    (tmp_path / "sales.json").write_text('{"product": 1}\n{"product": 1}\n{"product": 3}')
    job = tmp_path / "job.sql"
    job.write_text(
        f"""SET 'execution.runtime-mode' = 'batch';
        CREATE TABLE products (id BIGINT, name STRING) WITH ('connector' = 'jdbc',
          'url' = 'jdbc:mariadb://{url.host}:{url.port}/{url.database}', 'table-name' = 'products',
          'username' = '{USER}', 'password' = '{PASSWORD}');
        CREATE TABLE sales (product BIGINT)
          WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '{tmp_path / "sales.json"}');
        SELECT product, name FROM sales LEFT JOIN products ON product = id ORDER BY product;"""
    )
    command = [sys.executable, "-m", "pyspark_rocketmq", "sql", str(job), "--json", "--master", "local[1]"]
    command += ["--conf", f"spark.jars={jar}"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert run.returncode == 0, run.stderr[-2_000:]
    assert json.loads(run.stdout) == [
        {"product": 1, "name": "tea"},
        {"product": 1, "name": "tea"},
        {"product": 3, "name": None},
    ]
