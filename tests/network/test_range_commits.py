"""What a transactional write finds and writes in its commit topic."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from tests.network.test_write_task import status
from tests.support.clocks import FakeClock
from tests.support.committed_query import LOG, committed_cluster

from pyspark_rocketmq.client import Client, MessageQueue, SendStatus
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.client.commits.commit_log import read_entries
from pyspark_rocketmq.client.send.producer import Producer
from pyspark_rocketmq.errors import (
    BrokerNotFoundError,
    ConnectionLostError,
    DataLossError,
    MessageIllegalError,
    RocketMQError,
    SendError,
)
from pyspark_rocketmq.model import SendResult
from pyspark_rocketmq.options import SinkOptions, parse_options
from pyspark_rocketmq.planning.commits import visible
from pyspark_rocketmq.planning.commits.records import Abort, Begin, Commit, Record
from pyspark_rocketmq.record.properties import decode_properties
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.spark.write.committed import range_commits
from pyspark_rocketmq.spark.write.committed.range_commits import RangeCommits, TaskRanges
from pyspark_rocketmq.spark.write.transaction_log import TransactionName
from pyspark_rocketmq.testing import Fault, MockCluster, Refuse, Silence

HERE, THERE = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-b", 0)
ROWS = {HERE: ((0, 5),)}
SEND = RequestCode.SEND_MESSAGE_V2
OWNER = "orders/query"


def name(number: int, owner: str = "query") -> TransactionName:
    return TransactionName(owner, number)


def others(log: RangeCommits, records: int) -> None:
    """Let another query write records in between."""
    for number in range(records):
        log.abandon(name(number, "other"))


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with committed_cluster() as cluster:
        yield cluster


@pytest.fixture
def clock() -> FakeClock:
    """Sleeps cost no time."""
    return FakeClock(base=SYSTEM_CLOCK)


@pytest.fixture
def options(mq: MockCluster) -> Callable[..., SinkOptions]:
    def parse(**given: str) -> SinkOptions:
        settings = {"nameServer": mq.name_server, "topic": "orders", "deliveryGuarantee": "transactional"}
        settings |= {"transactionVisibility": "committed", "outageTimeout": "60s"}
        return parse_options(SinkOptions, settings | given, environ={})

    return parse


@pytest.fixture
def commits(mq: MockCluster, options: Callable[..., SinkOptions], clock: FakeClock) -> Iterator[Any]:
    """``commits(option=value)``: the commits of a write."""
    with Client(options().client, clock=clock) as client:
        yield lambda **given: RangeCommits(client, options(**given))


@pytest.fixture
def task(options: Callable[..., SinkOptions], clock: FakeClock) -> Iterator[Callable[..., TaskRanges]]:
    with Client(options().client, clock=clock) as client:
        yield lambda number=7, **given: TaskRanges(client, options(**given), name(number))


def records(mq: MockCluster) -> list[Record]:
    with Client(mq.name_server) as client:
        return [entry.record for entry in read_entries(client, LOG, mq.min_offset(LOG), mq.max_offset(LOG))]


# --- which batches are committed ------------------------------------------------------------


def test_a_batch_is_committed_once_and_with_it_all_before_it(mq, commits) -> None:
    log = commits()
    log.commit(name(7), [ROWS, None, {THERE: ((2, 4),), HERE: ((5, 8),)}])
    assert records(mq) == [Commit(owner=OWNER, number=7, since=0, ranges={HERE: ((0, 8),), THERE: ((2, 4),)})]
    assert [log.is_committed(name(number)) for number in (6, 7, 8)] == [True, True, False]
    assert not log.is_committed(name(7, "other"))
    log.commit(name(7), [{HERE: ((8, 9),)}])
    log.commit(name(6), [{HERE: ((9, 10),)}])
    assert records(mq)[1:] == [Abort(owner=OWNER, number=number) for number in (7, 6)]
    assert log.find_commit(name(7)) == (0, records(mq)[0])
    assert log.find_commit(name(6)) is None
    assert log.find_commit(name(8)) is None


def test_a_batch_without_rows_is_not_committed(mq, commits) -> None:
    log = commits()
    log.commit(name(7), [None, None])
    assert records(mq) == []
    log.commit(name(7), [None, {}])  # readers were told that it begins
    assert records(mq) == [Abort(owner=OWNER, number=7)]
    assert not log.is_committed(name(7))


def test_a_batch_that_is_given_up_has_no_rows_whoever_continues(mq, commits) -> None:
    log = commits()
    assert log.give_up(name(7))
    assert log.find_commit(name(7)) == (0, Commit(owner=OWNER, number=7, since=0, ranges={}))
    commits().commit(name(7), [ROWS])
    assert not log.give_up(name(7))
    assert sum(isinstance(record, Commit) for record in records(mq)) == 1


@pytest.mark.parametrize("after", range(14))
def test_a_commit_is_found_however_many_records_follow_it(mq, commits, monkeypatch, after: int) -> None:
    """Windows of 2, 16, ... records are searched, the last ones first."""
    monkeypatch.setattr(range_commits, "_FIRST_WINDOW", 2)
    log = commits()
    others(log, 5)
    log.commit(name(7), [ROWS])
    others(log, after)
    assert log.is_committed(name(7))
    assert log.is_committed(name(7), thorough=False) is (after < 2)
    assert log.find_commit(name(7)) == (5, Commit(owner=OWNER, number=7, since=5, ranges=ROWS))
    assert not log.is_committed(name(8))


def test_only_the_last_valid_commit_counts(mq, commits, monkeypatch) -> None:
    """Also where the records that decide about it are before the ones that are searched."""
    monkeypatch.setattr(range_commits, "_FIRST_WINDOW", 2)
    log = commits()
    log.commit(name(7), [ROWS])
    others(log, 3)
    log.add(Commit(owner=OWNER, number=7, since=0, ranges={HERE: ((50, 60),)}))  # of a process that was slow
    assert log.find_commit(name(7)) == (0, Commit(owner=OWNER, number=7, since=0, ranges=ROWS))
    log.add(Commit(owner=OWNER, number=8, since=2, ranges={HERE: ((5, 6),)}))
    found = log.find_commit(name(8))
    assert found is not None
    assert found[0] == 5


def test_commits_are_found_where_earlier_records_have_expired(mq, commits, monkeypatch) -> None:
    monkeypatch.setattr(range_commits, "_FIRST_WINDOW", 2)
    log = commits()
    others(log, 4)
    log.add(Commit(owner=OWNER, number=7, since=1, ranges=ROWS))
    mq.expire(LOG, 3)
    assert log.find_commit(name(7)) == (4, Commit(owner=OWNER, number=7, since=1, ranges=ROWS))
    others(log, 9)
    mq.expire(LOG, 4)
    assert log.is_committed(name(7))
    mq.expire(LOG, 5)
    assert not log.is_committed(name(7))
    with pytest.raises(DataLossError):
        log.records(name(7), 4, 6)


def test_an_owner_s_records_are_those_of_its_topic(mq, commits) -> None:
    mq.create_topic("bills", 1)
    orders, bills = commits(), commits(topic="bills", commitTopic="orders-commits")
    orders.commit(name(7), [ROWS])
    assert not bills.is_committed(name(7))
    bills.commit(name(7), [{MessageQueue("bills", "broker-a", 0): ((0, 1),)}])
    assert [entry.offset for entry in orders.records(name(7), 0, 2)] == [0]
    assert [entry.offset for entry in bills.records(name(7), 0, 2)] == [1]
    assert orders.end() == 2


# --- commits of several processes -----------------------------------------------------------


def between(log: RangeCommits, monkeypatch: pytest.MonkeyPatch, act: Callable[[int], None]) -> list[int]:
    """Act between each look for other commits and the commit; return the list of looks."""
    looks: list[int] = []
    find = log._find

    def find_and_act(*args: Any, **given: Any) -> Any:
        found = find(*args, **given)
        looks.append(len(looks) + 1)
        act(looks[-1])
        return found

    monkeypatch.setattr(log, "_find", find_and_act)
    return looks


def test_a_commit_that_another_process_was_faster_with_is_void(mq, commits, monkeypatch) -> None:
    log, other = commits(), commits()
    looks = between(log, monkeypatch, lambda look: other.commit(name(7), [ROWS]) if look == 1 else None)
    assert not log._decide(name(7), {HERE: ((5, 9),)})
    assert looks == [1, 2]
    assert other.find_commit(name(7)) == (0, Commit(owner=OWNER, number=7, since=0, ranges=ROWS))


@pytest.mark.parametrize(("outage", "tries"), [("0s", 3), ("60s", 5)])
def test_a_commit_that_always_comes_too_late_is_an_error(
    mq, commits, clock, monkeypatch, outage: str, tries: int
) -> None:
    """It is tried for ``outageTimeout``, and at least three times."""
    for module in (visible, range_commits):
        monkeypatch.setattr(module, "MAX_SPAN", 4, raising=False)
    log, other = commits(outageTimeout=outage), commits()

    def delay(look: int) -> None:
        others(other, 5)
        clock.now_s += 14

    looks = between(log, monkeypatch, delay)
    with pytest.raises(SendError, match="too many records came in between") as failure:
        log.commit(name(7), [ROWS])
    assert failure.value.facts["failed"] == 0
    assert len(looks) == tries
    assert not other.is_committed(name(7))


def test_a_commit_of_which_a_slave_has_the_second_copy_is_one(mq, commits, caplog) -> None:
    mq.inject(status(ResponseCode.FLUSH_SLAVE_TIMEOUT), on=SEND, times=2)
    log = commits()
    log.commit(name(7), [ROWS])
    assert [type(record) for record in records(mq)] == [Commit] * 3
    assert "are no rows" not in caplog.text
    assert log.find_commit(name(7)) == (0, records(mq)[0])


# --- what is sent ---------------------------------------------------------------------------


def test_a_commit_with_a_status_that_is_accepted_is_sent_once(mq, commits) -> None:
    mq.inject(status(ResponseCode.FLUSH_SLAVE_TIMEOUT), on=SEND, times=1)
    commits(acceptStatuses="SEND_OK,FLUSH_SLAVE_TIMEOUT").commit(name(7), [ROWS])
    assert len(records(mq)) == 1


def test_hints_are_sent_once_whatever_their_status(mq, commits) -> None:
    injected = mq.inject(status(ResponseCode.SLAVE_NOT_AVAILABLE), on=SEND, times=2)
    log = commits()
    log.begin(name(7), [HERE, THERE])
    log.abandon(name(7))
    assert records(mq) == [
        Begin(owner=OWNER, number=7, ends={HERE: 0, THERE: 0}),
        Abort(owner=OWNER, number=7),
    ]
    assert injected.hits == 2
    assert log.add(Abort(owner=OWNER, number=8)) == 2


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_ERROR])
def test_a_commit_waits_for_its_broker_as_long_as_an_outage_may_take(mq, commits, clock, code) -> None:
    refused = mq.inject(Refuse(code, "UNKNOWN_ERROR DEFAULT"), on=SEND, times=30)
    commits(outageTimeout="600s").commit(name(7), [ROWS])
    assert refused.hits == 30
    mq.inject(Refuse(code, "UNKNOWN_ERROR DEFAULT"), on=SEND, times=None)
    began = clock.now_s
    with pytest.raises(RocketMQError):
        commits().commit(name(8), [ROWS])
    assert 20 < clock.now_s - began < 61, "the last attempt begins within the minute"


def test_a_commit_of_a_process_that_was_frozen_for_longer_than_an_outage_may_take_is_tried_again(
    mq, commits, clock, monkeypatch
) -> None:
    log, send = commits(), Producer.send
    sends = count(1)

    def freeze(self: Producer, *given: Any, **options: Any) -> SendResult:
        if next(sends) == 1:
            clock.now_s += 600
            raise ConnectionLostError("the broker closed the connection meanwhile")
        return send(self, *given, **options)

    monkeypatch.setattr(Producer, "send", freeze)
    log.commit(name(7), [ROWS])
    assert next(sends) == 3
    assert log.is_committed(name(7))


def test_an_error_that_no_patience_ends_is_told_at_once(mq, commits, clock) -> None:
    refused = mq.inject(Refuse(ResponseCode.MESSAGE_ILLEGAL), on=SEND, times=None)
    log = commits()
    with pytest.raises(MessageIllegalError):
        log.commit(name(7), [ROWS])
    with pytest.raises(MessageIllegalError):
        log.begin(name(7), [HERE])
    assert (refused.hits, sum(clock.sleeps)) == (2, 0)


def test_hints_fail_nothing_while_a_broker_is_down(mq, commits, caplog) -> None:
    caplog.set_level(logging.INFO)
    mq.inject(Refuse(ResponseCode.SYSTEM_BUSY), on=SEND, times=None)
    log = commits(outageTimeout="1s")
    log.begin(name(7), [HERE])
    log.abandon(name(7))
    assert "readers are not told that batch query-7 begins" in caplog.text.replace("/", "-")
    assert "readers are not told that batch query-7 was abandoned" in caplog.text.replace("/", "-")


def test_a_commit_topic_that_brokers_have_forgotten_is_waited_for(mq, commits, clock) -> None:
    mq.unregister("broker-a")
    pauses = count(1)
    clock.on_sleep = lambda: mq.register("broker-a") if next(pauses) == 5 else None
    log = commits()
    log.commit(name(7), [ROWS])
    assert log.is_committed(name(7))


def test_a_commit_topic_that_stays_away_is_an_error(mq, commits, clock) -> None:
    mq.unregister("broker-a")
    began = clock.now_s
    with pytest.raises(BrokerNotFoundError, match="Create it once, with one queue at one broker"):
        commits().is_committed(name(7))
    assert 20 < clock.now_s - began < 61, "the last attempt begins within the minute"


# --- tasks ----------------------------------------------------------------------------------


def stored(queue: MessageQueue, offset: int) -> SendResult:
    return SendResult(
        status=SendStatus.SEND_OK, queue=queue, queue_offset=offset, msg_id="", offset_msg_id=""
    )


def test_a_task_tells_once_that_it_begins_and_where_its_messages_are(mq, task) -> None:
    ranges = task()
    assert ranges.joined() is None
    assert ranges.begin([HERE, THERE])
    assert ranges.begin([HERE])
    assert ranges.joined() == {}
    for begin, size in ((3, 2), (8, 1), (5, 3)):
        ranges.add(stored(HERE, begin), size)
    ranges.add(stored(THERE, 0), 4)
    assert ranges.joined() == {HERE: ((3, 9),), THERE: ((0, 4),)}
    assert not ranges.committed
    assert records(mq) == [Begin(owner=OWNER, number=7, ends={HERE: 0, THERE: 0})]
    assert decode_properties(ranges.marks) == {"COMMIT_TOPIC": LOG.topic}
    ranges.abandon()
    assert records(mq)[1:] == [Abort(owner=OWNER, number=7)]


def test_a_task_of_a_committed_batch_sends_nothing(mq, commits, task) -> None:
    commits().commit(name(7), [ROWS])
    ranges = task()
    assert not ranges.begin([HERE])
    assert not ranges.begin([HERE])
    assert ranges.committed
    assert ranges.joined() is None
    ranges.abandon()
    assert len(records(mq)) == 1


def test_a_task_that_has_not_begun_tells_nothing(mq, task) -> None:
    task().abandon()
    assert records(mq) == []


@pytest.mark.parametrize("fault", [Refuse(ResponseCode.SYSTEM_BUSY), Silence()], ids=["refusal", "silence"])
def test_a_task_that_failed_waits_a_second_at_most_to_tell_it(mq, task, clock, fault: Fault) -> None:
    ranges = task()
    ranges.begin([HERE])
    mq.inject(fault, on=SEND, times=None)
    began = clock.monotonic()
    ranges.abandon()
    assert clock.monotonic() - began < 2, "of which the machine may take half"


def test_the_mark_names_the_commit_topic_of_the_options(task) -> None:
    marks = task(commitTopic="decisions").marks
    assert decode_properties(marks) == {"COMMIT_TOPIC": "decisions"}
