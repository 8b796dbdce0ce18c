from __future__ import annotations

import pickle
import subprocess
import sys
import threading

import pytest
from tests.support.threads import NO_THREAD, HostWithoutThreads
from tests.support.wait import eventually

from pyspark_rocketmq.dstream.direct.commit import CommitQueue, Committer
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.model import MessageQueue, OffsetRange

RANGES = [OffsetRange.create("t", 0, "a", 3, 7), OffsetRange.create("t", 1, "a", 5, 5)]
ENDS = {MessageQueue("t", "a", 0): 7, MessageQueue("t", "a", 1): 5}


@pytest.fixture
def committer(monkeypatch):
    """A committer whose broker is a list."""
    done = []

    class Client:
        failure = None

        def commit_offsets(self, group, offsets):
            if self.failure is not None:
                raise self.failure
            done.append((group, dict(offsets)))

    client = Client()
    monkeypatch.setattr("pyspark_rocketmq.dstream.direct.commit.shared_client", lambda _: client)
    return Committer({"nameServer": "127.0.0.1:1"}, "g"), client, done


def no_thread_is_left():
    return not [thread for thread in threading.enumerate() if thread.name == "commit-async"]


def test_the_next_offset_is_committed_in_order_and_the_thread_ends(committer):
    commits, _, done = committer
    told = []
    for end in (7, 8, 9):
        ranges = [OffsetRange.create("t", 0, "a", 3, end)]
        commits.commitAsync(ranges, lambda offsets, error: told.append((offsets, error)))
        eventually(no_thread_is_left, what="the thread to end")
    commits.commitAsync(RANGES)
    commits.commitAsync([])
    eventually(no_thread_is_left, what="the thread to end")
    queue = MessageQueue("t", "a", 0)
    assert done == [("g", {queue: 7}), ("g", {queue: 8}), ("g", {queue: 9}), ("g", ENDS)]
    assert told == [({queue: 7}, None), ({queue: 8}, None), ({queue: 9}, None)]


