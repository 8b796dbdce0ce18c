"""Which process may append a committed batch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.clocks import FakeClock, WrongClock

from pyspark_rocketmq.client.net.host import SYSTEM_HOST
from pyspark_rocketmq.errors import RocketMQError, TransactionFencedError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.planning.commits.records import Append, Appended, Record
from pyspark_rocketmq.planning.commits.visible import Entry
from pyspark_rocketmq.spark.write.committed.append_turn import AppendTurn
from pyspark_rocketmq.spark.write.transaction_log import TransactionName

NAME = TransactionName("q", 7)
QUEUE = MessageQueue("orders", "broker-a", 0)


class Log:
    """A commit topic with one owner."""

    def __init__(self) -> None:
        self.stored: list[Record] = []
        self.looks = 0
        self.copies = 1
        self.on_look: Callable[[], None] = lambda: None
        self.hidden = 0
        """How many of the last records a broker does not show yet."""

    def owner(self, name: TransactionName) -> str:
        return name.owner

    def add(self, record: Record) -> int:
        self.stored += [record] * self.copies
        return len(self.stored) - 1

    def end(self) -> int:
        self.looks += 1
        self.on_look()
        return len(self.stored) - self.hidden

    def records(self, name: TransactionName, begin: int, end: int) -> list[Entry]:
        assert end <= len(self.stored), "waits for a record that nobody has stored"
        found = [Entry(at, 0, record) for at, record in enumerate(self.stored[:end]) if at >= begin]
        return [entry for entry in found if entry.record.owner == name.owner]


@pytest.fixture
def log() -> Log:
    return Log()


def ends(offset: int) -> Callable[[], dict[MessageQueue, int]]:
    return lambda: {QUEUE: offset}


def other(number: int = 7, offset: int = 3) -> Append:
    return Append(owner="q", number=number, claim="other", ends={QUEUE: offset})


def test_the_first_process_begins_at_the_ends_and_waits_for_nobody(log: Log) -> None:
    clock = FakeClock()
    turn = AppendTurn(log, NAME, 0, clock, SYSTEM_HOST)
    assert turn.take(ends(5)) == {QUEUE: 5}
    assert (turn.continues, clock.sleeps) == (False, [])
    turn.confirm()
    turn.finish()
    assert log.stored[-1] == Appended(owner="q", number=7)
    assert AppendTurn(log, NAME, 0, clock, SYSTEM_HOST).take(ends(9)) is None


def test_the_next_process_begins_where_the_first_did_after_its_lease(log: Log) -> None:
    clock = FakeClock()
    log.add(other(offset=3))
    log.add(other(offset=4))
    turn = AppendTurn(log, NAME, 0, clock, SYSTEM_HOST)
    assert turn.take(ends(9)) == {QUEUE: 3}
    assert (turn.continues, clock.sleeps) == (True, [3.0])
    assert log.stored[-1].ends == {QUEUE: 3}
    turn.confirm()


def test_of_two_processes_that_begin_together_the_second_waits(log: Log) -> None:
    clock = FakeClock()
    turn = AppendTurn(log, NAME, 0, clock, SYSTEM_HOST)

    def faster() -> dict[MessageQueue, int]:
        log.add(other(offset=3))
        return {QUEUE: 5}

    assert turn.take(faster) == {QUEUE: 3}
    assert turn.continues
    turn.confirm()  # it has the right, since it came later


def test_a_claim_before_the_own_one_counts_though_the_broker_does_not_show_it_yet(log: Log) -> None:
    clock = FakeClock()
    turn = AppendTurn(log, NAME, 0, clock, SYSTEM_HOST)

    def faster() -> dict[MessageQueue, int]:
        log.add(other(offset=3))
        log.hidden = 2
        return {QUEUE: 5}

    assert turn.take(faster) == {QUEUE: 3}
    assert (turn.continues, clock.sleeps) == (True, [3.0])


def test_what_was_stored_before_the_commit_is_not_read(log: Log) -> None:
    """An earlier run of the same number, such as of a checkpoint that was deleted."""
    log.add(other(offset=3))
    log.add(Appended(owner="q", number=7))
    turn = AppendTurn(log, NAME, 2, FakeClock(), SYSTEM_HOST)
    assert turn.take(ends(9)) == {QUEUE: 9}
    turn.confirm()


def test_a_process_whose_predecessor_finishes_while_it_waits_does_nothing(log: Log) -> None:
    clock = FakeClock()
    log.add(other())
    clock.on_sleep = lambda: log.add(Appended(owner="q", number=7))
    assert AppendTurn(log, NAME, 0, clock, SYSTEM_HOST).take(ends(9)) is None


def test_another_batch_was_appended_and_this_one_not(log: Log) -> None:
    log.add(other(number=6))
    log.add(Appended(owner="q", number=6))
    turn = AppendTurn(log, NAME, 0, FakeClock(), SYSTEM_HOST)
    assert turn.take(ends(9)) == {QUEUE: 9}
    assert not turn.continues


@pytest.mark.parametrize("number", [7, 8])
@pytest.mark.parametrize("copies", [1, 2])
def test_who_was_overtaken_learns_it_within_a_second(log: Log, number: int, copies: int) -> None:
    """Also if the other's record is between two copies of the own one, whose answer was lost."""
    clock = FakeClock()
    turn = AppendTurn(log, NAME, 0, clock, SYSTEM_HOST)
    log.copies = copies
    turn.take(ends(5))
    if copies == 1:
        turn.confirm()
        log.add(other(number))
        turn.confirm()  # less than a second ago
        clock.now_s += 1.1
    else:
        log.stored.insert(1, other(number))
    with pytest.raises(TransactionFencedError, match="another process has taken over"):
        turn.confirm()


def test_who_was_overtaken_while_the_machine_slept_learns_it_at_once(log: Log) -> None:
    """Linux's monotonic clock stands still meanwhile."""
    clock = WrongClock(base=FakeClock())
    turn = AppendTurn(log, NAME, 0, clock, SYSTEM_HOST)
    turn.take(ends(5))
    turn.confirm()
    log.add(other())
    clock.ahead_s += 600
    with pytest.raises(TransactionFencedError):
        turn.confirm()
    clock.ahead_s -= 1_200
    AppendTurn(Log(), NAME, 0, clock, SYSTEM_HOST).confirm()


def test_a_look_a_second_and_one_that_takes_longer_does_not_count(log: Log) -> None:
    clock = FakeClock()
    turn = AppendTurn(log, NAME, 0, clock, SYSTEM_HOST)
    turn.take(ends(5))
    before = log.looks
    for _ in range(21):
        turn.confirm()
        clock.now_s += 0.1
    assert log.looks - before == 2
    clock.now_s += 5

    def take_long() -> None:
        clock.now_s += 1.5

    log.on_look = take_long
    before = log.looks
    with pytest.raises(RocketMQError, match="takes longer than 1 s to be read") as late:
        turn.confirm()
    assert (late.value.facts["owner"], log.looks - before) == ("q", 5)


def test_the_second_begins_when_a_look_does(log: Log) -> None:
    """Another process may claim right after the look began."""
    clock = FakeClock()
    turn = AppendTurn(log, NAME, 0, clock, SYSTEM_HOST)
    turn.take(ends(5))

    def take_a_second() -> None:
        clock.now_s += 1.0

    log.on_look = take_a_second
    turn.confirm()
    log.on_look = lambda: None
    before = log.looks
    turn.confirm()
    clock.now_s += 0.25
    turn.confirm()
    assert log.looks - before == 1
