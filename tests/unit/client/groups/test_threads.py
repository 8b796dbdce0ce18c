"""Events, threads that are waited for, and pools."""

from __future__ import annotations

import threading

import pytest
from tests.support.threads import NO_THREAD, HostWithoutThreads
from tests.support.wait import eventually

from pyspark_rocketmq.client.groups.threads import Event, Pool, Worker
from pyspark_rocketmq.client.net.host import SYSTEM_HOST

PATIENCE_S = 30.0


def test_an_event_wakes_who_waits_for_it() -> None:
    event = Event(SYSTEM_HOST)
    assert not event.wait(0.0)
    setter = threading.Timer(0.05, event.set)
    setter.start()
    assert event.wait(PATIENCE_S)
    assert event.is_set()
    event.clear()
    assert not event.is_set()
    setter.join()


def test_a_worker_is_waited_for() -> None:
    may_end = Event(SYSTEM_HOST)
    worker = Worker(SYSTEM_HOST, lambda: may_end.wait(PATIENCE_S), name="one")
    worker.join(0.0)
    assert (worker.started, worker.alive) == (False, False)
    worker.start()
    worker.join(0.01)
    assert worker.alive
    may_end.set()
    worker.join(PATIENCE_S)
    assert (worker.started, worker.alive) == (True, False)


def test_a_worker_that_fails_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def fail() -> None:
        raise ValueError

    worker = Worker(SYSTEM_HOST, fail, name="one")
    worker.start()
    worker.join(PATIENCE_S)
    assert not worker.alive


def test_a_pool_makes_as_many_calls_at_once_as_it_has_threads() -> None:
    pool, both = Pool(SYSTEM_HOST, 2, name="calls"), threading.Barrier(2)
    met: list[int] = []

    def meet() -> None:
        met.append(both.wait(PATIENCE_S))

    for _ in range(4):
        assert pool.submit(meet)
    for _ in range(4):
        assert pool.submit(lambda: met.append(9))
    done = Event(SYSTEM_HOST)
    assert pool.submit(done.set)
    assert done.wait(PATIENCE_S)
    pool.close(PATIENCE_S)
    assert sorted(met) == [0, 0, 1, 1, 9, 9, 9, 9]


def test_a_pool_starts_no_thread_that_it_does_not_need() -> None:
    pool, names = Pool(SYSTEM_HOST, 20, name="calls"), set[str]()
    for _ in range(5):
        done = Event(SYSTEM_HOST)

        def call(done: Event = done) -> None:
            names.add(threading.current_thread().name)
            done.set()

        pool.submit(call)
        assert done.wait(PATIENCE_S)
        eventually(lambda: pool._idle == 1, what="a thread that waits for the next call")
    pool.close(PATIENCE_S)
    assert len(names) == 1


def test_a_pool_that_is_closed_waits_for_the_calls_that_run_and_makes_no_others() -> None:
    pool, made = Pool(SYSTEM_HOST, 1, name="calls"), list[int]()
    begun, may_end = Event(SYSTEM_HOST), Event(SYSTEM_HOST)

    def first() -> None:
        begun.set()
        may_end.wait(PATIENCE_S)
        made.append(1)

    pool.submit(first)
    pool.submit(lambda: made.append(2))
    assert begun.wait(PATIENCE_S)
    pool.close(0.01)
    assert not pool.submit(lambda: made.append(3))
    may_end.set()
    pool.close(PATIENCE_S)
    assert made == [1]


def test_a_call_that_fails_does_not_end_its_pool(caplog: pytest.LogCaptureFixture) -> None:
    pool, done = Pool(SYSTEM_HOST, 1, name="calls"), Event(SYSTEM_HOST)

    def fail() -> None:
        raise ValueError

    pool.submit(fail)
    pool.submit(done.set)
    assert done.wait(PATIENCE_S)
    pool.close(PATIENCE_S)
    assert "a call of calls failed" in caplog.text


def test_a_worker_whose_thread_did_not_start_is_not_alive_and_can_be_started() -> None:
    begun = Event(SYSTEM_HOST)
    worker = Worker(HostWithoutThreads(1), begun.set, name="one")
    with pytest.raises(RuntimeError, match=NO_THREAD):
        worker.start()
    assert (worker.started, worker.alive) == (False, False)
    worker.join(PATIENCE_S)
    worker.start()
    worker.join(PATIENCE_S)
    assert begun.is_set()


def test_a_pool_that_got_no_thread_refuses_the_call_and_starts_one_for_the_next() -> None:
    pool, made = Pool(HostWithoutThreads(3), 1, name="calls"), list[int]()
    for _ in range(3):
        with pytest.raises(RuntimeError, match=NO_THREAD):
            pool.submit(lambda: made.append(1))
    done = Event(SYSTEM_HOST)
    assert pool.submit(done.set)
    assert done.wait(PATIENCE_S)
    pool.close(PATIENCE_S)
    assert made == []


def test_a_pool_that_gets_no_further_thread_goes_on_with_those_that_it_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host, made = HostWithoutThreads(0), list[int]()
    pool = Pool(host, 2, name="calls")
    begun, may_end, both = Event(SYSTEM_HOST), Event(SYSTEM_HOST), threading.Barrier(2)

    def first() -> None:
        begun.set()
        may_end.wait(PATIENCE_S)

    assert pool.submit(first)
    assert begun.wait(PATIENCE_S)
    host.refusals = 2
    assert pool.submit(lambda: None)
    assert pool.submit(lambda: made.append(both.wait(PATIENCE_S)))
    assert pool.submit(lambda: made.append(both.wait(PATIENCE_S)))  # gets the second thread
    may_end.set()
    eventually(lambda: sorted(made) == [0, 1], what="both calls at once")
    assert caplog.text.count("calls has 1 threads, and no further one can be started") == 1
    pool.close(PATIENCE_S)
