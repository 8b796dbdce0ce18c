"""Committed batches of transactional writes, read without Spark."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator

import pytest
from tests.support.clocks import FakeClock
from tests.support.committed_query import LOG, Query, committed_cluster, send

from pyspark_rocketmq.client import Client, CommittedConsumer, MessageQueue, OutgoingMessage
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.errors import BrokerNotFoundError, DataLossError, OptionError
from pyspark_rocketmq.planning.commits.records import Ranges
from pyspark_rocketmq.testing import MockCluster


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with committed_cluster() as cluster:
        yield cluster


@pytest.fixture
def query(mq: MockCluster, client: Client) -> Query:
    return Query(mq.name_server, client)


def rows(consumer: CommittedConsumer, most: int = 10_000) -> list[str]:
    return [message.body.decode() for message in consumer.read(most)]


def test_a_batch_is_returned_whole_when_it_is_committed(client: Client, query: Query) -> None:
    consumer = CommittedConsumer("orders", client=client)
    send(client, "plain")
    first, second = query.write(1, *"abcd"), query.write(1, "e")
    query.write(2, "never")
    assert rows(consumer) == ["plain"]
    query.commit(1, first, second)
    assert sorted(rows(consumer)) == [*"abcde"]
    assert rows(consumer) == []
    assert sorted(rows(CommittedConsumer("orders", client=client))) == [*"abcde", "plain"]


def test_a_start_at_the_end_returns_what_is_committed_later(client: Client, query: Query) -> None:
    query.run(1, "old")
    part = query.write(2, "a", "b")
    send(client, "old")
    consumer = CommittedConsumer("orders", client=client, start="latest")
    query.commit(2, part)
    send(client, "plain")
    assert sorted(rows(consumer)) == ["a", "b", "plain"]


def test_a_larger_batch_is_not_divided(client: Client, query: Query) -> None:
    query.run(1, *"abcde")
    query.run(2, *"fg")
    query.run(3, *"hi")
    send(client, *(f"plain{number}" for number in range(6)))
    consumer = CommittedConsumer("orders", client=client)
    calls = []
    while found := rows(consumer, 4):
        calls.append(found)
    assert sorted(calls[0][:5]) == [*"abcde"]
    assert {*"fghi"} <= {*calls[1]}
    assert Counter(body for call in calls for body in call) == Counter(
        [*"abcdefghi", *(f"plain{number}" for number in range(6))]
    )
    assert max(map(len, calls[1:])) <= 6


def test_many_messages_that_are_not_committed_are_no_end(client: Client, query: Query) -> None:
    consumer = CommittedConsumer("orders", client=client)
    query.write(1, *(f"never{number}" for number in range(40)))
    send(client, "a", "b", "c", "d")
    found = [*rows(consumer, 4), *rows(consumer, 4), *rows(consumer, 4), *rows(consumer, 4)]
    assert sorted(found) == [*"abcd"]


def test_lost_records_are_told(mq: MockCluster, client: Client, query: Query) -> None:
    query.run(1, "a")
    consumer = CommittedConsumer("orders", client=client)
    consumer.read()
    query.run(2, "b")
    query.run(3, "c")
    mq.expire(LOG, client.max_offsets([LOG])[LOG])
    with pytest.raises(DataLossError) as failure:
        consumer.read()
    assert failure.value.condition == "COMMITS_LOST"


@pytest.mark.parametrize("late_s", [3.0, 11.0])
@pytest.mark.parametrize(
    ("topic", "condition"), [(LOG.topic, "COMMITS_LOST"), ("orders", "OFFSET_WENT_BACK")]
)
def test_a_queue_that_ends_before_what_was_read_is_given_some_time(
    mq: MockCluster,
    query: Query,
    monkeypatch: pytest.MonkeyPatch,
    late_s: float,
    topic: str,
    condition: str,
) -> None:
    """Its broker has restarted, and rebuilds its index."""
    clock = FakeClock(base=SYSTEM_CLOCK)
    with Client(mq.name_server, clock=clock) as client:
        consumer = CommittedConsumer("orders", client=client)
        query.run(1, "a")
        assert rows(consumer) == ["a"]
        query.run(2, "b")
        answer, begin_s = Client.max_offsets, clock.now_s

        def max_offsets(self: Client, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
            lacks = clock.now_s - begin_s < late_s
            return {q: 0 if lacks and q.topic == topic else at for q, at in answer(self, queues).items()}

        monkeypatch.setattr(Client, "max_offsets", max_offsets)
        if late_s < 10:
            assert rows(consumer) == ["b"]
            return
        with pytest.raises(DataLossError, match="ends at 0") as failure:
            rows(consumer)
        assert failure.value.condition == condition


def test_queues_of_a_broker_that_was_away_at_the_start_begin_at_their_first_message(
    mq: MockCluster, client: Client, query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    away = MessageQueue("orders", "broker-b", 0)
    for body in (b"expired", b"a"):
        mq.send(OutgoingMessage("orders", body), away)
    mq.expire(away, 1)
    mq.unregister("broker-b")
    consumer = CommittedConsumer("orders", client=client)
    assert rows(consumer) == []
    mq.register("broker-b")
    client.invalidate("orders")
    assert rows(consumer) == ["a"]
    assert [each.message.partition(" is new")[2] for each in caplog.records] == [
        " here, and messages before offset 1 have expired"
    ]


def test_a_commit_topic_must_exist(client: Client) -> None:
    with pytest.raises(BrokerNotFoundError, match="Create it once, with one queue at one broker"):
        CommittedConsumer("orders", client=client, commit_topic="others")


def test_messages_of_another_commit_topic_are_no_silent_loss(
    mq: MockCluster, client: Client, query: Query
) -> None:
    mq.create_topic("others", 1, brokers=["broker-a"])
    query.run(1, "a")
    consumer = CommittedConsumer("orders", client=client, commit_topic="others")
    with pytest.raises(OptionError, match="orders-commits decides which of these messages are rows"):
        consumer.read()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "needs either name_server or client"),
        ({"name_server": "127.0.0.1:1", "start": "middle"}, "start is earliest or latest"),
        ({"name_server": "127.0.0.1:1", "position": "{}"}, "this is no position"),
        ({"name_server": "127.0.0.1:1", "position": "[" * 100_000}, "this is no position"),
        ({"name_server": "127.0.0.1:1", "position": '{"version": 2}'}, "a newer release wrote this position"),
    ],
)
def test_invalid_arguments(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        CommittedConsumer("orders", **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("commits", "read"), "3"),
        (("commits", "known"), -1),
        (("commits", "storedAtMs"), None),
        (("commits",), []),
        (("offsets", "orders", "broker-a", "0"), "3"),
        (("offsets", "orders", "broker-a", "0"), True),
        (("offsets", "orders", "broker-a"), 3),
        (("floor", "orders", "broker-b", "1"), 1.5),
        (("floor",), None),
    ],
)
def test_a_position_of_another_form(
    client: Client, query: Query, path: tuple[str, ...], value: object
) -> None:
    query.run(1, "a")
    document = inner = json.loads(CommittedConsumer("orders", client=client).position)
    for name in path[:-1]:
        inner = inner[name]
    assert path[-1] in inner
    inner[path[-1]] = value
    with pytest.raises(OptionError, match="this is no position"):
        CommittedConsumer("orders", client=client, position=json.dumps(document))


def test_a_position_of_another_topic_reads_no_topic_from_its_begin(mq: MockCluster, client: Client) -> None:
    mq.create_topic("payments", 2)
    mq.create_topic("payments-commits", 1, brokers=["broker-a"])
    position = CommittedConsumer("payments", client=client).position
    with pytest.raises(OptionError, match="the position is of the topic payments") as refused:
        CommittedConsumer("orders", client=client, position=position)
    assert refused.value.facts["topic"] == "orders"


class Writers:
    """Two queries whose batches are written, committed and given up in any order."""

    def __init__(self, mq: MockCluster, client: Client, choose: random.Random) -> None:
        self._mq, self._client, self._choose = mq, client, choose
        self._numbers = dict.fromkeys(("first", "second"), 1)
        self._parts: dict[str, list[Ranges | None]] = {name: [] for name in self._numbers}
        self._bodies: dict[str, list[str]] = {name: [] for name in self._numbers}
        self._made = 0
        self.expected: Counter[str] = Counter()
        self.batches: list[set[str]] = []

    def step(self) -> None:
        name = self._choose.choice([*self._numbers])
        match self._choose.choice(("write", "write", "commit", "fail", "send")):
            case "write":
                made = self._bodies_of(name)
                self._parts[name].append(self._query(name).write(self._numbers[name], *made))
                self._bodies[name] += made
            case "commit":
                self.commit(name)
            case "fail":
                self._parts[name], self._bodies[name] = [], []
            case _:
                made = self._bodies_of("plain")
                send(self._client, *made)
                self.expected.update(made)

    def commit(self, name: str) -> None:
        if self._bodies[name]:
            self._query(name).commit(self._numbers[name], *self._parts[name])
            self.expected.update(self._bodies[name])
            self.batches.append({*self._bodies[name]})
            self._numbers[name] += 1
            self._parts[name], self._bodies[name] = [], []

    def _bodies_of(self, name: str) -> list[str]:
        self._made += 1
        return [f"{name}-{self._made}-{number}" for number in range(self._choose.randint(1, 9))]

    def _query(self, name: str) -> Query:
        return Query(self._mq.name_server, self._client, name)


@pytest.mark.parametrize("seed", range(10))
def test_any_order_of_writes_commits_reads_and_restarts(mq: MockCluster, client: Client, seed: int) -> None:
    choose = random.Random(seed)
    writers = Writers(mq, client, choose)
    consumer = CommittedConsumer("orders", client=client)
    calls: list[list[str]] = []
    for _ in range(60):
        match choose.choice(("write", "write", "write", "read", "restart")):
            case "write":
                writers.step()
            case "read":
                calls.append(rows(consumer, choose.choice((1, 5, 10_000))))
            case _:
                consumer = CommittedConsumer("orders", client=client, position=consumer.position)
    writers.commit("first")
    writers.commit("second")
    while found := rows(consumer):
        calls.append(found)
    assert Counter(body for call in calls for body in call) == writers.expected
    for batch in writers.batches:
        assert len([call for call in calls if batch & {*call}]) == 1
