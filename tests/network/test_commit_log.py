"""The records of a commit topic: which are read and kept, which commits are valid, and when one is lost."""

from __future__ import annotations

import logging
import pickle
import random
from collections.abc import Iterator

import pytest
from tests.support.clocks import FakeClock
from tests.support.committed_query import LOG
from tests.support.topics import put

from pyspark_rocketmq.client import Client, MessageQueue, MessageSelector, OutgoingMessage
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.client.commits import commit_log
from pyspark_rocketmq.client.commits.commit_log import (
    CommitLog,
    find_commit_queue,
    find_commit_queues,
    read_committed,
    read_entries,
    require_commit_queue,
    warn_of_lost_commits,
)
from pyspark_rocketmq.errors import BrokerNotFoundError, DataLossError, OptionError
from pyspark_rocketmq.planning.commits import visible
from pyspark_rocketmq.planning.commits.records import Abort, Begin, Commit, Record, encode_record
from pyspark_rocketmq.planning.commits.visible import Entry, is_valid, join
from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.testing import MockCluster

HERE, THERE = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-b", 0)
START_S = 1_767_225_600


class Cluster(MockCluster):
    """Stores messages a second after each other."""

    def __init__(self) -> None:
        self.clock = FakeClock(START_S)
        super().__init__({"orders": 1}, brokers=("broker-a", "broker-b"), clock=self.clock)
        self.create_topic(LOG.topic, 1, brokers=[LOG.broker_name])

    def send(self, message: OutgoingMessage, queue: MessageQueue | None = None) -> int:
        self.clock.now_s += 1
        return super().send(message, queue)


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def log(client: Client) -> CommitLog:
    return CommitLog(client, LOG)


def store(mq: MockCluster, *records: Record) -> None:
    for record in records:
        mq.send(OutgoingMessage(LOG.topic, encode_record(record), tags=record.owner), LOG)


def stored_at(offset: int) -> int:
    return (START_S + offset + 1) * 1000


def abort(number: int) -> Abort:
    return Abort(owner="others", number=number)


def commit(number: int, since: int, begin: int, end: int, owner: str = "query") -> Commit:
    return Commit(owner=owner, number=number, since=since, ranges={HERE: ((begin, end),)})


def numbers(entries: list[Entry]) -> list[int]:
    return [entry.record.number for entry in entries]


def pulls(mq: MockCluster) -> int:
    return mq.asked[RequestCode.PULL_MESSAGE]


# --- what is read and kept ------------------------------------------------------------------


def test_a_record_has_its_offset_and_the_time_when_it_was_stored(mq, client) -> None:
    store(mq, abort(0), commit(1, 1, 0, 5))
    assert list(read_entries(client, LOG, 1, 2)) == [
        Entry(1, stored_at(1), commit(1, 1, 0, 5)),
    ]


def test_the_records_of_an_owner_are_those_with_its_tag(mq, client) -> None:
    store(mq, commit(1, 0, 0, 5, "one"), commit(1, 0, 5, 9, "two"), commit(2, 1, 9, 12, "one"))
    found = read_entries(client, LOG, 0, 3, selector=MessageSelector.by_tag("one"))
    assert [entry.offset for entry in found] == [0, 2]


@pytest.mark.parametrize(("begin", "end"), [(0, 0), (2, 1), (3, 3)])
def test_nothing_is_read_of_an_empty_range(mq, client, begin: int, end: int) -> None:
    store(mq, abort(0), abort(1), abort(2))
    assert list(read_entries(client, LOG, begin, end)) == []
    assert pulls(mq) == 0


def test_records_that_expired_are_an_error_unless_the_caller_takes_the_rest(mq, client) -> None:
    store(mq, abort(0), abort(1), abort(2))
    mq.expire(LOG, 2)
    with pytest.raises(DataLossError):
        list(read_entries(client, LOG, 0, 3))
    left = read_entries(client, LOG, 0, 3, fail_on_data_loss=False)
    assert [entry.offset for entry in left] == [2]


