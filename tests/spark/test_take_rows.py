"""The first rows of a stream as a list."""

from __future__ import annotations

import time

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from tests.support.wait import PATIENCE

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.spark import take_rows


@pytest.fixture
def numbers(spark):
    """A stream of the numbers from 0 on, five a batch."""
    options = {"rowsPerBatch": 5, "numPartitions": 1}
    return spark.readStream.format("rate-micro-batch").options(**options).load()


def test_rows_of_several_batches_come_and_the_query_ends(spark, numbers):
    assert [row.value for row in take_rows(numbers, 7, timeout="180 s")] == list(range(7))
    assert not spark.streams.active
    assert spark.sql("SHOW VIEWS LIKE 'take_rows*'").collect() == []


def test_results_of_aggregations_come_as_they_are(numbers):
    counts = numbers.groupBy().count()
    assert take_rows(counts, 1, timeout="180 s", outputMode="complete")[0][0] >= 5


def test_what_is_there_when_the_time_is_over_is_returned(spark, numbers):
    begun = time.monotonic()
    assert take_rows(numbers.where("value < 0"), timeout="1 s") == []
    assert time.monotonic() - begun < 30 * PATIENCE
    assert take_rows(spark.range(3), 2) == [(0,), (1,)]


def test_an_error_of_the_query_is_its_caller_s(spark, numbers):
    with pytest.raises(StreamingQueryException, match="no such luck"):
        take_rows(numbers.select(F.raise_error(F.lit("no such luck"))), timeout="180 s")
    assert not spark.streams.active


@pytest.mark.parametrize("arguments", [{"rows": 0}, {"timeout": "soon"}])
def test_what_is_wrong_is_said(spark, arguments):
    with pytest.raises(OptionError):
        take_rows(spark.range(1), **arguments)
