"""Of two processes that commit one query's batches the later one does; the earlier one stops."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs
from tests.support.clocks import FakeClock, WrongClock
from tests.support.transactional_job import TransactionalJob, visible

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.errors import OptionError, RocketMQError, TransactionFencedError
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.spark.filesystem import write_durably
from pyspark_rocketmq.spark.write.transaction_lease import Lease
from pyspark_rocketmq.spark.write.transaction_log import (
    Decision,
    TransactionLog,
    TransactionName,
    require_checkpoint,
)
from pyspark_rocketmq.testing import MockCluster, Refuse

END = RequestCode.END_TRANSACTION
NAME = TransactionName("query", 7)
BODIES = [f"m{number}" for number in range(300)]
OTHERS = [f"another attempt's {number}" for number in range(50)]


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with MockCluster({"orders": 2}, brokers=("broker-a", "broker-b")) as cluster:
        yield cluster


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(0.0, base=SYSTEM_CLOCK)


@pytest.fixture
def job(mq: MockCluster, clock: FakeClock, tmp_path: Path) -> Iterator[Callable[..., TransactionalJob]]:
    jobs: list[TransactionalJob] = []

    def start(**given: object) -> TransactionalJob:
        jobs.append(
            TransactionalJob(
                mq.name_server, "orders", tmp_path / "log", clock=clock, **{"outageTimeout": "300s"} | given
            )
        )
        return jobs[-1]

    yield start
    for one in jobs:
        one.close()


def test_who_was_overtaken_while_the_machine_slept_learns_it_at_once(tmp_path: Path) -> None:
    """Linux's monotonic clock stands still meanwhile."""
    clock = WrongClock(base=FakeClock())
    lease = Lease(TransactionLog(str(tmp_path)), "query", clock)
    lease.confirm()
    later = Lease(TransactionLog(str(tmp_path)), "query", clock)
    lease.confirm()  # less than a second after the last look
    clock.ahead_s += 600
    with pytest.raises(TransactionFencedError):
        lease.confirm()
    later.confirm()


def halting(log: TransactionLog, *, before: bool, meanwhile: Callable[[], object]) -> Callable[..., None]:
    """Return a `decide` around which another process comes and goes."""
    decide = log.decide

    def wrapped(decision: Decision, *claim: str) -> None:
        if before:
            meanwhile()
        decide(decision, *claim)
        if not before:
            meanwhile()

    return wrapped


@pytest.mark.parametrize("before", [True, False], ids=["before it decides", "after"])
@pytest.mark.parametrize("later", [BODIES, OTHERS], ids=["the same rows", "other rows"])
def test_a_process_that_another_has_overtaken_commits_nothing(
    mq, job, monkeypatch, before: bool, later: list[str]
) -> None:
    """A query was stopped, its process not yet; it is started again, and the batch comes again."""
    first, second, third = job(), job(), job()

    def second_run() -> None:
        second.commit(second.write(later, NAME), NAME)

    monkeypatch.setattr(first.log, "decide", halting(first.log, before=before, meanwhile=second_run))
    with pytest.raises(TransactionFencedError, match="another process has taken over"):
        first.commit(first.write(BODIES, NAME), NAME)
    expected = Counter(later if before else BODIES)  # what was decided first
    assert visible(mq) == expected
    third.commit(third.write(OTHERS, NAME), NAME)
    assert visible(mq) == expected
    assert third.log.undone("query") == ()


def test_a_process_that_is_overtaken_between_its_commits_stops(mq, job, clock: FakeClock) -> None:
    first, second = job(), job()
    halves = first.write(BODIES, NAME)
    again = second.write(BODIES, NAME)
    mq.inject(Refuse(ResponseCode.SYSTEM_BUSY), on=END, after=100, times=50)

    def second_run() -> None:
        clock.on_sleep = lambda: None
        second.commit(again, NAME)

    clock.on_sleep = second_run
    with pytest.raises(TransactionFencedError):
        first.commit(halves, NAME)
    assert visible(mq) == Counter(BODIES)


