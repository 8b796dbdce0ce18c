"""How to test your own job: without Spark, with Spark but no server, and end to end with a mock broker.

    python -m pytest examples/testing_example.py

In your own project add ``pytest_plugins = ["pyspark_rocketmq.testing.plugin"]`` to ``conftest.py``. The
fixture ``rocketmq`` is then a real RocketMQ instead of the mock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json
from pyspark.sql.functions import sum as total

from pyspark_rocketmq.client import Client, OutgoingMessage, PullConsumer
from pyspark_rocketmq.testing import MemorySink, MockBroker, RequestCode, ResponseCode, drain, message_frame

# --- the job under test ---------------------------------------------------------------------


def revenue(messages: DataFrame) -> DataFrame:
    """Sum the orders' amounts by country."""
    order_type = "country string, amount int"
    orders = messages.select(from_json(col("body").cast("string"), order_type).alias("order"))
    return orders.groupBy("order.country").agg(total("order.amount").alias("amount"))


def order(country: str, amount: int) -> OutgoingMessage:
    """Return a sample order."""
    body = {"country": country, "amount": amount}
    return OutgoingMessage("orders", json.dumps(body).encode(), tags=country)


# --- its tests ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mq() -> Iterator[MockBroker]:
    """Start a broker in this process, within milliseconds."""
    with MockBroker({"orders": 2}) as broker:
        yield broker


def test_the_transformation_alone(spark: SparkSession) -> None:
    """No server: a DataFrame with the columns of ``format("rocketmq")``."""
    messages = message_frame(spark, [order("de", 3), order("fr", 4), order("de", 5)])
    assert {row.country: row.amount for row in revenue(messages).collect()} == {"de": 8, "fr": 4}


def test_the_client_rides_out_a_busy_broker() -> None:
    """Fault injection: the broker rejects three pulls, and the consumer retries them."""
    with MockBroker({"orders": 1}) as broker, Client(broker.name_server) as client:
        broker.send(order("de", 3))
        refused = broker.fail(RequestCode.PULL_MESSAGE, code=ResponseCode.SYSTEM_BUSY, times=3)
        result = PullConsumer("report", client=client).pull(broker.queue("orders"), "*", 0)
        assert [message.tags for message in result.messages] == ["de"]
        assert refused.hits == 3


def test_the_whole_stream(spark: SparkSession, mq: MockBroker, tmp_path: Path) -> None:
    """Spark reads from the mock broker as from a real one. `drain` waits until everything is read."""
    for number in range(100):
        mq.send(order("de" if number % 2 else "fr", number), mq.queue("orders", number % 2))
    sink = MemorySink()
    stream = spark.readStream.format("rocketmq").options(
        nameServer=mq.name_server, topic="orders", startingOffsets="earliest"
    )
    query = (
        stream.load()
        .selectExpr("tags", "queueOffset")
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        drain(query)
        assert len(sink.rows) == 100
        mq.send(order("it", 1))
        drain(query)
        assert sink.rows[-1].tags == "it"
    finally:
        query.stop()


def test_what_was_sent(mock_rocketmq: MockBroker, mock_rocketmq_peek: Callable[..., list]) -> None:
    """Fixtures of the plugin: a mock broker for the test, and its newest messages."""
    mock_rocketmq.create_topic("orders", 4)
    mock_rocketmq.send(order("de", 1))
    assert [message.tags for message in mock_rocketmq_peek("orders", 5)] == ["de"]
