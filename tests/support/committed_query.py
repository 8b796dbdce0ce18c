"""A query that writes by committed ranges, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from pyspark_rocketmq.client import Client, MessageQueue, OutgoingMessage, Producer
from pyspark_rocketmq.options import SinkOptions, parse_options
from pyspark_rocketmq.planning.commits.records import Ranges
from pyspark_rocketmq.spark.write.committed.range_commits import RangeCommits
from pyspark_rocketmq.spark.write.committed.staged_appends import StagedAppends
from pyspark_rocketmq.spark.write.committed.staging_topic import (
    batch_name,
    options_of_tasks,
    require_same_queues,
)
from pyspark_rocketmq.spark.write.sink_schema import sink_layout
from pyspark_rocketmq.spark.write.transaction_log import TransactionName
from pyspark_rocketmq.spark.write.write_task import WriteScope, WriteTask
from pyspark_rocketmq.testing import MockCluster

__all__ = ["LOG", "Query", "committed_cluster", "send"]

LOG = MessageQueue("orders-commits", "broker-a", 0)
BODY = pa.schema([("body", pa.string())])


@contextmanager
def committed_cluster() -> Iterator[MockCluster]:
    """Run two brokers with the topic ``orders``, and its commit topic at the first of them."""
    with MockCluster({"orders": 2}, brokers=(LOG.broker_name, "broker-b")) as cluster:
        cluster.create_topic(LOG.topic, 1, brokers=[LOG.broker_name])
        yield cluster


def send(client: Client, *bodies: str, topic: str = "orders") -> None:
    """Send messages that no transactional write marks."""
    producer = Producer(client)
    for body in bodies:
        producer.send(OutgoingMessage(topic, body.encode()))


class Query:
    """The driver and the tasks of a query that writes; another with the same id is its next run."""

    def __init__(
        self,
        name_server: str,
        client: Client,
        query_id: str = "query",
        topic: str = "orders",
        **given: str,
    ) -> None:
        given = {"nameServer": name_server, "topic": topic, "deliveryGuarantee": "transactional"} | given
        given = {"transactionVisibility": "committed", "outageTimeout": "0s", "batchSize": "3"} | given
        self.options = parse_options(SinkOptions, given, environ={})
        self.id = query_id
        self.commits = RangeCommits(client, options_of_tasks(self.options))
        self._client = client

    def name(self, number: int) -> TransactionName:
        """Return the name of a batch."""
        return batch_name(self.options, self.id, number)

    def write(self, number: int, *bodies: str) -> Ranges | None:
        """Run one task."""
        if self.options.is_staged:
            require_same_queues(self._client, self.options)
        name = self.name(number)
        scope = WriteScope(job=str(name), partition=0, transaction=name)
        layout = sink_layout(from_arrow_schema(BODY), self.options)
        rows = pa.RecordBatch.from_pydict({"body": list(bodies)}, schema=BODY)
        return WriteTask(self._client, self.options, layout, scope).run([rows]).ranges

    def commit(self, number: int, *parts: Ranges | None) -> None:
        """Commit a batch as the driver does, with what its tasks returned."""
        name = self.name(number)
        self.commits.commit(name, parts)
        if self.options.is_staged:
            ordered = bool(self.options.ordered)
            StagedAppends(self._client, self.options, self.commits, ordered=ordered).append(name)

    def run(self, number: int, *bodies: str) -> None:
        """Write and commit a batch."""
        self.commit(number, self.write(number, *bodies))
