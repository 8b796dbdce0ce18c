"""The command line against a real broker."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace

import pytest
from tests.support.cli import CommandLine
from tests.support.clocks import FakeClock, WrongClock
from tests.support.patient import PATIENCE_MS, patient_producer
from tests.support.releases import version_name
from tests.support.topics import fresh_name
from tests.support.wait import PATIENCE, eventually

from pyspark_rocketmq.cli.cluster_commands import groups
from pyspark_rocketmq.client import Client, ClientOptions, OutgoingMessage
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.offsets.stream_offset import SourceIdentity, SourceOffset
from pyspark_rocketmq.tools.doctor import examine
from pyspark_rocketmq.tools.findings import Verdict


@pytest.fixture
def cli(mq, capsys, monkeypatch) -> CommandLine:
    return CommandLine(capsys, monkeypatch, mq.name_server)


@pytest.fixture
def ten(topic, client) -> str:
    """A topic with ten orders, alternately in two queues."""
    name = topic(queues=2)
    for number in range(10):
        body = json.dumps({"order": number, "note": "größer"}).encode()
        message = OutgoingMessage(
            name, body, tags="even" if number % 2 == 0 else "odd", keys=f"order-{number}"
        )
        patient_producer(client).send(message, MessageQueue(name, "broker-a", number % 2))
    queues = client.read_queues(name)
    eventually(lambda: sum(client.max_offsets(queues).values()) == 10, what="ten messages to read")
    return name


def test_a_topic_from_creation_to_deletion(cli):
    name = fresh_name("cli-topic")
    created = cli("topic", "create", name, "--queues", "3")
    assert (created.code, created.out) == (0, f"created {name}: 3 queues\n")
    assert name in cli("topics").out
    row = next(row for row in cli("topics", "--json").json() if row["topic"] == name)
    assert row == {"topic": name, "brokers": ["broker-a"], "readQueues": 3, "writeQueues": 3}
    assert cli("topic", "create", name).out == f"{name} already exists; unchanged\n"
    assert cli("topic", "create", name, "--queues", "2").code == 1
    shown = cli("topic", "show", name, "--json").json()
    assert len(shown["queues"]) == 3
    assert "read, write" in cli("topic", "show", name).out
    assert "nothing was changed" in cli("topic", "alter", name, "--queues", "5").out
    assert len(cli("topic", "show", name, "--json").json()["queues"]) == 3
    altered = cli("topic", "alter", name, "--queues", "5", "-a", "message.type=FIFO", "--yes", "--json")
    assert altered.json()["applied"] is True
    shown = cli("topic", "show", name, "--json").json()
    (config,) = shown["configs"].values()
    assert (config["readQueues"], config["writeQueues"]) == (5, 5)
    assert set(config["perm"].split("|")) == {"READ", "WRITE"}
    assert config["attributes"] == {"message.type": "FIFO"}
    assert cli("topic", "alter", name, "-a", "message.type=", "--yes").code == 0
    (config,) = cli("topic", "show", name, "--json").json()["configs"].values()
    assert (config["readQueues"], config["attributes"]) == (5, {})

    refused = cli("topic", "delete", name)
    assert refused.code == 2
    assert "--yes" in refused.err
    assert cli("topic", "delete", name, "--yes").code == 0
    gone = cli("topic", "show", name)
    assert gone.code == 1
    assert gone.err.startswith("error: the topic does not exist")


def test_system_topics_are_shown_on_request_only(cli):
    assert "TBW102" not in cli("topics").out
    assert "TBW102" in cli("topics", "--system").out


def test_the_last_messages_are_laid_out(cli, ten):
    done = cli("peek", ten, "-c", "2")
    assert done.code == 0
    assert '"order": 9' in done.out
    assert '"order": 8' in done.out
    assert '"order": 7' not in done.out
    assert "größer" in done.out
    assert "keys order-9" in done.out


def test_messages_are_found_by_queue_time_key_and_id(cli, ten):
    every = cli("peek", ten, "--json").json()
    assert [message["body"]["order"] for message in every] == list(range(10))
    queue = cli("peek", ten, "--queue", "broker-a:1", "--json").json()
    assert [message["body"]["order"] for message in queue] == [1, 3, 5, 7, 9]
    fourth = every[4]
    since = cli("peek", ten, "--at", str(fourth["storeTimestamp"]), "-c", "3", "--json").json()
    assert fourth["body"] in [message["body"] for message in since]
    eventually(lambda: cli("peek", ten, "--key", "order-4").code == 0, what="the index")
    by_key = cli("peek", ten, "--key", "order-4", "--json").json()
    assert [message["msgId"] for message in by_key] == [fourth["msgId"]]
    for message_id in (fourth["msgId"], fourth["offsetMsgId"], fourth["msgId"].lower()):
        assert [m["msgId"] for m in cli("peek", ten, "--id", message_id, "--json").json()] == [
            fourth["msgId"]
        ]


def test_what_is_not_there_is_exit_code_1(cli, ten):
    assert cli("peek", ten, "--key", "no-such-order").code == 1
    assert cli("peek", ten, "--id", "00" * 16).code == 1
    assert cli("peek", ten, "--id", "7F0000010000000100000000000000FF").code == 1
    wrong = cli("peek", ten, "--queue", "broker-z:0")
    assert wrong.code == 2
    assert "broker-a:0, broker-a:1" in wrong.err


def test_a_topic_is_exported_and_imported(cli, client, topic, ten, tmp_path):
    """To the same number of queues: each queue has the same messages in the same order."""
    for name in ("messages.jsonl", "messages.parquet"):
        copy, file = topic(queues=2), str(tmp_path / name)
        assert cli("export", ten, "--file", file, "--json").json()["exported"] == 10
        assert cli("import", copy, "--file", file, "--yes", "--json").json()["sent"] == 10
        eventually(lambda copy=copy: len(cli("consume", copy).out.splitlines()) == 10, what="the copies")
        queues = [client.read_queues(each) for each in (ten, copy)]
        for source, target in zip(*queues, strict=True):
            kept = [
                [(each["body"], each["tags"], each["keys"]) for each in _lines(cli, at)]
                for at in (source, target)
            ]
            assert kept[0] == kept[1]
            assert len(kept[0]) == 5
    last = cli("consume", ten, "--grep", '"order": [37],?', "--until", "offset:4")
    assert [json.loads(line)["order"] for line in last.out.splitlines()] == [3, 7]


def _lines(cli, queue):
    found = cli("consume", queue.topic, "--queue", f"{queue.broker_name}:{queue.queue_id}", "--json")
    return [json.loads(line) for line in found.out.splitlines()]


def test_lines_are_produced_and_consumed(cli, topic):
    name = topic(queues=1)
    sent = cli("produce", name, "--tags", "greeting", "-p", "lang=de", given="Hallo\n\nWelt\n")
    assert (sent.code, sent.out) == (0, f"2 messages sent to {name}\n")
    # Sends overlap, so that the broker may store the lines in either order.
    eventually(lambda: sorted(cli("consume", name).out.split()) == ["Hallo", "Welt"], what="both lines")
    first, last = cli("consume", name).out.splitlines(keepends=True)
    lines = [json.loads(line) for line in cli("consume", name, "--json").out.splitlines()]
    assert [(line["tags"], line["properties"]["lang"]) for line in lines] == [("greeting", "de")] * 2
    assert cli("consume", name, "--tags", "other").out == ""
    assert cli("consume", name, "--from", "last:1").out == last
    assert cli("consume", name, "--count", "1").out == first


def test_json_lines_are_produced_with_their_parts(cli, topic):
    name = topic(queues=2)
    given = (
        '{"body": {"id": 1}, "keys": "one", "properties": {"n": 1}}\n{"body": "plain", "shardingKey": "s"}\n'
    )
    assert cli("produce", name, "--jsonl", "--json", given=given).json() == {"topic": name, "sent": 2}
    eventually(lambda: len(cli("peek", name, "--json").json()) == 2, what="both messages")
    by_key = {message["keys"]: message for message in cli("peek", name, "--json").json()}
    assert by_key["one"]["body"] == {"id": 1}
    assert by_key["one"]["properties"]["n"] == "1"
    assert by_key[None]["body"] == "plain"
    bad = cli("produce", name, "--jsonl", given='{"text": 1}\n')
    assert bad.code == 2
    assert "line=1" in bad.err


def test_a_group_consumes_and_its_lag_goes_down(cli, ten, group):
    before = cli("lag", group, "--topic", ten, "--json").json()
    assert before["lag"] == 10
    assert {queue["committed"] for queue in before["queues"]} == {None}
    done = cli("consume", ten, "--from", "group", "--group", group, "--commit", "--count", "3")
    assert (done.code, len(done.out.splitlines())) == (0, 3), done.err
    assert cli("lag", group, "--topic", ten, "--json").json()["lag"] == 7
    rest = cli("consume", ten, "--from", "group", "--group", group, "--commit")
    assert len(rest.out.splitlines()) == 7
    assert not set(rest.out.splitlines()) & set(done.out.splitlines())
    assert f"{group} is 0 messages behind" in cli("lag", group, "--topic", ten).out
    assert group in cli("groups").out


def test_lag_is_watched_until_ctrl_c(mq, cli, ten, group, client, monkeypatch):
    clock = FakeClock(base=SYSTEM_CLOCK)

    def look() -> None:
        looks = clock.sleeps.count(0.5)
        if looks == 1:
            client.commit_offsets(group, client.max_offsets(client.read_queues(ten)))
        if looks == 3:
            raise KeyboardInterrupt

    clock.on_sleep = look
    options = ClientOptions(name_servers=(mq.name_server,))
    monkeypatch.setattr(groups, "connect", lambda *_: Client(options, clock=clock))
    done = cli("lag", group, "-t", ten, "--watch", "--interval", "0.5")
    assert (done.code, clock.sleeps.count(0.5)) == (130, 3)
    assert f"{group} is 0 messages behind" in done.out


def test_offsets_are_moved_only_with_yes(cli, ten, group):
    reset = ("offsets", "reset", group, ten, "--to")
    shown = cli(*reset, "latest")
    assert shown.code == 0
    assert "nothing was changed" in shown.out
    assert cli("lag", group, "-t", ten, "--json").json()["lag"] == 10
    assert cli(*reset, "latest", "--yes").code == 0
    assert cli("lag", group, "-t", ten, "--json").json()["lag"] == 0
    assert cli(*reset, "-1h", "--yes", "--json").json()["applied"] is True
    assert cli("lag", group, "-t", ten, "--json").json()["lag"] == 10
    assert cli(*reset, "last:2", "--yes").code == 0
    assert cli("lag", group, "-t", ten, "--json").json()["lag"] == 4


def test_offsets_go_from_group_to_file_to_group(cli, ten, group, tmp_path):
    cli("offsets", "reset", group, ten, "--to", "last:1", "--yes")
    exported = cli("offsets", "export", group, "--topic", ten).out
    assert json.loads(exported) == {ten: {"broker-a": {"0": 4, "1": 4}}}
    file = tmp_path / "offsets.json"
    file.write_text(exported)
    other = f"{group}-b"
    assert cli("offsets", "import", other, "--file", str(file), "--yes").code == 0
    shown = cli("offsets", "show", other, "-t", ten, "--json").json()
    assert [queue["committed"] for queue in shown] == [4, 4]
    stranger = cli("offsets", "import", other, "--file", "-", given=exported.replace('"1"', '"7"'))
    assert stranger.code == 2
    assert "no such queue" in stranger.err


def test_a_checkpoint_s_offsets_become_a_group_s(cli, ten, group, tmp_path, mq):
    queue = MessageQueue(ten, "broker-a", 0)
    offsets = {queue: 3, replace(queue, queue_id=1): 2}
    end = SourceOffset(source=SourceIdentity(topics=(ten,)), offsets=offsets, started_at_ms=1)
    for folder, text in (("offsets", f"v1\n{{}}\n{json.dumps(end.to_dict())}"), ("commits", "v1\n{}")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "0").write_text(text)
    checkpoint = ("--checkpoint", str(tmp_path))
    assert "nothing was changed" in cli("offsets", "import", group, *checkpoint).out
    assert cli("offsets", "import", group, *checkpoint, "--yes").code == 0
    assert cli("lag", group, "-t", ten, "--json").json()["lag"] == 5
    assert json.loads(cli("offsets", "export", *checkpoint).out) == {ten: {"broker-a": {"0": 3, "1": 2}}}


def test_an_unknown_group_is_told(cli):
    done = cli("lag", "no-such-group-anywhere")
    assert done.code == 1
    assert "has committed no offset" in done.err


@pytest.fixture
def patient(monkeypatch):
    """Have the doctor wait for servers that are slow because the machine is busy."""
    monkeypatch.setattr("pyspark_rocketmq.tools.doctor._TIMEOUT_MS", PATIENCE_MS)


def test_the_doctor_finds_nothing_wrong_here(patient, cli, mq, ten, group, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["src", os.environ["PYTHONPATH"]]))
    cli("offsets", "reset", group, ten, "--to", "earliest", "--yes")
    start = time.monotonic()
    done = cli("doctor", "--topic", ten, "--group", group, "--json")
    assert time.monotonic() - start < 30 * PATIENCE
    seen = {finding["subject"]: finding for finding in done.json()}
    assert version_name(mq.version) in seen["broker broker-a, master"]["seen"]
    assert seen[f"topic {ten}"]["seen"] == "2 queues, 10 messages"
    assert seen[f"group {group}"]["seen"].startswith("10 messages behind on 1 topics")
    rocketmq = [finding for finding in done.json() if finding["subject"].split()[0] in {"name", "broker"}]
    assert {finding["verdict"] for finding in rocketmq} == {"good"}


@pytest.mark.parametrize("version", ["mq", "mq54", "mq49"])
def test_the_doctor_sees_a_clock_that_is_wrong(patient, request, version):
    options = ClientOptions(name_servers=(request.getfixturevalue(version).name_server,))
    assert {finding.verdict for finding in examine(options)} == {Verdict.GOOD}
    late = WrongClock(-3_600)
    poor = [finding for finding in examine(options, clock=late) if finding.verdict is Verdict.POOR]
    assert [finding.subject for finding in poor] == ["broker broker-a, master"]
    assert "ahead of this one" in poor[0].seen


def test_a_report_names_brokers_and_routes(cli, ten, mq):
    told = cli("report", "--topic", ten, "--json").json()
    assert told["options"]["nameServer"] == [mq.name_server]
    assert version_name(mq.version) in told["brokers"]["broker-a"]
    assert told["topics"][ten] == ["broker-a r2 w2 perm 6"]
