"""The client at a proxy's remoting port, whose connections drop answers when they are full."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.cli import CommandLine
from tests.support.mock_proxy import MockProxy
from tests.support.topics import fill
from tests.support.transactional_job import TransactionalJob
from tests.support.wait import eventually

from pyspark_rocketmq.client import (
    Admin,
    AsyncClient,
    AsyncPullConsumer,
    Client,
    MessageQueue,
    OutgoingMessage,
    Producer,
    PullConsumer,
    PullStatus,
    PushConsumer,
)
from pyspark_rocketmq.client.read.pull_filter import pull_template
from pyspark_rocketmq.client.read.range_reader import Pulled, read_chunks
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.client.read.samples import message_sizes
from pyspark_rocketmq.client.routes.name_servers import merge_routes
from pyspark_rocketmq.errors import (
    BrokerNotFoundError,
    ConnectionLostError,
    OptionError,
    RequestTimeoutError,
    RocketMQError,
    TopicNotFoundError,
    UnsupportedRequestError,
)
from pyspark_rocketmq.model import BrokerData, MessageSelector, OffsetRange, Permission, QueueData, TopicRoute
from pyspark_rocketmq.options import ClientOptions, SinkOptions, parse_options
from pyspark_rocketmq.spark.write.sink_topics import SinkTopics
from pyspark_rocketmq.spark.write.transaction_log import TransactionName
from pyspark_rocketmq.testing import Delay, MockCluster, RequestCode
from pyspark_rocketmq.tools.doctor import examine
from pyspark_rocketmq.tools.findings import Verdict

pytestmark = pytest.mark.timeout(60)

BODY = b"x" * 8_000
COUNT = 250


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with MockCluster({"orders": 1}, brokers=("broker-a", "broker-b")) as cluster:
        yield cluster


@pytest.fixture
def proxy(mq: MockCluster) -> Iterator[MockProxy]:
    with MockProxy(mq.name_server) as proxy:
        yield proxy


@pytest.fixture
def name_server(proxy: MockProxy) -> str:
    return proxy.addr


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name_server: str) -> CommandLine:
    return CommandLine(capsys, monkeypatch, name_server)


def fill_orders(client: Client) -> dict[MessageQueue, int]:
    """Send the same number of messages to each queue; return the queues' max offsets."""
    return fill(client, "orders", [BODY] * (COUNT * len(client.write_queues("orders"))))


def read(client: Client, ends: dict[MessageQueue, int]) -> int:
    ranges = [OffsetRange(queue, 0, end) for queue, end in ends.items()]
    events = read_chunks(client, ranges, ReadOptions(consumer_group="g"))
    chunks = [chunk for event in events if isinstance(event, Pulled) for chunk in event.chunks]
    return sum(chunk.until_offset - chunk.from_offset for chunk in chunks)


def test_no_answer_is_dropped_however_many_pulls_are_in_flight(proxy: MockProxy, client: Client) -> None:
    ends = fill_orders(client)
    assert set(ends.values()) == {COUNT}
    assert read(client, ends) == 2 * COUNT
    assert proxy.dropped == 0


def test_readers_of_several_threads_share_the_connections(proxy: MockProxy, client: Client) -> None:
    ends = fill_orders(client)
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda _: read(client, ends), range(4))) == [2 * COUNT] * 4
    assert proxy.dropped == 0


def test_a_pull_leaves_other_requests_their_answers(proxy: MockProxy, client: Client) -> None:
    """What a pull brings fills a connection; offsets that are asked for meanwhile use another one."""
    ends = fill_orders(client)
    consumer = PullConsumer("g", client=client)
    with ThreadPoolExecutor(8) as threads:
        pulls = [threads.submit(consumer.pull, queue, "*", 0, 32) for queue in list(ends) * 8]
        offsets = [threads.submit(client.max_offsets, ends) for _ in range(8)]
        assert all(len(pull.result().messages) == 32 for pull in pulls)
        assert all(found.result() == ends for found in offsets)
    assert proxy.dropped == 0