@pytest.mark.parametrize("seed", range(8))
def test_whatever_was_asked_before_the_answer_is_that_of_all_records(mq, log, monkeypatch, seed: int) -> None:
    """Also with commits that are void: another one was first, or too many records came in between."""
    choose = random.Random(seed)
    for module in (commit_log, visible):
        monkeypatch.setattr(module, "MAX_SPAN", 6)
    truth: list[Entry] = []
    for step in range(40):
        for _ in range(choose.randrange(4)):
            offset = len(truth)
            owner, number = choose.choice(["one", "two"]), choose.randrange(1 + offset // 8, 4 + offset // 8)
            since = max(0, offset - choose.choice([0, 1, 3, 5, 6, 7, 8]))
            record = commit(number, since, 10 * offset, 10 * offset + 3, owner)
            stored = choose.choice([record, record, Abort(owner=owner, number=number)])
            store(mq, stored)
            truth.append(Entry(offset, stored_at(offset), stored))
        begin, end = sorted(choose.randint(0, len(truth)) for _ in range(2))
        if choose.random() < 0.3:
            begin, end = max(0, len(truth) - 3), len(truth)
        valid = [
            (entry.offset, entry.record)
            for entry in truth[begin:end]
            if isinstance(entry.record, Commit) and is_valid(entry.offset, entry.record, truth)
        ]
        match choose.choice(["entries", "commits", "ranges", "forget"]):
            case "entries":
                assert log.entries(begin, end) == truth[begin:end], step
            case "commits":
                assert log.commits(begin, end) == valid, step
            case "ranges":
                assert log.ranges(begin, end) == join(found.ranges for _, found in valid), step
            case _:
                log.forget(begin)
        last = log.entries(end - 1, end) if end else []
        assert log.stored_at_ms(end) == (last[0].stored_at_ms if last else 0)


def test_records_are_read_once(mq, log) -> None:
    store(mq, *map(abort, range(8)))
    log.entries(2, 8)
    asked = pulls(mq)
    assert numbers(log.entries(3, 7)) == [3, 4, 5, 6]
    assert numbers(log.entries(2, 8)) == [2, 3, 4, 5, 6, 7]
    assert pulls(mq) == asked


def test_records_that_were_forgotten_are_read_again(mq, log) -> None:
    store(mq, *map(abort, range(8)))
    log.entries(0, 8)
    log.forget(5)
    asked = pulls(mq)
    assert numbers(log.entries(5, 8)) == [5, 6, 7]
    log.forget(3)
    assert numbers(log.entries(5, 8)) == [5, 6, 7]
    assert pulls(mq) == asked
    assert numbers(log.entries(4, 6)) == [4, 5]
    assert pulls(mq) > asked
    log.forget(100)
    assert numbers(log.entries(6, 8)) == [6, 7]


def test_records_are_forgotten_beyond_their_end(mq, log) -> None:
    store(mq, *map(abort, range(4)))
    log.entries(0, 2)
    log.forget(3)
    assert numbers(log.entries(0, 4)) == [0, 1, 2, 3]


def test_what_a_range_of_commits_lists_is_computed_once(mq, log, monkeypatch) -> None:
    """A micro-batch asks for one range or two, again and again."""
    store(mq, commit(1, 0, 0, 5), commit(2, 1, 5, 9), commit(3, 2, 20, 30))
    joined: list[int] = []
    monkeypatch.setattr(commit_log, "join", lambda parts: joined.append(1) or join(parts))
    for _ in range(3):
        assert log.ranges(0, 2) == {HERE: ((0, 9),)}
        assert log.ranges(1, 3) == {HERE: ((5, 9), (20, 30))}
    assert len(joined) == 2
    log.ranges(2, 3)
    assert log.ranges(1, 3) == {HERE: ((5, 9), (20, 30))}
    assert len(joined) == 3


# --- which commits are valid ----------------------------------------------------------------


def test_a_commit_is_judged_by_records_before_the_range(mq, log) -> None:
    store(mq, abort(0), commit(1, 0, 0, 5), abort(1), commit(1, 1, 5, 9))
    assert log.commits(3, 4) == []
    assert log.commits(0, 4) == [(1, commit(1, 0, 0, 5))]


def test_a_commit_is_judged_by_what_is_left_where_records_have_expired(mq, log) -> None:
    store(mq, commit(1, 0, 0, 5), abort(0), commit(2, 0, 5, 9), commit(2, 1, 9, 12))
    mq.expire(LOG, 2)
    assert log.commits(2, 4) == [(2, commit(2, 0, 5, 9))]


@pytest.mark.parametrize("span", [3, 4])
def test_a_commit_too_many_records_after_its_look_is_void(mq, log, monkeypatch, span: int) -> None:
    for module in (commit_log, visible):
        monkeypatch.setattr(module, "MAX_SPAN", span)
    store(mq, *map(abort, range(4)), commit(1, 0, 0, 5))
    assert [offset for offset, _ in log.commits(4, 5)] == ([4] if span == 4 else [])


# --- records that are lost ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "known", "stored_at_ms", "said"),
    [
        (2, 6, stored_at(5), None),  # all records that were known are there
        (2, 6, 0, None),  # it is not known when the last one was stored
        (2, 7, 0, "ends at 6, and was read up to 7"),
        (1, 6, stored_at(5), "begins at 2, and was read up to 1"),
        (2, 6, stored_at(4), "has other records now, and was read up to 6"),
        (2, 3, stored_at(9), "has other records now, and was read up to 3"),
        (2, 2, stored_at(9), None),  # the last one that was known has expired
    ],
)
def test_records_that_were_lost_unread_are_an_error(
    mq, log, read: int, known: int, stored_at_ms: int, said: str | None
) -> None:
    store(mq, *map(abort, range(6)))
    mq.expire(LOG, 2)
    if said is None:
        assert log.check(read, known, end=6, stored_at_ms=stored_at_ms) == 2
        return
    with pytest.raises(DataLossError, match=said) as failure:
        log.check(read, known, end=6, stored_at_ms=stored_at_ms)
    assert (failure.value.condition, failure.value.facts["queue"]) == ("COMMITS_LOST", LOG)


