"""Connections to a proxy that are for pulls only, without a network."""

from __future__ import annotations

import threading

from tests.support.wait import eventually

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.client.net.pull_lanes import PullLanes


class Connection:
    """A connection that answers at once. `close` waits, as for a thread that still reads from it."""

    def __init__(self) -> None:
        self.alive = True
        self.in_flight = 0
        self.closing, self.may_close = threading.Event(), threading.Event()

    def poll(self) -> None:
        pass

    def submit(self, *_: object, **__: object) -> int:
        return 1

    def wait(self, *_: object) -> str:
        return "an answer"

    def abandon(self, *_: object) -> None:
        pass

    def close(self) -> None:
        self.closing.set()
        assert self.may_close.wait(30)


def test_who_closes_a_dead_connection_holds_up_no_other() -> None:
    opened: list[Connection] = []

    def connect() -> Connection:
        opened.append(Connection())
        return opened[-1]

    lanes = PullLanes("10.0.0.1:8080", connect, clock=SYSTEM_CLOCK, timeout_ms=1_000)
    assert lanes.call(None) == "an answer"
    (dead,) = opened
    dead.alive = False
    closer = threading.Thread(target=lanes.bury, daemon=True)
    closer.start()
    assert dead.closing.wait(30)
    other = threading.Thread(target=lanes.call, args=(None,), daemon=True)
    other.start()
    eventually(lambda: not other.is_alive(), 10, what="the pull on a new connection")
    assert len(opened) == 2
    dead.may_close.set()
    closer.join(30)
