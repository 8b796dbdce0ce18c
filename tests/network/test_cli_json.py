"""JSON of the command line: every command and every error has one spelling of field names.

``tests/golden/json_fields.txt`` has the names by command, to read. ``REWRITE_GOLDEN=1`` writes it again.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.cli import CommandLine, every_command

import pyspark_rocketmq
from pyspark_rocketmq.cli import connect
from pyspark_rocketmq.cli.failures import _JSON_NAMES, report_error
from pyspark_rocketmq.cli.printing import to_plain
from pyspark_rocketmq.client import Client, OutgoingMessage
from pyspark_rocketmq.devcluster import detached, jars
from pyspark_rocketmq.devcluster.detached import DetachedCluster, DetachedServer
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.offsets.stream_offset import SourceIdentity, SourceOffset
from pyspark_rocketmq.planning.commits.records import Begin, Commit, encode_record
from pyspark_rocketmq.spark.read.schema import COLUMN_TYPES
from pyspark_rocketmq.spark.write.transaction_log import TransactionName
from pyspark_rocketmq.streams.run.job_registry import JobRecord
from pyspark_rocketmq.testing import MockBroker
from pyspark_rocketmq.tools import transactions
from pyspark_rocketmq.tools.transactions import Unfinished

SOURCE = Path(pyspark_rocketmq.__file__).parent
GOLDEN = Path(__file__).parents[1] / "golden" / "json_fields.txt"

ANSWERS = {
    "bench": "bench --messages 10 --body-bytes 1",
    "cluster fetch": "cluster fetch",
    "cluster start": "cluster start",
    "cluster status": "cluster status",
    "cluster stop": "cluster stop",
    "consume": "consume orders",
    "doctor": "doctor",
    "export": "export orders --file out.jsonl",
    "groups": "groups",
    "import": "import orders --file messages.jsonl",
    "lag": "lag billing",
    "offsets forget": "offsets forget CHECKPOINT orders",
    "offsets import": "offsets import billing --file offsets.json",
    "offsets reset": "offsets reset billing orders --to latest",
    "offsets seek": "offsets seek CHECKPOINT --group billing",
    "offsets show": "offsets show billing",
    "options": "options",
    "peek": "peek orders",
    "produce": "produce orders",
    "replay": "replay billing --to orders",
    "report": "report --topic orders",
    "sql": "sql job.sql --check",
    "streams explain": "streams explain --json job.py",
    "streams list": "streams list",
    "streams stop": "streams stop shop.revenue",
    "tables describe": "tables describe orders",
    "tables list": "tables list",
    "topic alter": "topic alter orders --queues 4",
    "topic create": "topic create orders",
    "topic show": "topic show orders",
    "topics": "topics",
    "tx abort": "tx abort orders orders/q 7",
    "tx append": "tx append orders",
    "tx list": "tx list CHECKPOINT",
    "tx recover": "tx recover CHECKPOINT",
    "topic delete": "topic delete orders --yes",
}
NEED_A_SERVER = sorted(
    words
    for words in ANSWERS.values()
    if re.match("(?!report|offsets forget).*(orders|billing)|groups|topics|tables|bench", words)
)
WITHOUT_FIELDS = {"tables list"}
"""A list of names."""

NEED_SPARK = {
    "dashboard": "tests/network/test_dashboard.py",
    "exporter": "tests/network/test_exporter.py",
    "demo": "tests/unit/cli/job_commands/test_demo_view.py",
    "streams rescale": "tests/spark/test_streams_rescale.py",
    "streams state": "tests/spark/test_streams_state.py",
}
"""What runs these. The names of a state's columns are the user's."""

WITHOUT_JSON = {"offsets export", "streams run"}
"""The one prints offsets as JSON by itself, the other what a script prints."""

MAPS = {"addresses", "attributes", "brokers", "columns", "configs", "machine", "options", "packages"}
MAPS |= {"ages", "causes", "properties", "seconds", "tags", "topics"}
"""Objects whose keys are names of brokers, properties and so on, not of fields."""

USERS = {"body"}
"""What users wrote, as they wrote it."""

SYNONYMS = {
    "addr": "address",
    "broker": "brokerName",
    "messageId": "msgId",
    "namesrv": "nameServer",
    "namesrvAddr": "nameServer",
    "storedTimestamp": "storeTimestamp",
    "tag": "tags",
    "timestamp": "storeTimestamp",
}
"""Spellings that no command may use, and the one that it uses."""


def fields(value: object) -> set[str]:
    """Return the names of all fields in a value."""
    match value:
        case list():
            return set().union(*map(fields, value))
        case dict():
            inner = [
                [*each.values()] if name in MAPS and isinstance(each, dict) else each
                for name, each in value.items()
                if name not in USERS
            ]
            return set(value) | fields(inner)
    return set()


@pytest.fixture
def mq() -> Iterator[MockBroker]:
    topics = {"orders": 2, "%DLQ%billing": 1, "orders-commits": 1, "orders-staging-commits": 1}
    with MockBroker(topics) as broker:
        begin = encode_record(Begin(owner="orders/q", number=7, ends={}))
        broker.send(OutgoingMessage("orders-commits", begin))
        ranges = {MessageQueue("orders-staging", "broker-a", 0): ((0, 1),)}
        commit = encode_record(Commit(owner="orders-staging/orders/q", number=7, since=0, ranges=ranges))
        broker.send(OutgoingMessage("orders-staging-commits", commit))
        broker.send(OutgoingMessage("orders", b'{"id": 1}', tags="new", keys="1"))
        broker.send(OutgoingMessage("%DLQ%billing", b"x"))
        with Client(broker.name_server) as client:
            client.commit_offsets("billing", dict.fromkeys(client.read_queues("orders"), 0))
        yield broker


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where commands run: a checkpoint, a job, a file of offsets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_ROCKETMQ_STREAMS_HOME", str(tmp_path / "jobs"))
    JobRecord("shop.revenue", str(tmp_path / "revenue"), 1, 1_900_000_000_000, "steps").write()
    queue = MessageQueue("orders", "broker-a", 0)
    end = SourceOffset(source=SourceIdentity(topics=("orders",)), offsets={queue: 0}, started_at_ms=1)
    for name, text in (("offsets", f"v1\n{{}}\n{json.dumps(end.to_dict())}"), ("commits", "v1\n{}")):
        (tmp_path / "checkpoint" / name).mkdir(parents=True)
        (tmp_path / "checkpoint" / name / "0").write_text(text)
    (tmp_path / "offsets.json").write_text('{"orders": {"broker-a": {"0": 1}}}')
    (tmp_path / "messages.jsonl").write_text(
        '{"brokerName": "b", "queueId": 0, "queueOffset": 0, "body": "x"}'
    )
    (tmp_path / "job.sql").write_text("SELECT 1;")
    (tmp_path / "job.py").write_text(
        "from pyspark_rocketmq.streams import StreamBuilder\n"
        'StreamBuilder.dataStream("shop", "words").fromFile("words.txt").toPrint().start()\n'
    )
    return tmp_path


@pytest.fixture
def cluster(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A detached cluster, jars and transactions that are only records."""
    server = DetachedServer("name server", "127.0.0.1:9876", 1, str(folder))
    record = DetachedCluster("5.4.0", "127.0.0.1:9876", str(folder), (server,))
    for name in ("start_detached", "stop_detached", "find_detached"):
        monkeypatch.setattr(detached, name, lambda *_, **__: record)
    monkeypatch.setattr(jars, "rocketmq_jars", lambda _: [folder / "job.sql"])
    batch = Unfinished(name=TransactionName("query", 7), group="group", messages=3)
    monkeypatch.setattr(transactions, "open_log", lambda _: None)
    monkeypatch.setattr(transactions, "unfinished", lambda _: (batch,))


