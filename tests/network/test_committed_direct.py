"""A direct stream that reads what is committed: its real plan and the readers of its tasks, without Spark."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest
from tests.support.committed_query import LOG, Query, committed_cluster, send
from tests.support.direct_stream import GROUP, DirectStream
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.dstream import ConsumerStrategy, LocationStrategies, rdd
from pyspark_rocketmq.dstream.direct.batch_plan import DirectPlan
from pyspark_rocketmq.dstream.direct.committed_rows import (
    CommittedRows,
)
from pyspark_rocketmq.errors import BrokerNotFoundError, DataLossError, OptionError
from pyspark_rocketmq.offsets.offset_lookup import Ends
from pyspark_rocketmq.options import parse_direct_options
from pyspark_rocketmq.spark.write.transaction_log import TransactionName
from pyspark_rocketmq.testing import MockCluster

EARLIEST: Final = ConsumerStrategy.earliest


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with committed_cluster() as cluster:
        yield cluster


@pytest.fixture
def query(mq: MockCluster, client: Client) -> Query:
    return Query(mq.name_server, client)


@pytest.fixture
def stream(mq: MockCluster) -> Iterator[DirectStream]:
    stream = DirectStream(mq)
    yield stream
    stream.stop()


def test_a_batch_is_read_when_it_is_committed_and_not_before(client, query, stream) -> None:
    query.write(1, "failed")
    part = query.write(1, *"abcdefg")
    send(client, "plain")
    assert not Counter(stream.trigger()) - Counter(["plain"])
    query.commit(1, part)
    assert stream.drain() == Counter([*"abcdefg", "plain"])
    assert [batch for batch in stream.batches if set("abcdefg") <= set(batch)]
    stream.recover()
    assert not stream.trigger()


def test_the_groups_offsets_are_enough_to_continue(mq, client, query, stream) -> None:
    """Also with a batch of which every message was passed before its commit."""
    query.run(1, "a", "b")
    query.commits.abandon(TransactionName(query.id, 2))
    part = query.write(2, "c", "d")
    query.commits.abandon(TransactionName(query.id, 2))  # so that nothing waits for it
    send(client, "plain")
    assert stream.drain() == Counter(["a", "b", "plain"])
    assert stream.plan.positions == client.max_offsets([*client.read_queues("orders"), LOG])
    stream.commit()
    query.commit(2, part)
    query.run(3, "e")
    second = DirectStream(mq)
    assert second.drain() == Counter("cde")
    second.stop()


def test_a_group_that_read_everything_before_gets_what_is_stored_later(mq, client, query) -> None:
    """Its offsets say nothing of the commit topic: what is stored before them was read."""
    query.run(1, "old")
    part = query.write(2, "begun before")
    ends = client.max_offsets(client.read_queues("orders"))
    client.commit_offsets(GROUP, ends)
    query.commit(2, part)
    query.run(3, "new")
    for strategy in (EARLIEST, ConsumerStrategy.latest):
        stream = DirectStream(mq, strategy)
        assert stream.drain() == Counter(["new"])
        stream.recover()
        stream.stop()
    stream = DirectStream(mq, ConsumerStrategy.specificOffset({**dict.fromkeys(ends, 0), LOG: 0}), force=True)
    assert stream.drain() == Counter(["old", "begun before", "new"])
    stream.stop()


def test_latest_is_what_is_committed_from_now_on(mq, client, query) -> None:
    query.run(1, "old")
    send(client, "plain")
    part = query.write(2, *"abc")
    stream = DirectStream(mq, ConsumerStrategy.latest)
    query.commit(2, part)
    assert stream.drain() == Counter("abc")
    stream.stop()


def test_other_messages_wait_for_an_open_batch_and_no_message_is_read_twice(
    mq,
    client,
    query,
    stream,
    monkeypatch,
) -> None:
    part = query.write(1, *"abcdefgh")
    send(client, *(f"plain{number}" for number in range(8)))
    assert not stream.trigger()
    query.commit(1, part)
    parts = []
    split = CommittedRows.split
    monkeypatch.setattr(CommittedRows, "split", lambda *given: parts.append(split(*given)) or parts[-1])
    assert len(stream.trigger()) == 16
    assert sum(len(each) for ranges in parts[0].parts.values() for each in ranges) == 16
    query.write(2, "never")
    send(client, "later")
    monkeypatch.setattr("pyspark_rocketmq.client.commits.holds.HOLD_MS", 0)
    assert stream.drain()["later"] == 1, "for a minute at most"


def test_partitions_are_those_of_queues_with_elements(mq, client, query, monkeypatch) -> None:
    """Partition i is of range i, also where all of a queue's elements were passed before their commit."""
    stream = DirectStream(mq)
    part = query.write(1, *"abcdefghijkl")
    query.commits.abandon(TransactionName(query.id, 1))  # so that nothing waits for it
    assert not stream.drain()
    query.commit(1, part)
    ranges = stream.plan.ranges(
        10**6, stream.client, stream.source, remember_ms=0, rows=stream.committed_rows
    )
    assert [(each.topic, len(each)) for each in ranges if len(each)] == [(LOG.topic, 1)]
    split = stream.committed_rows.split(ranges, {})
    made: list[Any] = []
    monkeypatch.setattr(rdd, "executors", lambda _: ())
    monkeypatch.setattr(rdd, "elements_rdd", lambda _, elements, places: elements)
    monkeypatch.setattr(rdd.PipelinedRDD, "__init__", lambda _, *given: made.append(given))
    found = rdd.RocketMQRDD(
        *(None, ranges, stream.source, {}, LocationStrategies.PreferConsistent),
        committed=split.committed,
        parts=split.parts,
    )
    ((partitions, reader),) = made
    assert [*found.offsetRanges[: len(partitions)]] == partitions
    assert LOG not in {each.queue for each in partitions}
    assert {each.queue for each in found.offsetRanges} == {each.queue for each in ranges}
    read = [message.body.decode() for each in partitions for message in reader(0, [each])]
    assert Counter(read) == Counter("abcdefghijkl")
    stream.stop()


