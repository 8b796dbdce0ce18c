"""Transactional writes, through brokers that refuse and hang up: a batch is visible once, or not at all."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.cli import CommandLine
from tests.support.clocks import FakeClock, WrongClock
from tests.support.transactional_job import TransactionalJob, visible

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.client.send.half_messages import Ending, HalfMessages, end_half_messages
from pyspark_rocketmq.errors import ConnectionLostError, DataLossError, OptionError, RocketMQError, SendError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.spark.write.transaction_log import Decision, TransactionLog, TransactionName
from pyspark_rocketmq.testing import Fault, HangUp, MockCluster, Refuse, Silence

END = RequestCode.END_TRANSACTION
NAME = TransactionName("query", 7)
BODIES = [f"m{number}" for number in range(600)]

SILENCE_MS = "4000"
"""The request timeout where an answer is missing: long enough for the others on a busy machine."""


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with MockCluster({"orders": 2}, brokers=("broker-a", "broker-b")) as cluster:
        yield cluster


@pytest.fixture
def job(mq: MockCluster, tmp_path: Path) -> Iterator[Callable[..., TransactionalJob]]:
    jobs: list[TransactionalJob] = []

    def start(topic: str = "orders", **given: object) -> TransactionalJob:
        settings = {"requestTimeoutMs": "60000", "sendTimeoutMs": "60000", "folder": tmp_path / "log"} | given
        clock = WrongClock(longest_sleep_s=0.01)  # a mock broker has executed what it was sent
        jobs.append(TransactionalJob(mq.name_server, topic, clock=clock, **settings))
        return jobs[-1]

    yield start
    for one in jobs:
        one.close()


def test_a_batch_is_visible_when_it_is_committed_and_not_before(mq, job) -> None:
    first = job()
    halves = first.write(BODIES, NAME)
    assert halves.num_rows == len(BODIES)
    assert visible(mq) == Counter()
    first.commit(halves, NAME)
    assert visible(mq) == Counter(BODIES)
    message = mq.messages("orders", mq.queues("orders")[0])[0]
    assert message.properties["transaction"] == str(NAME)
    assert message.properties["writeId"]
    assert (first.log.undone("query"), first.log.newest_done("query")) == ((), 7)


def test_a_batch_that_is_aborted_is_rolled_back(mq, job) -> None:
    first = job()
    halves = first.write(BODIES, NAME)
    first.transactions.abandon(NAME, halves, group=first.group)
    assert mq.asked[END] == len(BODIES)
    assert visible(mq) == Counter()


def test_a_batch_that_comes_again_after_it_was_finished_is_rolled_back(mq, job) -> None:
    """Spark was killed between the sink's commit and its own note of it."""
    first, second = job(), job()
    first.commit(first.write(BODIES, NAME), NAME)
    assert mq.asked[END] == len(BODIES)
    second.commit(second.write(BODIES, NAME), NAME)
    assert visible(mq) == Counter(BODIES)
    assert mq.asked[END] == 2 * len(BODIES)


def test_a_task_that_fails_rolls_its_rows_back(mq, job) -> None:
    first = job(retries="0", outageTimeout="0s")
    mq.inject(Refuse(ResponseCode.SYSTEM_ERROR), on=RequestCode.SEND_MESSAGE_V2, times=None, after=100)
    with pytest.raises(SendError):
        first.write(BODIES, NAME)
    assert mq.asked[END] == 100
    assert visible(mq) == Counter()


