"""How much of what is committed the next micro-batch takes, and what it does when it cannot take it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.network.test_committed_ranges import Stream, read_batch
from tests.support.clocks import FakeClock
from tests.support.committed_query import LOG, Query, committed_cluster, send
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.client.read.settled_ends import MOVED_BACK_PATIENCE_MS
from pyspark_rocketmq.errors import (
    BrokerNotFoundError,
    ConnectError,
    PermissionDeniedError,
    TopicNotFoundError,
)
from pyspark_rocketmq.model import MessageQueue, Permission
from pyspark_rocketmq.offsets.planning_client import Ends, PlanningClient
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.planning.commits.records import Ranges
from pyspark_rocketmq.spark.features import ReadAllAvailable, ReadMaxRows
from pyspark_rocketmq.spark.read import committed
from pyspark_rocketmq.spark.read.committed import CommittedStreamReader
from pyspark_rocketmq.spark.read.schema import read_schema
from pyspark_rocketmq.spark.write.transaction_log import TransactionName
from pyspark_rocketmq.testing import MockCluster


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with committed_cluster() as cluster:
        yield cluster


@pytest.fixture
def query(mq: MockCluster, client: Client) -> Query:
    return Query(mq.name_server, client)


@pytest.fixture
def stream(mq: MockCluster) -> Iterator[Callable[..., Stream]]:
    """``stream(option=value)``: a query that reads."""
    made: list[Stream] = []

    def start(**given: str) -> Stream:
        made.append(Stream(mq, **given))
        return made[-1]

    yield start
    for each in made:
        each.stop()


Kinds = list[tuple[int, int]]


def kinds(batches: list[list[str]]) -> Kinds:
    """Return how many rows of each micro-batch are of committed batches, and how many are not."""
    return [(sum(row != "plain" for row in rows), rows.count("plain")) for rows in batches]


# --- limits ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "commits", "plain", "limit", "expected"),
    [
        (3, 3, 0, 18, [(9, 0)]),  # half of the limit has room for all that is committed
        (3, 3, 0, 17, [(6, 0), (3, 0)]),  # for two batches
        (3, 3, 0, 8, [(3, 0), (3, 0), (3, 0)]),  # for one
        (2, 6, 40, 8, [(4, 4), (4, 4), (4, 4), (0, 8)]),  # half of it is filled exactly
        (5, 3, 40, 4, [(5, 2), (5, 2), (5, 2), (0, 4)]),  # a batch is not divided, and other messages go on
        (1, 3, 12, 1, [(1, 1), (1, 1), (1, 1), (0, 1)]),
    ],
)
def test_a_limit_is_shared(
    mq,
    client,
    query,
    stream,
    rows: int,
    commits: int,
    plain: int,
    limit: int,
    expected: list[tuple[int, int]],
) -> None:
    for number in range(1, commits + 1):
        query.run(number, *(f"{number}-{row}" for row in range(rows)))
    send(client, *["plain"] * plain)
    reader = stream()
    for _ in expected:
        reader.trigger(ReadMaxRows(limit))
    assert kinds(reader.batches) == expected
    reader.drain()
    assert kinds([[*reader.rows().elements()]]) == [(rows * commits, plain)]


def test_without_a_limit_everything_is_in_one_micro_batch(mq, client, query, stream) -> None:
    for number in range(1, 5):
        query.run(number, *"abc")
    send(client, *["plain"] * 20)
    reader = stream()
    assert reader.trigger(ReadAllAvailable())
    assert kinds(reader.batches) == [(12, 20)]
    assert not reader.trigger(ReadAllAvailable())


@pytest.mark.parametrize("seed", range(4))
def test_records_that_are_not_kept_repeat_and_lose_no_row(mq, client, stream, monkeypatch, seed: int) -> None:
    """What was committed longer ago than is kept is read again, and is no row again."""
    monkeypatch.setattr(committed, "MAX_KNOWN", 2)
    choose = random.Random(seed)
    reader, expected = stream(), Counter[str]()
    open_parts: dict[str, list[Ranges | None]] = {"first": [], "second": []}
    pending: dict[str, list[str]] = {"first": [], "second": []}
    number = Counter[str]()
    for step in range(40):
        writer = choose.choice([*pending])
        query = Query(mq.name_server, client, writer)
        match choose.choice(["write", "commit", "send", "read", "read", "restart"]):
            case "write":
                bodies = [f"{writer}-{step}-{row}" for row in range(choose.randint(1, 9))]
                open_parts[writer].append(query.write(number[writer], *bodies))
                pending[writer] += bodies
            case "commit":
                query.commit(number[writer], *open_parts[writer])
                expected.update(pending[writer])
                number[writer] += 1
                open_parts[writer], pending[writer] = [], []
            case "send":
                send(client, f"plain-{step}")
                expected[f"plain-{step}"] += 1
            case "read":
                reader.trigger(ReadMaxRows(choose.randint(1, 9)))
            case _:
                reader.restart()
    for writer in pending:
        Query(mq.name_server, client, writer).commits.abandon(TransactionName(writer, number[writer]))
    assert reader.drain() == expected


# --- commit topics that come late -----------------------------------------------------------


def test_a_commit_topic_that_appears_in_an_available_now_run_waits_for_the_next_run(
    mq, client, query, stream
) -> None:
    mq.delete_topic(LOG.topic)
    send(client, "plain")
    reader = stream()
    reader.reader.prepareForTriggerAvailableNow()
    mq.create_topic(LOG.topic, 1, brokers=[LOG.broker_name])
    query.run(1, "a")
    assert reader.drain() == Counter(["plain"])
    reader.restart()
    assert reader.drain() == Counter(["plain", "a"])


def test_an_available_now_run_ends_where_commits_were_read_before_it(mq, client, query, stream) -> None:
    query.run(1, "a")
    reader = stream()
    reader.drain()
    query.run(2, "b")
    reader.restart()
    reader.reader.prepareForTriggerAvailableNow()
    query.run(3, "c")
    assert reader.drain() == Counter("ab")


def test_a_commit_topic_that_is_created_after_a_start_at_the_end_is_read_whole(
    mq, client, query, stream
) -> None:
    mq.delete_topic(LOG.topic)
    reader = stream(startingOffsets="latest")
    reader.trigger()
    send(client, "plain")
    mq.create_topic(LOG.topic, 1, brokers=[LOG.broker_name])
    query.run(1, *"ab")
    query.run(2, "c")
    assert reader.drain() == Counter(["plain", *"abc"])


# --- what cannot be read now ----------------------------------------------------------------


def test_a_batch_read_needs_all_that_is_committed(mq, client, query, monkeypatch) -> None:
    query.run(1, *"abcdefghijkl")
    assert read_batch(mq) == Counter("abcdefghijkl")
    monkeypatch.setattr(committed, "_READABLE_MS", 100)
    mq.stop_broker("broker-b", unregister=False)
    with pytest.raises(
        BrokerNotFoundError, match="a batch is committed, and not all of its messages"
    ) as away:
        read_batch(mq)
    assert away.value.facts["topic"] == "orders"


def test_a_batch_that_waits_lets_earlier_ones_pass(mq, client, query, stream) -> None:
    """The first batch is at one broker, the second at both."""
    reader = stream()
    send(client, *["plain"] * 4)
    reader.drain()
    mq.create_topic("orders", 2, perm=Permission.READ, brokers=["broker-b"])
    client.invalidate("orders")
    query.run(1, *"abc")
    mq.create_topic("orders", 2, brokers=["broker-b"])
    client.invalidate("orders")
    query.run(2, *"defghijklmno")
    mq.stop_broker("broker-b")
    while reader.trigger():
        pass
    assert reader.rows() == Counter([*["plain"] * 4, *"abc"])


def test_a_commit_topic_has_the_whole_patience_although_another_ended_before_its_position_earlier(
    mq, client, query, monkeypatch
) -> None:
    """Brokers that restart one after the other each rebuild their index."""
    mq.create_topic("bills", 1, brokers=["broker-b"])
    mq.create_topic("bills-commits", 1, brokers=["broker-b"])
    clock = FakeClock()
    given = {"nameServer": mq.name_server, "topic": "orders,bills", "isolation": "read_committed"}
    options = parse_options(
        SourceOptions, given | {"startingOffsets": "earliest"}, where="readStream", environ={}
    )
    stream = CommittedStreamReader(options, read_schema(("body",)), clock=clock)
    query.run(1, "a")
    Query(mq.name_server, client, topic="bills").run(1, "b")
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    patience_s, begin_s = MOVED_BACK_PATIENCE_MS / 1000, clock.now_s
    answer = PlanningClient.ends

    def ends(self: PlanningClient, queues: Iterable[MessageQueue], **given: Any) -> Ends:
        first = clock.now_s - begin_s < patience_s - 2
        wrong = "orders-commits" if first else "bills-commits"
        over = clock.now_s - begin_s >= 2 * patience_s - 3
        told = answer(self, queues, **given)
        return replace(
            told, masters={q: 0 if q.topic == wrong and not over else at for q, at in told.masters.items()}
        )

    monkeypatch.setattr(PlanningClient, "ends", ends)
    assert stream.latestOffset(end, ReadAllAvailable()) == end
    assert clock.now_s - begin_s >= 2 * patience_s - 3
    stream.stop()


# --- one of several commit topics cannot be read ----------------------------------------------


@pytest.fixture
def bills(mq: MockCluster, client: Client) -> Query:
    """A query that writes a second topic, at the second broker, whose commit topic is there.

    The first topic is written at the first broker only.
    """
    mq.create_topic("orders", 2, perm=Permission.READ, brokers=["broker-b"])
    mq.create_topic("bills", 1, brokers=["broker-b"])
    mq.create_topic("bills-commits", 1, brokers=["broker-b"])
    return Query(mq.name_server, client, topic="bills")


@pytest.mark.parametrize("unregister", [True, False])
def test_a_commit_topic_whose_broker_is_down_holds_up_no_other(
    mq, client, query, bills, stream, monkeypatch, caplog, unregister: bool
) -> None:
    monkeypatch.setattr(committed, "OUTAGE_PATIENCE_MS", 0)
    reader = stream(topic="orders,bills")
    query.run(1, "a")
    bills.run(1, "b")
    assert reader.drain() == Counter("ab")
    bills.run(2, *"cd")
    mq.stop_broker("broker-b", unregister=unregister)
    query.run(2, *"ef")
    send(client, "plain")
    assert reader.drain() == Counter([*"abef", "plain"])
    assert "the commit topic bills-commits cannot be read, and its batches wait" in caplog.text
    reader.restart()
    query.run(3, "g")
    assert reader.drain() == Counter([*"abefg", "plain"])
    mq.start_broker("broker-b")
    eventually(lambda: reader.drain() == Counter([*"abcdefg", "plain"]), what="what waited")
    reader.restart()


def test_messages_that_nothing_marks_do_not_wait_for_a_commit_topic(mq, client, bills, stream) -> None:
    """Those of batches are left out, and come when their commits can be read."""
    mq.create_topic("bills", 1, brokers=["broker-a"])
    reader = stream(topic="bills")
    reader.drain()
    late = bills.write(2, *"ghijkl")
    bills.run(1, *"abcdef")
    mq.stop_broker("broker-b", unregister=False)
    send(client, *["plain"] * 4, topic="bills")
    assert {*reader.drain()} == {"plain"}
    reader.restart()
    assert {*reader.drain()} == {"plain"}
    mq.start_broker("broker-b")
    bills.commit(2, late)
    eventually(lambda: reader.drain() == Counter([*"abcdefghijkl", *["plain"] * 4]), what="what waited")


@pytest.mark.parametrize("registered", [True, False])
def test_an_available_now_run_does_not_do_without_a_commit_topic(
    mq, client, query, bills, stream, monkeypatch, registered: bool
) -> None:
    """It would end, and nothing would say that batches are missing."""
    mq.create_topic("bills", 1, brokers=["broker-a"])
    bills.run(1, "a")
    reader = stream(topic="orders,bills")
    reader.drain()
    query.run(1, "b")
    reader.drain()
    bills.run(2, "c")
    if registered:
        reader.restart()
        reader.reader.prepareForTriggerAvailableNow()
        mq.stop_broker("broker-b", unregister=False)
    else:
        mq.stop_broker("broker-b")
        reader.restart()
        reader.reader.prepareForTriggerAvailableNow()
    monkeypatch.setattr(committed, "OUTAGE_PATIENCE_MS", 0)
    monkeypatch.setattr(committed, "OPERATION_TIMEOUT_MS", 500)
    with pytest.raises((ConnectError, TopicNotFoundError, BrokerNotFoundError), match="bills-commits"):
        reader.trigger()


def test_a_permission_that_is_revoked_for_one_commit_topic_is_told(mq, client, query, bills, stream) -> None:
    reader = stream(topic="orders,bills")
    query.run(1, "a")
    bills.run(1, "b")
    reader.drain()
    bills.run(2, "c")
    mq.create_topic("bills-commits", 1, perm=Permission.WRITE, brokers=["broker-b"])
    with pytest.raises(PermissionDeniedError):
        reader.trigger()