@pytest.mark.parametrize("every", [1, 2, 3])
def test_processes_that_overtake_one_another_commit_each_row_once(mq, job, monkeypatch, every: int) -> None:
    """Another one comes at each (second, third) look at the log, also at those of the ones that came."""
    turns = itertools.count(1)
    jobs = [job() for _ in range(6)]
    waiting = list(jobs[1:])
    newest_claim = TransactionLog.newest_claim

    def look(log: TransactionLog, owner: str) -> str | None:
        found = newest_claim(log, owner)
        if next(turns) % every == 0 and waiting:
            run(waiting.pop())
        return found

    def run(one: TransactionalJob) -> None:
        with suppress(TransactionFencedError):
            one.commit(one.write(BODIES, NAME), NAME)

    monkeypatch.setattr(TransactionLog, "newest_claim", look)
    run(jobs[0])
    monkeypatch.undo()
    last = job()
    last.commit(last.write(BODIES, NAME), NAME)
    assert len(waiting) < 5
    assert visible(mq) == Counter(BODIES)


def test_of_two_decisions_about_a_batch_that_of_the_later_process_counts(mq, job, monkeypatch) -> None:
    """The earlier process writes its own after the later one looked for it, then learns that it is late."""
    first, second, third = job(), job(outageTimeout="0s"), job()

    def second_run() -> None:
        mq.inject(Refuse(ResponseCode.SYSTEM_BUSY), on=END, after=20, times=None)
        with pytest.raises(RocketMQError, match="could not be ended"):
            second.commit(second.write(OTHERS, NAME), NAME)
        mq.heal()

    monkeypatch.setattr(first.log, "decide", halting(first.log, before=True, meanwhile=second_run))
    with pytest.raises(TransactionFencedError):
        first.commit(first.write(BODIES, NAME), NAME)
    third.commit(third.write(BODIES, NAME), NAME)
    assert visible(mq) == Counter(OTHERS)


def test_a_decision_that_appears_after_the_later_process_looked_does_not_count(mq, job, monkeypatch) -> None:
    first, second = job(), job()
    halves, again = first.write(OTHERS, NAME), second.write(BODIES, NAME)
    undone = second.log.undone
    earlier = first.log.claim("query")

    def look(owner: str) -> tuple[int, ...]:
        found = undone(owner)
        stale = Decision(name=NAME, group=first.group, ordered=False, since={}, halves=halves)
        first.log.decide(stale, earlier)
        return found

    monkeypatch.setattr(second.log, "undone", look)
    second.commit(again, NAME)
    assert visible(mq) == Counter(BODIES)


def test_a_batch_that_its_process_finishes_after_all_is_left_alone(mq, job, clock: FakeClock) -> None:
    """It had sent its last commits when it lost the right to send more."""
    first, second = job(), job()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first.log, "finish", lambda _: None)
        first.commit(first.write(BODIES, NAME), NAME)
    again = second.write(BODIES, NAME)
    clock.on_sleep = lambda: first.log.finish(NAME)
    second.commit(again, NAME)
    assert visible(mq) == Counter(BODIES)


def test_the_successor_outwaits_what_its_predecessor_may_still_send(job, clock: FakeClock) -> None:
    first, second = job(), job()
    halves = first.write(BODIES[:5], NAME)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first.transactions, "_carry_out", lambda *_, **__: 0)
        first.commit(halves, NAME)
    before = clock.now_s
    second.commit(second.write(BODIES[:5], NAME), NAME)
    assert clock.now_s - before >= 3 + 3.5


def test_a_slow_log_is_not_trusted(job, clock: FakeClock, monkeypatch) -> None:
    """Between a look and its answer another process may have claimed the right."""
    first = job()
    halves = first.write(["one"], NAME)
    newest_claim = first.log.newest_claim

    def slowly(owner: str) -> str | None:
        clock.now_s += 20
        return newest_claim(owner)

    monkeypatch.setattr(first.log, "newest_claim", slowly)
    with pytest.raises(RocketMQError, match="takes longer than"):
        first.commit(halves, NAME)