def test_what_is_abandoned_is_not_in_the_way(proxy: MockProxy, client: Client) -> None:
    ends = fill_orders(client)
    for _ in range(3):
        events = read_chunks(
            client,
            [OffsetRange(queue, 0, end) for queue, end in ends.items()],
            ReadOptions(consumer_group="g"),
        )
        next(iter(events))
        events.close()
    assert read(client, ends) == 2 * COUNT
    assert proxy.dropped == 0


def test_groups_and_times(client: Client) -> None:
    ends = fill_orders(client)
    client.commit_offsets("g", ends)
    assert client.committed_offsets("g", ends) == ends
    assert client.offsets_at(dict.fromkeys(ends, 0)) == dict.fromkeys(ends, 0)


def test_a_topic_that_is_missing_is_said_to_be(client: Client) -> None:
    with pytest.raises(TopicNotFoundError, match="does not exist"):
        client.read_queues("order")


@pytest.mark.parametrize("use", [Admin.topics, Admin.cluster_info, lambda admin: admin.create_topic("new")])
def test_lists_are_refused_with_what_to_do(use, client: Client) -> None:
    with pytest.raises(UnsupportedRequestError, match="set the name servers' address"):
        use(Admin(client))


def test_who_needs_all_topics_may_name_them(client: Client) -> None:
    with pytest.raises(UnsupportedRequestError, match="name the topics, or set the name servers' address"):
        Admin(client).topics()


def test_the_sink_does_not_create_a_topic_at_a_proxy(client: Client) -> None:
    options = parse_options(
        SinkOptions,
        {"nameServer": client.options.name_servers[0], "topic": "new", "createTopic": "true"},
        environ={},
    )
    with pytest.raises(OptionError, match="a proxy does not create topics"):
        SinkTopics(client, options).queues("new")


def test_the_sink_writes_to_a_topic_that_exists_and_not_to_one_that_is_missing(client: Client) -> None:
    options = parse_options(SinkOptions, {"nameServer": client.options.name_servers[0]}, environ={})
    topics = SinkTopics(client, options)
    assert len(topics.queues("orders") or ()) == 2
    with pytest.raises(TopicNotFoundError, match="createTopic"):
        topics.queues("order")


def test_a_broker_that_is_gone_is_an_outage(mq: MockCluster, client: Client) -> None:
    client.read_queues("orders")
    mq.unregister("broker-b")
    client.invalidate("orders")
    with pytest.raises(BrokerNotFoundError):
        client.queue_address(MessageQueue("orders", "broker-b", 0))


def test_transactions_are_refused(proxy: MockProxy, tmp_path: Path) -> None:
    """A proxy forgets a half message after 30 s. A later commit would not find it."""
    job = TransactionalJob(proxy.addr, "orders", folder=tmp_path / "log")
    try:
        with pytest.raises(OptionError, match=r"a proxy forgets transactions.*name servers' address"):
            job.write(["one"], TransactionName("query", 7))
    finally:
        job.close()


def test_an_sql_filter_that_nobody_checks_is_refused(client: Client) -> None:
    """A broker answers a filter that it cannot parse with every message, and a proxy checks none."""
    fill_orders(client)
    with pytest.raises(OptionError, match="filter by tags"):
        client.check_selector(MessageSelector.by_sql("amount >"), "orders", group="g")
    with pytest.raises(OptionError, match="filter by tags"):
        PullConsumer("g", client=client).pull(
            client.read_queues("orders")[0], MessageSelector.by_sql("amount >"), 0
        )


def test_samples_of_many_queues_lose_no_answer(mq: MockCluster, proxy: MockProxy, client: Client) -> None:
    """A stream that weighs its batches asks all queues for a sample at once."""
    mq.create_topic("many", 8)
    producer = Producer(client)
    queues = client.write_queues("many")
    for queue in queues:
        producer.send_batch([OutgoingMessage("many", BODY) for _ in range(40)], queue)
    sizes = message_sizes(client, dict.fromkeys(queues, 0), group="g", selector=MessageSelector())
    assert len(sizes) == 16
    assert min(sizes.values()) > len(BODY)
    assert proxy.dropped == 0


