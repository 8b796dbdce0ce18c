"""Replays on the command line: a summary first, a rate, and regular runs that continue where one ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cli import CommandLine

from pyspark_rocketmq.client import Client, ClientOptions, OutgoingMessage, Producer
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.client.read.message_search import last_messages
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.header import ConsumerSendMsgBackRequest
from pyspark_rocketmq.testing import MockBroker, Refuse

DLQ = "%DLQ%billing"


@pytest.fixture
def mq() -> Iterator[MockBroker]:
    with MockBroker({"orders": 1, DLQ: 1}) as broker:
        yield broker


@pytest.fixture
def cli(capsys, monkeypatch, mq) -> CommandLine:
    return CommandLine(capsys, monkeypatch, mq.name_server)


def die(mq: MockBroker, *bodies: str, **properties: str) -> None:
    """Store dead letters."""
    for body in bodies:
        mq.send(OutgoingMessage(DLQ, body.encode(), tags=body[0], properties=properties))


def sent(mq: MockBroker) -> list[str]:
    """Return what was sent again."""
    with Client(mq.name_server) as client:
        found = last_messages(client, client.read_queues("orders"), 1_000)
    return [message.body.decode() for message in found]


def test_a_summary_comes_first(cli, mq):
    die(mq, "a1", "a2", "b1")
    done = cli("replay", "billing", "--to", "orders", "--yes")
    assert done.code == 0
    assert done.out.index("below 1 hour") < done.out.index("3 messages sent")
    found = cli("replay", "billing", "--to", "orders", "--json").json()["summary"]
    assert found == {
        "ages": {"below 1 hour": 3},
        "causes": {"failed without redelivery": 3},
        "tags": {"a": 2, "b": 1},
    }


def test_a_group_without_dead_letters_has_no_topic_of_them(cli):
    done = cli("replay", "shipping")
    assert (done.code, "the group has no dead letters: its topic" in done.err) == (1, True), done
    done = cli("replay", "shipping", "--from", "retry")
    assert (done.code, "the group has no messages that were sent back" in done.err) == (1, True), done


def test_a_rate_is_kept(cli, mq, monkeypatch):
    slept: list[float] = []
    monkeypatch.setattr(type(SYSTEM_CLOCK), "sleep", lambda _, seconds: slept.append(seconds))
    die(mq, "a", "b", "c")
    assert cli("replay", "billing", "--to", "orders", "--rate", "0.01", "--yes").code == 0
    assert [round(each, -1) for each in slept[-3:]] == [0, 100, 200]


def test_what_was_sent_before_an_error_or_ctrl_c_is_told(cli, mq, monkeypatch):
    die(mq, "a", "b", "c")
    mq.inject(Refuse(ResponseCode.MESSAGE_ILLEGAL), on=RequestCode.SEND_MESSAGE_V2, after=2, times=None)
    done = cli("replay", "billing", "--to", "orders", "--yes")
    assert (done.code, "acknowledged=2" in done.err) == (1, True), done
    mq.heal()

    def sleep(_: object, seconds: float) -> None:
        if seconds > 150:
            raise KeyboardInterrupt

    monkeypatch.setattr(type(SYSTEM_CLOCK), "sleep", sleep)
    done = cli("replay", "billing", "--to", "orders", "--rate", "0.01", "--yes")
    assert done.code == 130
    assert "2 messages or a few more were sent; a second run sends all again" in done.err
    assert sent(mq) == ["a", "b", "a", "b"]


def test_old_letters_are_left(cli, mq):
    die(mq, "a")
    assert cli("replay", "billing", "--to", "orders", "--max-age", "1d", "--json").json()["found"] == 1
    assert cli("replay", "billing", "--to", "orders", "--until", "-1h", "--json").json()["found"] == 0


def test_the_original_topic_is_named_as_in_the_namespace(cli, mq):
    mq.create_topic("ns%orders", 1)
    with Client(ClientOptions(name_servers=(mq.name_server,), namespace="ns")) as client:
        sent = Producer(client).send(OutgoingMessage("orders", b"a"))
        message = last_messages(client, [sent.queue], 1)[0]
        back = ConsumerSendMsgBackRequest(
            offset=message.commit_log_offset,
            group="billing",
            delay_level=-1,
            origin_msg_id=message.msg_id,
            origin_topic="orders",
            max_reconsume_times=16,
            broker_name=message.broker_name,
        )
        addr = client.broker_address(message.broker_name, topic="orders")
        client.connection(addr).call(back, deadline=client.deadline()).require()
    for topic, found in (("orders", 1), ("ns%orders", 1), ("payments", 0)):
        told = cli("replay", "billing", "--topic", topic, "-o", "namespace=ns", "--json").json()
        assert [each["to"] for each in told["messages"]] == ["orders"] * found


@pytest.fixture
def policy(tmp_path: Path) -> str:
    path = tmp_path / "replays.toml"
    path.write_text("[[replay]]\ngroup = 'billing'\nto = 'orders'\nlimit = 2\n[[replay]]\ngroup = 'none'\n")
    return str(path)


def test_a_policy_continues_where_its_last_run_ended(cli, mq, policy):
    die(mq, "a", "b", "c")
    dry = cli("replay", "--policy", policy)
    assert "billing: 2 messages (2 below 1 hour" in dry.out
    assert "send them with --yes" in dry.out
    assert "none: 0 messages" in dry.out
    for expected in (["a", "b"], ["a", "b", "c"], ["a", "b", "c"]):
        assert cli("replay", "--policy", policy, "--yes").code == 0
        assert sent(mq) == expected
    die(mq, "d")
    assert cli("replay", "--policy", policy, "--yes").code == 0
    assert sent(mq) == ["a", "b", "c", "d"]


def test_a_position_that_cannot_be_kept_is_told_before_anything_is_sent(cli, mq, policy):
    die(mq, "a")
    mq.fail(RequestCode.UPDATE_CONSUMER_OFFSET, code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, times=None)
    done = cli("replay", "--policy", policy, "--yes")
    assert (done.code, sent(mq)) == (1, [])
    mq.heal()
    assert cli("replay", "--policy", policy, "--yes").code == 0
    assert sent(mq) == ["a"]


def test_what_was_resent_often_enough_is_not_resent(cli, mq, policy):
    die(mq, "a", replays="2")
    die(mq, "b", replays="3")
    cli("replay", "--policy", policy, "--yes")
    assert sent(mq) == ["a"]
    with Client(mq.name_server) as client:
        (message,) = last_messages(client, client.read_queues("orders"), 1)
    assert message.properties["replays"] == "3"


def test_it_repeats_until_it_is_interrupted(cli, mq, monkeypatch):
    rounds: list[float] = []

    def sleep(_: object, seconds: float) -> None:
        if seconds == 600:
            rounds.append(seconds)
            if len(rounds) == 3:
                raise KeyboardInterrupt
            die(mq, f"later {len(rounds)}")

    monkeypatch.setattr(type(SYSTEM_CLOCK), "sleep", sleep)
    die(mq, "first")
    done = cli("replay", "billing", "--to", "orders", "--every", "10m", "--max-age", "1d", "--yes")
    assert done.code == 130
    assert sent(mq) == ["first", "later 1", "later 2"]


def test_an_error_of_one_run_is_told_and_the_next_follows(cli, mq, monkeypatch):
    rounds: list[float] = []

    def sleep(_: object, seconds: float) -> None:
        if seconds == 600:
            rounds.append(seconds)
            if len(rounds) == 2:
                raise KeyboardInterrupt

    monkeypatch.setattr(type(SYSTEM_CLOCK), "sleep", sleep)
    die(mq, "a")  # does not say its first topic
    done = cli("replay", "billing", "--every", "10m", "--yes")
    assert done.code == 130
    assert done.err.count("error: billing: a message does not say which topic") == 2


def test_a_message_that_is_refused_is_named_and_not_passed_over(cli, mq, policy):
    die(mq, "a", "b")
    mq.fail(RequestCode.SEND_MESSAGE_V2, code=ResponseCode.MESSAGE_ILLEGAL, times=2)
    for _ in range(2):
        done = cli("replay", "--policy", policy, "--yes")
        assert (done.code, "msg_id=" in done.err, sent(mq)) == (1, True, []), done
    assert cli("replay", "--policy", policy, "--yes").code == 0
    assert sent(mq) == ["a", "b"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give a group, or --policy"),
        (("billing", "--policy", "p.toml"), "give a group, or --policy"),
        (("--policy", "p.toml", "--tag", "a"), "--policy has the filters of each group"),
        (("--policy", "/nowhere"), "the policy cannot be read"),
        (("billing", "--since", "-1h", "--max-age", "1h"), "give one of --since and --max-age"),
        (("billing", "--since", "-1h", "--every", "1h"), "--every continues by itself"),
        (("billing", "--every", "0s"), "--every takes a duration, such as 10m"),
        (("billing", "--max-age", "old"), "--max-age takes a duration"),
    ],
)
def test_what_makes_no_replay_is_told(cli, arguments, said):
    done = cli("replay", *arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_one_group_has_one_table(cli, mq, tmp_path):
    die(mq, "a", "b")
    tables = (f"[[replay]]\ngroup = 'billing'\nto = 'orders'\ntags = ['{tag}']\n" for tag in "ab")
    path = tmp_path / "replays.toml"
    path.write_text("".join(tables))
    done = cli("replay", "--policy", str(path), "--yes")  # the first one's position would be after both
    assert (done.code, "a group has one position, so one table" in done.err) == (2, True)
    assert sent(mq) == []


def test_brackets_in_messages_are_shown(cli, mq, policy):
    properties = {"deadLetterCause": "KeyError: [/b] at [order]\nsecond line"}
    mq.send(OutgoingMessage(DLQ, b"[/body] [error]", tags="[/tag]", properties=properties))
    for arguments in (("--policy", policy), ("billing", "--to", "orders")):
        done = cli("replay", *arguments)
        assert done.code == 0
        assert "KeyError: [/b] at [order]" in done.out
        assert "second line" not in done.out
        assert "[/tag]" in done.out
    assert "[/body] [error]" in done.out


def test_many_causes_are_summed_up(cli, mq):
    for at in range(25):
        die(mq, "a", deadLetterCause=f"order {at}")
    out = cli("replay", "billing", "--to", "orders").out
    assert [line.split() for line in out.splitlines() if "others" in line] == [["cause", "others", "5"]]


def test_a_number_of_replays_that_is_not_ours_is_none(cli, mq):
    die(mq, "a", replays="9" * 5_000)
    assert cli("replay", "billing", "--to", "orders", "--every", "1m", "--json").json()["found"] == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--policy", "x", "--from", "retry"), "--policy has the filters of each group"),
        (("billing", "--make-readable", "--every", "1m", "--since", "-1d"), "--every continues by itself"),
        (("--policy", "/nowhere"), "the policy cannot be read"),
    ],
)
def test_what_does_not_fit_is_told_before_anything_is_asked(cli, mq, arguments, said):
    mq.asked.clear()
    done = cli("replay", *arguments)
    assert (done.code, said in done.err) == (2, True)
    assert not mq.asked
