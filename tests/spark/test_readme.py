"""The README's code, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.wait import eventually

from pyspark_rocketmq.client.read.message_search import last_messages

README = Path(__file__).parents[2] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def code(mq, topic, tmp_path):
    """Return a block with this test's broker, topic and folder in place of the README's."""
    name = topic(queues=2)

    def prepare(at: int) -> str:
        block = BLOCKS[at].replace("127.0.0.1:9876", mq.name_server).replace('"orders"', f'"{name}"')
        return block.replace("/tmp/orders-by-tag", str(tmp_path / "checkpoint"))

    prepare.topic = name
    return prepare


def test_there_is_no_block_that_no_test_runs():
    assert len(BLOCKS) == 4


def test_a_topic_is_read_as_a_batch_and_as_a_stream(code, send, spark, capsys):
    send(code.topic, 20, tags="new")
    names: dict[str, object] = {}
    exec(code(0), names)
    assert names["orders"].count() == 20
    assert "| k19| new|" in capsys.readouterr().out

    exec(code(1), names)
    query = names["query"]
    try:
        query.processAllAvailable()
        assert sum(progress.numInputRows for progress in query.recentProgress) == 20
    finally:
        query.stop()


def test_a_topic_is_written(code, spark, client):
    exec(code(2), {"spark": spark})
    queues = client.read_queues(code.topic)
    eventually(lambda: sum(client.max_offsets(queues).values()) == 1, what="the row")
    (message,) = last_messages(client, queues, 10)
    assert (message.body, message.keys, message.tags) == (b"hello", "42", "new")


def test_the_client_works_without_spark(code, capsys):
    exec(code(3), {})
    assert "b'hello'" in capsys.readouterr().out
