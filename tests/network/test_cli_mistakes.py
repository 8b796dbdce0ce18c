"""What a newcomer types wrongly, and what the command line answers: kept as a text that people can read.

``REWRITE_GOLDEN=1 pytest tests/network/test_cli_mistakes.py`` writes the text again; read its changes.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cli import CommandLine, Done

from pyspark_rocketmq.cli import connect
from pyspark_rocketmq.client import Client, OutgoingMessage
from pyspark_rocketmq.testing import MockBroker

GOLDEN = Path(__file__).parents[1] / "golden" / "mistakes_on_the_command_line.txt"

MISTAKES = (
    # commands
    "topic list",
    "topics create orders",
    "tpoics",
    "offsets set billing orders",
    "lag",
    "topics --jsn",
    "peek orders --count 0",
    "options --of reading",
    # servers
    "topics -n ''",
    "topics -n localhost",
    "topics -n 127.0.0.1:CLOSED",
    "topics -o tls",
    "topics -o tsl=true",
    # topics
    "topic show ordrs",
    "topic create orders --queues 4",
    "topic create payments --perm all",
    "topic alter orders --queues 4",
    "topic delete orders",
    # messages
    "peek orders --at yesterday",
    "peek orders --queue 0",
    "peek orders --key a --id b",
    "peek orders --key ''",
    "peek orders --key 'a b'",
    "peek orders --id ''",
    "peek ordrs --json",
    "consume orders --from 5x",
    "consume orders --commit",
    "produce ordrs",
    "produce orders --jsonl",
    "produce orders --file no-such-file.txt",
    "replay billing --since 5x",
    # groups and offsets
    "lag biling",
    "lag billing --max 2",
    "offsets reset billing orders --to 5x",
    "offsets reset biling orders --to latest",
    "offsets export",
    "offsets import billing --file no-such-file.json",
    "offsets forget no-such-checkpoint payments",
    "tx list no-such-folder",
    # jobs
    "sql no-such-file.sql",
    "streams run no-such-script.py",
    "streams stop shop.revenue",
)


@pytest.fixture
def mq() -> Iterator[MockBroker]:
    with MockBroker({"orders": 8}) as broker:
        for number in range(3):
            broker.send(OutgoingMessage("orders", b"{}"), broker.queues("orders")[number])
        with Client(broker.name_server) as client:
            client.commit_offsets("billing", dict.fromkeys(client.read_queues("orders"), 0))
        yield broker


@pytest.fixture
def cli(capsys, monkeypatch, mq, tmp_path) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PYSPARK_ROCKETMQ_STREAMS_HOME", str(tmp_path / "jobs"))
    monkeypatch.setattr(connect, "_OPERATION_TIMEOUT_MS", 2_000)
    return CommandLine(capsys, monkeypatch, mq.name_server)


def shown(command: str, done: Done) -> str:
    output = "\n".join(line.rstrip() for line in (done.out + done.err).rstrip("\n").splitlines())
    return f"$ pyspark-rocketmq {command}\n{output}\n[exit code {done.code}]\n"


def test_every_mistake_is_answered_as_the_text_says(cli, mq, closed_port):
    closed = closed_port.rpartition(":")[2]
    answers = []
    for command in MISTAKES:
        done = cli(*shlex.split(command.replace("CLOSED", closed)), given="this is no JSON\n")
        assert "Traceback" not in done.out + done.err, command
        if done.code != 0 and not done.out:
            assert done.err.startswith(("error: ", '{"error": ')), command
        answers.append(shown(command, done))
    told = "\n".join(answers).replace(closed, "CLOSED").replace(mq.name_server, "127.0.0.1:9876")
    told = re.sub(r"attempts=\d+", "attempts=6", re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:9876", told))
    if os.environ.get("REWRITE_GOLDEN"):
        GOLDEN.write_text(told, encoding="utf-8")
    assert told == GOLDEN.read_text(encoding="utf-8")


def test_the_text_has_what_a_newcomer_needs():
    answers = GOLDEN.read_text(encoding="utf-8").split("\n$ ")
    assert len(answers) >= 25
    codes = [int(code) for code in re.findall(r"\[exit code (\d)\]", "\n".join(answers))]
    assert len(codes) == len(answers)
    for answer, code in zip(answers, codes, strict=True):
        lines = answer.splitlines()[1:-1]
        assert 1 <= len(lines) <= (2 if code == 2 else 16), answer