@pytest.mark.parametrize(
    ("fault", "times"),
    [
        (Refuse(ResponseCode.SYSTEM_BUSY), 50),
        (Refuse(ResponseCode.SLAVE_NOT_AVAILABLE), 5),
        (Refuse(ResponseCode.SYSTEM_ERROR, "OS page cache busy, please try another machine"), 50),
        (Refuse(ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR DEFAULT"), 600),
        (HangUp(), 1),
        (HangUp(executed=True), 3),
        (Silence(), 2),
    ],
    ids=[
        "busy",
        "no master",
        "page cache busy",
        "too few replicas",
        "hang-up",
        "hang-up after it was done",
        "no answer",
    ],
)
def test_every_row_once_through_faults_of_the_commit(mq, job, fault: Fault, times: int) -> None:
    silent = {"requestTimeoutMs": SILENCE_MS} if isinstance(fault, Silence) else {}
    first = job(**silent)
    halves = first.write(BODIES, NAME)
    injected = mq.inject(fault, on=END, times=times, after=40)
    first.commit(halves, NAME)
    assert injected.hits == times
    assert visible(mq) == Counter(BODIES)


@pytest.mark.parametrize("executed", [False, True])
@pytest.mark.parametrize("after", [0, 1, 256, 598])
def test_a_commit_that_a_crash_cuts_short_is_finished_by_the_next_one(mq, job, after, executed) -> None:
    first, second = job(outageTimeout="0s"), job()
    mq.inject(HangUp(executed=executed), on=END, after=after, times=1)
    mq.inject(Refuse(ResponseCode.SYSTEM_ERROR), on=END, times=None, after=after)
    with pytest.raises(RocketMQError):
        first.commit(first.write(BODIES, NAME), NAME)
    cut_short = visible(mq)
    assert sum(cut_short.values()) <= after + executed
    first.transactions.abandon(NAME, first.write(BODIES, NAME), group=first.group)  # as Spark does
    mq.heal()
    second.commit(second.write(["another attempt's rows"], NAME), NAME)
    assert visible(mq) == Counter(BODIES)
    assert second.log.undone("query") == ()


def test_an_interrupted_commit_waits_for_queues_that_are_hidden_from_readers(mq, job) -> None:
    first, second = job(outageTimeout="0s"), job()
    mq.inject(Refuse(ResponseCode.SYSTEM_ERROR), on=END, times=None, after=len(BODIES) // 2)
    with pytest.raises(RocketMQError):
        first.commit(first.write(BODIES, NAME), NAME)
    mq.heal()
    queues = len(mq.queues("orders"))
    mq.create_topic("orders", queues, read_queues=1)
    with pytest.raises(DataLossError, match="was lowered, raise it again"):
        second.commit(second.write(["another attempt's"], NAME), NAME)
    mq.create_topic("orders", queues)
    second.commit(second.write(["another attempt's"], NAME), NAME)
    assert visible(mq) == Counter(BODIES)


@pytest.mark.parametrize("step", ["decide", "carry out", "finish"])
def test_a_crash_around_the_log_loses_and_repeats_nothing(mq, job, monkeypatch, step: str) -> None:
    first, second = job(), job()

    def crash(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    match step:
        case "decide":
            monkeypatch.setattr(first.log, "decide", crash)
        case "carry out":
            monkeypatch.setattr(first.transactions, "_carry_out", crash)
        case "finish":
            monkeypatch.setattr(first.log, "finish", crash)
    with pytest.raises(KeyboardInterrupt):
        first.commit(first.write(BODIES, NAME), NAME)
    second.commit(second.write(BODIES, NAME), NAME)
    assert visible(mq) == Counter(BODIES)


@pytest.mark.parametrize("when", ["before it is decided", "after"])
def test_brokers_that_are_away_are_waited_for(mq, job, monkeypatch, when: str) -> None:
    """Name servers forget the topics of such brokers, and a process that commits may not have known them."""
    halves = job().write(BODIES, NAME)
    driver = job()
    decide = driver.log.decide

    def go_away() -> None:
        for broker in mq.brokers:
            mq.stop_broker(broker)
            threading.Timer(1.0, mq.start_broker, (broker,)).start()

    def decide_and_go_away(decision: Decision, claim: str) -> None:
        decide(decision, claim)
        driver.client.close()
        go_away()

    if when == "after":
        monkeypatch.setattr(driver.log, "decide", decide_and_go_away)
    else:
        go_away()
    driver.commit(halves, NAME)
    assert visible(mq) == Counter(BODIES)


def test_rows_of_a_key_keep_their_order_through_faults(mq, job) -> None:
    first = job()
    keys = [f"k{number % 3}" for number in range(90)]
    batch = pa.RecordBatch.from_pydict({"body": [f"{n:03}" for n in range(90)], "shardingKey": keys})
    halves = first.write(batch, NAME)
    assert first.ordered
    injected = [
        mq.inject(HangUp(), on=END, after=20, times=2),
        mq.inject(Refuse(ResponseCode.SYSTEM_BUSY), on=END, after=40, times=3),
        mq.inject(Refuse(ResponseCode.SYSTEM_ERROR, "create mapped file failed"), on=END, after=60, times=2),
    ]
    first.commit(halves, NAME)
    assert [each.hits for each in injected] == [2, 3, 2]
    for queue in mq.queues("orders"):
        found = [message.body.decode() for message in mq.messages("orders", queue)]
        assert found == sorted(found)
    assert sum(visible(mq).values()) == 90


def without(lost: int, halves: pa.Table) -> pa.Table:
    """Return half messages of which the first ones are lost: their broker has none at these places."""
    places = halves["commitLogOffset"].to_pylist()
    places[:lost] = [1 << 40] * lost
    return halves.set_column(4, "commitLogOffset", pa.array(places))


@pytest.mark.parametrize("ordered", [False, True])
def test_half_messages_that_are_gone_fail_the_commit_and_spoil_no_others(mq, job, ordered: bool) -> None:
    first = job(outageTimeout="0s", ordered=ordered)
    halves = without(2, first.write(BODIES, NAME))
    for _ in range(2):
        with pytest.raises(DataLossError, match=r"2 of 600 half messages .*--skip-lost") as failure:
            first.commit(halves, NAME)
        assert failure.value.condition == "HALF_MESSAGES_LOST"
        assert failure.value.facts["brokers"]
        assert halves["msgId"][0].as_py() in failure.value.facts["msg_ids"]
        assert first.log.undone("query") == (7,)  # it is not forgotten
        assert sum(visible(mq).values()) == 598


def test_a_batch_that_was_decided_is_not_rolled_back_when_spark_aborts_it(mq, job, monkeypatch) -> None:
    """Spark aborts a batch whose commit raises; its rows are committed by the next run."""
    first, second = job(), job()

    def fail(*_: object) -> None:
        raise SendError("the broker is away", failed=600)

    monkeypatch.setattr(first.transactions, "_carry_out", fail)
    halves = first.write(BODIES, NAME)
    with pytest.raises(SendError):
        first.commit(halves, NAME)
    first.transactions.abandon(NAME, halves, group=first.group)
    assert mq.asked[END] == 0
    assert second.transactions.finish(NAME).committed == 600
    assert visible(mq) == Counter(BODIES)
    second.transactions.abandon(NAME, halves, group=second.group)
    assert mq.asked[END] == 600, "also when it is finished"


def test_a_claim_ends_lower_ones_only(tmp_path, monkeypatch) -> None:
    """Of two processes that claim at the same time, both see the higher claim."""
    log, other = TransactionLog(str(tmp_path)), TransactionLog(str(tmp_path))
    first = log.claim("query")
    monkeypatch.setattr(other, "newest_claim", lambda _: None)  # as before the other's claim was written
    second, third = log.claim("query"), other.claim("query")
    assert first < second > third
    assert log.newest_claim("query") == second


def test_commits_that_a_broker_executes_late_are_not_sent_again(mq, job, monkeypatch) -> None:
    """Those of a process that was killed: they appear while the next one waits for the end of all of them."""
    first, second = job(), job()

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(first.transactions, "_carry_out", crash)
    halves = first.write(BODIES, NAME)
    with pytest.raises(KeyboardInterrupt):
        first.commit(halves, NAME)
    late = iter([halves.slice(0, 10), halves.slice(10, 5)])

    def sleep(seconds: float) -> None:
        if seconds > 3 and (these := next(late, None)) is not None:
            end_half_messages(
                first.client, first.group, these, Ending.COMMIT, outage_timeout_ms=0, in_order=False
            )

    monkeypatch.setattr(second.client.clock, "sleep", sleep)
    assert second.transactions.finish(NAME).committed == 585
    assert visible(mq) == Counter(BODIES)


def test_half_messages_that_are_gone_are_told_after_the_others_are_tried_again(mq, job) -> None:
    first = job()
    halves = without(2, first.write(BODIES, NAME))
    cut = mq.inject(HangUp(), on=END, after=300)
    with pytest.raises(DataLossError, match="2 of 600 half messages"):
        first.commit(halves, NAME)
    assert cut.hits == 1
    assert sum(visible(mq).values()) == 598
    assert first.log.undone("query") == (7,)


def test_every_batch_that_was_decided_is_committed_by_the_next_one(mq, job) -> None:
    first, names = job(), [TransactionName("query", number) for number in (5, 6)]
    claim = first.log.claim("query")
    for name in names:
        halves = first.write([f"{name}/{number}" for number in range(10)], name)
        decision = Decision(
            name=name,
            group=first.group,
            ordered=False,
            since=dict.fromkeys(mq.queues("orders"), 0),
            halves=halves,
        )
        first.log.decide(decision, claim)
    second = job()
    second.commit(second.write(BODIES[:10], NAME), NAME)
    assert len(visible(mq)) == 30
    assert max(visible(mq).values()) == 1
    assert (second.log.undone("query"), second.log.newest_done("query")) == ((), 7)


def test_a_batch_whose_messages_expire_during_its_commit_can_be_ended(mq, job, monkeypatch) -> None:
    """A query stops in a commit and starts after the topic's retention: it says how to end the batch."""
    first, second = job(), job()

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(first.log, "finish", crash)
    with pytest.raises(KeyboardInterrupt):
        first.commit(first.write(BODIES[:40], NAME), NAME)
    for queue in mq.queues("orders"):
        mq.expire(queue, mq.max_offset(queue) // 2)
    left = sum(visible(mq).values())
    with pytest.raises(DataLossError, match="--skip-lost") as failure:
        second.transactions.finish(NAME)
    assert failure.value.condition == "HALF_MESSAGES_LOST"
    assert second.transactions.finish(NAME, skip_lost=True).lost == 40 - left
    assert second.log.undone("query") == ()
    assert max(visible(mq).values()) == 1


def test_the_command_line_ends_a_batch_without_what_brokers_have_lost(
    mq, job, tmp_path: Path, capsys, monkeypatch
) -> None:
    run = CommandLine(capsys, monkeypatch, mq.name_server)
    monkeypatch.setattr("pyspark_rocketmq.spark.write.transaction._QUIET_S", 0.01)
    monkeypatch.setattr("pyspark_rocketmq.spark.write.transaction_lease._LEASE_S", 0.01)
    first = job(outageTimeout="0s")
    with pytest.raises(DataLossError):
        first.commit(without(2, first.write(BODIES[:10], NAME)), NAME)
    folder = str(tmp_path / "log")
    refused = run("tx", "recover", folder, "--yes")
    assert refused.code == 1
    assert "--skip-lost" in refused.err
    (done,) = run("tx", "recover", folder, "--yes", "--skip-lost", "--json").json()
    assert (done["committed"], done["lost"]) == (0, 2)
    assert "no unfinished transactions" in run("tx", "list", folder).out
    assert sum(visible(mq).values()) == 8
    second = job()
    second.commit(second.write(BODIES[:10], NAME), NAME)  # the query is started again
    assert sum(visible(mq).values()) == 8


def test_a_rollback_passes_over_what_is_gone(mq, job) -> None:
    first = job()
    halves = without(2, first.write(BODIES, NAME))
    busy = mq.inject(Refuse(ResponseCode.SYSTEM_BUSY), on=END, times=3)
    first.transactions.abandon(NAME, halves, group=first.group)
    assert mq.asked[END] == len(BODIES) + busy.hits


@pytest.mark.timeout(60)
def test_half_messages_that_no_broker_ends_are_given_up(mq, job) -> None:
    first = job(outageTimeout="1s")
    halves = first.write(BODIES[:10], NAME)
    mq.inject(Refuse(ResponseCode.SYSTEM_BUSY), on=END, times=None)
    with pytest.raises(SendError, match="could not be ended"):
        first.commit(halves, NAME)


def test_half_messages_are_not_given_up_while_some_are_ended(mq, tmp_path: Path) -> None:
    """Each pass ends two of ten, and each pause takes most of the time that nothing may succeed for."""
    clock = FakeClock(0.0, base=SYSTEM_CLOCK)
    job = TransactionalJob(
        mq.name_server, "orders", clock=clock, folder=tmp_path / "log", outageTimeout="60s"
    )
    try:
        halves = job.write(BODIES[:10], NAME)
        refused = [8, 6, 4, 2]

        def pass_a_while() -> None:
            clock.now_s += 45
            if refused:
                mq.inject(Refuse(ResponseCode.SYSTEM_BUSY), on=END, times=refused.pop(0))

        mq.inject(Refuse(ResponseCode.SYSTEM_BUSY), on=END, times=refused.pop(0))
        clock.on_sleep = pass_a_while
        job.commit(halves, NAME)
    finally:
        job.close()
    assert not refused
    assert visible(mq) == Counter(BODIES[:10])


def test_a_commit_of_a_process_that_was_frozen_within_a_request_is_tried_again(
    mq, tmp_path: Path, monkeypatch
) -> None:
    clock = FakeClock(0.0, base=SYSTEM_CLOCK)
    job = TransactionalJob(
        mq.name_server, "orders", clock=clock, folder=tmp_path / "log", outageTimeout="60s"
    )
    asked, ask = list[object](), Client.max_offsets

    def freeze(self: Client, queues: Collection[MessageQueue]) -> dict[MessageQueue, int]:
        asked.append(queues)
        if len(asked) == 1:
            clock.now_s += 600
            raise ConnectionLostError("the broker closed the connection meanwhile")
        return ask(self, queues)

    try:
        halves = job.write(BODIES[:10], NAME)
        monkeypatch.setattr(Client, "max_offsets", freeze)
        job.commit(halves, NAME)
    finally:
        job.close()
    assert len(asked) > 1
    assert visible(mq) == Counter(BODIES[:10])


def test_a_rollback_whose_answer_is_missing_is_sent_again(mq, job) -> None:
    first = job(requestTimeoutMs=SILENCE_MS)
    halves = first.write(BODIES, NAME)
    silent = mq.inject(Silence(), on=END, times=2)
    first.transactions.abandon(NAME, halves, group=first.group)
    assert silent.hits == 2
    assert mq.asked[END] >= len(BODIES) + silent.hits


def test_a_task_that_fails_rolls_back_what_is_in_flight_too(mq, job) -> None:
    """The answers to the last sends are not read yet when the query's rows fail."""

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"body": BODIES[:100]})
        raise ZeroDivisionError

    first = job()
    with pytest.raises(ZeroDivisionError):
        first.run(rows(), NAME)
    # Sends leave 16 together: rows that did not fill a group were never sent.
    assert mq.asked[RequestCode.SEND_MESSAGE_V2] == mq.asked[END] == 96
    assert visible(mq) == Counter()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"folder": "", "transactionLog": None}, "checkpointLocation"),
        ({"delayLevel": 3}, "delayLevel"),
        ({"folder": "nowhere://x"}, "transactionLog"),
    ],
)
def test_what_cannot_be_a_transaction_says_so(mq, job, given: Mapping[str, object], expected: str) -> None:
    def write() -> None:
        job(**given).write(BODIES, NAME)

    with pytest.raises(OptionError, match=expected):
        write()


