"""How a job ends."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JNetworkError

from pyspark_rocketmq.sql.job import SqlJob


class Query:
    """A query whose first stops are lost on their way to the JVM."""

    def __init__(self, lost: int) -> None:
        self._lost = lost
        self.stopped = False

    def stop(self) -> None:
        self._lost -= 1
        if self._lost >= 0:
            raise Py4JNetworkError("Answer from Java side is empty")
        self.stopped = True


def test_a_connection_that_an_interruption_broke_keeps_no_query_running():
    job = SqlJob(None, "", {})
    job.queries = [Query(1), Query(0)]
    with pytest.raises(KeyboardInterrupt), job:
        raise KeyboardInterrupt
    assert all(query.stopped for query in job.queries)


def test_a_jvm_that_is_gone_is_told():
    job = SqlJob(None, "", {})
    job.queries = [Query(2)]
    with pytest.raises(Py4JNetworkError):
        job.stop()
