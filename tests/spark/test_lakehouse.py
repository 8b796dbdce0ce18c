"""The lakehouse example, with Spark 4.1: Delta and Iceberg have no JAR for a later Spark that works."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.support.wheel import ROOT, Installation, build

from pyspark_rocketmq.client import OutgoingMessage
from pyspark_rocketmq.testing import MockBroker

pytestmark = [pytest.mark.needs("programs", "packages"), pytest.mark.timeout(3_000)]

SPARK = "pyspark==4.1.4"
EXAMPLES = ROOT / "examples" / "lakehouse"
TOPICS = {"orders": 2}

Run = Callable[..., list[str]]


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
def run(environment: Installation, mq: MockBroker, tmp_path: Path) -> Run:
    """Run an example, and return the lines that it prints."""

    def run(example: str, kind: str, topic: str, *more: str) -> list[str]:
        done: subprocess.CompletedProcess[str] = environment.run(
            *("python", str(EXAMPLES / example), kind, str(tmp_path / "lake"), topic, *more),
            cwd=tmp_path,
            timeout_s=600,
            NAMESRV_ADDR=mq.name_server,
            PYSPARK_PYTHON=str(environment.bin / "python"),
            SPARK_LOCAL_IP="127.0.0.1",
            HOME=os.environ["HOME"],
        )
        assert done.returncode == 0, done.stderr[-6_000:]
        return done.stdout.splitlines()

    return run


def send_orders(mq: MockBroker, *orders: dict[str, object]) -> None:
    for order in orders:
        mq.send(OutgoingMessage("orders", json.dumps(order).encode()))


def forget_last_commit(lake: Path, topic: str) -> None:
    """Leave the checkpoint as a run does that dies after the table has its batch."""
    commits = lake / "_checkpoints" / topic / "commits"
    last = max((file for file in commits.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)


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
