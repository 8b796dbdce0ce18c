"""The lakehouse examples, with Spark 4.1: Delta and Iceberg have no JAR for a later Spark that works."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from tests.support.wheel import ROOT, Installation, build

from pyspark_rocketmq.client import OutgoingMessage
from pyspark_rocketmq.testing import MockBroker

pytestmark = [pytest.mark.needs("programs", "packages"), pytest.mark.timeout(3_000)]

SPARK = "pyspark==4.1.4"
EXAMPLES = ROOT / "examples" / "lakehouse"
TOPICS = {"orders": 2, "customers": 2}

Start = Callable[..., subprocess.CompletedProcess[str]]
Run = Callable[..., list[str]]
Change = dict[str, object]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """An environment with the wheel and Spark 4.1."""
    (wheel,) = build(ROOT, tmp_path_factory.mktemp("dist"), "wheel")
    environment = Installation(tmp_path_factory.mktemp("spark"), wheel)
    environment.pip(SPARK, timeout_s=300)
    environment.lend(Requirement("pandas"))  # what PySpark's own extra `sql` asks for
    return environment


@pytest.fixture
def mq() -> Iterator[MockBroker]:
    with MockBroker(TOPICS) as broker:
        yield broker


@pytest.fixture
def start(environment: Installation, mq: MockBroker, tmp_path: Path) -> Start:
    """Run an example to its end."""

    def start(example: str, kind: str, topic: str, *more: str) -> subprocess.CompletedProcess[str]:
        return environment.run(
            *("python", str(EXAMPLES / example), kind, str(tmp_path / "lake"), topic, *more),
            cwd=tmp_path,
            timeout_s=600,
            NAMESRV_ADDR=mq.name_server,
            PYSPARK_PYTHON=str(environment.bin / "python"),
            SPARK_LOCAL_IP="127.0.0.1",
            HOME=os.environ["HOME"],
        )

    return start


@pytest.fixture
def run(start: Start) -> Run:
    """Run an example, and return the lines that it prints."""

    def run(*arguments: str) -> list[str]:
        done = start(*arguments)
        assert done.returncode == 0, done.stderr[-6_000:]
        return done.stdout.splitlines()

    return run


def send_orders(mq: MockBroker, *orders: dict[str, object]) -> None:
    for order in orders:
        mq.send(OutgoingMessage("orders", json.dumps(order).encode()))


def forget_last_commit(lake: Path, topic: str) -> Path:
    """Leave the checkpoint as a run does that dies after the table has its batch."""
    commits = lake / "_checkpoints" / topic / "commits"
    last = max((file for file in commits.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)
    return last


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_orders_are_in_the_table_once(run: Run, mq: MockBroker, tmp_path: Path, kind: str) -> None:
    send_orders(mq, *({"id": at, "product": "tea", "amount": at / 2} for at in range(10)))
    assert run("orders_to_table.py", kind, "orders")[-1].startswith("10 orders, ")
    forget_last_commit(tmp_path / "lake", "orders")
    send_orders(mq, {"id": 10, "product": "milk", "amount": 1.5})
    again = run("orders_to_table.py", kind, "orders")[-1]  # repeats the batch
    assert again.startswith("10 orders, ")
    wider = "id BIGINT, product STRING, amount DOUBLE, city STRING"
    send_orders(mq, {"id": 11, "product": "milk", "amount": 1.5, "city": "Ulm"})
    assert run("orders_to_table.py", kind, "orders", wider)[-1].startswith("12 orders, ")
    send_orders(mq, {"id": 12, "product": "tea", "amount": 2.5, "city": "Bonn"})
    last = run("orders_to_table.py", kind, "orders", wider)[-1]
    assert last.startswith("13 orders, ")
    before, after = (int(part.split()[0]) for part in last.removeprefix("13 orders, ").split(", "))
    assert (before > 2, after) == (True, 1)


def canal(kind: str, *rows: dict[str, str], old: list[dict[str, str]] | None = None) -> Change:
    return {"type": kind, "isDdl": False, "table": "customers", "data": list(rows), "old": old}


def debezium(op: str, before: Change | None, after: Change | None) -> Change:
    return {"schema": {}, "payload": {"op": op, "before": before, "after": after, "ts_ms": 1}}


CANAL_DDL: Change = {"type": "ALTER", "isDdl": True, "sql": "ALTER TABLE customers ADD x INT", "data": None}
HEARTBEAT: Change = {"schema": {}, "payload": {"ts_ms": 1}}

CANAL = (
    [
        canal("INSERT", {"id": "1", "name": "Ann", "city": "Ulm"}, {"id": "2", "name": "Bob", "city": "Ulm"}),
        CANAL_DDL,
        canal("UPDATE", {"id": "1", "name": "Ann", "city": "Bonn"}, old=[{"city": "Ulm"}]),
        canal("INSERT", {"id": "5", "name": "Eve", "city": "Rom"}),
    ],
    [
        canal("INSERT", {"id": "3", "name": "Cid", "city": "Rom"}),
        canal("DELETE", {"id": "3", "name": "Cid", "city": "Rom"}),
        canal("UPDATE", {"id": "1", "name": "Ann", "city": "Rom"}, old=[{"city": "Bonn"}]),
        canal("UPDATE", {"id": "4", "name": "Bob", "city": "Ulm"}, old=[{"id": "2"}]),
        canal("DELETE", {"id": "5", "name": "Eve", "city": "Rom"}),
    ],
    canal("INSERT", {"id": "6", "name": "Fay", "city": "Ulm"}),
)
DEBEZIUM = (
    [
        debezium("r", None, {"id": 1, "name": "Ann", "city": "Ulm"}),
        debezium("c", None, {"id": 2, "name": "Bob", "city": "Ulm"}),
        HEARTBEAT,
        debezium("u", {"id": 1}, {"id": 1, "name": "Ann", "city": "Bonn"}),
        debezium("c", None, {"id": 5, "name": "Eve", "city": "Rom"}),
    ],
    [
        debezium("c", None, {"id": 3, "name": "Cid", "city": "Rom"}),
        debezium("d", {"id": 3, "name": "Cid", "city": "Rom"}, None),
        debezium("u", None, {"id": 1, "name": "Ann", "city": "Rom"}),
        debezium("d", {"id": 2, "name": "Bob", "city": "Ulm"}, None),
        debezium("c", None, {"id": 4, "name": "Bob", "city": "Ulm"}),
        debezium("d", {"id": 5}, None),
    ],
    debezium("c", None, {"id": 6, "name": "Fay", "city": "Ulm"}),
)


def send_changes(mq: MockBroker, *changes: Change) -> None:
    """Send changes to one queue."""
    for change in changes:
        mq.send(OutgoingMessage("customers", json.dumps(change).encode()), mq.queue("customers"))


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("changes", [CANAL, DEBEZIUM], ids=["canal", "debezium"])
def test_a_table_follows_its_changes(
    run: Run, mq: MockBroker, tmp_path: Path, kind: str, changes: tuple[list[Change], list[Change], Change]
) -> None:
    first, second, later = changes
    send_changes(mq, *first)
    assert run("changes_to_table.py", kind, "customers") == ["1 Ann Bonn", "2 Bob Ulm", "5 Eve Rom"]
    send_changes(mq, *second)
    assert run("changes_to_table.py", kind, "customers") == ["1 Ann Rom", "4 Bob Ulm"]
    commit = forget_last_commit(tmp_path / "lake", "customers")
    send_changes(mq, later)
    assert run("changes_to_table.py", kind, "customers") == ["1 Ann Rom", "4 Bob Ulm"]  # the same batch
    assert commit.exists()


def test_a_change_that_empties_the_table_stops_the_query(start: Start, mq: MockBroker) -> None:
    send_changes(mq, CANAL[2], {"type": "TRUNCATE", "isDdl": True, "data": None})
    done = start("changes_to_table.py", "iceberg", "customers")
    assert done.returncode != 0
    assert "message 1 of queue 0 of " in done.stderr
    assert "empties the table" in done.stderr


@pytest.fixture
def changes_of(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Row]]:
    """What the example finds in messages."""
    monkeypatch.syspath_prepend(EXAMPLES)
    example = runpy.run_path(str(EXAMPLES / "changes_to_table.py"))

    def changes_of(*bodies: object) -> list[Row]:
        rows = [
            (body if isinstance(body, bytes) else json.dumps(body).encode(), "broker-a", 0, offset)
            for offset, body in enumerate(bodies)
        ]
        schema = "body BINARY, brokerName STRING, queueId INT, queueOffset BIGINT"
        found: list[Row] = example["changes_of"](spark.createDataFrame(rows, schema)).collect()
        return found

    return changes_of


def test_envelopes_have_rows_and_positions(changes_of: Callable[..., list[Row]]) -> None:
    moved = canal(
        "UPDATE", {"id": "2", "name": "b"}, {"id": "3", "name": "c"}, old=[{"id": "1"}, {"name": "x"}]
    )
    bare = debezium("u", {"id": 4, "name": "y"}, {"id": 4, "name": None, "other": {"a": 1}})["payload"]
    assert [(row.id, row.name, row.deleted, *row.position) for row in changes_of(moved, bare)] == [
        (1, None, True, 0, 0),
        (2, "b", False, 0, 1),
        (3, "c", False, 0, 2),
        (4, None, False, 1, 0),
    ]


def test_what_changes_no_row_is_ignored(changes_of: Callable[..., list[Row]]) -> None:
    schema_change = {"ts_ms": 1, "databaseName": "shop", "ddl": "ALTER TABLE customers ADD x INT"}
    logical_message = {"op": "m", "ts_ms": 1, "message": {"prefix": "p", "content": ""}}
    create_database = {"type": "QUERY", "isDdl": True, "sql": "CREATE DATABASE x", "data": None}
    assert not changes_of(CANAL_DDL, create_database, HEARTBEAT, {"ts_ms": 1}, schema_change, logical_message)


@pytest.mark.parametrize(
    "change",
    [
        {"type": "TRUNCATE", "isDdl": True, "data": None},
        {"type": "ERASE", "isDdl": True, "data": None},
        {"type": "DELETE", "isDdl": False, "data": None, "sql": "DELETE FROM customers"},
        canal("INSERT", {"id": "1"}, {"name": "Ann"}),
        debezium("t", None, None),
        debezium("d", None, None),
        debezium("u", {"id": 1}, {"name": "Ann"}),
        {"id": 1, "name": "Ann", "ts_ms": 1},
        b"id,name",
    ],
    ids=lambda change: json.dumps(change)[:60] if isinstance(change, dict) else "text",
)
def test_what_it_cannot_apply_is_refused(changes_of: Callable[..., list[Row]], change: object) -> None:
    with pytest.raises(PySparkException, match="message 1 of queue 0 of broker-a "):
        changes_of(HEARTBEAT, change)
