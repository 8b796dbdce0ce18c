"""The programs of ``examples/streams_*.py`` over rows worked out by hand."""

from __future__ import annotations

import importlib
import sqlite3
from contextlib import closing

import pytest
from tests.spark.streams_support import CLICKS, FLOWS, at, table

from pyspark_rocketmq.streams import StreamBuilder


@pytest.fixture(autouse=True)
def session(spark):
    """The examples use the session that is there."""
    return spark


def example(name):
    return importlib.import_module(f"examples.streams_{name}")


def test_windows():
    rows = example("windows").pipeline("h:1", "t").test(FLOWS)
    assert table(rows, "InFlow", "OutFlow", "total") == [(15, 12, 3), (18, 15, 3), (22, 18, 4)]


def test_clicks():
    rows = example("clicks").pipeline("h:1", "t", "o").test(CLICKS)
    assert table(rows, "userId", "total") == [
        ("1", 2),
        ("1", 2),
        ("2", 1),
        ("2", 2),
        ("3", 1),
        ("3", 1),
        ("4", 1),
    ]


def test_words():
    counts = example("words").words(StreamBuilder("words"), "t")
    assert table(counts.test(["a b", "b"]), "key", "value") == [("a", 1), ("b", 2)]


def test_sessions():
    rows = [at(0, user="a", page="x", n=1), at(2, user="a", page="x", n=2), at(9, user="a", page="y", n=60)]
    rows = example("sessions").pipeline("h:1", "t").test([*rows, at(9, user="a", page="y", n=3)])
    assert table(rows, "pages", "double", "visits") == [(1, "4", 2), (1, "6", 1)]


def test_joins(tmp_path):
    (tmp_path / "cities.csv").write_text("id,name\n1,Rom\n")
    with closing(sqlite3.connect(tmp_path / "r.db")) as connection, connection:
        connection.execute("CREATE TABLE paid (order_id TEXT, amount TEXT, name TEXT)")
    pipeline = example("joins").pipeline(
        "h:1", "o", "p", str(tmp_path / "cities.csv"), f"sqlite:///{tmp_path}/r.db"
    )
    rows = {
        "o": [at(1, order_id="7", city="1"), at(1, order_id="8", city="2")],
        "p": [at(2, order_id="7", amount=5)],
    }
    assert pipeline.test(rows) == [{"order_id": "7", "amount": "5", "name": "Rom"}]


def test_split(tmp_path):
    pipeline = example("split").pipeline("h:1", "t", str(tmp_path))
    rows = [{"age": 20}, {"age": 2}]
    assert pipeline.test(rows, sink=0) == [{"age": 20}]
    assert pipeline.test(rows, sink=1) == [{"age": 2}]