@pytest.fixture
def cli(capsys, monkeypatch, folder) -> CommandLine:
    return CommandLine(capsys, monkeypatch, None)


def answer(cli: CommandLine, words: str) -> Any:
    given = shlex.split(words.replace("CHECKPOINT", "checkpoint"))
    done = cli(*given, *(() if "--json" in given else ("--json",)), given="x\n")
    assert done.err == "" or done.code == 0, (words, done.err)
    return [json.loads(line) for line in done.out.splitlines()] if words[:7] == "consume" else done.json()


def test_every_command_is_known() -> None:
    known = ANSWERS.keys() | NEED_SPARK.keys() | WITHOUT_JSON
    assert {" ".join(path) for path in every_command()} == known
    for file in NEED_SPARK.values():
        text = (SOURCE.parents[1] / file).read_text(encoding="utf-8")
        assert '"--json"' in text or "result_json" in text, file


def test_every_command_has_the_fields_of_the_text(
    cli: CommandLine, mq: MockBroker, cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", mq.name_server)
    names = {command: fields(answer(cli, words)) for command, words in ANSWERS.items()}
    assert {command for command, found in names.items() if not found} == WITHOUT_FIELDS
    names |= {"(other)": literals(), "(columns of a message)": set(COLUMN_TYPES), "(errors)": facts()}
    told = "".join(f"{command}: {' '.join(sorted(found))}\n" for command, found in names.items() if found)
    if os.environ.get("REWRITE_GOLDEN"):
        GOLDEN.write_text(told, encoding="utf-8")
    assert told == GOLDEN.read_text(encoding="utf-8")
    check(set().union(*names.values()))


def check(names: set[str]) -> None:
    assert {name for name in names if not re.fullmatch("[a-z][a-zA-Z0-9]*", name)} == set()
    assert len({name.lower() for name in names}) == len(names), "a name has two spellings"
    assert names & SYNONYMS.keys() == set()


def literals() -> set[str]:
    """Return the names that commands print as JSON and that stand in their code."""
    return {
        key.value
        for file in (SOURCE / "cli").rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if _prints_json(call)
        for each in ast.walk(call)
        if isinstance(each, ast.Dict)
        for key in each.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }


def _prints_json(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="print_json")):
            return True
        case ast.FunctionDef(name="_plain" | "_outcome" | "_changes" | "result_json" | "message_json"):
            return True
    return False