def test_a_static_topic_takes_no_transactions(mq, job) -> None:
    mq.create_static_topic("moving", 2)
    with pytest.raises(OptionError, match="static topic cannot have transactions"):
        job(topic="moving").write(BODIES, NAME)
    assert mq.asked[RequestCode.SEND_MESSAGE_V2] == 0


def test_each_log_has_a_group_of_its_own_unless_one_is_given(job, tmp_path: Path) -> None:
    assert job().group == job().group != job(folder=tmp_path / "other").group
    assert job(producerGroup="billing").group == "billing"


def test_a_decision_comes_back_as_it_was(tmp_path: Path) -> None:
    log = TransactionLog(f"file://{tmp_path}/log")
    halves = pa.table(
        [["orders"], ["broker-a"], [3], [17], [1 << 40], ["0A" * 16]], schema=HalfMessages().table().schema
    )
    decision = Decision(
        name=TransactionName("job 1/ä", 12),
        group="g",
        ordered=True,
        since={MessageQueue("orders", "broker-a", 3): 99},
        halves=halves,
    )
    claim = log.claim(decision.name.owner)
    log.decide(decision, claim)
    assert log.owners() == ("job 1/ä",)
    assert log.undone("job 1/ä") == (12,)
    assert log.read(decision.name) == decision
    log.finish(decision.name)
    assert (log.undone("job 1/ä"), log.newest_done("job 1/ä")) == ((), 12)
    assert log.newest_done("nobody") is None
    log.decide(
        Decision(name=TransactionName("job 1/ä", 13), group="g", ordered=False, since={}, halves=halves),
        claim,
    )
    next((tmp_path / "log").rglob("*.decision")).write_bytes(b"torn")
    with pytest.raises(RocketMQError, match="cannot be read"):
        log.read(TransactionName("job 1/ä", 13))


