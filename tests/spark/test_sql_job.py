"""Job files from the command line: what the examples do, through kill -9 too."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.cli import CommandLine
from tests.support.topics import create_topic, fill
from tests.support.wait import eventually

from pyspark_rocketmq.cli.job_commands.sql import show
from pyspark_rocketmq.client import Client, Message
from pyspark_rocketmq.client.read.message_search import last_messages
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.devcluster.jars import resolve
from pyspark_rocketmq.sql import execute

JOBS = Path(__file__).parents[2] / "examples" / "sql"
ORDERS = 120
START = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)
PATIENCE_S = 300


class JobProcess:
    """``pyspark-rocketmq sql`` in a session of processes of its own."""

    def __init__(
        self, job: Path, checkpoint: Path, name_server: str, log_file: Path, jars: Path | str = ""
    ) -> None:
        conf = {
            "jars": str(jars),
            "ui.enabled": "false",
            "driver.bindAddress": "127.0.0.1",
            "driver.host": "127.0.0.1",
            # It lives too short for thorough compilation to pay.
            "driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        confs = [part for name, value in conf.items() for part in ("--conf", f"spark.{name}={value}")]
        places = ["--checkpoint", str(checkpoint), "--master", "local[2]"]
        self._command = [sys.executable, "-m", "pyspark_rocketmq", "sql", str(job), *places, *confs]
        self._environ = {**os.environ, "NAMESRV_ADDR": name_server, "PYSPARK_PYTHON": sys.executable}
        self._log_file = log_file
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env=self._environ, start_new_session=True
            )

    def check(self) -> None:
        """Fail if it ended by itself."""
        assert self._process is not None
        assert self._process.poll() is None, self._log_file.read_text(errors="replace")[-4_000:]

    def wait(self) -> int:
        """Return its status when it ended by itself."""
        assert self._process is not None
        return self._process.wait(timeout=PATIENCE_S)

    def kill(self) -> None:
        """kill -9, Python and the JVM."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=60)

    def interrupt(self) -> int:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout=60)


def moment(seconds: int) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


def sell(client: Client, numbers: range) -> None:
    """Orders a second apart, each paid for five seconds later; a click a second."""
    orders = [
        json.dumps({"order_id": n, "product": f"p{n % 3}", "cents": n + 1, "ordered_at": moment(n)})
        for n in numbers
    ]
    fill(client, "shop_orders", [*orders, "no order"])
    payments = [json.dumps({"order_id": n, "paid_at": moment(n + 5)}) for n in numbers]
    fill(client, "shop_payments", payments)
    fill(client, "shop_clicks", [f"p{n % 3},{moment(n)}" for n in numbers])


def written(client: Client, topic: str) -> list[Message]:
    return last_messages(client, client.read_queues(topic), 10_000)


def paid(client: Client) -> dict[int, dict[str, object]]:
    rows = [json.loads(message.body) for message in written(client, "shop_paid_orders")]
    return {row["order_id"]: row for row in rows}


def clicks(client: Client) -> dict[tuple[str, str], int]:
    rows = [json.loads(message.body) for message in written(client, "shop_clicks_by_minute")]
    return {(row["minute"], row["product"]): row["clicks"] for row in rows}