ADDERS = ("Error", "with_facts")


def facts() -> set[str]:
    """Return the names of the facts of all errors, as JSON has them."""
    found = set()
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Raise(exc=ast.Call(func=ast.Name() | ast.Attribute() as error, keywords=keywords)):
                    name = error.id if isinstance(error, ast.Name) else error.attr
                    found |= {each.arg for each in keywords if each.arg and name.endswith(ADDERS)}
    return set(to_plain(dict.fromkeys(_JSON_NAMES.get(name, name) for name in found), names=True))


@pytest.mark.parametrize(
    "command", sorted(ANSWERS.keys() | {"streams state", "streams rescale", "dashboard"})
)
def test_the_usage_errors_of_every_command_are_json(cli: CommandLine, command: str) -> None:
    words = command.split()
    done = cli(*words[:2], *(["--json"] if len(words) == 2 else []), *words[2:], "--no-such-option", "--json")
    told = json.loads(done.err)
    assert (done.out, done.code, told.keys()) == ("", 2, {"error", "type", "exitCode", "facts"})
    assert (told["type"], told["exitCode"]) == ("UsageError", 2)


@pytest.mark.parametrize("words", NEED_A_SERVER)
def test_the_errors_of_every_command_that_needs_a_server_are_json(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, closed_port: str, words: str
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", closed_port)
    monkeypatch.setattr(connect, "_OPERATION_TIMEOUT_MS", 200)
    done = cli(*shlex.split(words.replace("CHECKPOINT", "checkpoint")), "--json", given="x\n")
    told = json.loads(done.err)
    assert (done.out, told["type"], told["exitCode"]) == ("", "NameServerError", 1)
    assert told["facts"]["nameServer"] == closed_port
    check(set(told["facts"]))


def test_values_of_facts_are_texts_numbers_and_lists(capsys: pytest.CaptureFixture[str]) -> None:
    queue = MessageQueue("orders", "broker-a", 0)
    error = RocketMQError(
        "no", addr="h:1", queue=queue, file=Path("a"), broker_name="b", code=3, queues=[queue]
    )
    assert report_error(error, as_json=True) == 1
    assert json.loads(capsys.readouterr().err)["facts"] == {
        "address": "h:1",
        "queue": "orders@broker-a:0",
        "file": "a",
        "brokerName": "b",
        "code": 3,
        "queues": ["orders@broker-a:0"],
    }


def test_a_script_s_own_json_option_is_not_the_command_s(cli: CommandLine) -> None:
    for words in ("explain no-such-script.py", "run no-such-script.py", "run no-such-script"):
        failed = cli("streams", *words.split(), "--json")
        assert failed.err.startswith("error: no such script"), words
    asked = cli("streams", "explain", "--json", "no-such-script.py")
    assert json.loads(asked.err)["type"] == "OptionError"
