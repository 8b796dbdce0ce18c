"""How a job ends."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JNetworkError
from tests.support.fakes import StoppedLater

from pyspark_rocketmq.sql.job import SqlJob


def test_a_connection_that_an_interruption_broke_keeps_no_query_running():
    job = SqlJob(None, "", {})
    job.queries = [StoppedLater(1), StoppedLater(0)]
    with pytest.raises(KeyboardInterrupt), job:
        raise KeyboardInterrupt
    assert all(query.stopped for query in job.queries)


def test_a_jvm_that_is_gone_is_told():
    job = SqlJob(None, "", {})
    job.queries = [StoppedLater(2)]
    with pytest.raises(Py4JNetworkError):
        job.stop()
