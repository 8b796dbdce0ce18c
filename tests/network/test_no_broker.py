"""Name servers without a broker, and brokers that do not answer: commands, planning, the doctor."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from pyspark.sql.types import StringType, StructField, StructType
from tests.support.cli import CommandLine
from tests.support.clocks import FakeClock

from pyspark_rocketmq.cli.cluster_commands import groups
from pyspark_rocketmq.cli.connect import complete_groups
from pyspark_rocketmq.client import Admin, Client, ClientOptions, MessageQueue, OutgoingMessage
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Deadline
from pyspark_rocketmq.errors import BrokerNotFoundError, TopicNotFoundError
from pyspark_rocketmq.offsets.offset_lookup import fetch_running_ends
from pyspark_rocketmq.offsets.planning_client import PlanningClient
from pyspark_rocketmq.offsets.queue_lookup import queues_to_read, wait_for_queues
from pyspark_rocketmq.options import SinkOptions, SourceOptions, parse_options
from pyspark_rocketmq.remoting.codes import ResponseCode
from pyspark_rocketmq.spark.read.batch import RocketMQBatchReader
from pyspark_rocketmq.spark.read.schema import read_schema
from pyspark_rocketmq.spark.read.stream import RocketMQStreamReader
from pyspark_rocketmq.spark.write.writer import RocketMQBatchWriter
from pyspark_rocketmq.testing import MockCluster, Refuse

pytestmark = pytest.mark.timeout(60)

COMMANDS = [
    ("topics",),
    ("topic", "show", "orders"),
    ("topic", "create", "new"),
    ("topic", "delete", "orders", "--yes"),
    ("groups",),
    ("lag", "billing"),
    ("lag", "billing", "--topic", "orders"),
    ("peek", "orders"),
    ("consume", "orders"),
    ("produce", "orders"),
    ("offsets", "show", "billing", "--topic", "orders"),
    ("offsets", "reset", "billing", "orders", "--to", "earliest"),
]


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with MockCluster({"orders": 1}, brokers=("broker-a", "broker-b")) as cluster:
        for queue in cluster.queues("orders"):
            cluster.send(OutgoingMessage("orders", b"x"), queue)
        yield cluster


@pytest.fixture
def cli(mq: MockCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return CommandLine(capsys, monkeypatch, mq.name_server)


def forget_brokers(mq: MockCluster) -> None:
    mq.unregister("broker-a")
    mq.unregister("broker-b")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_says_that_no_broker_is_registered(
    command: tuple[str, ...], mq: MockCluster, cli: CommandLine
) -> None:
    forget_brokers(mq)
    done = cli(*command)
    assert "no broker is registered" in done.err, done
    assert (done.code, done.out) == (1, ""), done


def test_a_deleted_topic_would_return_with_its_broker(mq: MockCluster) -> None:
    """So deleting it, or a group, while no broker is registered is an error."""
    forget_brokers(mq)
    with Client(mq.name_server) as client:
        for act in (Admin(client).delete_topic, Admin(client).delete_group, Admin(client).create_group):
            with pytest.raises(BrokerNotFoundError, match="no broker is registered"):
                act("orders")


@pytest.mark.parametrize(
    "command",
    [("peek", "order"), ("lag", "g", "-t", "order"), ("consume", "order"), ("topic", "show", "order")],
)
def test_near_names_are_told_while_brokers_are_registered(command: tuple[str, ...], cli: CommandLine) -> None:
    done = cli(*command)
    assert done.code == 1
    assert "the topic does not exist" in done.err
    assert "did you mean orders?" in done.err


def options_of(mq: MockCluster, **more: str) -> SourceOptions:
    given = {"nameServer": mq.name_server, "topic": "orders", "routeRefreshMs": "1"} | more
    return parse_options(SourceOptions, {k: v for k, v in given.items() if v}, environ={}, where="readStream")


def test_planning_tells_an_outage_from_a_missing_topic(mq: MockCluster) -> None:
    options = options_of(mq, topic="order")
    client = PlanningClient(options.client)
    with pytest.raises(TopicNotFoundError, match="did you mean orders"):
        wait_for_queues(client, options, clock=SYSTEM_CLOCK)
    forget_brokers(mq)
    for given in (options, options_of(mq, topic="", subscribePattern="ord.*")):
        with pytest.raises(BrokerNotFoundError, match="no broker is registered"):
            queues_to_read(client, given)
    client.close()


def test_a_topic_whose_broker_is_away_holds_up_no_other_topic(mq: MockCluster) -> None:
    mq.create_topic("only-a", 1, brokers=("broker-a",))
    options = options_of(mq, topic="orders,only-a")
    client = PlanningClient(options.client)
    assert len(fetch_running_ends(client, options).masters) == 3
    mq.unregister("broker-a")
    client.routes.invalidate_all()
    assert set(fetch_running_ends(client, options).masters) == {MessageQueue("orders", "broker-b", 0)}
    client.close()


def test_the_topics_of_a_broker_that_registers_while_they_are_listed_are_listed(
    mq: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty list would start a query that reads a pattern's topics without any."""
    forget_brokers(mq)
    with Client(mq.name_server) as client:
        list_topics = client.name_servers.topics

        def list_then_register(*, deadline: Deadline) -> tuple[str, ...]:
            names = list_topics(deadline=deadline)
            mq.register("broker-a")
            return names

        monkeypatch.setattr(client.name_servers, "topics", list_then_register)
        assert Admin(client).topics() == ("orders",)


