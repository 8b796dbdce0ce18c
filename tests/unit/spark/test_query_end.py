"""Stopping a query over a connection that an interruption broke."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JNetworkError
from tests.support.fakes import StoppedLater

from pyspark_rocketmq.spark.query_end import stop_query


def test_a_stop_that_a_closed_connection_loses_is_sent_again():
    query = StoppedLater(1)
    stop_query(query)
    assert query.stopped


def test_a_jvm_that_is_gone_is_an_error():
    with pytest.raises(Py4JNetworkError):
        stop_query(StoppedLater(2))