def test_two_threads_that_make_the_first_call_share_a_queue(committer):
    commits, client, _ = committer
    together, running, most, told = threading.Barrier(2), [], [], []
    commit = client.commit_offsets

    def count(group, offsets):
        running.append(1)
        most.append(len(running))
        commit(group, offsets)
        running.pop()

    client.commit_offsets = count

    def call(end):
        together.wait(10)
        for at in range(100):
            commits.commitAsync([OffsetRange.create("t", 0, "a", at, end)], lambda *it: told.append(it))

    threads = [threading.Thread(target=call, args=(end,)) for end in (200, 300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    eventually(no_thread_is_left, what="the thread to end")
    assert len(told) == 200
    assert max(most) == 1


def test_the_ranges_of_several_batches_commit_the_last_end_of_each_queue(committer):
    commits, _, done = committer
    first, second = (OffsetRange.create("t", 0, "a", at, end) for at, end in ((3, 3), (3, 7)))
    commits.commitAsync([first, second])  # an empty range, which has no partition, comes last
    eventually(no_thread_is_left, what="the thread to end")
    commits.commitAsync([second, first])
    eventually(no_thread_is_left, what="the thread to end")
    assert done == [("g", {MessageQueue("t", "a", 0): 7})] * 2


def test_a_failure_is_told_and_the_next_commit_is_made(committer, caplog):
    commits, client, done = committer
    client.failure = RocketMQError("away")
    told = []
    commits.commitAsync(RANGES, lambda _, error: told.append(error))
    commits.commitAsync(RANGES)
    eventually(no_thread_is_left, what="the thread to end")
    assert told == [client.failure]
    assert "offsets are not committed: away" in caplog.text
    client.failure = None
    commits.commitAsync(RANGES, lambda *_: 1 // 0)
    eventually(no_thread_is_left, what="the thread to end")
    commits.commitAsync(RANGES)
    eventually(no_thread_is_left, what="the thread to end")
    assert done == [("g", ENDS)] * 2
    assert "a callback of commitAsync failed" in caplog.text


def test_a_callback_that_exits_does_not_end_the_commits(committer, caplog):
    """``sys.exit`` in a thread ends that thread only, without a message."""
    commits, _, done = committer
    commits.commitAsync(RANGES, lambda *_: sys.exit("no"))
    eventually(lambda: done and no_thread_is_left(), what="the callback")
    commits.commitAsync(RANGES)
    eventually(lambda: done == [("g", ENDS)] * 2, what="the next commit")
    assert "a callback of commitAsync failed" in caplog.text


def test_an_error_of_another_kind_does_not_end_the_commits(committer, caplog):
    commits, client, done = committer
    client.failure = ValueError("a bug")
    told = []
    commits.commitAsync(RANGES, lambda _, error: told.append(error))
    commits.commitAsync(RANGES)
    eventually(no_thread_is_left, what="the thread to end")
    (error,) = told
    assert isinstance(error, RocketMQError)
    assert error.__cause__ is client.failure
    assert "offsets are not committed" in caplog.text
    client.failure = None
    commits.commitAsync(RANGES)
    eventually(lambda: done == [("g", ENDS)], what="the next commit")


def test_a_committer_travels_with_a_closure(committer):
    commits, _, done = committer
    commits.commitAsync(RANGES)
    again = pickle.loads(pickle.dumps(commits))
    again.commitAsync(RANGES)
    eventually(lambda: len(done) == 2 and no_thread_is_left(), what="both commits")


def test_calls_during_a_commit_are_committed_together():
    """A broker that is away takes a commit's whole timeout: other brokers' commits must not fall behind."""
    begun, may_end, done, told = threading.Event(), threading.Event(), [], []

    def commit(ends):
        begun.set()
        assert may_end.wait(10)
        done.append(ends)
        if len(done) == 2:
            raise RocketMQError("away")

    first, second = MessageQueue("t", "a", 0), MessageQueue("t", "b", 0)
    commits = CommitQueue(commit)
    commits.add({first: 1, second: 1}, lambda *it: told.append(it))
    assert begun.wait(10)
    for end in (5, 4, 3):
        commits.add({first: end}, lambda *it: told.append(it))
    commits.add({second: 2}, None)
    may_end.set()
    eventually(no_thread_is_left, what="the thread to end")
    assert done == [{first: 1, second: 1}, {first: 3, second: 2}], "the last call counts"
    assert [(ends, str(error)) for ends, error in told] == [
        ({first: 1, second: 1}, "None"),
        *(({first: end}, "away") for end in (5, 4, 3)),
    ]


def test_a_commit_that_got_no_thread_is_refused_and_the_next_one_is_made():
    done, told = [], []
    commits = CommitQueue(done.append, HostWithoutThreads(1))
    with pytest.raises(RuntimeError, match=NO_THREAD):
        commits.add({MessageQueue("t", "a", 0): 7}, lambda *_: told.append("refused"))
    commits.add(ENDS, lambda *_: told.append("made"))
    eventually(lambda: told == ["made"] and no_thread_is_left(), what="the next commit")
    assert done == [ENDS]


SLOW_BROKER = """
import time
from pyspark_rocketmq.dstream.direct import commit
from pyspark_rocketmq.model import OffsetRange

class Slow:
    def commit_offsets(self, group, ends):
        time.sleep(0.5)
        print(*ends.values(), flush=True)

commit.shared_client = lambda _: Slow()
commits = commit.Committer({"nameServer": "127.0.0.1:1"}, "g")
for queue_id in range(2):
    commits.commitAsync([OffsetRange.create("t", queue_id, "a", 3, 7 + queue_id)])
"""

AUTO_COMMIT = """
import time, weakref
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.dstream.direct.stream import end_commits
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.offsets.group_commits import GroupCommits

class Slow:
    def try_commit_offsets(self, group, ends):
        time.sleep(0.5)
        print(*ends.values(), flush=True)
        return {}

    def close(self):
        print("closed", flush=True)

client = Slow()
commits = GroupCommits("g", client, interval_ms=0, clock=SYSTEM_CLOCK)
weakref.finalize(commits, end_commits, commits, client)
commits.record_finished({MessageQueue("t", "a", 0): 7})
"""


@pytest.mark.parametrize(("program", "prints"), [(SLOW_BROKER, ["7", "8"]), (AUTO_COMMIT, ["7", "closed"])])
def test_a_program_that_ends_waits_for_its_last_commit(program, prints):
    """As after ``ssc.stop``: the output of the last batch has called ``commitAsync`` just now."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == prints, done.stderr


def test_a_program_that_ends_does_not_wait_any_longer_for_a_commit(caplog):
    let_go = threading.Event()
    commits = CommitQueue(lambda _: let_go.wait(60))
    commits.add(ENDS, None)
    commits.finish(0.05)
    assert "the last offsets are not committed" in caplog.text
    let_go.set()
    eventually(no_thread_is_left, what="the thread to end")
