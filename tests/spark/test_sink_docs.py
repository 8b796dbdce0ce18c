"""The code of docs/sink.md, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession
from tests.support.page_code import DOCS, python_blocks
from tests.support.topics import TopicFactory
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.options import SinkOptions, SourceOptions, option_reference

BLOCKS = python_blocks("sink.md")


@pytest.fixture
def run(spark: SparkSession, mq: DevCluster, topic: TopicFactory, tmp_path: Path):
    """Run a block with this test's broker, topic and folder in place of the page's."""
    name, source = topic(queues=2), topic(queues=2)

    def execute(block: str) -> dict[str, object]:
        code = block.replace("127.0.0.1:9876", mq.name_server).replace("/tmp/", f"{tmp_path}/")
        for written, made in (("orders", name), ("events", source)):
            code = re.sub(rf"(['\"]){written}\1", rf"\1{made}\1", code)
        names: dict[str, object] = {"spark": spark}
        exec(code, names)
        return names

    execute.topic, execute.source = name, source
    return execute


def test_what_is_written_arrives(run, client: Client) -> None:
    for count, block in zip((1, 2, 100, 10), BLOCKS[:4], strict=True):
        before = ends(client, run.topic)
        run(block)
        eventually(lambda c=count, b=before: ends(client, run.topic) == b + c, what=f"{count} rows")


def test_a_transaction_arrives(run, send, client: Client) -> None:
    send(run.source, 12)
    run(BLOCKS[4])
    eventually(lambda: ends(client, run.topic) == 12, what="12 rows")


def ends(client: Client, topic: str) -> int:
    return sum(client.max_offsets(client.read_queues(topic)).values())


def test_the_store_gets_what_the_topic_has(run, send, tmp_path: Path) -> None:
    send(run.topic, 12, tags="new")
    engine = sa.create_engine(f"sqlite:///{tmp_path}/results.db")
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE revenue (tags TEXT PRIMARY KEY, n INTEGER)"))
    names = run(BLOCKS[5])
    with engine.begin() as connection:
        assert [tuple(row) for row in connection.execute(sa.text("SELECT * FROM revenue"))] == [("new", 12)]
    names["store"].close()
    engine.dispose()


def test_the_page_names_no_option_that_is_not_there() -> None:
    assert len(BLOCKS) == 6
    known = {
        spelling
        for cls in (SourceOptions, SinkOptions)
        for row in option_reference(cls)
        for spelling in (row.name, *row.aliases)
    }
    named = set(re.findall(r"`([a-z]+[A-Z][A-Za-z]*)=", (DOCS / "sink.md").read_text(encoding="utf-8")))
    assert named
    assert named <= known, named - known
