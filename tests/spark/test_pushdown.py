"""Filters on a DataFrame: with and without Spark's push-down the rows are the same."""

from __future__ import annotations

import datetime as dt

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

pytestmark = pytest.mark.since_spark("4.1")

SETTING = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def push_down(spark):
    yield lambda on: spark.conf.set(SETTING, str(on).lower())
    spark.conf.unset(SETTING)


def bodies(df):
    return sorted(row[0] for row in df.selectExpr("string(body)").collect())


def test_the_same_rows_and_less_to_read(read, send, topic, push_down):
    name = topic(queues=4)
    send(name, 40, tags="a")
    send(name, 40, tags="b")
    recently = F.lit(dt.datetime.now(dt.UTC) - dt.timedelta(hours=1))
    conditions = [
        (F.col("queueId") < 2) & (F.col("queueOffset").between(3, 12)),
        F.col("tags").isin("b", "c") & (F.col("storeTimestamp") >= recently),
        (F.col("tags") == "a") & (F.col("storeTimestamp") < recently),
        (F.col("queueId") == 1) | (F.col("queueOffset") == 0),
    ]
    everything = read(name).cache()
    push_down(True)
    partitions = []
    for condition in conditions:
        filtered = read(name, pushDownFilters=True, partitionPerQueue=True).where(condition)
        assert bodies(filtered) == bodies(everything.where(condition))
        partitions.append(filtered.rdd.getNumPartitions())
    everything.unpersist()
    assert partitions == [2, 4, 1, 4]  # Spark makes one empty partition of none


def test_without_the_option_the_setting_changes_nothing(read, send, topic, push_down):
    """Spark reads every use of a DataFrame by its last filter: only the option may let it."""
    name = topic(queues=2)
    send(name, 10)
    push_down(True)
    df = read(name)
    first, second = df.where("queueId = 0"), df.where("queueId = 1")
    assert first.count() == 5
    assert df.count() == 10
    assert first.union(second).count() == 10


def test_the_option_needs_the_setting(read, send, topic, push_down):
    name = topic(queues=1)
    send(name, 1)
    push_down(False)
    with pytest.raises(PySparkException, match=SETTING):
        read(name, pushDownFilters=True).count()