@pytest.mark.parametrize("first", [0, 2])
def test_a_topic_that_was_created_again_is_told_when_it_is_read_on(mq, log, first: int) -> None:
    """Also if all that was known has expired but the last record."""
    store(mq, *map(abort, range(3)))
    mq.expire(LOG, first)
    log.check(first, 3, end=3)
    log.entries(first, 3)
    mq.delete_topic(LOG.topic)
    mq.create_topic(LOG.topic, 1, brokers=[LOG.broker_name])
    store(mq, *map(abort, range(9)))
    with pytest.raises(DataLossError, match="has other records now, and was read up to 3") as failure:
        log.entries(3, 9)
    assert failure.value.condition == "COMMITS_LOST"


@pytest.mark.parametrize("first", [2, 3, 5])
def test_a_log_is_read_on_where_what_it_knows_expires(mq, log, first: int) -> None:
    """The last record that is known is compared as long as it exists."""
    store(mq, *map(abort, range(3)))
    assert numbers(log.entries(0, 3)) == [0, 1, 2]
    store(mq, *map(abort, range(3, 8)))
    mq.expire(LOG, first)
    assert log.check(max(3, first), 3, end=8) == first
    if first <= 3:
        assert numbers(log.entries(3, 8)) == [3, 4, 5, 6, 7]
    log = CommitLog(log._client, LOG)
    assert numbers(log.entries(first, 8)) == list(range(first, 8))


# --- commit topics --------------------------------------------------------------------------


