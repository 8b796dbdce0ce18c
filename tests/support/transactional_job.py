"""A driver's life without Spark: it writes batches of a transactional write, commits and aborts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock
from pyspark_rocketmq.client.send.half_messages import HalfMessages
from pyspark_rocketmq.options import SinkOptions, parse_options
from pyspark_rocketmq.spark.write.sink_schema import sink_layout
from pyspark_rocketmq.spark.write.transaction import Transactions
from pyspark_rocketmq.spark.write.transaction_log import TransactionLog, TransactionName
from pyspark_rocketmq.spark.write.write_task import WriteScope, WriteTask, is_ordered
from pyspark_rocketmq.testing import MockCluster

__all__ = ["TransactionalJob", "visible"]

BODY = pa.schema([("body", pa.string())])


def visible(mq: MockCluster, topic: str = "orders") -> Counter[str]:
    """Return how often readers of a topic see each body."""
    return Counter(
        message.body.decode() for queue in mq.queues(topic) for message in mq.messages(topic, queue)
    )


class TransactionalJob:
    """One driver; another with the same folder is the same job, started again."""

    def __init__(
        self, name_server: str, topic: str, folder: object, *, clock: Clock = SYSTEM_CLOCK, **given: object
    ) -> None:
        self.given = {
            "nameServer": name_server,
            "topic": topic,
            "deliveryGuarantee": "transactional",
            "transactionLog": str(folder),
            "outageTimeout": "60s",
            **given,
        }
        self.options = parse_options(SinkOptions, self.given, environ={})
        assert self.options.transactions is not None
        self.group = self.options.transactions.group
        self.client = Client(self.options.client, clock=clock)
        self.log = TransactionLog(self.options.transactions.folder)
        self.transactions = Transactions(
            self.client, self.log, outage_timeout_ms=self.options.outage_timeout_ms
        )
        self.ordered = False

    def write(self, rows: list[str] | pa.RecordBatch, name: TransactionName) -> pa.Table:
        """Run one task; return its half messages as the driver gets them."""
        batch = rows if isinstance(rows, pa.RecordBatch) else pa.RecordBatch.from_pydict({"body": rows})
        return self.run([batch], name, schema=batch.schema)

    def run(
        self, batches: Iterable[pa.RecordBatch], name: TransactionName, *, schema: pa.Schema = BODY
    ) -> pa.Table:
        """Run one task over record batches; return its half messages as the driver gets them."""
        layout = sink_layout(from_arrow_schema(schema), self.options)
        self.ordered = is_ordered(self.options, layout)
        scope = WriteScope(job=str(name), partition=0, transaction=name)
        report = WriteTask(self.client, self.options, layout, scope).run(batches)
        return HalfMessages.unpack([report.halves])

    def commit(self, halves: pa.Table, name: TransactionName) -> None:
        """Commit a batch as the sink does."""
        self.transactions.commit(name, halves, group=self.group, ordered=self.ordered)

    def close(self) -> None:
        """Close the connections."""
        self.client.close()
