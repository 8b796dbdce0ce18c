from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

import pytest
from tests.support.clocks import FakeClock
from tests.support.threads import HostWithoutThreads

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.client.paced_warnings import PacedWarnings
from pyspark_rocketmq.errors import BrokerNotFoundError, RocketMQError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.offsets.group_commits import GroupCommits

A0, B0 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-b", 0)


class Brokers:
    """Takes commits; can be down, and can be slow."""

    def __init__(self) -> None:
        self.warnings = PacedWarnings(FakeClock())
        self.commits: list[dict[MessageQueue, int]] = []
        self.down: set[str] = set()
        self.asked = threading.Event()
        self.answers = threading.Event()
        self.answers.set()
        self.threads: set[str] = set()
        self.after_commit: Callable[[], object] = lambda: None

    def try_commit_offsets(
        self, group: str, offsets: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, RocketMQError]:
        assert group == "g"
        self.asked.set()
        assert self.answers.wait(30)
        self.threads.add(threading.current_thread().name)
        failed: dict[MessageQueue, RocketMQError] = {
            queue: BrokerNotFoundError("it is down", broker_name=queue.broker_name)
            for queue in offsets
            if queue.broker_name in self.down
        }
        if done := {queue: at for queue, at in offsets.items() if queue not in failed}:
            self.commits.append(done)
        self.after_commit()
        return failed


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def commits(brokers: Brokers, clock: FakeClock) -> GroupCommits:
    return GroupCommits("g", brokers, interval_ms=5_000, clock=clock)


def wait_for_the_thread() -> None:
    for thread in threading.enumerate():
        if thread.name == "group-commits":
            thread.join(30)


def test_commits_are_made_by_a_thread_that_ends(commits: GroupCommits, brokers: Brokers):
    brokers.answers.clear()
    commits.record_finished({A0: 7})
    assert brokers.commits == [], "the caller does not wait"
    brokers.answers.set()
    wait_for_the_thread()
    assert brokers.commits == [{A0: 7}]
    assert brokers.threads == {"group-commits"}
    assert not [thread for thread in threading.enumerate() if thread.name == "group-commits"]


def test_between_two_commits_lies_the_interval_and_the_newest_wins(
    commits: GroupCommits, brokers: Brokers, clock: FakeClock
):
    commits.record_finished({A0: 1})
    wait_for_the_thread()
    for offset in (2, 3):
        clock.now_s += 2.499
        commits.record_finished({A0: offset})
        wait_for_the_thread()
    assert brokers.commits == [{A0: 1}]
    clock.now_s += 0.2
    commits.record_finished({A0: 4})
    wait_for_the_thread()
    assert brokers.commits == [{A0: 1}, {A0: 4}]


def test_only_what_changed_is_committed(commits: GroupCommits, brokers: Brokers, clock: FakeClock):
    commits.record_finished({A0: 1, B0: 1})
    wait_for_the_thread()
    clock.now_s += 5
    commits.record_finished({A0: 1, B0: 2})
    wait_for_the_thread()
    clock.now_s += 5
    commits.record_finished({A0: 1, B0: 2})
    wait_for_the_thread()
    assert brokers.commits == [{A0: 1, B0: 1}, {B0: 2}]


def test_a_broker_that_is_away_is_logged_and_tried_again(
    commits: GroupCommits, brokers: Brokers, clock: FakeClock, caplog
):
    brokers.down.add("broker-a")
    with caplog.at_level(logging.WARNING):
        commits.record_finished({A0: 1, B0: 1})
        wait_for_the_thread()
    assert brokers.commits == [{B0: 1}]
    assert "group g are not committed, tried again later: it is down [broker_name=broker-a]" in caplog.text
    brokers.down.clear()
    clock.now_s += 5
    commits.record_finished({A0: 1, B0: 1})
    wait_for_the_thread()
    assert brokers.commits == [{B0: 1}, {A0: 1}]


def test_the_end_of_a_run_waits_for_its_own_commit(commits: GroupCommits, brokers: Brokers):
    brokers.answers.clear()
    commits.record_finished({A0: 1})
    assert brokers.asked.wait(30)
    commits.record_finished({A0: 2})  # not due: the interval has not passed
    release = threading.Timer(0.05, brokers.answers.set)
    release.start()
    commits.flush(10)
    release.join()
    assert brokers.commits == [{A0: 1}, {A0: 2}]
    commits.flush(10)
    assert len(brokers.commits) == 2


def test_the_end_of_a_run_does_not_wait_for_ever(commits: GroupCommits, brokers: Brokers, caplog):
    brokers.answers.clear()
    commits.record_finished({A0: 1})
    with caplog.at_level(logging.WARNING):
        commits.flush(0.01)
    assert "offsets of group g in 1 queues are not committed" in caplog.text
    brokers.answers.set()
    wait_for_the_thread()


def test_the_last_commit_of_a_run_waits_for_a_broker_that_restarts(brokers: Brokers):
    commits = GroupCommits("g", brokers, interval_ms=5_000, clock=SYSTEM_CLOCK)
    brokers.down.add("broker-a")
    brokers.after_commit = brokers.down.clear
    commits.record_finished({A0: 1, B0: 1})
    commits.flush(30)
    assert brokers.commits == [{B0: 1}, {A0: 1}]


def test_a_run_without_a_batch_ends_without_a_commit(commits: GroupCommits, brokers: Brokers):
    commits.flush(10)
    assert brokers.commits == []


def test_a_commit_that_got_no_thread_is_logged_and_made_later(brokers: Brokers, clock: FakeClock, caplog):
    commits = GroupCommits("g", brokers, interval_ms=5_000, clock=clock, host=HostWithoutThreads(1))
    with caplog.at_level(logging.WARNING):
        commits.record_finished({A0: 1})
    assert "group g are not committed, tried again later: can't start new thread" in caplog.text
    commits.record_finished({A0: 2})
    wait_for_the_thread()
    assert brokers.commits == [{A0: 2}]
    commits.flush(10)