def test_limits_do_not_divide_a_batch(mq, client, query) -> None:
    bodies = [f"row{number}" for number in range(100)]
    query.run(1, *bodies)
    send(client, *(f"plain{number}" for number in range(40)))
    stream = DirectStream(mq, maxRatePerQueue="2")
    assert stream.drain().total() == 140
    assert stream.rows() == Counter([*bodies, *(f"plain{number}" for number in range(40))])
    (whole,) = [batch for batch in stream.batches if set(bodies) & set(batch)]
    assert set(bodies) <= set(whole)
    assert max(len(batch) - 100 * (batch == whole) for batch in stream.batches) <= 8, "2 of each queue"
    stream.stop()


def test_a_batch_waits_for_a_queue_that_does_not_answer(mq, client, query, stream, caplog) -> None:
    query.commit(1, query.write(1, *"abcdefgh"), query.write(1, *"ijkl"))
    mq.stop_broker("broker-b")
    for _ in range(3):
        assert not stream.trigger()
    assert caplog.text.count("is committed and waits") == 1, "not at each batch"
    mq.start_broker("broker-b")
    eventually(lambda: stream.drain() == Counter("abcdefghijkl"), what="all of the batch")
    assert [len(batch) for batch in stream.batches if batch] == [12]


def test_a_commit_topic_that_is_away_holds_up_no_other_messages(mq, client, query, stream, caplog) -> None:
    stream.trigger()
    part = query.write(1, "a")
    mq.stop_broker("broker-a")
    client.invalidate("orders")
    send(client, "plain")
    eventually(lambda: stream.drain() == Counter(["plain"]), what="the message of the other broker")
    for _ in range(3):
        stream.trigger()
    told = "the commit topic orders-commits cannot be read, and its batches wait"
    assert caplog.text.count(told) == 1, "not at each batch"
    mq.start_broker("broker-a")
    query.commit(1, part)
    eventually(lambda: stream.drain() == Counter(["a", "plain"]), what="the batch")


def test_a_short_answer_of_a_broker_that_restarts_is_no_loss(mq, client, query, stream, monkeypatch) -> None:
    query.run(1, "a")
    stream.drain()
    query.run(2, "b")
    ask, answers = stream.client.ends, []

    def ends(queues: Any, **given: Any) -> Ends:
        found = ask(queues, **given)
        answers.append(found)
        short = {queue: 1 if queue == LOG else end for queue, end in found.masters.items()}
        return replace(found, masters=short) if len(answers) <= 2 else found

    monkeypatch.setattr(stream.client, "ends", ends)
    assert not stream.trigger()
    assert stream.drain() == Counter("ab")


@pytest.mark.parametrize("how", ["expired", "shorter"])
def test_records_that_are_lost_are_told(mq, client, query, how: str, monkeypatch) -> None:
    """Whatever ``failOnDataLoss`` says."""
    stream = DirectStream(mq, failOnDataLoss="false")
    query.run(1, "a")
    stream.drain()
    query.run(2, "b")
    end = client.max_offsets([LOG])[LOG]
    if how == "expired":
        mq.expire(LOG, end)
    else:
        mq.truncate(LOG, 1)
        monkeypatch.setattr("pyspark_rocketmq.dstream.direct.batch_plan._PATIENCE_MS", {"shortened": 0})
    with pytest.raises(DataLossError) as failure:
        stream.drain()
    assert failure.value.condition == "COMMITS_LOST"
    stream.stop()