@pytest.fixture
def later(mq: MockCluster) -> Iterator[None]:
    """No broker is registered, until some time has passed."""
    forget_brokers(mq)
    back = threading.Timer(1.0, lambda: [mq.register(name) for name in ("broker-a", "broker-b")])
    back.start()
    yield
    back.join()


SOURCES: dict[str, dict[str, str]] = {
    "topic": {},
    "pattern": {"topic": "", "subscribePattern": "ord.*"},
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize("prepare", [False, True], ids=["a stream", "a run of what is available now"])
@pytest.mark.usefixtures("later")
def test_a_query_that_is_started_during_an_outage_waits(
    source: dict[str, str], prepare: bool, mq: MockCluster
) -> None:
    options = options_of(mq, startingOffsets="earliest", **source)
    reader = RocketMQStreamReader(options, read_schema(None))
    if prepare:
        reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    reader.stop()
    assert sum(end["offsets"]["orders"]["broker-a"].values()) == 1


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
@pytest.mark.usefixtures("later")
def test_a_batch_that_is_started_during_an_outage_waits(source: dict[str, str], mq: MockCluster) -> None:
    given = {"nameServer": mq.name_server, "topic": "orders"} | source
    options = parse_options(SourceOptions, {k: v for k, v in given.items() if v}, environ={})
    partitions = RocketMQBatchReader(options, read_schema(None)).partitions()
    assert sum(len(one) for partition in partitions for one in partition.value) >= 1


@pytest.mark.usefixtures("later")
def test_a_write_that_is_started_during_an_outage_waits(mq: MockCluster) -> None:
    given = {"nameServer": mq.name_server, "topic": "orders", "outageTimeout": "20s"}
    schema = StructType([StructField("body", StringType())])
    RocketMQBatchWriter(parse_options(SinkOptions, given, environ={}), schema, overwrite=False)


def test_a_write_to_a_missing_topic_fails_at_once_though_it_may_wait_for_brokers(mq: MockCluster) -> None:
    given = {"nameServer": mq.name_server, "topic": "order", "outageTimeout": "1h"}
    schema = StructType([StructField("body", StringType())])
    with pytest.raises(TopicNotFoundError, match=r"did you mean orders\? Otherwise create it"):
        RocketMQBatchWriter(parse_options(SinkOptions, given, environ={}), schema, overwrite=False)


# --- one of two brokers does not answer ---

AT_ALL_BROKERS = [
    ("groups",),
    ("offsets", "show", "billing"),
    ("lag", "billing"),
    ("lag", "billing", "--topic", "orders"),
    ("topic", "show", "orders"),
]


@pytest.fixture
def half(mq: MockCluster) -> MockCluster:
    """A dead broker that is still registered."""
    with Client(mq.name_server) as client:
        Admin(client).create_group("billing")
        client.commit_offsets("billing", dict.fromkeys(client.read_queues("orders"), 0))
    mq.stop_broker("broker-b", unregister=False)
    return mq


@pytest.mark.parametrize("command", AT_ALL_BROKERS, ids=" ".join)
def test_what_the_living_brokers_say_is_shown_and_the_silent_one_named(
    command: tuple[str, ...], half: MockCluster, cli: CommandLine
) -> None:
    done = cli(*command)
    assert done.code == 0, done
    assert ("billing" if command == ("groups",) else "broker-a") in done.out
    assert "without broker-b, which did not answer" in done.out + done.err
    told = cli(*command, "--json")
    assert told.json()
    assert "broker-b" in told.out + told.err


@pytest.mark.parametrize("command", AT_ALL_BROKERS, ids=" ".join)
def test_when_no_broker_answers_nothing_is_claimed(
    command: tuple[str, ...], half: MockCluster, cli: CommandLine
) -> None:
    half.stop_broker("broker-a", unregister=False)
    done = cli(*command)
    assert (done.code, done.out) == (1, ""), done
    assert "cannot connect" in done.err


@pytest.mark.parametrize("command", AT_ALL_BROKERS, ids=" ".join)
def test_a_broker_that_refuses_is_named_with_its_cause(
    command: tuple[str, ...], half: MockCluster, cli: CommandLine
) -> None:
    half.start_broker("broker-b")
    half.inject(Refuse(ResponseCode.NO_PERMISSION, "not yours"), times=None, broker="broker-b")
    done = cli(*command)
    assert done.code == 0, done
    told = " ".join((done.out + done.err).split())
    assert "without broker-b, which refused: the server forbids the request" in told
    assert "(not yours)" in told
    assert "did not answer" not in told


def test_a_watched_lag_survives_an_outage(
    half: MockCluster, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    half.start_broker("broker-b")
    clock = FakeClock(base=SYSTEM_CLOCK)

    def look() -> None:
        match clock.sleeps.count(0.5):
            case 1:
                for name in ("broker-a", "broker-b"):
                    half.stop_broker(name, unregister=False)
            case 2:
                for name in ("broker-a", "broker-b"):
                    half.start_broker(name)
            case 3:
                raise KeyboardInterrupt

    clock.on_sleep = look
    options = ClientOptions(name_servers=(half.name_server,))
    monkeypatch.setattr(groups, "connect", lambda *_: Client(options, clock=clock))
    done = cli("lag", "billing", "-t", "orders", "--watch", "--interval", "0.5")
    assert (done.code, clock.sleeps.count(0.5)) == (130, 3), done
    assert "billing is 2 messages behind" in done.out


def test_groups_complete_while_a_broker_is_away(half: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", half.name_server)
    assert complete_groups("bil") == ["billing"]
