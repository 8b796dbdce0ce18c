"""Requests that are repeated while servers are away."""

from __future__ import annotations

import pytest
from tests.support.clocks import FakeClock

from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.errors import BrokerNotFoundError
from pyspark_rocketmq.offsets.queue_lookup import is_outage, retry_until


def test_an_outage_of_a_minute_is_logged_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    clock, attempts = FakeClock(), []

    def ask() -> None:
        attempts.append(clock.now_s)
        raise BrokerNotFoundError("no broker is there")

    with pytest.raises(BrokerNotFoundError):
        retry_until(ask, is_outage, clock=clock, deadline=Deadline(clock, 60_000))
    assert len(attempts) > 100
    assert [record.getMessage() for record in caplog.records] == [
        f"trying again for {left_s} s: no broker is there" for left_s in (60, 50, 40, 30, 20, 10)
    ]
