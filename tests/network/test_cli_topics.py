"""Topics on the command line: creating never alters, altering shows and asks first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.cli import CommandLine

from pyspark_rocketmq.client import Admin, Client, OutgoingMessage
from pyspark_rocketmq.inventory import TopicConfig
from pyspark_rocketmq.model import MessageQueue, Permission
from pyspark_rocketmq.testing import MockCluster


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with MockCluster({"orders": 16}, brokers=("broker-a", "broker-b")) as cluster:
        yield cluster


@pytest.fixture
def cli(capsys, monkeypatch, mq) -> CommandLine:
    return CommandLine(capsys, monkeypatch, mq.name_server)


def configs(mq: MockCluster, topic: str = "orders") -> dict[str, TopicConfig]:
    with Client(mq.name_server) as client:
        return Admin(client).topic_configs(topic)


def queues(mq: MockCluster) -> set[tuple[int, int]]:
    return {(config.read_queues, config.write_queues) for config in configs(mq).values()}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--queues", "8"), "queues: 16, not 8"),
        (("--perm", "r"), "permission: read, write, not read"),
        (("-a", "message.type=FIFO"), "attribute message.type: not set, not FIFO"),
    ],
)
def test_creating_a_topic_that_exists_otherwise_is_an_error_and_alters_nothing(cli, mq, arguments, told):
    before = configs(mq)
    done = cli("topic", "create", "orders", *arguments)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: orders already exists and was not changed")
    assert told in done.err
    assert "topic alter" in done.err
    assert configs(mq) == before


@pytest.mark.parametrize("arguments", [(), ("--queues", "16"), ("--perm", "rw")])
def test_creating_a_topic_again_is_no_error_and_alters_nothing(cli, mq, arguments):
    before = configs(mq)
    done = cli("topic", "create", "orders", *arguments)
    assert (done.code, done.out) == (0, "orders already exists; unchanged\n")
    assert cli("topic", "create", "orders", *arguments, "--json").json() == {
        "topic": "orders",
        "readQueues": 32,
        "created": False,
    }
    assert configs(mq) == before


def test_a_topic_is_created_at_a_broker_that_lacks_it(cli, mq):
    mq.create_topic("new", 2, brokers=["broker-a"])
    done = cli("topic", "create", "new", "--queues", "4", "--broker", "broker-b", "--json").json()
    assert done == {"topic": "new", "readQueues": 6, "created": True}
    assert {name: config.read_queues for name, config in configs(mq, "new").items()} == {
        "broker-a": 2,
        "broker-b": 4,
    }


def test_without_yes_a_change_is_only_shown(cli, mq):
    mq.send(OutgoingMessage("orders", b"x"), MessageQueue("orders", "broker-b", 15))
    done = cli("topic", "alter", "orders", "--queues", "8")
    assert done.code == 0
    assert [line.split() for line in done.out.splitlines() if "broker-a" in line] == [
        ["broker-a", "read", "queues", "16", "8"],
        ["broker-a", "write", "queues", "16", "8"],
    ]
    assert "1 messages are in queues that could no longer be read" in done.out
    assert "nothing was changed: apply it with --yes" in done.out
    assert queues(mq) == {(16, 16)}


@pytest.mark.parametrize(("answer", "after"), [("y", (20, 20)), ("n", (16, 16)), ("", (16, 16))])
def test_on_a_terminal_it_is_asked(cli, mq, answer, after):
    done = cli("topic", "alter", "orders", "--queues", "20", given=f"{answer}\n", terminal=True)
    assert "Change orders?" in done.out
    assert queues(mq) == {after}


def test_what_is_not_given_stays(cli, mq):
    assert cli("topic", "alter", "orders", "-a", "message.type=FIFO", "--yes").code == 0
    done = cli("topic", "alter", "orders", "--write-queues", "4", "--yes", "--json").json()
    assert (done["applied"], done["hiddenMessages"]) == (True, 0)
    assert done["changes"][0] == {
        "brokerName": "broker-a",
        "setting": "write queues",
        "from": "16",
        "to": "4",
    }
    for config in configs(mq).values():
        assert (config.read_queues, config.write_queues) == (16, 4)
        assert config.perm == Permission.READ | Permission.WRITE
        assert config.attributes == {"message.type": "FIFO"}
    assert cli("topic", "alter", "orders", "-a", "message.type=", "--yes").code == 0
    assert {tuple(config.attributes) for config in configs(mq).values()} == {()}


def test_queues_that_are_written_can_be_read(cli, mq):
    assert cli("topic", "alter", "orders", "--write-queues", "24", "--yes").code == 0
    assert queues(mq) == {(24, 24)}


def test_a_change_that_changes_nothing_says_so(cli, mq):
    done = cli("topic", "alter", "orders", "--queues", "16", "--yes")
    assert (done.code, done.out) == (0, "orders has these settings already; unchanged\n")


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("orders",), 2, "give what to change"),
        (("orders", "--queues", "4", "--write-queues", "2"), 2, "--queues or --write-queues"),
        (("orders", "--queues", "4", "--cluster", "nowhere"), 2, "no such cluster"),
        (("order", "--queues", "4", "--yes"), 1, "does not exist"),
        (("static", "--queues", "4", "--yes"), 2, "static topic"),
    ],
)
def test_what_cannot_be_altered_is_a_sentence(cli, mq, arguments, code, told):
    mq.create_static_topic("static", queues=2)
    done = cli("topic", "alter", *arguments)
    assert done.code == code
    assert told in done.err.splitlines()[0]