def test_a_query_starts_where_an_earlier_run_left_a_part_of_its_first_offsets(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What a full disk leaves, or kill -9 within the first batch. Spark itself would not start there."""
    (tmp_path / "numbers").mkdir()
    (tmp_path / "numbers" / "one.json").write_text('{"n": 1}')
    offsets = tmp_path / "checkpoint" / "doubled" / "offsets"
    offsets.mkdir(parents=True)
    for name in (".0.be732471.tmp", "..0.be732471.tmp.crc"):
        (offsets / name).touch()
    files = "WITH ('connector' = 'filesystem', 'format' = 'json', 'path' ="
    job = f"""CREATE TABLE numbers (n INT) {files} '{tmp_path}/numbers');
    CREATE TABLE doubled (n INT) {files} '{tmp_path}/doubled');
    INSERT INTO doubled SELECT 2 * n FROM numbers;"""
    checkpoint = str(tmp_path / "checkpoint")
    with execute(spark, job, checkpoint_location=checkpoint, settings={"trigger": "availableNow"}) as run:
        assert run.await_termination(PATIENCE_S)
    assert [row.n for row in spark.read.json(f"{tmp_path}/doubled").collect()] == [2]


@pytest.mark.needs("programs")
@pytest.mark.timeout(900)
def test_a_job_of_a_join_and_a_window_goes_on_after_kill_9(
    mq: DevCluster, client: Client, tmp_path: Path
) -> None:
    for topic in ("orders", "payments", "clicks", "paid_orders", "clicks_by_minute"):
        create_topic(mq, f"shop_{topic}", 1, 6)
    job = JobProcess(JOBS / "shop.sql", tmp_path / "checkpoint", mq.name_server, tmp_path / "job.log")
    try:
        sell(client, range(ORDERS))
        job.start()
        eventually(lambda: job.check() or len(paid(client)) == ORDERS, PATIENCE_S, what="the first half")
        job.kill()
        sell(client, range(ORDERS, 2 * ORDERS))
        fill(client, "shop_clicks", [f"p0,{moment(3_600)}"])  # moves the watermark past every window
        job.start()
        windows = 2 * ORDERS // 60 * 3
        eventually(lambda: job.check() or len(clicks(client)) >= windows, PATIENCE_S, what="the windows")
        eventually(lambda: job.check() or len(paid(client)) == 2 * ORDERS, PATIENCE_S, what="the other half")
        assert job.interrupt() == 130
    finally:
        job.kill()
    assert paid(client) == {
        n: {"order_id": n, "product": f"p{n % 3}", "cents": n + 1, "seconds": 5.0} for n in range(2 * ORDERS)
    }
    assert set(clicks(client).values()) == {20}
    assert {product for _, product in clicks(client)} == {"p0", "p1", "p2"}
    keys = {message.keys for message in written(client, "shop_paid_orders")}
    assert keys == {str(n) for n in range(2 * ORDERS)}


def test_the_example_of_user_behaviour(spark, mq: DevCluster, client: Client, tmp_path: Path) -> None:
    for topic in ("user_behavior", "user_purchases"):
        create_topic(mq, topic, 1, 6)
    rows = [(1, 10, "buy"), (2, 2000, "buy"), (3, 30, "look")]
    bodies = [json.dumps(dict(zip(("user_id", "item_id", "behavior"), row, strict=True))) for row in rows]
    fill(client, "user_behavior", bodies)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NAMESRV_ADDR", mq.name_server)
        text = (JOBS / "user_behavior.sql").read_text(encoding="utf-8")
        text = text.replace(
            "'connector' = 'rocketmq'", f"'connector' = 'rocketmq', 'nameServer' = '{mq.name_server}'"
        )
        with execute(spark, text, checkpoint_location=str(tmp_path)) as job:
            assert job.await_termination(PATIENCE_S)
    found = [(json.loads(m.body), m.tags, m.keys) for m in written(client, "user_purchases")]
    assert found == [
        ({"user_id": 1, "item_id": 10}, "old", "1"),
        ({"user_id": 2, "item_id": 2000}, "new", "2"),
    ]


AVRO = {
    "type": "record",
    "name": "order",
    "fields": [{"name": "id", "type": ["long", "null"]}, {"name": "product", "type": ["null", "string"]}],
}
"""Not the schema that follows from the columns: there, null is the first of both types."""
AVRO_JOB = """
SET 'trigger' = 'availableNow';
CREATE TABLE orders (id BIGINT, product STRING) WITH ('connector' = 'rocketmq', 'topic' = 'avro_orders',
  'format' = 'avro', 'avroSchemaFile' = '{file}');
CREATE TABLE found (id BIGINT, product STRING) WITH ('connector' = 'rocketmq', 'topic' = 'avro_orders',
  'startingOffsets' = 'earliest', 'format' = 'avro', 'avroSchema' = '{schema}', 'badRecords' = 'drop');
CREATE TABLE copies (id BIGINT, product STRING) WITH ('connector' = 'rocketmq', 'topic' = 'avro_copies');
CREATE TABLE narrow (id TINYINT, product STRING) WITH ('connector' = 'rocketmq', 'topic' = 'avro_orders',
  'startingOffsets' = 'earliest', 'format' = 'avro', 'avroSchema' = '{schema}', 'badRecords' = 'drop');
CREATE TABLE narrow_copies (id TINYINT) WITH ('connector' = 'rocketmq', 'topic' = 'avro_narrow_copies');
INSERT INTO orders VALUES (1, 'x'), (2, NULL), (NULL, NULL), (300, 'y');
INSERT INTO copies SELECT * FROM found;
INSERT INTO narrow_copies SELECT id FROM narrow;
"""
DERIVED_COLUMNS = """id BIGINT NOT NULL, name STRING, at TIMESTAMP(3), price DECIMAL(9, 2),
  tags ARRAY<STRING>, who ROW<age INT>"""
DERIVED_JOB = """
SET 'table.local-time-zone' = 'UTC';
CREATE TABLE typed ({columns}) WITH ('connector' = 'rocketmq', 'topic' = 'avro_typed', 'format' = 'avro',
  'startingOffsets' = 'earliest');
