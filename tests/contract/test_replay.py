"""Dead letters and retries of a real broker, found and sent again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.cli import CommandLine
from tests.support.topics import TopicFactory, fill
from tests.support.wait import eventually

from pyspark_rocketmq.client import Admin, Client, OutgoingMessage
from pyspark_rocketmq.client.read.message_search import last_messages
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.errors import OptionError, TopicNotFoundError
from pyspark_rocketmq.model import Message, Permission
from pyspark_rocketmq.remoting.header import ConsumerSendMsgBackRequest
from pyspark_rocketmq.tools.replay import Origin, ReplayFilter, find_replays, make_readable, send_replays


@pytest.fixture
def cli(mq: DevCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return CommandLine(capsys, monkeypatch, mq.name_server)


def send_tagged(client: Client, topic: str, bodies: list[str]) -> list[Message]:
    """Send messages with tags, keys and a property; return them as they are stored."""
    messages = [
        OutgoingMessage(
            topic, body.encode(), tags=f"T{at % 2}", keys=f"k{at} all", properties={"own": str(at)}
        )
        for at, body in enumerate(bodies)
    ]
    return last_messages(client, [*fill(client, topic, messages)], len(bodies))


def give_up(client: Client, group: str, message: Message) -> None:
    """Send a message to the group's dead letters, as a consumer does that gives up."""
    request = ConsumerSendMsgBackRequest(
        offset=message.commit_log_offset,
        group=group,
        delay_level=-1,
        origin_msg_id=message.msg_id,
        origin_topic=message.topic,
        max_reconsume_times=16,
        broker_name=message.broker_name,
    )
    addr = client.broker_address(message.broker_name, topic=message.topic)
    client.connection(addr).call(request, deadline=client.deadline()).require(topic=message.topic)


def dead_letters(client: Client, group: str) -> int:
    """Return how many there are; the broker makes their topic when it gets the first one."""
    client.invalidate(Origin.DLQ.topic(group))
    try:
        return len(find_replays(client, group, Origin.DLQ, ReplayFilter()))
    except TopicNotFoundError:
        return 0


def test_a_topic_for_writing_only_is_made_readable(client: Client, group: str) -> None:
    source = Origin.DLQ.topic(group)
    Admin(client).create_topic(source, queues=1, perm=Permission.WRITE)
    with pytest.raises(OptionError, match="--make-readable"):
        find_replays(client, group, Origin.DLQ, ReplayFilter())
    make_readable(client, group, Origin.DLQ)
    assert find_replays(client, group, Origin.DLQ, ReplayFilter()) == []


def test_dead_letters_are_shown_then_sent_to_their_first_topic(
    client: Client, cli: CommandLine, topic: TopicFactory, group: str
) -> None:
    name, elsewhere = topic(), topic()
    with pytest.raises(TopicNotFoundError):
        find_replays(client, group, Origin.DLQ, ReplayFilter())
    first = send_tagged(client, name, ["a", "b", "c"])
    cli_group = ("replay", group)
    for message in first:
        give_up(client, group, message)
    eventually(lambda: dead_letters(client, group) == 3, 60, what="three dead letters")
    dry = cli(*cli_group, "--tag", "T0", "--json")
    assert (dry.code, dry.json()["found"], dry.json()["sent"]) == (0, 2, 0)
    assert {message["to"] for message in dry.json()["messages"]} == {name}
    assert sum(client.max_offsets(client.read_queues(name)).values()) == 3
    done = cli(*cli_group, "--tag", "T0", "--yes")
    assert "2 messages sent" in done.out
    queues = client.read_queues(name)
    eventually(lambda: sum(client.max_offsets(queues).values()) == 5)
    again = last_messages(client, queues, 2)
    assert [(m.body, m.tags, m.keys, m.properties["own"]) for m in again] == [
        (b"a", "T0", "k0 all", "0"), (b"c", "T0", "k2 all", "2"),
    ]  # fmt: skip
    assert [m.properties["replayOf"] for m in again] == [first[0].msg_id, first[2].msg_id]
    assert "RETRY_TOPIC" not in again[0].properties
    assert cli(*cli_group, "--to", elsewhere, "--text", "b", "--since", "-1h", "--yes").code == 0
    (one,) = last_messages(client, client.read_queues(elsewhere), 1)
    assert one.body == b"b"


def test_a_policy_replays_each_dead_letter_once(
    client: Client, cli: CommandLine, topic: TopicFactory, group: str, tmp_path: Path
) -> None:
    name = topic(queues=1)
    policy = tmp_path / "replays.toml"
    policy.write_text(f"[[replay]]\ngroup = '{group}'\nmaxAge = '1d'\nrate = 100\n")
    words = ("replay", "--policy", str(policy), "--yes", "--json")
    assert cli(*words).json()["found"] == 0  # there is no such topic
    first = send_tagged(client, name, ["a", "b"])
    for message in first:
        give_up(client, group, message)
    eventually(lambda: dead_letters(client, group) == 2, 60, what="two dead letters")
    done = cli(*words).json()
    assert (done["found"], done["sent"]) == (2, 2)
    assert done["summary"]["tags"] == {"T0": 1, "T1": 1}
    again = cli(*words).json()
    assert (again["found"], again["sent"]) == (0, 0)
    give_up(client, group, first[0])
    eventually(lambda: dead_letters(client, group) == 3, 60, what="a third dead letter")
    assert cli(*words).json()["sent"] == 1


def test_filters_choose(client: Client, topic: TopicFactory) -> None:
    messages = send_tagged(client, topic(queues=1), ["x1", "x2", "y3"])

    def chosen(**given: object) -> list[bytes]:
        return [message.body for message in messages if ReplayFilter(**given).takes(message)]

    assert chosen() == [b"x1", b"x2", b"y3"]
    assert chosen(keys=frozenset({"k1"})) == [b"x2"]
    assert chosen(keys=frozenset({"all"}), text="y") == [b"y3"]
    assert chosen(tags=frozenset({"T0"})) == [b"x1", b"y3"]
    assert chosen(topic="elsewhere") == []
    assert chosen(since_ms=messages[1].store_timestamp, until_ms=messages[1].store_timestamp) == []


def test_what_does_not_say_its_first_topic_needs_one(client: Client, topic: TopicFactory, group: str) -> None:
    source, target = Origin.RETRY.topic(group), topic()
    Admin(client).create_topic(source, queues=1)
    fill(client, source, ["waiting"])
    with pytest.raises(OptionError, match="--to"):
        find_replays(client, group, Origin.RETRY, ReplayFilter())
    found = find_replays(client, group, Origin.RETRY, ReplayFilter(limit=1), to=target)
    assert [replay.topic for replay in send_replays(client, found)] == [target]


def test_topics_are_listed_and_described_as_tables(
    client: Client, cli: CommandLine, topic: TopicFactory
) -> None:
    name = topic()
    fill(
        client, name, [json.dumps({"id": 1, "address": {"city": "Paris"}}), json.dumps({"id": 2}), "no json"]
    )
    assert name in cli("tables", "list", "--json").json()
    found = cli("tables", "describe", name, "--json").json()
    assert found == {
        "topic": name,
        "columns": {"id": "BIGINT", "address": "STRUCT<`city`: STRING>"},
        "seen": 3,
        "unfit": 1,
    }
    assert "always there" in cli("tables", "describe", name).out.lower()
    assert f"'topic' = '{name}'" in cli("tables", "describe", name, "--ddl").out
    empty = cli("tables", "describe", topic())
    assert (empty.code, "no messages" in empty.err) == (2, True)