def test_the_command_line_finishes_what_is_not_to_be_started_again(
    mq, job, tmp_path: Path, capsys, monkeypatch
) -> None:
    run = CommandLine(capsys, monkeypatch, mq.name_server)
    monkeypatch.setattr("pyspark_rocketmq.spark.write.transaction._QUIET_S", 0.01)
    monkeypatch.setattr("pyspark_rocketmq.spark.write.transaction_lease._LEASE_S", 0.01)
    checkpoint = tmp_path / "checkpoint"
    first = job(folder=checkpoint / "rocketmq-transactions", outageTimeout="0s")
    mq.inject(Refuse(ResponseCode.SYSTEM_ERROR), on=END, times=None, after=100)
    halves = first.write(BODIES, NAME)
    with pytest.raises(SendError):
        first.commit(halves, NAME)
    mq.heal()
    listed = run("tx", "list", str(checkpoint), "--json").json()
    assert listed == [{"query": "query", "batch": 7, "producerGroup": first.group, "messages": len(BODIES)}]
    assert "nothing was changed" in run("tx", "recover", str(checkpoint)).out
    assert sum(visible(mq).values()) == 100
    (done,) = run("tx", "recover", str(checkpoint), "--yes", "--json").json()
    assert done["committed"] == len(BODIES) - 100
    assert visible(mq) == Counter(BODIES)
    assert "no unfinished transactions" in run("tx", "list", str(checkpoint)).out