CREATE TABLE typed_copies ({columns}) WITH ('connector' = 'rocketmq', 'topic' = 'avro_typed_copies');
INSERT INTO typed VALUES
  (7, 'x', TIMESTAMP '1970-01-01 00:00:01', 1.50, ARRAY['a', NULL], ROW(3)),
  (8, NULL, NULL, NULL, NULL, NULL);
INSERT INTO typed_copies SELECT * FROM typed;
"""
DERIVED_BODIES = (
    # long 7; each field of the union's second type: text, milliseconds, unscaled bytes, array, record
    bytes.fromhex("0e02027802d00f0204009602040202610000020206"),
    bytes.fromhex("100000000000"),
)
"""Written by hand from Avro's specification, for the schema that Flink derives from the columns."""


@pytest.mark.needs("programs")
@pytest.mark.timeout(300)
def test_avro_with_sparks_own_module_for_it(mq: DevCluster, client: Client, tmp_path: Path) -> None:
    (module, *_) = resolve(("org.apache.spark:spark-avro_2.13:4.1.1",))
    for topic in ("orders", "copies", "narrow_copies", "typed", "typed_copies"):
        create_topic(mq, f"avro_{topic}", 1, 6)
    fill(client, "avro_orders", ["\x01"])  # a negative union index: not Avro of this schema
    schema, job_file = tmp_path / "order.avsc", tmp_path / "avro.sql"
    schema.write_text(json.dumps(AVRO))
    derived = DERIVED_JOB.format(columns=DERIVED_COLUMNS)
    job_file.write_text(AVRO_JOB.format(file=schema, schema=json.dumps(AVRO)) + derived)
    job = JobProcess(job_file, tmp_path / "checkpoint", mq.name_server, tmp_path / "job.log", jars=module)
    try:
        job.start()
        assert job.wait() == 0, (tmp_path / "job.log").read_text(errors="replace")[-4_000:]
    finally:
        job.kill()
    found = [message.body for message in written(client, "avro_orders")]
    # As Avro's specification says.
    good = [b"\x02\x00", b"\x00\x02\x02\x02x", b"\x00\x04\x00", b"\x00\xd8\x04\x02\x02y"]
    assert sorted(found) == sorted([*good, b"\x01"])
    copies = sorted(message.body for message in written(client, "avro_copies"))
    assert copies == [b'{"id":1,"product":"x"}', b'{"id":2}', b'{"id":300,"product":"y"}', b"{}"]
    narrow = sorted(message.body for message in written(client, "avro_narrow_copies"))
    assert narrow == [b'{"id":1}', b'{"id":2}', b"{}"]  # 300 does not fit
    assert sorted(message.body for message in written(client, "avro_typed")) == sorted(DERIVED_BODIES)
    typed = [json.loads(message.body) for message in written(client, "avro_typed_copies")]
    row = {"id": 7, "name": "x", "at": "1970-01-01T00:00:01.000000Z", "price": 1.5, "tags": ["a", None]}
    assert sorted(typed, key=lambda found: found["id"]) == [row | {"who": {"age": 3}}, {"id": 8}]


def test_a_wrong_job_is_said_with_its_place(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cli = CommandLine(capsys, monkeypatch, None)
    job = tmp_path / "job.sql"
    job.write_text("SET a = b;\nCREATE TABLE t (a BIGINTT) USING rocketmq")
    found = cli("sql", str(job), "--check")
    assert (found.code, "line 2, column 19: expected the type of a" in found.err) == (2, True)
    assert cli("sql", str(tmp_path / "none.sql")).code == 2
    assert cli("sql", "-", "--check", given="SELECT 1; SELECT 2").out == "2 statements\n"
    assert cli("sql", "-", "--check", "--json", given="SELECT 1").json() == {"statements": 1}


def test_rows_as_json_have_spark_s_types(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    show(spark.sql("SELECT 1.50D AS price, DATE'2026-01-31' AS day, CAST(null AS INT) AS none"), json=True)
    assert json.loads(capsys.readouterr().out) == [{"price": 1.5, "day": "2026-01-31", "none": None}]