def test_who_abandons_an_answered_pull_leaves_others_their_connection(client: Client) -> None:
    queue, *_ = fill_orders(client)
    lanes = client.pool.pull_lanes(client.broker_address(queue.broker_name, topic="orders"))
    template = pull_template(client, lanes, queue, selector=MessageSelector(), group="g")
    first = lanes.submit_many(template, [(0, 32)])
    eventually(lambda: lanes._is_answered(first[0]), what="the first answer")
    second = lanes.submit_many(template, [(32, 32)])
    assert len(lanes._lanes) == 1
    lanes.abandon(*first)
    ((number, response),) = lanes.wait_some(second, client.deadline())
    assert (number, response.code) == (second[0], 0)


def test_connections_that_are_as_silent_as_one_without_an_answer_are_closed(
    mq: MockCluster, client: Client
) -> None:
    """A machine that is gone takes all connections with it: each cost the time-out of a pull."""
    queue, *_ = fill_orders(client)
    lanes = client.pool.pull_lanes(client.broker_address(queue.broker_name, topic="orders"))
    template = pull_template(client, lanes, queue, selector=MessageSelector(), group="g")
    mq.inject(Delay(0.2), on=RequestCode.PULL_MESSAGE, times=3)
    for number in lanes.submit_many(template, [(0, 1)] * 3):
        lanes.wait_some([number], client.deadline())
    mq.inject(Delay(1.0), on=RequestCode.PULL_MESSAGE, times=2)
    silent = lanes.submit_many(template, [(0, 1)] * 2)
    connections = [lane.connection for lane in lanes._lanes if lane.connection is not None]
    assert len(connections) == 3, "one of them has nothing to do"
    with pytest.raises(RequestTimeoutError):
        lanes.wait_some(silent[:1], client.deadline(200))
    lanes.abandon(*silent[:1])
    assert not any(connection.alive for connection in connections)
    with pytest.raises(ConnectionLostError):
        lanes.wait_some(silent[1:], client.deadline())
    lanes.wait_some(lanes.submit_many(template, [(0, 1)]), client.deadline())


def test_pulls_that_wait_for_messages_are_in_nobodys_way(proxy: MockProxy, client: Client) -> None:
    ends = fill_orders(client)
    consumer = PullConsumer("g", client=client)
    queue, end = next(iter(ends.items()))
    with ThreadPoolExecutor(12) as threads:
        waiting = [
            threads.submit(consumer.pull_block_if_not_found, queue, "*", end, suspend_ms=5_000)
            for _ in range(12)
        ]
        assert read(client, ends) == 2 * COUNT
        assert not all(pull.done() for pull in waiting)
        Producer(client).send(OutgoingMessage("orders", b"news"), queue)
        assert {pull.result().status for pull in waiting} == {PullStatus.FOUND}
    assert proxy.dropped == 0


def test_a_new_group_commits_by_asyncio(proxy: MockProxy, client: Client) -> None:
    """A proxy keeps heartbeats to itself, and a broker refuses a group that it never saw."""
    ends = fill_orders(client)

    async def commit() -> dict[MessageQueue, int | None]:
        async with AsyncClient(proxy.addr) as there:
            await there.commit_offsets("new", ends)
            return await there.committed_offsets("new", ends)

    assert asyncio.run(commit()) == ends


def test_closing_ends_a_pull_that_waits_at_a_proxy(proxy: MockProxy, client: Client) -> None:
    (queue, end), *_ = fill_orders(client).items()

    async def close() -> None:
        there = AsyncClient(proxy.addr)
        consumer = AsyncPullConsumer("g", client=there)
        pull = asyncio.create_task(consumer.pull_block_if_not_found(queue, "*", end, suspend_ms=60_000))
        await asyncio.sleep(0.3)
        await there.close()
        with pytest.raises(RocketMQError, match="the client is closed"):
            await asyncio.wait_for(pull, 10)

    asyncio.run(close())


def test_a_push_consumer_needs_the_name_servers(proxy: MockProxy) -> None:
    with PushConsumer("g", proxy.addr) as consumer:
        consumer.subscribe("orders")
        with pytest.raises(OptionError, match="needs the name servers' address"):
            consumer.start(lambda _: None)


