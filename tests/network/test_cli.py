"""The command line against the mock broker: what users type wrongly, completion, the wire log, bench."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from tests.support.cli import CommandLine, every_command

from pyspark_rocketmq.cli import connect, main
from pyspark_rocketmq.client import Admin, Client, MessageQueue, OutgoingMessage
from pyspark_rocketmq.remoting.acl import Credentials
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.testing import Delay, MockBroker, MockCluster, Refuse

COMMANDS = every_command()
SENDS = {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}

REACHES_A_SERVER = {
    "bench": "bench",
    "consume": "consume orders",
    "export": "export orders",
    "groups": "groups",
    "import": "import orders",
    "lag": "lag billing",
    "offsets export": "offsets export billing",
    "offsets import": "offsets import billing --file {offsets}",
    "offsets reset": "offsets reset billing orders --to latest",
    "offsets show": "offsets show billing",
    "peek": "peek orders",
    "produce": "produce orders",
    "topic alter": "topic alter orders --queues 4",
    "topic create": "topic create orders",
    "topic delete": "topic delete orders --yes",
    "topic show": "topic show orders",
    "topics": "topics",
}
ON_THIS_MACHINE = {"cluster fetch", "cluster start", "cluster status", "cluster stop", "demo", "options"}
ALWAYS_ANSWERS = {"doctor", "report"}
"""Their answer is what is wrong."""

WITHOUT_JSON = {"offsets export", "streams run"}
"""The one prints nothing else, the other what a script prints."""

OTHERS = {
    "dashboard",
    "exporter",
    "offsets forget",
    "offsets seek",
    "replay",
    "sql",
    "streams explain",
    "streams list",
    "streams rescale",
    "streams run",
    "streams state",
    "streams stop",
    "tables describe",
    "tables list",
    "tx abort",
    "tx append",
    "tx list",
    "tx recover",
}
"""They need more than a server, or start one, and have tests of their own."""


@pytest.fixture
def cli(capsys, monkeypatch) -> CommandLine:
    return CommandLine(capsys, monkeypatch, None)


@pytest.fixture
def mq() -> Iterator[MockBroker]:
    with MockBroker({"orders": 2, "order-items": 1}) as broker:
        yield broker


@pytest.fixture
def offsets(tmp_path: Path) -> Path:
    file = tmp_path / "offsets.json"
    file.write_text('{"orders": {"broker-a": {"0": 1}}}')
    return file


def test_there_is_no_command_that_these_tests_do_not_know():
    known = REACHES_A_SERVER.keys() | ON_THIS_MACHINE | ALWAYS_ANSWERS | OTHERS
    assert {" ".join(path) for path in COMMANDS} <= known


def test_the_commands_without_json_are_commands():
    assert {" ".join(path) for path in COMMANDS} >= WITHOUT_JSON


@pytest.mark.parametrize("path", sorted({" ".join(path) for path in COMMANDS} - WITHOUT_JSON))
def test_every_command_speaks_json(path):
    spellings = [spelling for param in COMMANDS[tuple(path.split())].params for spelling in param.opts]
    assert "--json" in spellings


@pytest.mark.parametrize("path", sorted(REACHES_A_SERVER))
def test_a_server_that_is_not_there_is_a_sentence(cli, path, closed_port, offsets, monkeypatch):
    monkeypatch.setattr(connect, "_OPERATION_TIMEOUT_MS", 200)
    done = cli(*REACHES_A_SERVER[path].format(offsets=offsets).split(), "-n", closed_port, given="x\n")
    assert done.code == 1, done
    assert done.err.startswith("error: ")
    assert closed_port in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "path", sorted(set(REACHES_A_SERVER) - {"groups", "topics", "bench", "topic create"})
)
def test_what_does_not_exist_is_a_sentence(cli, path, mq, tmp_path):
    (tmp_path / "o.json").write_text('{"no-such": {"broker-a": {"0": 1}}}')
    words = REACHES_A_SERVER[path].format(offsets=tmp_path / "o.json").replace("orders", "no-such").split()
    done = cli(*words, "-n", mq.name_server, given="x\n")
    assert done.code == 1, done
    assert done.err.startswith("error: ")


@pytest.mark.parametrize("path", sorted(" ".join(path) for path in COMMANDS))
def test_an_option_that_is_not_there_is_told_with_the_way_to_help(cli, path):
    done = cli(*path.split(), "--no-such-option")
    assert done.code == 2
    assert "No such option" in done.err
    assert "--help" in done.err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff\xfe", "UTF-8"),
        (b"not json", "offsets are JSON"),
        (b'{"orders": {"broker-a": {"0": -5}}}', "no offset"),
        (b"[1]", "offsets are JSON"),
        (b'{"orders": {"broker-a": {"0": 9223372036854775808}}}', "no offset"),
    ],
)
def test_a_file_of_offsets_that_is_none(cli, mq, tmp_path, content, said):
    file = tmp_path / "file"
    file.write_bytes(content)
    done = cli("offsets", "import", "billing", "--file", str(file), "-n", mq.name_server)
    assert (done.code, done.err.startswith("error: ")) == (2, True), done
    assert said in done.err


def test_an_offset_after_a_queue_s_end_is_not_committed(cli, mq, offsets):
    words = ("offsets", "import", "billing", "--file", str(offsets), "--yes", "-n", mq.name_server)
    done = cli(*words)
    assert done.code == 2
    assert "after the queue's end" in done.err
    assert "queue=orders@broker-a:0, offset=1, max_offset=0" in done.err
    mq.send(OutgoingMessage("orders", b"x"), MessageQueue("orders", "broker-a", 0))
    assert cli(*words).code == 0


def test_a_group_is_not_moved_after_a_queue_s_end(cli, mq):
    words = ("offsets", "reset", "billing", "orders", "--yes", "-n", mq.name_server, "--to")
    done = cli(*words, '{"orders": 1}')
    assert done.code == 2
    assert "after the queue's end" in done.err
    for queue_id in (0, 1):
        mq.send(OutgoingMessage("orders", b"x"), MessageQueue("orders", "broker-a", queue_id))
    assert cli(*words, '{"orders": 1}').code == 0


@pytest.mark.parametrize("batch", [None, "", "v1\n{}\nno json", "v1\n{}\n{}"])
def test_a_checkpoint_that_is_none(cli, mq, tmp_path, batch):
    if batch is not None:
        for folder, text in (("offsets", batch), ("commits", "v1\n{}")):
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "0").write_text(text)
    for words in (("import", "billing", "--checkpoint", tmp_path), ("seek", tmp_path, "--group", "billing")):
        done = cli("offsets", *map(str, words), "-n", mq.name_server)
        assert (done.code, done.err.startswith("error: ")) == (2, True), done


@pytest.mark.parametrize(
    "line",
    ["no json", "[]", "{}", '{"body": "x", "tags": 5}', '{"body": "x", "keys": [1]}', '{"body": ""}',
     '{"body": "x", "properties": []}', '{"body": "x", "shardingKey": {}}', '{"body": "x", "other": 1}',
     '{"body": null}', '{"body": "\\ud800"}', '{"body": ["\\ud800"]}', "[" * 100_000,
     f'{{"body": {"[" * 900}{"]" * 900}}}'],
)  # fmt: skip
def test_a_line_that_is_no_message(cli, mq, line):
    done = cli("produce", "orders", "--jsonl", "-n", mq.name_server, given=line + "\n")
    assert (done.code, done.err.startswith("error: ")) == (2, True), done
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "line", ['{"body": [NaN]}', '{"body": -Infinity}', '{"body": "x", "properties": {"a": NaN}}']
)
def test_a_line_whose_number_is_none_is_no_json(cli, mq, line):
    done = cli("produce", "orders", "--jsonl", "-n", mq.name_server, given=line + "\n")
    assert (done.code, "the line is not JSON" in done.err) == (2, True), done


def test_numbers_keep_their_digits(cli, mq):
    body = '{"amount": 12345678901234567890.10, "rate": [1e999, -0.0, 1E2, {}, []], "n": 1234567890123456789}'
    line = f'{{"body": {body}, "properties": {{"price": 1.10}}}}'
    assert cli("produce", "orders", "--jsonl", "-n", mq.name_server, given=line + "\n").code == 0
    assert [message.body.decode() for message in mq.messages("orders")] == [body]
    assert [message.properties["price"] for message in mq.messages("orders")] == ["1.10"]
    assert f'"body": {body}}}' in cli("consume", "orders", "--json", "-n", mq.name_server).out
    for words in (("peek", "orders"), ("peek", "orders", "--json")):
        shown = cli(*words, "-n", mq.name_server).out
        assert all(number in shown for number in ("12345678901234567890.10", "1e999", "1E2")), shown


@pytest.mark.parametrize("body", ["%s", '{"a": "b %s c"}'])
def test_a_long_body_is_shown_in_several_lines(cli, mq, body):
    words = [f"word{number}" for number in range(100)]
    mq.send(OutgoingMessage("orders", (body % " ".join(words)).encode()))
    shown = cli("peek", "orders", "-n", mq.name_server).out
    assert [word for word in shown.split() if word.startswith("word")] == words


def test_a_body_that_is_no_text_is_printed_whole_but_in_a_terminal(cli, mq):
    body = bytes(range(256)) * 2
    mq.send(OutgoingMessage("orders", body))
    words = ("orders", "-n", mq.name_server)
    assert bytes.fromhex(cli("consume", *words, "--json").json()["body"]) == body
    assert bytes.fromhex(cli("consume", *words).out) == body
    assert cli("peek", *words).out.split().count("ff") == 1, "a terminal has the first 256 bytes"


def test_a_body_whose_number_is_none_is_text_in_json(cli, mq):
    mq.send(OutgoingMessage("orders", b'{"a": NaN}'))
    assert cli("consume", "orders", "--json", "-n", mq.name_server).json()["body"] == '{"a": NaN}'
    assert cli("peek", "orders", "--json", "-n", mq.name_server).json()[0]["body"] == '{"a": NaN}'


def test_a_body_that_is_nested_deeply_is_text_in_json(cli, mq):
    mq.send(OutgoingMessage("orders", b"[" * 900 + b"]" * 900))
    assert cli("consume", "orders", "--json", "-n", mq.name_server).json()["body"] == "[" * 900 + "]" * 900
    assert "[" * 9 in cli("peek", "orders", "-n", mq.name_server).out


def test_a_line_may_say_that_a_part_is_not_there(cli, mq):
    line = '{"body": "x", "tags": null, "keys": null, "shardingKey": null, "properties": null}'
    assert cli("produce", "orders", "--jsonl", "-n", mq.name_server, given=line + "\n").code == 0
    (message,) = mq.messages("orders")
    assert (message.body, message.tags, message.keys) == (b"x", None, None)


def test_properties_that_are_no_texts_are_their_json(cli, mq):
    line = '{"body": "x", "properties": {"a": "1", "b": 2, "c": true, "d": null, "e": {"f": [null]}}}'
    assert cli("produce", "orders", "--jsonl", "-n", mq.name_server, given=line + "\n").code == 0
    found = cli("consume", "orders", "--json", "-n", mq.name_server).json()["properties"]
    given = {name: value for name, value in found.items() if len(name) == 1}
    assert given == {"a": "1", "b": "2", "c": "true", "e": '{"f": [null]}'}


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell that closes streams")
@pytest.mark.parametrize(
    ("command", "code", "output"),
    [
        ("topics >&-", 0, ""),
        ("topic show ordrs >&-", 1, "error: the topic does not exist"),
        ("produce orders <&-", 0, "0 messages sent to orders"),
        ("topic show ordrs 2>&-", 1, ""),
    ],
)
def test_a_stream_that_is_closed_is_an_empty_one(mq, command, code, output):
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m pyspark_rocketmq {command}', sys.executable],
        env=os.environ | {"NAMESRV_ADDR": mq.name_server},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stdout
    assert done.stdout.startswith(output)
    assert len(done.stdout.splitlines()) <= 1


def test_a_folder_has_no_lines(cli, mq, tmp_path):
    done = cli("produce", "orders", "--file", str(tmp_path), "-n", mq.name_server)
    assert (done.code, "cannot be read" in done.err) == (2, True), done


def test_a_line_is_sent_with_the_bytes_that_it_has(cli, mq, tmp_path):
    (tmp_path / "lines").write_bytes(b"fine\n\xff\xfe\na\rb\r\r\n\r\n \nlast")
    done = cli("produce", "orders", "--file", str(tmp_path / "lines"), "-n", mq.name_server)
    assert (done.code, done.out) == (0, "4 messages sent to orders\n"), done
    assert {message.body for message in mq.messages("orders")} == {b"fine", b"\xff\xfe", b"a\rb\r", b"last"}


@pytest.mark.parametrize("wrong", ["no json", '{"body": "x", "properties": {"KEYS": "1"}}'])
def test_lines_before_a_wrong_one_are_sent_and_counted(cli, mq, wrong):
    lines = "\n".join([*(f'{{"body": {number}}}' for number in range(40)), wrong, '{"body": 41}'])
    mq.inject(Delay(0.2), on=SENDS, times=None)
    done = cli("produce", "orders", "--jsonl", "-n", mq.name_server, given=lines)
    assert done.code != 0
    assert "acknowledged=40" in done.err


def test_an_error_of_a_send_says_how_many_messages_were_sent(cli, mq):
    mq.inject(Refuse(ResponseCode.MESSAGE_ILLEGAL), on=SENDS, after=3)
    done = cli("produce", "orders", "-n", mq.name_server, given="a\nb\nc\nd\ne\n")
    assert done.code == 1
    assert "acknowledged=4" in done.err


# --- completion ---


def complete(monkeypatch, capsys, words: str) -> list[str]:
    monkeypatch.setenv("_PYSPARK_ROCKETMQ_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"pyspark-rocketmq {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" "))))
    with pytest.raises(SystemExit):
        main([])
    return capsys.readouterr().out.split()


def test_commands_options_topics_and_groups_are_completed(monkeypatch, capsys, mq):
    monkeypatch.setenv("NAMESRV_ADDR", mq.name_server)
    assert complete(monkeypatch, capsys, "top") == ["topics", "topic"]
    assert complete(monkeypatch, capsys, "offsets re") == ["reset"]
    assert complete(monkeypatch, capsys, "peek order-") == ["order-items"]
    assert set(complete(monkeypatch, capsys, "peek orders --a")) == {"--at"}


def test_without_a_server_nothing_is_completed_and_nothing_said(monkeypatch, capfd, closed_port):
    monkeypatch.setenv("NAMESRV_ADDR", closed_port)
    assert complete(monkeypatch, capfd, "peek o") == []
    assert capfd.readouterr().err == ""


def test_a_profile_names_the_cluster(cli, mq, monkeypatch, tmp_path, capsys):
    file = tmp_path / "config.toml"
    file.write_text(f"[profiles.mock]\nnameServer = '{mq.name_server}'\n[profiles.mimic]\n")
    monkeypatch.setenv("ROCKETMQ_CONFIG_FILE", str(file))
    topics = [{"topic": "order-items"}, {"topic": "orders"}]
    assert [{"topic": row["topic"]} for row in cli("topics", "--profile", "mock", "--json").json()] == topics
    assert cli("topic", "show", "orders", "--profile", "mock").code == 0
    assert cli("report", "--profile", "mock", "--json").json()["options"]["profile"] == "mock"
    assert "name server" not in {
        finding["subject"] for finding in cli("doctor", "--profile", "mock", "--json").json()
    }
    wrong = cli("topics", "--profile", "mokc")
    assert wrong.code == 2
    assert "unknown profile mokc: did you mean mock? The profiles are: mock, mimic" in wrong.err
    assert complete(monkeypatch, capsys, "topics --profile mi") == ["mimic"]
    monkeypatch.setenv("ROCKETMQ_PROFILE", "mock")
    assert cli("topics").code == 0
    assert complete(monkeypatch, capsys, "peek order-") == ["order-items"]


def test_completing_a_topic_needs_no_arrow(mq):
    code = "import sys; from pyspark_rocketmq.cli import main\ntry: main([])\nfinally: print(*sys.modules)"
    env = os.environ | {
        "NAMESRV_ADDR": mq.name_server,
        "_PYSPARK_ROCKETMQ_COMPLETE": "complete_bash",
        "COMP_WORDS": "pyspark-rocketmq peek order-",
        "COMP_CWORD": "2",
    }
    done = subprocess.run([sys.executable, "-c", code], env=env, check=False, capture_output=True, text=True)
    completed, *modules = done.stdout.split()
    assert completed == "order-items"
    assert not {"pyspark", "pyarrow", "numpy", "pandas", "pydantic"} & set(modules)


# --- the wire log ---


def test_the_wire_log_tells_of_frames_without_bodies_and_secrets(cli, monkeypatch):
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "somebody")
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "hush-hush")
    with MockBroker({"orders": 1}, credentials=Credentials("somebody", "hush-hush")) as mq:
        words = ("-n", mq.name_server, "-o", "wireLog=true")
        sent = cli("produce", "orders", "-p", "iban=DE07", *words, given="a confidential body\n")
        assert (sent.code, sent.out) == (0, "1 messages sent to orders\n")
        lines = sent.err.splitlines()
        assert all(datetime.fromisoformat(line.split()[0]).tzinfo is not None for line in lines), lines
        assert any("→" in line and "GET_ROUTEINFO_BY_TOPIC topic=orders" in line for line in lines), lines
        assert any("→" in line and "SEND_MESSAGE_V2" in line for line in lines)
        assert any("←" in line and "SUCCESS to SEND_MESSAGE_V2 after" in line for line in lines)
        monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "wrong-one")
        refused = cli("consume", "orders", *words)
        told = sent.err + refused.err.split("error: ")[0]
        for secret in ("somebody", "hush-hush", "wrong-one", "confidential", "DE07", "Signature"):
            assert secret not in told
    assert cli("topics", "-n", mq.name_server).err.count("→") == 0


# --- bench ---


def test_bench_measures_with_a_topic_of_its_own_and_removes_it(cli, mq):
    done = cli("bench", "--messages", "250", "--body-bytes", "10", "-n", mq.name_server, "--json")
    assert done.code == 0, done.err
    assert [(row["what"], row["messages"], row["bodyBytes"] >= 2_500) for row in done.json()] == [
        ("write", 250, True),
        ("read", 250, True),
    ]
    names = {row["topic"] for row in cli("topics", "-n", mq.name_server, "--json").json()}
    assert names == {"orders", "order-items"}


def test_bench_only_reads_a_topic_that_is_named(cli, mq):
    for number in range(30):
        mq.send(OutgoingMessage("orders", str(number).encode()))
    done = cli("bench", "--topic", "orders", "--messages", "20", "-n", mq.name_server)
    assert done.code == 0, done.err
    assert "read" in done.out
    assert "write" not in done.out
    (row,) = cli("bench", "--topic", "orders", "--messages", "20", "-n", mq.name_server, "--json").json()
    assert row["messages"] == 20


def test_examples_of_helps_are_commands_that_exist():
    examples = [
        (path, line)
        for path, command in COMMANDS.items()
        for line in (command.epilog or "").splitlines()
        if line.startswith("pyspark-rocketmq ")
    ]
    assert len(examples) > 20
    for path, line in examples:
        words = tuple(line.split()[1:3])
        assert words in COMMANDS or words[:1] in COMMANDS, f"{path}: {line}"


def test_json_is_what_json_says(cli, mq):
    created = cli("topic", "create", "new", "--queues", "2", "-n", mq.name_server, "--json")
    assert created.json() == {"topic": "new", "readQueues": 2, "created": True}
    deleted = cli("topic", "delete", "new", "--yes", "-n", mq.name_server, "--json")
    assert deleted.json() == {"topic": "new", "deletedMessages": 0}
    assert json.loads(cli("options", "--json").out)
    assert "NAMESRV_ADDR" not in os.environ


def test_lag_is_shown_while_a_broker_is_away(cli: CommandLine) -> None:
    with MockCluster({"orders": 1}, brokers=("broker-a", "broker-b")) as mq:
        for queue in mq.queues("orders"):
            mq.send(OutgoingMessage("orders", b"x"), queue)
        with Client(mq.name_server) as client:
            client.commit_offsets("billing", dict.fromkeys(client.read_queues("orders"), 0))
        mq.stop_broker("broker-b", unregister=False)
        seen = cli("lag", "billing", "--namesrv", mq.name_server, "--json").json()
        assert (seen["lag"], seen["away"]) == (1, ["broker-b"])
        assert "without broker-b" in cli("lag", "billing", "--namesrv", mq.name_server).out.replace("\n", " ")


def test_a_lag_above_the_limit_is_exit_code_1(cli: CommandLine) -> None:
    with MockCluster({"orders": 1}, brokers=("broker-a", "broker-b")) as mq:
        for queue in mq.queues("orders"):
            mq.send(OutgoingMessage("orders", b"x"), queue)
        with Client(mq.name_server) as client:
            client.commit_offsets("billing", dict.fromkeys(client.read_queues("orders"), 0))
        words = ("lag", "billing", "--namesrv", mq.name_server)
        assert [cli(*words, "--max", limit).code for limit in ("2", "1", "0")] == [0, 1, 1]
        told = cli(*words, "--max", "1", "--json")
        assert (told.code, told.json()["lag"]) == (1, 2)
        assert cli(*words, "--max", "1", "--watch").code == 2
        assert "--json prints once: remove --watch" in cli(*words, "--json", "--watch").err
        mq.stop_broker("broker-b", unregister=False)
        assert cli(*words, "--max", "5").code == 1, "a lag that is not known is no lag below the limit"


# --- groups that do not exist ---


@pytest.fixture
def billing(mq: MockBroker) -> str:
    with Client(mq.name_server) as client:
        client.commit_offsets("billing", dict.fromkeys(client.read_queues("orders"), 0))
    return "billing"


def groups(mq: MockBroker) -> set[str]:
    with Client(mq.name_server) as client:
        return set(Admin(client).groups())


@pytest.mark.parametrize(("answer", "created"), [("y", True), ("n", False), ("", False)])
def test_a_person_is_asked_about_a_group_that_does_not_exist(cli, mq, billing, answer, created):
    words = ("offsets", "reset", "biling", "orders", "--to", "latest", "-n", mq.name_server)
    done = cli(*words, "--yes", given=f"{answer}\n", terminal=True)
    assert "the group biling does not exist (did you mean billing?)" in done.out
    assert "Create the group biling?" in done.out
    assert done.code == (0 if created else 1)
    assert ("biling" in groups(mq)) is created


def test_a_script_is_told_about_a_group_that_does_not_exist(cli, mq, billing):
    words = ("offsets", "reset", "biling", "orders", "--to", "latest", "-n", mq.name_server)
    assert "does not exist (did you mean billing?)" in cli(*words).out
    assert "biling" not in groups(mq)
    assert cli(*words, "--json").json()["groupExists"] is False
    assert cli(*words, "--yes").code == 0
    assert "biling" in groups(mq)
    assert cli(*words, "--json").json()["groupExists"] is True


def test_a_group_that_exists_is_not_asked_about(cli, mq, billing):
    words = ("offsets", "reset", billing, "orders", "--to", "latest", "--yes", "-n", mq.name_server)
    done = cli(*words, terminal=True)
    assert done.code == 0
    assert "does not exist" not in done.out


def test_the_lag_of_a_group_that_does_not_exist_names_near_ones(cli, mq, billing):
    done = cli("lag", "biling", "-n", mq.name_server)
    assert done.code == 1
    assert done.err.startswith("error: the group biling does not exist (did you mean billing?)")
