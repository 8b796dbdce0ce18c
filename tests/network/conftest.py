"""Deadlines of tests with healthy and faulty servers in the same process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.clocks import RunningTime

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK


@pytest.fixture(scope="session", autouse=True)
def running_time() -> Iterator[RunningTime]:
    """Deadlines pass while the process runs: a busy machine does not fail what answers in time."""
    with pytest.MonkeyPatch.context() as patch, RunningTime().counted() as running:
        patch.setattr(type(SYSTEM_CLOCK), "monotonic", lambda _: running.monotonic())
        yield running
