"""Results and progress in one transaction: repeats change nothing, skips are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.spark.conftest import Sender, cut
from tests.support.mariadb import MariaDBServer
from tests.support.postgres import PostgresServer
from tests.support.topics import TopicFactory
from tests.support.wait import eventually

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.errors import DataLossError, RocketMQError
from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.planning.batch_replay import BatchId, StoredProgress
from pyspark_rocketmq.spark import (
    HadoopFileOffsetStore,
    OffsetStore,
    SqlOffsetStore,
    append_to,
    transactional_writer,
    upsert_into,
)
from pyspark_rocketmq.spark.features import ReadAllAvailable
from pyspark_rocketmq.spark.stores.database_connection import open_connection, open_engine
from pyspark_rocketmq.spark.stores.foreach_batch import write_in_turn
from pyspark_rocketmq.spark.stores.sql_store import _METADATA
from pyspark_rocketmq.streams.connectors.database_source import TablesReader
from pyspark_rocketmq.streams.connectors.dimension import cached_rows

QUEUE = MessageQueue("orders", "broker-a", 0)


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariaDBServer]:
    with MariaDBServer() as server:
        yield server


MARIADB = pytest.param("mariadb", marks=pytest.mark.needs("mariadb"))
"""Its server is a package of the system."""


@pytest.fixture(params=["sqlite", "postgres", MARIADB])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/results.db"
    return request.getfixturevalue(request.param).fresh_database()


@pytest.fixture
def database(url: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE bodies (body TEXT)"))
        connection.execute(sa.text("CREATE TABLE totals (parity INTEGER PRIMARY KEY, n BIGINT)"))
    yield engine
    engine.dispose()


@pytest.fixture
def store(url: str) -> Iterator[SqlOffsetStore]:
    store = SqlOffsetStore(url, job="orders")
    yield store
    store.close()


def all_rows(database: sa.Engine, table: str) -> list[tuple[object, ...]]:
    with database.begin() as connection:
        return sorted(tuple(row) for row in connection.execute(sa.text(f"SELECT * FROM {table}")))


@pytest.fixture
def run(spark: SparkSession, mq: DevCluster, tmp_path: Path) -> Callable[..., None]:
    """``run(topic, store, write, ...)``: an AvailableNow run through ``transactional_writer``."""

    def run(
        topic: str,
        store: OffsetStore,
        write: Callable[..., None],
        *,
        checkpoint: str = "checkpoint",
        shape: Callable[[DataFrame], DataFrame] = lambda df: df.selectExpr("body"),
        mode: str = "append",
        start: str = "earliest",
        **options: object,
    ) -> None:
        location = str(tmp_path / checkpoint)
        df = (
            spark.readStream.format("rocketmq")
            .options(
                nameServer=mq.name_server, topic=topic, bodyAs="string", startingOffsets=start, **options
            )
            .load()
        )
        query = (
            shape(df)
            .writeStream.outputMode(mode)
            .foreachBatch(transactional_writer(checkpoint=location, store=store, write=write))
            .option("checkpointLocation", location)
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination(240)
        finally:
            query.stop()

    return run


def forget_last_batch(checkpoint: Path) -> None:
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_a_server_that_ended_its_connections_between_batches_is_no_error(store, database):
    with store.transaction() as transaction:
        transaction.handle.execute(sa.text("INSERT INTO bodies VALUES ('a')"))
    with database.connect() as connection:
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        connection.execute(sa.text(f"{ended} AND datname = current_database()"))
    with store.transaction() as transaction:
        assert transaction.handle.scalar(sa.text("SELECT count(*) FROM bodies")) == 1


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
@pytest.mark.parametrize("is_commit", [False, True])
def test_a_server_that_ends_in_a_transaction_refuses_no_rows(
    store: SqlOffsetStore, database: sa.Engine, is_commit: bool
) -> None:
    def end_and_write(handle: sa.Connection) -> None:
        number = handle.scalar(sa.text("SELECT pg_backend_pid()"))
        with database.connect() as other:
            other.execute(sa.text(f"SELECT pg_terminate_backend({number}, 60000)"))
        if not is_commit:
            handle.execute(sa.text("INSERT INTO bodies VALUES ('a')"))

    with pytest.raises(RocketMQError) as caught, store.transaction() as transaction:
        end_and_write(transaction.handle)
    assert re.match(
        "the connection to the database is lost: .*; start the query again when the server runs .*job=orders",
        str(caught.value),
    )
    assert store.offsets() == {}


@pytest.mark.parametrize("use", ["store", "dimension", "added rows"])
@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_a_server_that_restarts_between_batches_is_waited_for(
    url: str, store: SqlOffsetStore, database: sa.Engine, postgres: PostgresServer, use: str, caplog
) -> None:
    options = {"url.password": url, "pattern": "totals", "idField": "n", "refreshSeconds": "0"}
    added = TablesReader(options, SYSTEM_CLOCK)

    def batch() -> object:
        if use == "dimension":
            return cached_rows(url, "SELECT count(*) AS rows FROM bodies", 0, clock=SYSTEM_CLOCK)
        if use == "added rows":
            return added.latestOffset({}, ReadAllAvailable())
        with store.transaction() as transaction:
            return transaction.handle.scalar(sa.text("SELECT count(*) FROM bodies"))

    before = batch()
    database.dispose()
    with ThreadPoolExecutor(1) as pool:
        postgres.stop()
        try:
            late = pool.submit(batch)
            eventually(lambda: "waiting for it" in caplog.text or late.done(), what="the server to be missed")
        finally:
            postgres.start()
        assert late.result(120) == before


@pytest.mark.parametrize("url", ["postgres", MARIADB], indirect=True)
def test_a_database_that_refuses_the_user_is_not_asked_again(url: str, caplog) -> None:
    wrong = sa.make_url(url).set(username="nobody_known", password="wrong", database="no_such")
    with pytest.raises(RocketMQError, match="does not answer"):
        open_connection(open_engine(wrong.render_as_string(hide_password=False)), SYSTEM_CLOCK)
    assert "waiting for it" not in caplog.text


@pytest.mark.parametrize("url", ["postgres", MARIADB], indirect=True)
def test_rows_and_offsets_are_one_and_a_repeat_is_nothing(
    topic: TopicFactory,
    send: Sender,
    run: Callable[..., None],
    store: SqlOffsetStore,
    database: sa.Engine,
    tmp_path: Path,
) -> None:
    name = topic(queues=2)
    assert store.starting_offsets() == "earliest"
    send(name, 30)
    run(name, store, append_to("bodies"), **cut(12))
    sent = sorted((body,) for _, _, _, body in send.sent[name])
    assert all_rows(database, "bodies") == sent
    forget_last_batch(tmp_path / "checkpoint")
    run(name, store, append_to("bodies"))
    assert all_rows(database, "bodies") == sent
    assert sum(store.offsets().values()) == 30
    # A query of its own goes on from the stored offsets.
    send(name, 10)
    run(name, store, append_to("bodies"), checkpoint="second", start=store.starting_offsets())
    assert all_rows(database, "bodies") == sorted((body,) for _, _, _, body in send.sent[name])


@pytest.mark.parametrize("url", ["postgres", MARIADB], indirect=True)
def test_a_failed_write_leaves_nothing_and_is_made_up_for(
    topic: TopicFactory, send: Sender, run: Callable[..., None], store: SqlOffsetStore, database: sa.Engine
) -> None:
    name = topic(queues=1)
    send(name, 5)

    def fails_behind_its_rows(connection: sa.Connection, batch: DataFrame) -> None:
        append_to("bodies")(connection, batch)
        raise RuntimeError("the power failed")

    with pytest.raises(StreamingQueryException, match="the power failed"):
        run(name, store, fails_behind_its_rows)
    assert all_rows(database, "bodies") == []
    assert store.offsets() == {}
    run(name, store, append_to("bodies"))
    assert len(all_rows(database, "bodies")) == 5


@pytest.mark.parametrize("url", ["sqlite", MARIADB], indirect=True)
def test_an_aggregation_counts_everything_once(
    topic: TopicFactory,
    send: Sender,
    run: Callable[..., None],
    store: SqlOffsetStore,
    database: sa.Engine,
    tmp_path: Path,
) -> None:
    name = topic(queues=2)

    def counted(df: DataFrame) -> DataFrame:
        return (
            df.groupBy((df.queueOffset % 2).cast("int").alias("parity"))
            .count()
            .withColumnRenamed("count", "n")
        )

    def go() -> None:
        run(name, store, upsert_into("totals", key=["parity"]), shape=counted, mode="update")

    send(name, 20)
    go()
    send(name, 12)
    go()
    assert all_rows(database, "totals") == [(0, 16), (1, 16)]
    forget_last_batch(tmp_path / "checkpoint")
    go()
    assert all_rows(database, "totals") == [(0, 16), (1, 16)]


@pytest.mark.parametrize("url", ["sqlite", MARIADB], indirect=True)
def test_a_skip_is_refused_and_writes_nothing(
    topic: TopicFactory, send: Sender, run: Callable[..., None], store: SqlOffsetStore, database: sa.Engine
) -> None:
    name = topic(queues=1)
    send(name, 6)
    run(name, store, append_to("bodies"))
    send(name, 6)
    later = json.dumps({name: {"broker-a": {"0": 9}}})
    with pytest.raises(StreamingQueryException, match=r"BATCH_SKIPPED.*stored_end=6"):
        run(name, store, append_to("bodies"), checkpoint="another", start=later)
    assert len(all_rows(database, "bodies")) == 6


@pytest.mark.parametrize("table", _METADATA.sorted_tables, ids=str)
def test_two_jobs_that_begin_at_the_same_moment_share_new_tables(
    url: str, store: SqlOffsetStore, table: sa.Table
) -> None:
    """The second one creates the table when the first one has just seen that there is none."""
    second = SqlOffsetStore(url, job="others")
    created = []
    sa.event.listen(table, "before_create", lambda *_, **__: created.append(second.offsets()), once=True)
    for each in (store, second):
        with each.transaction() as transaction:
            transaction.advance(transaction.progress(), BatchId("q", 0), [OffsetRange(QUEUE, 0, 5)])
        assert each.offsets() == {QUEUE: 5}
    assert created == [{}]
    second.close()


def test_two_writers_of_one_job_do_not_both_succeed(url: str, store: SqlOffsetStore) -> None:
    batch, ranges = BatchId("q", 1), [OffsetRange(QUEUE, 0, 5)]
    with store.transaction() as transaction:
        transaction.advance(StoredProgress(), BatchId("q", 0), [])
    with store.transaction() as transaction:
        before = transaction.progress()
        transaction.advance(before, batch, ranges)
    second = SqlOffsetStore(url, job="orders")
    with pytest.raises(DataLossError, match="another query writes"), second.transaction() as transaction:
        transaction.advance(before, batch, ranges)
    second.close()
    assert store.offsets() == {QUEUE: 5}


@pytest.mark.parametrize("url", ["postgres", MARIADB], indirect=True)
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("query", ["q", "another"])
def test_a_commit_of_an_earlier_run_that_comes_late_is_not_that_of_another_query(
    spark: SparkSession, url: str, store: SqlOffsetStore, database: sa.Engine, is_first: bool, query: str
) -> None:
    """Its server was frozen, and the job was killed and started again meanwhile."""
    earlier, rows, ranges = SqlOffsetStore(url, job="orders"), spark.sql("SELECT 'a' AS body"), []
    if not is_first:
        ranges = [OffsetRange(QUEUE, 0, 5)]
        with store.transaction() as transaction:
            transaction.advance(StoredProgress(), BatchId("q", 0), [])
    waiting = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE wait_event_type = 'Lock' AND datname = current_database()"
        if database.dialect.name == "postgresql"
        else "SELECT variable_value > 0 FROM information_schema.global_status "
        "WHERE variable_name = 'innodb_row_lock_current_waits'"
    )

    def is_waiting() -> bool:
        with database.connect() as connection:
            return bool(connection.scalar(sa.text(waiting)))

    with ThreadPoolExecutor(1) as pool:
        with earlier.transaction() as transaction:
            transaction.advance(transaction.progress(), BatchId(query, 1), ranges)
            append_to("bodies")(transaction.handle, rows)
            written = store, BatchId("q", 1), ranges, rows, append_to("bodies")
            later = pool.submit(write_in_turn, *written)
            eventually(lambda: later.done() or is_waiting(), 60, what="the later run at the row")
        if query == "q":
            later.result(120)
        else:
            with pytest.raises(DataLossError, match="another query writes"):
                later.result(120)
    assert all_rows(database, "bodies") == [("a",)]
    earlier.close()


def test_jobs_are_apart_and_secrets_do_not_show(url: str, store: SqlOffsetStore) -> None:
    with store.transaction() as transaction:
        transaction.advance(StoredProgress(), BatchId("q", 0), [OffsetRange(QUEUE, 0, 5)])
    other = SqlOffsetStore(url, job="another")
    assert other.offsets() == {}
    other.close()
    assert "hunter2" not in repr(SqlOffsetStore("postgresql+psycopg://me:hunter2@h/db", job="j"))


def test_offsets_in_a_file_on_a_hadoop_path(
    spark: SparkSession, topic: TopicFactory, send: Sender, run: Callable[..., None], tmp_path: Path
) -> None:
    name = topic(queues=2)
    send(name, 8)
    store = HadoopFileOffsetStore(spark, f"file://{tmp_path}/offsets/orders.json")
    written: dict[int, int] = {}

    def write(_: None, batch: DataFrame) -> None:
        written[len(written)] = batch.count()

    run(name, store, write)
    forget_last_batch(tmp_path / "checkpoint")
    run(name, HadoopFileOffsetStore(spark, f"file://{tmp_path}/offsets/orders.json"), write)
    assert written == {0: 8}
    assert sum(store.offsets().values()) == 8
    assert json.loads(store.starting_offsets())[name]["broker-a"].keys() == {"0", "1"}
