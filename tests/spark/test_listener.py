"""A listener on a real query, and the plain function beside it."""

from __future__ import annotations

import time

import pytest
from tests.spark.conftest import Batches
from tests.support.wait import eventually

from pyspark_rocketmq.client import Admin
from pyspark_rocketmq.dashboard.history import QueryHistory
from pyspark_rocketmq.dashboard.spark_metrics import SparkMetrics
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.spark import RocketMQQueryListener, lag


@pytest.fixture
def listener(spark):
    listener = RocketMQQueryListener()
    spark.streams.addListener(listener)
    yield listener
    spark.streams.removeListener(listener)
    listener.close()


@pytest.mark.since_spark("4.2")
def test_a_query_is_followed_and_its_last_batch_committed_at_stop(
    listener, spark, stream, send, topic, client, group, mq
):
    name = topic(queues=2)
    send(name, 40)
    batches = Batches()
    query = stream(
        name,
        batches,
        available_now=False,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=30,
        consumerGroup=group,
        commitIntervalMs=3_600_000,
    )
    eventually(lambda: len(batches.all()) == 40, 60, what="40 messages")
    status = eventually(
        lambda: next((s for s in listener.statuses() if s.batch_id == 1), None), 30, what="batch 1's report"
    )
    assert (status.planned, status.rows, status.skipped) == (10, 10, 0)
    assert (status.lag.messages, status.lag.seconds) == (0, 0.0)
    assert lag(spark, group, name).messages == 0
    assert lag(mq.name_server, group, name).messages > 0, "the last batch is not committed yet"
    query.stop()
    eventually(lambda: lag(mq.name_server, group, name).messages == 0, 30, what="the commit at the stop")
    begun = time.monotonic()
    send(name, 6)
    behind = lag(mq.name_server, group, name)
    assert (behind.messages, len(behind.queues)) == (6, 2)
    assert behind.seconds is not None
    assert 0 <= behind.seconds <= time.monotonic() - begun + 1
    assert behind.bytes is not None
    assert 6 * 50 < behind.bytes < 6 * 1_000
    stats = Admin(client).consume_stats(group, name)
    assert sum(queue.broker_offset - queue.consumer_offset for queue in stats.values()) == 6


def shown(metrics: SparkMetrics) -> tuple[QueryHistory, ...]:
    """Return what the UI shows; nothing while it is too busy to answer within 3 s."""
    try:
        return metrics.look()
    except OptionError as error:
        if "timed out" not in str(error):
            raise
        return ()


def test_sparks_own_ui_tells_of_a_query_while_it_runs(spark, stream, send, topic):
    name, setting = topic(queues=1), "spark.sql.streaming.metricsEnabled"
    send(name, 5)
    metrics = SparkMetrics(spark.sparkContext.uiWebUrl)
    spark.conf.set(setting, "true")
    try:
        query = stream(name, Batches(), available_now=False, startingOffsets="earliest")
        run = eventually(
            lambda: next(
                (r for r in shown(metrics) if r.batches and r.batches[-1].duration_ms["batch"]), None
            ),
            60,
            what="the first batch's figures",
        )
    finally:
        spark.conf.unset(setting)
    assert run.name == query.id
    query.stop()
    eventually(lambda: [run.ended for run in shown(metrics)] == [True], what="the end")
