"""RocketMQ as a Spark data source: batch and streaming reads and writes, and helpers around them.

The helpers resolve on first use: Spark's planning processes import this package and need none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark_rocketmq.spark.behind import Lag, QueueLag, Spread, lag
    from pyspark_rocketmq.spark.listener import QueryStatus, RocketMQQueryListener
    from pyspark_rocketmq.spark.messages import (
        drop_repeats,
        identical_rows_together,
        json_messages,
        key_value_messages,
        ordered_by,
        with_topic,
    )
    from pyspark_rocketmq.spark.offset_store import HadoopFileOffsetStore, OffsetStore, StoreTransaction
    from pyspark_rocketmq.spark.resolver import TransactionalQuery, TransactionResolver, start_transactional
    from pyspark_rocketmq.spark.sql_store import SqlOffsetStore, append_to, upsert_into
    from pyspark_rocketmq.spark.transactional import transactional_writer

__all__ = [
    "HadoopFileOffsetStore",
    "Lag",
    "OffsetStore",
    "QueryStatus",
    "QueueLag",
    "RocketMQQueryListener",
    "Spread",
    "SqlOffsetStore",
    "StoreTransaction",
    "TransactionResolver",
    "TransactionalQuery",
    "append_to",
    "drop_repeats",
    "identical_rows_together",
    "json_messages",
    "key_value_messages",
    "lag",
    "ordered_by",
    "start_transactional",
    "transactional_writer",
    "upsert_into",
    "with_topic",
]

_MODULES: Final = {
    "behind": ("Lag", "QueueLag", "Spread", "lag"),
    "listener": ("QueryStatus", "RocketMQQueryListener"),
    "messages": (
        "drop_repeats",
        "identical_rows_together",
        "json_messages",
        "key_value_messages",
        "ordered_by",
        "with_topic",
    ),
    "offset_store": ("HadoopFileOffsetStore", "OffsetStore", "StoreTransaction"),
    "resolver": ("TransactionResolver", "TransactionalQuery", "start_transactional"),
    "sql_store": ("SqlOffsetStore", "append_to", "upsert_into"),
    "transactional": ("transactional_writer",),
}
_HOMES: Final = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Resolve a helper on first use (PEP 562)."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
