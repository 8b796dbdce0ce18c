"""The README's code, in processes that tests share; ``test_first_minutes.py`` pastes it as a reader does."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.pasted_page import Block, blocks
from tests.support.topics import fresh_name
from tests.support.wait import eventually

from pyspark_rocketmq.sql import execute

_, FIRST, LATER = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8").split("\n## ", 2)


def test_the_first_minutes(spark, mq, topic, client, capsys):
    name = topic(queues=4)
    queues = client.read_queues(name)

    def here(block: Block) -> str:
        code = block.code.replace("127.0.0.1:9876", mq.name_server)
        return re.sub(r"""(["'])orders\1""", rf"\g<1>{name}\1", code)

    names: dict[str, object] = {}
    compared = 0
    for block in blocks(FIRST):
        if block.language == "python":
            exec(here(block), names)
            printed = capsys.readouterr().out
            if "messages.write" in block.code:
                eventually(lambda: sum(client.max_offsets(queues).values()) == 3, what="the rows")
            if block.shown is not None:
                assert printed.strip() == block.shown.strip()
                compared += 1
    assert compared == 2
    (job,) = [here(block) for block in blocks(FIRST) if "revenue.sql" in block.code]
    (statements,) = re.findall(r"<<'END'\n(.*?)\nEND\n", job, re.DOTALL)
    (result,) = execute(spark, statements).results
    assert [tuple(row) for row in result.collect()] == [("lamp", 1990), ("tent", 49800)]


def test_the_client_works_without_spark(mq, capsys):
    (block,) = re.findall(r"```python\n(.*?)```", LATER, re.DOTALL)
    name = fresh_name("greetings")
    exec(block.replace("127.0.0.1:9876", mq.name_server).replace('"greetings"', f'"{name}"'), {})
    assert "b'hello'" in capsys.readouterr().out