def test_a_queue_that_comes_later_has_the_same_floor(mq, client, query) -> None:
    """Its broker was down at the start."""
    query.run(1, *(f"old{number}" for number in range(12)))
    client.commit_offsets(GROUP, client.max_offsets(client.read_queues("orders")))
    mq.stop_broker("broker-b")
    stream = DirectStream(mq)
    stream.trigger()
    mq.start_broker("broker-b")
    new = [f"new{number}" for number in range(8)]
    client.invalidate("orders")
    send(client, *new)
    eventually(lambda: stream.drain() >= Counter(new), what="what all queues have")
    assert stream.rows() == Counter(new)
    stream.recover()
    stream.stop()


def test_a_start_needs_the_commit_topic(mq, client) -> None:
    mq.delete_topic("orders-commits")
    with pytest.raises(BrokerNotFoundError, match="the commit topic orders-commits does not exist"):
        DirectStream(mq)
    given = parse_direct_options({"nameServer": mq.name_server, "isolation": "read_committed"})
    with pytest.raises(OptionError, match="orders-commits is a commit topic"):
        given.source_of_stream(("orders", "orders-commits"), GROUP)


class Writers:
    """Two queries that write, and what they have committed."""

    def __init__(self, name_server: str, client: Client) -> None:
        self._client = client
        self._queries = [Query(name_server, client, name) for name in ("first", "second")]
        self._number = dict.fromkeys(("first", "second"), 1)
        self._parts: dict[str, list[Any]] = {"first": [], "second": []}
        self._pending: dict[str, list[str]] = {"first": [], "second": []}
        self._made = 0
        self.expected: Counter[str] = Counter()
        self.whole: list[set[str]] = []

    def step(self, choose: random.Random) -> None:
        query = choose.choice(self._queries)
        match choose.choice(("write", "write", "commit", "commit", "fail", "send")):
            case "write":
                bodies = self._bodies(query.id, choose.randint(1, 9))
                self._parts[query.id].append(query.write(self._number[query.id], *bodies))
                self._pending[query.id] += bodies
            case "commit":
                self._commit(query)
            case "fail":
                if choose.random() < 0.5:
                    query.commits.abandon(TransactionName(query.id, self._number[query.id]))
                self._parts[query.id], self._pending[query.id] = [], []
            case "send":
                bodies = self._bodies("plain", choose.randint(1, 4))
                send(self._client, *bodies)
                self.expected.update(bodies)

    def finish(self) -> None:
        """Commit the rest; nothing waits for later batches."""
        for query in self._queries:
            self._commit(query)
            query.commits.abandon(TransactionName(query.id, self._number[query.id]))

    def _bodies(self, name: str, count: int) -> list[str]:
        self._made += count
        return [f"{name}-{self._made - number}" for number in range(count)]

    def _commit(self, query: Query) -> None:
        if self._pending[query.id]:
            query.commit(self._number[query.id], *self._parts[query.id])
            self.expected.update(self._pending[query.id])
            self.whole.append(set(self._pending[query.id]))
            self._number[query.id] += 1
            self._parts[query.id], self._pending[query.id] = [], []


@pytest.mark.parametrize("seed", range(8))
def test_any_order_of_writes_commits_reads_and_restarts(mq, client, seed: int) -> None:
    choose = random.Random(seed)
    writers = Writers(mq.name_server, client)
    given = {"maxRatePerQueue": str(choose.randint(1, 9))} if seed % 2 else {}
    stream = DirectStream(mq, **given)
    for _ in range(50):
        match choose.choice(("write", "write", "read", "recover")):
            case "write":
                writers.step(choose)
            case "read":
                stream.trigger()
            case "recover":
                stream.recover()
    writers.finish()
    assert stream.drain() == writers.expected
    for transaction in writers.whole:
        assert len([batch for batch in stream.batches if transaction & set(batch)]) == 1
    stream.recover()
    stream.stop()


def test_the_plan_of_an_earlier_release_has_no_floor(mq) -> None:
    stream = DirectStream(mq)
    state = stream.plan.__getstate__()
    del state["floor"]
    plan = DirectPlan.__new__(DirectPlan)
    plan.__setstate__(state)
    assert plan.floor == {}
    stream.stop()