def test_decisions_of_before_there_were_claims_are_finished(mq, job, tmp_path: Path) -> None:
    first, second = job(), job()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first.transactions, "_carry_out", lambda *_, **__: 0)
        first.commit(first.write(BODIES, NAME), NAME)
    (decision,) = (tmp_path / "log").rglob("*.decision")
    decision.rename(decision.with_name(f"{decision.name.partition('.')[0]}.decision"))
    for claim in (tmp_path / "log").rglob("*.claim"):
        claim.unlink()
    second.commit(second.write(OTHERS, NAME), NAME)
    assert visible(mq) == Counter(BODIES)
    assert sorted(path.suffix for path in (tmp_path / "log" / "query").iterdir()) == [".claim", ".done"]


# --- the folder -----------------------------------------------------------------------------


def test_a_decision_outlives_a_crash_of_the_machine(tmp_path: Path, monkeypatch) -> None:
    """The file's bytes are on the disk before its name is, and its name before the caller goes on."""
    steps: list[str] = []
    sync = os.fsync
    folder = tmp_path / "a" / "b"

    def noted(number: int) -> None:
        path = Path(f"/proc/self/fd/{number}").readlink()
        if not path.is_relative_to(tmp_path):  # another thread's
            return
        assert not path.is_file() or path.read_bytes() == b"decided"
        steps.append("content" if path.is_file() else f"{path.relative_to(tmp_path)}")
        assert path.is_dir() or not (folder / "file").exists()
        sync(number)

    monkeypatch.setattr(os, "fsync", noted)
    write_durably(fs.LocalFileSystem(), str(folder / "file"), lambda stream: stream.write(b"decided"))
    assert steps == ["content", "a/b", "a", "."]
    assert [path.name for path in folder.iterdir()] == ["file"]


def test_the_folders_that_a_log_creates_outlive_a_crash_of_the_machine(tmp_path: Path, monkeypatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(Path(f"/proc/self/fd/{number}").readlink()))
    TransactionLog(f"{tmp_path}/checkpoint/log").claim("query")
    folders = [path for path in synced if path.is_dir() and path.is_relative_to(tmp_path)]
    assert folders == [
        tmp_path / "checkpoint/log/query",
        tmp_path / "checkpoint/log",
        tmp_path / "checkpoint",
        tmp_path,
    ]


@pytest.mark.parametrize("owner", [".", "..", "...", "a/../b", "%2E%2E"])
def test_every_owner_has_a_folder_of_its_own_in_the_log(tmp_path: Path, owner: str) -> None:
    log = TransactionLog(f"{tmp_path}/log")
    claim = log.claim(owner)
    assert log.newest_claim(owner) == claim
    assert log.owners() == (owner,)
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


@pytest.mark.parametrize(
    "use",
    [
        lambda log: log.claim("query"),
        lambda log: log.undone("query"),
        lambda log: log.finish(NAME),
        lambda log: log.owners(),
    ],
)
def test_a_folder_that_cannot_be_used_is_an_error_of_ours(tmp_path: Path, use: Callable[..., Any]) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "log")  # a loop
    with pytest.raises(RocketMQError, match="folder of transactions"):
        use(TransactionLog(f"{tmp_path}/log"))


def test_the_checkpoint_must_be_where_we_look_for_it(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"with its scheme, such as hdfs://"):
        require_checkpoint(str(tmp_path / "elsewhere"), "query-1")
    (tmp_path / "metadata").write_text(json.dumps({"id": "query-1"}))
    require_checkpoint(str(tmp_path), "query-1")
    require_checkpoint(f"file://{tmp_path}/", "query-1")
    require_checkpoint(f"file:{tmp_path}", "query-1")
    with pytest.raises(OptionError, match="that of the query query-1"):
        require_checkpoint(str(tmp_path), "query-2")
    with pytest.raises(OptionError, match="transactionLog"):
        require_checkpoint("s3a://bucket/checkpoint", "query-1")
    (tmp_path / "metadata").write_text("{}")
    with pytest.raises(OptionError, match="transactionLog"):
        require_checkpoint(str(tmp_path), "query-1")
