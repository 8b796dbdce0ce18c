"""Stopping a query over a connection that an interruption broke."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JNetworkError

from pyspark_rocketmq.spark.query_end import stop_query


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


def test_a_stop_that_a_closed_connection_loses_is_sent_again():
    query = Query(1)
    stop_query(query)
    assert query.stopped


def test_a_jvm_that_is_gone_is_an_error():
    with pytest.raises(Py4JNetworkError):
        stop_query(Query(2))