def test_a_commit_topic_has_one_queue(mq, client) -> None:
    assert find_commit_queue(client, LOG.topic) == require_commit_queue(client, LOG.topic) == LOG
    assert find_commit_queue(client, "missing-commits") is None
    assert find_commit_queues(client, [LOG.topic, "missing-commits", LOG.topic]) == (LOG,)
    with pytest.raises(OptionError, match="orders has 2 queues, and a commit topic has one") as several:
        find_commit_queue(client, "orders")
    assert several.value.facts == {"option": "commitTopic", "topic": "orders"}
    with pytest.raises(BrokerNotFoundError, match="missing-commits does not exist") as missing:
        require_commit_queue(client, "missing-commits")
    assert missing.value.facts["topic"] == "missing-commits"


def test_a_commit_topic_that_no_reader_may_read_is_missing(mq, client) -> None:
    mq.create_topic(LOG.topic, 1, brokers=[LOG.broker_name], read_queues=0)
    assert find_commit_queue(client, LOG.topic) is None


def test_what_is_committed_is_what_all_commit_topics_say(mq, client) -> None:
    mq.create_topic("payments-commits", 1, brokers=["broker-b"])
    other, payments = (MessageQueue(name, "broker-b", 0) for name in ("payments", "payments-commits"))
    store(mq, abort(0), commit(1, 0, 0, 5), commit(1, 0, 90, 99), commit(2, 3, 5, 9))
    mq.expire(LOG, 1)
    record = Commit(owner="query", number=1, since=0, ranges={other: ((7, 8),)})
    mq.send(OutgoingMessage("payments-commits", encode_record(record)), payments)
    by = {"orders": LOG.topic, "payments": "payments-commits", "bills": "bills-commits"}
    found = pickle.loads(pickle.dumps(read_committed(client, by)))
    assert found.by == by | {"bills": ""}
    assert found.ranges == {HERE: ((0, 9),), other: ((7, 8),)}
    decided = found(other)
    assert (decided.topic, decided.by, tuple(decided.ranges)) == ("payments", "payments-commits", ((7, 8),))
    assert tuple(found(THERE).ranges) == ()


# --- commits that expire before their messages ----------------------------------------------


@pytest.mark.parametrize(
    ("expired", "begins", "older"),
    [
        (2, {THERE: 0}, 3),
        (2, {THERE: 1, HERE: 0}, 2),
        (2, {THERE: 3}, 0),  # it begins with messages that are not older
        (2, {HERE: 0}, 0),  # at the broker of the commit topic, messages expire first
        (0, {THERE: 0}, 0),  # no record has expired
        (2, {}, 0),
    ],
)
def test_messages_whose_commits_have_expired_are_told(
    mq, client, caplog, expired: int, begins: dict[MessageQueue, int], older: int
) -> None:
    put(mq, HERE, *[b"row"] * 3)
    put(mq, THERE, *[b"row"] * 3)
    store(mq, abort(0), abort(1), abort(2), abort(3))
    put(mq, THERE, *[b"row"] * 2)
    mq.expire(LOG, expired)
    warn_of_lost_commits(client, LOG, begins)
    said = f"and {older} messages are older than the first that is left, such as those of {THERE}"
    assert [said in record.getMessage() for record in caplog.records] == [True] * bool(older)


def test_a_broker_that_does_not_answer_fails_no_read(mq, caplog) -> None:
    caplog.set_level(logging.INFO)
    put(mq, THERE, b"row")
    store(mq, abort(0), abort(1))
    mq.expire(LOG, 1)
    mq.stop_broker("broker-b", unregister=False)
    with Client(mq.name_server, clock=FakeClock(base=SYSTEM_CLOCK)) as client:
        warn_of_lost_commits(client, LOG, {THERE: 0})
    assert "whether commits have expired is not known" in caplog.text


def test_batches_that_begin_are_records_too(mq, log) -> None:
    begin = Begin(owner="query", number=1, ends={HERE: 4})
    store(mq, begin, commit(1, 0, 4, 6))
    assert [entry.record for entry in log.entries(0, 2)] == [begin, commit(1, 0, 4, 6)]
