"""Deadlines of tests with healthy and faulty servers in one process; an address without a server."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from tests.support.clocks import Beats, RunningTime

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.testing.wire import Loop


@pytest.fixture(scope="module", autouse=True)
def running_time() -> Iterator[RunningTime]:
    """Deadlines pass while the process and its mock clusters run: a busy machine fails no healthy answer."""
    beats, start = Beats(), Loop.start

    def start_with_beats(loop: Loop) -> None:
        start(loop)
        assert loop._loop is not None
        beats.add(loop._loop)

    with pytest.MonkeyPatch.context() as patch, RunningTime(beats.all_run).counted() as running:
        patch.setattr(Loop, "start", start_with_beats)
        patch.setattr(type(SYSTEM_CLOCK), "monotonic", lambda _: running.monotonic())
        yield running


@pytest.fixture
def closed_port() -> Iterator[str]:
    """Return an address at which nobody listens. Nobody else gets the port meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"
