from __future__ import annotations

import pytest

from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.planning.commits.ahead import CommitsAhead
from pyspark_rocketmq.planning.commits.records import Commit
from pyspark_rocketmq.planning.limit import Limits

A, B, LOG = MessageQueue("t", "a", 0), MessageQueue("t", "b", 0), MessageQueue("t-commits", "a", 0)
AT = {A: 10, B: 10, LOG: 5}


def commit(number, **parts):
    ranges = {{"a": A, "b": B}[name]: (found,) for name, found in parts.items()}
    return Commit(owner="q", number=number, since=0, ranges=ranges)


def admit(
    commits=(),
    *,
    reach=None,
    readable=None,
    holds=None,
    known=None,
    queues=(A, B),
    end=8,
    waits=None,
    elapsed_ms=1000,
    **limits,
):
    ahead = CommitsAhead(
        topics=frozenset({"t-commits"}),
        ends={} if end is None else {LOG: end},
        commits={LOG: commits} if commits else {},
        holds=holds or {},
        known=known or {},
        on_wait=lambda commit, queue: None if waits is None else waits.append((commit.number, queue)),
    )
    positions = {queue: at for queue, at in AT.items() if queue == LOG or queue in queues}
    reach = {
        queue: end for queue, end in ({A: 20, B: 20, LOG: 99} | (reach or {})).items() if queue in positions
    }
    readable = {A: 20, B: 20} if readable is None else readable
    return ahead.admit(positions, reach, readable, Limits(**limits), elapsed_ms=elapsed_ms)


def test_records_are_read_up_to_the_end_that_was_known_before_the_other_queues_were_asked():
    assert admit([(6, commit(1, a=(12, 20)))]) == {A: 20, B: 20, LOG: 8}
    assert admit(end=None) == {A: 20, B: 20, LOG: 5}, "its broker does not answer"
    assert admit(end=3) == {A: 20, B: 20, LOG: 5}, "never back"


@pytest.mark.parametrize(
    ("readable", "known"),
    [({A: 20, B: 13}, {A, B}), ({A: 20}, {A, B}), ({A: 20, B: 20}, {A})],
    ids=["too short", "broker down", "queue without a position"],
)
def test_a_commit_waits_for_all_of_its_queues_and_those_after_it_with_it(readable, known):
    commits = [(6, commit(1, a=(12, 20))), (7, commit(2, a=(8, 9), b=(8, 14)))]
    waits = []
    found = admit(commits, readable=readable, queues=known, waits=waits)
    assert found[LOG] == 7
    assert waits == [(2, B)]


def test_a_queue_whose_broker_is_down_has_not_even_its_first_message():
    assert admit([(6, commit(1, a=(0, 1)))], readable={B: 20})[LOG] == 6


def test_other_messages_wait_for_open_batches():
    assert admit(holds={A: 15, B: 4}) == {A: 15, B: 10, LOG: 8}, "never back"


def test_limits_apply_to_unmarked_messages_and_again_to_rows_of_commits():
    assert admit(known={A: ((11, 19),)}, max_rate_per_queue=2) == {A: 20, B: 12, LOG: 8}
    two = [(5, commit(1, a=(0, 4))), (6, commit(2, a=(4, 8))), (7, commit(3, a=(8, 9)))]
    readable = {A: 1000}
    assert admit(two, readable=readable, max_offsets=7) == {A: 14, B: 13, LOG: 6}
    assert admit(two, readable=readable, max_offsets=8)[LOG] == 7
    assert admit(two, readable=readable, max_rate_per_queue=2)[LOG] == 6
    assert admit(two, readable=readable, max_rate_per_queue=3)[LOG] == 8
    assert admit(two, readable=readable)[LOG] == 8


def test_a_rate_is_for_the_time_since_the_last_batch():
    two = [(5, commit(1, a=(0, 4))), (6, commit(2, a=(4, 8)))]
    found = admit(two, readable={A: 20}, max_rate_per_queue=3, elapsed_ms=600)
    assert found == {A: 11, B: 11, LOG: 6}
    assert admit(two, readable={A: 20}, max_rate_per_queue=3, elapsed_ms=900)[LOG] == 8


def test_a_batch_is_not_divided():
    large = [(5, commit(1, a=(0, 1000))), (6, commit(2, a=(1000, 1001)))]
    found = admit(large, reach={A: 10, B: 10}, readable={A: 2000}, max_offsets=1)
    assert found == {A: 10, B: 10, LOG: 6}


def test_what_can_be_read_does_not_wait():
    waits = []
    admit([(6, commit(1, a=(12, 20), b=(19, 20)))], waits=waits)
    assert not waits