def test_the_doctor_knows_a_proxy(proxy: MockProxy, client: Client) -> None:
    options = parse_options(ClientOptions, {"nameServer": proxy.addr}, environ={})
    (finding,) = examine(options)
    assert (finding.verdict, finding.subject) == (Verdict.POOR, f"proxy {proxy.addr}")
    assert "the name servers' address" in finding.advice
    (_, finding) = examine(options, group="billing")
    assert finding.advice == "name a topic with --topic"
    ends = fill_orders(client)
    client.commit_offsets("billing", dict.fromkeys(ends, 200))
    (_, *findings) = examine(options, topic="orders", group="billing")
    assert [(each.verdict, each.seen) for each in findings] == [
        (Verdict.GOOD, "2 queues, 500 messages"),
        (Verdict.GOOD, "100 messages behind on orders"),
    ]
    (_, *findings) = examine(options, topic="order", group="billing")
    assert [each.verdict for each in findings] == [Verdict.BAD, Verdict.BAD]


def test_the_doctor_takes_no_broker_for_a_proxy(mq: MockCluster) -> None:
    with Client(mq.name_server) as direct:
        address = direct.broker_address("broker-a", topic="orders")
    options = parse_options(ClientOptions, {"nameServer": address}, environ={})
    (finding,) = examine(options, topic="orders")
    assert (finding.verdict, finding.subject) == (Verdict.BAD, f"name server {address}")
    assert "port of the name server" in finding.advice


def test_the_offsets_of_a_group_in_named_topics(client: Client, cli: CommandLine) -> None:
    ends = fill_orders(client)
    client.commit_offsets("billing", dict.fromkeys(ends, 200))
    done = cli("lag", "billing", "--topic", "orders", "--json")
    assert (done.code, done.json()["lag"], done.json()["away"]) == (0, 100, []), done
    for words in (("lag", "billing", "--topic", "orders"), ("offsets", "show", "billing", "-t", "orders")):
        done = cli(*words)
        assert (done.code, done.err) == (0, ""), done
    exported = cli("offsets", "export", "billing", "--topic", "orders")
    assert set(exported.json()["orders"]["broker-a"].values()) == {200}
    done = cli("offsets", "reset", "billing", "orders", "--to", "earliest", "--yes")
    assert done.code == 0
    assert "A proxy does not show whether consumers of the group are online" in done.out
    assert set(client.committed_offsets("billing", ends).values()) == {0}
    done = cli("offsets", "import", "billing", "--file", "-", "--yes", "--json", given=exported.out)
    assert (done.json()["consumersOnline"], done.json()["applied"]) == (None, True)
    assert set(client.committed_offsets("billing", ends).values()) == {200}
    for command in ("lag", "offsets show", "offsets export"):
        done = cli(*command.split(), "billing")
        assert done.code == 1
        assert "set the name servers' address, or name the topics" in done.err


def test_messages_are_moved_by_the_command_line(client: Client, cli: CommandLine, tmp_path: Path) -> None:
    assert cli("produce", "orders", given="one\ntwo\n").code == 0
    assert sorted(cli("consume", "orders").out.split()) == ["one", "two"]
    file = tmp_path / "orders.jsonl"
    file.write_text(cli("export", "orders").out)
    assert cli("import", "orders", "--file", str(file), "--yes").code == 0
    assert len(cli("peek", "orders", "--json").json()) == 4
    for way in ("--key", "--id"):
        done = cli("peek", "orders", way, "7F00000100002A9F0000000000000000")
        assert done.code == 1
        assert "a proxy" in done.err, done


def test_a_name_server_that_knows_a_slave_only_does_not_hide_that_a_master_is_behind_a_proxy() -> None:
    queues = (QueueData("broker-a", 1, 1, Permission.READ),)
    proxied = TopicRoute(
        "orders", (BrokerData("broker-a", "c", {0: "proxy:8080"}, behind_proxy=True),), queues
    )
    direct = TopicRoute("orders", (BrokerData("broker-a", "c", {1: "slave:10911"}),), queues)
    for routes, addresses in (
        ([proxied, direct], {0: "proxy:8080"}),
        ([direct, proxied], {1: "slave:10911"}),
    ):
        merged = merge_routes(routes)
        assert merged is not None
        assert merged.brokers[0].addresses == addresses
