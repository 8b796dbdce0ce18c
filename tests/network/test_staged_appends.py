"""Staged transactional writes: every consumer sees the rows of a committed batch once, and no other row."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from tests.network.test_write_task import status
from tests.support.cli import CommandLine
from tests.support.clocks import FakeClock
from tests.support.committed_query import Query, send
from tests.support.transactional_job import visible

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.errors import (
    DataLossError,
    OptionError,
    RocketMQError,
    SendError,
    TransactionFencedError,
)
from pyspark_rocketmq.options import SinkOptions, parse_options
from pyspark_rocketmq.planning.commits.records import Append, Appended, Record, decode_record
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.testing import Fault, HangUp, MockCluster, Refuse, Silence

LOG = "orders-staging-commits"
BODIES = [f"m{number}" for number in range(60)]
SEND = RequestCode.SEND_BATCH_MESSAGE
SENDS = (SEND, RequestCode.SEND_MESSAGE_V2)
RECORDS = 3
"""Of a commit: itself, that the rows are about to be appended, and that they are."""
ONCE = dict.fromkeys(BODIES, 1)


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with MockCluster({"orders": 2, "orders-staging": 2}, brokers=("broker-a", "broker-b")) as cluster:
        cluster.create_topic(LOG, 1, brokers=["broker-a"])
        yield cluster


@pytest.fixture
def query(mq: MockCluster) -> Iterator[Callable[..., Query]]:
    """``query(clock, option=value)``: a run of the query, whose sleeps cost no time."""
    clients: list[Client] = []

    def start(clock: FakeClock | None = None, **given: str) -> Query:
        given = {"transactionVisibility": "staged", "outageTimeout": "60s"} | given
        options = parse_options(SinkOptions, {"nameServer": mq.name_server}, environ={}).client
        clients.append(Client(options, clock=clock or FakeClock(base=SYSTEM_CLOCK)))
        return Query(mq.name_server, clients[-1], **given)

    yield start
    for client in clients:
        client.close()


@pytest.fixture
def cli(mq: MockCluster, capsys, monkeypatch) -> CommandLine:
    return CommandLine(capsys, monkeypatch, mq.name_server)


def records(mq: MockCluster) -> list[Record]:
    (queue,) = mq.queues(LOG)
    return [decode_record(message.body) for message in mq.messages(LOG, queue)]


def interrupt_append(mq: MockCluster, query: Callable[..., Query], after: int) -> None:
    """Commit batch 7 in a run whose append is refused after so many requests."""
    first = query(outageTimeout="0s")
    ranges = first.write(7, *BODIES)
    mq.inject(Refuse(ResponseCode.NO_PERMISSION), on=SEND, times=None, after=after)
    with pytest.raises(RocketMQError):
        first.commit(7, ranges)
    mq.heal()


def test_rows_are_visible_when_they_are_committed_and_as_they_were_sent(mq, query) -> None:
    first = query()
    ranges = first.write(7, *BODIES)
    assert visible(mq) == {}
    assert visible(mq, "orders-staging") == ONCE
    first.commit(7, ranges)
    assert visible(mq) == ONCE
    for staged, queue in zip(mq.queues("orders-staging"), mq.queues("orders"), strict=True):
        sent, found = mq.messages("orders-staging", staged), mq.messages("orders", queue)
        assert [(m.msg_id, m.body, m.tags, m.flag) for m in found] == [
            (m.msg_id, m.body, m.tags, m.flag) for m in sent
        ]
        assert {m.properties.get("COMMIT_TOPIC") for m in sent} <= {LOG}
        assert all("COMMIT_TOPIC" not in m.properties for m in found)
    assert isinstance(records(mq)[-1], Appended)


def test_a_batch_that_comes_again_is_not_appended_again(mq, query) -> None:
    query().run(7, *BODIES)
    again = query()
    assert again.write(7, "another attempt's rows") is None
    again.commit(7, None)
    assert visible(mq) == ONCE
    assert sum(isinstance(record, Append) for record in records(mq)) == 1


def test_a_batch_without_rows_and_a_batch_that_is_given_up(mq, query) -> None:
    first = query()
    first.run(1, "one")
    first.commit(2, None)
    ranges = first.write(3, "two")
    assert first.commits.give_up(first.name(3))
    first.commit(3, ranges)
    first.run(4, "three")
    assert visible(mq) == {"one": 1, "three": 1}


@pytest.mark.parametrize(
    ("fault", "times"),
    [
        (Refuse(ResponseCode.SYSTEM_BUSY), 8),
        (Refuse(ResponseCode.SERVICE_NOT_AVAILABLE), 3),
        (Refuse(ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR DEFAULT"), 2),
        (HangUp(), 1),
        (HangUp(executed=True), 2),
        (Silence(), 1),
        (Silence(executed=True), 2),
    ],
    ids=["busy", "not available", "unknown", "hang-up", "hang-up after", "no answer", "no answer after"],
)
@pytest.mark.parametrize("ordered", ["false", "true"])
def test_every_row_once_through_faults(mq, query, fault: Fault, times: int, ordered: str) -> None:
    first = query(ordered=ordered, sendTimeoutMs="2000" if isinstance(fault, Silence) else "30000")
    ranges = first.write(7, *BODIES)
    injected = mq.inject(fault, on=SEND, times=times, after=5)
    first.commit(7, ranges)
    assert injected.hits == times
    assert visible(mq) == ONCE
    if ordered == "true":
        for staged, queue in zip(mq.queues("orders-staging"), mq.queues("orders"), strict=True):
            assert [m.body for m in mq.messages("orders", queue)] == [
                m.body for m in mq.messages("orders-staging", staged)
            ]


@pytest.mark.parametrize("executed", [False, True])
@pytest.mark.parametrize("after", [0, 1, 10, 19])
def test_an_append_that_a_crash_cuts_short_is_finished_by_the_next_run(
    mq, client, query, after, executed
) -> None:
    first, second = query(outageTimeout="0s"), query()
    ranges = first.write(7, *BODIES)
    mq.inject(HangUp(executed=executed), on=SEND, after=after, times=1)
    mq.inject(Refuse(ResponseCode.NO_PERMISSION), on=SEND, times=None, after=after)
    with pytest.raises(RocketMQError):
        first.commit(7, ranges)
    assert sum(visible(mq).values()) <= 3 * (after + executed)
    mq.heal()
    send(client, "another producer's")
    second.commit(7, second.write(7, "another attempt's rows"))
    assert visible(mq) == {**ONCE, "another producer's": 1}


def test_an_interrupted_append_waits_for_queues_that_are_hidden_from_readers(mq, query) -> None:
    interrupt_append(mq, query, after=19)
    mq.create_topic("orders", 2, read_queues=1)
    with pytest.raises(DataLossError, match="was lowered, raise it again"):
        query().commit(7, None)
    mq.create_topic("orders", 2)
    query().commit(7, None)
    assert visible(mq) == ONCE


def test_a_crash_before_the_first_append_and_one_before_the_last_record(mq, query) -> None:
    first = query(outageTimeout="0s")
    ranges = first.write(1, "one")
    first.commits.commit(first.name(1), [ranges])
    assert visible(mq) == {}
    first = query(outageTimeout="0s")
    mq.inject(Refuse(ResponseCode.NO_PERMISSION), on=RequestCode.SEND_MESSAGE_V2, after=1, times=None)
    with pytest.raises(RocketMQError):
        first.commit(1, None)
    assert visible(mq) == {"one": 1}
    assert isinstance(records(mq)[-1], Append)
    mq.heal()
    query().commit(1, None)
    assert visible(mq) == {"one": 1}
    assert isinstance(records(mq)[-1], Appended)


def test_a_process_that_was_frozen_sends_nothing_after_another_has_taken_over(mq, query) -> None:
    clock = FakeClock(base=SYSTEM_CLOCK)
    frozen = query(clock)
    ranges = frozen.write(7, *BODIES)
    mq.inject(Refuse(ResponseCode.SYSTEM_BUSY), on=SEND, after=5, times=None)
    seen: list[Counter[str]] = []

    def take_over() -> None:
        clock.on_sleep = lambda: None
        with pytest.raises(SendError):
            query(outageTimeout="0s").commit(7, None)
        clock.now_s += 3  # for which the other one waits
        mq.heal()
        seen.append(visible(mq))

    clock.on_sleep = take_over
    with pytest.raises(TransactionFencedError, match="another process has taken over"):
        frozen.commit(7, ranges)
    assert [visible(mq)] == seen
    assert 0 < seen[0].total() < len(BODIES)
    query().commit(7, None)
    assert visible(mq) == ONCE


def test_a_process_that_was_frozen_ends_well_if_another_has_finished_its_batch(mq, query) -> None:
    clock = FakeClock(base=SYSTEM_CLOCK)
    frozen = query(clock)
    ranges = frozen.write(7, *BODIES)
    mq.inject(Refuse(ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR DEFAULT"), on=SEND, after=5, times=3)
    seen: list[Counter[str]] = []

    def take_over() -> None:
        clock.on_sleep = lambda: None
        query().commit(7, None)
        seen.append(visible(mq))

    clock.on_sleep = take_over
    frozen.commit(7, ranges)
    assert seen == [visible(mq)] == [ONCE]


@pytest.mark.parametrize("seed", range(10))
def test_any_order_of_crashes_and_runs_appends_every_row_once(mq, query, seed: int) -> None:
    chosen = random.Random(seed)
    faults: list[Fault] = [HangUp(), HangUp(executed=True), Refuse(ResponseCode.SYSTEM_BUSY)]
    faults += [Refuse(ResponseCode.NO_PERMISSION), Refuse(ResponseCode.SYSTEM_ERROR)]
    expected: Counter[str] = Counter()
    hits = 0
    for number in range(4):
        bodies = [f"{number}-{row}" for row in range(chosen.randrange(1, 30))]
        expected.update(bodies)
        for _ in range(20):
            run = query(ordered=chosen.choice(["true", "false"]), outageTimeout="0s")
            injected = []
            for _ in range(chosen.randrange(1, 3)):
                codes = [SEND, RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE]
                fault, code = chosen.choice(faults), chosen.choice(codes)
                after, times = chosen.randrange(12), chosen.randrange(1, 9)
                injected.append(mq.inject(fault, on=code, after=after, times=times))
            try:
                run.run(number, *bodies)
            except RocketMQError:
                continue
            finally:
                mq.heal()
                hits += sum(each.hits for each in injected)
            break
        else:
            pytest.fail("no run ended well")
        assert visible(mq) == expected
    assert hits, "no fault happened"


def test_a_topic_without_the_staging_topic_s_queues_is_refused_before_anything_is_sent(mq, query) -> None:
    mq.create_topic("orders-staging", 3)
    first = query()
    with pytest.raises(OptionError, match="create the staging topic with the queues of the topic"):
        first.write(7, *BODIES)
    assert visible(mq, "orders-staging") == {}
    mq.create_topic("orders", 3)
    query().run(7, *BODIES)
    assert visible(mq) == ONCE


def test_a_static_topic_is_refused_before_anything_is_sent(mq, query) -> None:
    mq.create_static_topic("static", 2)
    for name, queues in (("static-staging", 2), ("static-staging-commits", 1)):
        mq.create_topic(name, queues, brokers=["broker-a"])
    with pytest.raises(OptionError, match="a static topic cannot have transactions"):
        query(topic="static").write(7, *BODIES)
    assert visible(mq, "static-staging") == {}


def test_a_staging_topic_that_is_created_has_the_queues_of_its_topic(mq, query) -> None:
    mq.create_topic("bills", 3)
    mq.create_topic("bills-staging-commits", 1, brokers=["broker-a"])
    query(topic="bills", createTopic="true", topicQueues="8").run(7, *BODIES)
    assert visible(mq, "bills") == ONCE
    assert len(mq.queues("bills-staging")) == len(mq.queues("bills"))


def test_topics_that_share_a_staging_topic_have_each_its_rows(mq, query, cli) -> None:
    """Also with the same query or job id, and with ``tx append`` for one of them."""
    mq.create_topic("bills", 2)
    orders, bills = query(), query(topic="bills", stagingTopic="orders-staging")
    orders.run(0, "an order")
    ranges = bills.write(0, "a bill")
    bills.commits.commit(bills.name(0), [ranges])
    assert cli("tx", "append", "orders", "--yes").out.strip() == "every committed row is in orders"
    bills.commit(0, None)
    assert (visible(mq), visible(mq, "bills")) == ({"an order": 1}, {"a bill": 1})


def test_a_broker_that_is_away_before_the_append_is_waited_for(mq, query) -> None:
    first = query()
    ranges = first.write(7, *BODIES)
    first.commits.commit(first.name(7), [ranges])
    mq.stop_broker("broker-b")
    clock = FakeClock(base=SYSTEM_CLOCK)
    since = clock.monotonic()

    def come_back() -> None:
        if clock.monotonic() - since > 40:
            clock.on_sleep = lambda: None
            mq.start_broker("broker-b")

    clock.on_sleep = come_back
    query(clock, outageTimeout="600s").commit(7, None)
    assert visible(mq) == ONCE
    mq.stop_broker("broker-b")
    query(outageTimeout="0s").commit(7, None)  # everything is there: the topic does not matter


def test_the_wait_for_late_sends_begins_when_their_broker_answers(mq, query) -> None:
    """A broker that stands still executes what it has received when it goes on."""
    clock = FakeClock(base=SYSTEM_CLOCK)
    first = query(clock, outageTimeout="600s")
    ranges = first.write(7, *BODIES)
    mq.inject(HangUp(executed=True), on=SEND, times=1, after=5)
    away: list[bool] = []

    def stand_still() -> None:
        if not away:
            mq.stop_broker("broker-b")
        away.append(len(away) < 6)
        if len(away) == 7:
            mq.start_broker("broker-b")

    clock.on_sleep = stand_still
    first.commit(7, ranges)
    quiet = [at for at, seconds in enumerate(clock.sleeps[-len(away) :]) if seconds == 3.5]
    assert quiet
    assert not any(away[at] for at in quiet)
    assert visible(mq) == ONCE


@pytest.mark.parametrize("ordered", ["false", "true"])
def test_a_status_that_is_not_accepted_is_told_once_and_nothing_is_sent_again(mq, query, ordered) -> None:
    first = query(ordered=ordered)
    ranges = first.write(7, *BODIES)
    mq.inject(status(ResponseCode.FLUSH_SLAVE_TIMEOUT), on=SEND, times=3)
    with pytest.raises(SendError, match="some are stored with a status that acceptStatuses does not have"):
        first.commit(7, ranges)
    assert visible(mq) == ONCE
    asked = mq.asked[SEND]
    query(ordered=ordered).commit(7, None)
    assert visible(mq) == ONCE
    assert mq.asked[SEND] == asked


def test_the_batches_of_queries_that_never_run_again_are_appended_by_a_command(mq, query, cli) -> None:
    first, other = query(), query()
    other.id = "other"
    other.run(3, "theirs")
    ranges = first.write(7, *BODIES)
    assert cli("tx", "append", "orders").out.strip() == "every committed row is in orders"
    first.commits.commit(first.name(7), [ranges])
    (listed,) = cli("tx", "append", "orders", "--json").json()
    assert (listed["query"], listed["batch"], listed["rows"], listed["appended"]) == ("query", 7, 60, None)
    assert "nothing was changed: append with --yes" in cli("tx", "append", "orders").out
    assert visible(mq) == {"theirs": 1}
    assert "60 rows appended" in cli("tx", "append", "orders", "--yes").out
    assert visible(mq) == ONCE | {"theirs": 1}
    assert cli("tx", "append", "orders").out.strip() == "every committed row is in orders"
    assert "Create it once" in cli("tx", "append", "others").err
    query().commit(7, None)
    assert visible(mq) == ONCE | {"theirs": 1}


def test_a_dead_letter_names_the_topic_of_its_row_not_the_staging_topic(mq, query) -> None:
    mq.create_topic("dead", 1, brokers=["broker-a"])
    small = {"maxMessageBytes": "100", "batchBytes": "100", "compression": "none"}
    query(deadLetterTopic="dead", **small).write(7, "", "x" * 200)
    found = [
        (m.properties["deadLetterTopic"], m.properties["deadLetterBodyBytes"]) for m in mq.messages("dead")
    ]
    assert sorted(found) == [("orders", "0"), ("orders", "200")]


def test_staged_rows_that_are_gone_are_an_error(mq, query, cli) -> None:
    first = query()
    ranges = first.write(7, *BODIES)
    first.commits.commit(first.name(7), [ranges])
    queue = mq.queues("orders-staging")[0]
    mq.expire(queue, 2)
    with pytest.raises(DataLossError, match="finish the batch without them: pyspark-rocketmq tx append"):
        query().commit(7, None)
    assert "58 rows appended" in cli("tx", "append", "orders", "--skip-lost", "--yes").out
    query().commit(7, None)
    assert visible(mq).total() == 58


def test_what_no_broker_takes_is_an_error_that_says_how_many(mq, query) -> None:
    first = query(outageTimeout="0s")
    ranges = first.write(7, *BODIES)
    mq.inject(Refuse(ResponseCode.NO_PERMISSION), on=SEND, times=None)
    with pytest.raises(SendError, match="are committed and not yet in orders") as caught:
        first.commit(7, ranges)
    assert caught.value.facts["failed"] == len(BODIES)


# --- what is sent, and for how long ---------------------------------------------------------


@pytest.mark.parametrize(
    "given", [{"batchSize": "5"}, {"batchSize": "60", "batchBytes": "400"}, {"batchSize": "1"}]
)
def test_rows_are_sent_as_the_options_say(mq, query, given: dict[str, str]) -> None:
    """As the tasks sent them to the staging topic."""
    first = query(compression="zlib", compressAbove="100", **given)
    bodies = [f"{number:02}" + "x" * (200 if number % 10 == 0 else 90) for number in range(60)]
    ranges = first.write(7, *bodies)
    asked = sum(mq.asked[code] for code in SENDS)
    first.commit(7, ranges)
    assert visible(mq) == dict.fromkeys(bodies, 1)
    appended = sum(mq.asked[code] for code in SENDS) - asked - RECORDS
    assert appended == asked - 1, "the write has one record: that it begins"
    for staged, queue in zip(mq.queues("orders-staging"), mq.queues("orders"), strict=True):
        assert [(m.body, m.sys_flag) for m in mq.messages("orders", queue)] == [
            (m.body, m.sys_flag) for m in mq.messages("orders-staging", staged)
        ]


def test_a_status_that_is_accepted_is_no_error(mq, query) -> None:
    first = query(acceptStatuses="SEND_OK,FLUSH_SLAVE_TIMEOUT")
    ranges = first.write(7, *BODIES)
    injected = mq.inject(status(ResponseCode.FLUSH_SLAVE_TIMEOUT), on=SEND, times=3)
    first.commit(7, ranges)
    assert injected.hits == 3
    assert visible(mq) == ONCE
    assert isinstance(records(mq)[-1], Appended)


@pytest.mark.parametrize(
    "fault",
    [Refuse(ResponseCode.SYSTEM_BUSY), Refuse(ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR DEFAULT")],
    ids=["busy", "unknown"],
)
def test_an_outage_is_waited_for_as_long_as_the_options_say(mq, query, fault: Fault) -> None:
    clock = FakeClock(base=SYSTEM_CLOCK)
    first = query(clock, outageTimeout="60s", batchSize="1")
    ranges = first.write(7, *"abcdef")
    mq.inject(fault, on=RequestCode.SEND_MESSAGE_V2, after=2, times=None)
    began, pauses = clock.now_s, len(clock.sleeps)
    with pytest.raises(SendError, match="are committed and not yet in orders") as failure:
        first.commit(7, ranges)
    assert 40 < clock.now_s - began <= 60 + max(clock.sleeps[pauses:])
    assert len(clock.sleeps) - pauses < 130
    assert failure.value.facts["failed"] == 6


def test_the_time_for_an_outage_counts_from_the_last_row_that_was_stored(mq, query) -> None:
    busy, send_row = Refuse(ResponseCode.SYSTEM_BUSY), RequestCode.SEND_MESSAGE_V2
    clock = FakeClock(base=SYSTEM_CLOCK)
    first = query(clock, outageTimeout="60s", batchSize="1")
    ranges = first.write(7, *"abcdef")
    began = clock.now_s
    mq.inject(busy, on=send_row, times=None, after=2)
    outages = iter([40, 80, 120])
    ends = [next(outages)]

    def end_outage() -> None:
        if clock.now_s - began > ends[0]:
            mq.heal()
            ends[0] = next(outages, 10_000)
            if ends[0] < 10_000:
                mq.inject(
                    Refuse(ResponseCode.SYSTEM_BUSY), on=RequestCode.SEND_MESSAGE_V2, times=None, after=1
                )

    clock.on_sleep = end_outage
    first.commit(7, ranges)
    assert visible(mq) == dict.fromkeys("abcdef", 1)
    assert clock.now_s - began > 120


def test_a_queue_that_lost_messages_since_an_append_began_is_an_error(mq, client, query) -> None:
    """Which rows it has is not known: they are not sent again."""
    send(client, *["another producer's"] * 8)
    interrupt_append(mq, query, after=9)
    queue = mq.queues("orders")[1]
    mq.truncate(queue, 1)
    before = visible(mq)
    with pytest.raises(DataLossError, match="a queue is shorter than before") as failure:
        query().commit(7, None)
    facts = failure.value.facts
    assert [facts[name] for name in ("condition", "queue", "before", "now")] == [
        *("OFFSET_WENT_BACK", queue, 2, 1)
    ]
    assert visible(mq) == before
