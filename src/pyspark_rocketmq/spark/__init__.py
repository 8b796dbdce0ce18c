"""RocketMQ as a Spark data source: batch and streaming reads and writes, and helpers.

The helpers are imported on first use: Spark's planning processes import this package but do not need them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_rocketmq._lazy import lazy_names
from pyspark_rocketmq._lookup import require_pyspark

if TYPE_CHECKING:
    from pyspark_rocketmq.spark.first_rows import take_rows
    from pyspark_rocketmq.spark.functions import (
        drop_repeats,
        from_rocketmq,
        identical_rows_together,
        json_messages,
        key_value_messages,
        ordered_by,
        to_rocketmq,
        with_topic,
    )
    from pyspark_rocketmq.spark.monitor.lag import Lag, QueueLag, Spread, lag
    from pyspark_rocketmq.spark.monitor.listener import QueryStatus, RocketMQQueryListener
    from pyspark_rocketmq.spark.monitor.metrics import export_metrics
    from pyspark_rocketmq.spark.monitor.query_log import QueryLog
    from pyspark_rocketmq.spark.monitor.tracing import TracingListener, observe_traces
    from pyspark_rocketmq.spark.stores.foreach_batch import transactional_writer
    from pyspark_rocketmq.spark.stores.offset_store import (
        HadoopFileOffsetStore,
        OffsetStore,
        StoreTransaction,
    )
    from pyspark_rocketmq.spark.stores.sql_rows import append_to, upsert_into
    from pyspark_rocketmq.spark.stores.sql_store import SqlOffsetStore
    from pyspark_rocketmq.spark.worker_python import register
    from pyspark_rocketmq.spark.write.transaction_checker import (
        TransactionalQuery,
        TransactionResolver,
        start_transactional,
    )
    from pyspark_rocketmq.spark.write.update_mode import message_writer

__all__ = [
    "HadoopFileOffsetStore",
    "Lag",
    "OffsetStore",
    "QueryLog",
    "QueryStatus",
    "QueueLag",
    "RocketMQQueryListener",
    "Spread",
    "SqlOffsetStore",
    "StoreTransaction",
    "TracingListener",
    "TransactionResolver",
    "TransactionalQuery",
    "append_to",
    "drop_repeats",
    "export_metrics",
    "from_rocketmq",
    "identical_rows_together",
    "json_messages",
    "key_value_messages",
    "lag",
    "message_writer",
    "observe_traces",
    "ordered_by",
    "register",
    "start_transactional",
    "take_rows",
    "to_rocketmq",
    "transactional_writer",
    "upsert_into",
    "with_topic",
]

require_pyspark()

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".monitor.lag": ("Lag", "QueueLag", "Spread", "lag"),
        ".monitor.listener": ("QueryStatus", "RocketMQQueryListener"),
        ".monitor.metrics": ("export_metrics",),
        ".monitor.query_log": ("QueryLog",),
        ".monitor.tracing": ("TracingListener", "observe_traces"),
        ".functions": (
            "drop_repeats",
            "from_rocketmq",
            "identical_rows_together",
            "json_messages",
            "key_value_messages",
            "ordered_by",
            "to_rocketmq",
            "with_topic",
        ),
        ".stores.offset_store": ("HadoopFileOffsetStore", "OffsetStore", "StoreTransaction"),
        ".write.transaction_checker": ("TransactionResolver", "TransactionalQuery", "start_transactional"),
        ".stores.sql_rows": ("append_to", "upsert_into"),
        ".stores.sql_store": ("SqlOffsetStore",),
        ".stores.foreach_batch": ("transactional_writer",),
        ".worker_python": ("register",),
        ".write.update_mode": ("message_writer",),
        ".first_rows": ("take_rows",),
    },
)
