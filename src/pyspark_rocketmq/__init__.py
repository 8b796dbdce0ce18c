"""Apache RocketMQ for PySpark: batch, streaming and sink, in pure Python.

After ``pip install`` both ``spark.read`` and ``spark.readStream`` know ``format("rocketmq")``. Spark
finds it by importing every top-level module called ``pyspark_*``, so this module imports nothing
heavy and resolves its public names on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from pyspark_rocketmq._version import __version__

if TYPE_CHECKING:
    from pyspark_rocketmq.client import Admin, Client, Producer, PullConsumer
    from pyspark_rocketmq.devcluster import DevCluster
    from pyspark_rocketmq.dstream import (
        CanCommitOffsets,
        ConsumerStrategy,
        HasOffsetRanges,
        LocationStrategies,
        ReliableRocketMQReceiver,
        RocketMQConfig,
        RocketMQReceiver,
        RocketMQUtils,
        RocketMqUtils,
        TopicQueueId,
    )
    from pyspark_rocketmq.errors import RocketMQError
    from pyspark_rocketmq.model import Message, MessageQueue, OffsetRange, OutgoingMessage
    from pyspark_rocketmq.spark.monitor.lag import lag
    from pyspark_rocketmq.spark.monitor.listener import RocketMQQueryListener
    from pyspark_rocketmq.spark.source import RocketMQDataSource as DefaultSource

__all__ = [
    "Admin",
    "CanCommitOffsets",
    "Client",
    "ConsumerStrategy",
    "DefaultSource",
    "DevCluster",
    "HasOffsetRanges",
    "LocationStrategies",
    "Message",
    "MessageQueue",
    "OffsetRange",
    "OutgoingMessage",
    "Producer",
    "PullConsumer",
    "ReliableRocketMQReceiver",
    "RocketMQConfig",
    "RocketMQError",
    "RocketMQQueryListener",
    "RocketMQReceiver",
    "RocketMQUtils",
    "RocketMqUtils",
    "TopicQueueId",
    "__version__",
    "lag",
]

_HOMES: Final = {
    "Admin": "pyspark_rocketmq.client",
    "CanCommitOffsets": "pyspark_rocketmq.dstream",
    "Client": "pyspark_rocketmq.client",
    "ConsumerStrategy": "pyspark_rocketmq.dstream",
    "DevCluster": "pyspark_rocketmq.devcluster",
    "HasOffsetRanges": "pyspark_rocketmq.dstream",
    "LocationStrategies": "pyspark_rocketmq.dstream",
    "Message": "pyspark_rocketmq.model",
    "MessageQueue": "pyspark_rocketmq.model",
    "OffsetRange": "pyspark_rocketmq.model",
    "OutgoingMessage": "pyspark_rocketmq.model",
    "Producer": "pyspark_rocketmq.client",
    "PullConsumer": "pyspark_rocketmq.client",
    "ReliableRocketMQReceiver": "pyspark_rocketmq.dstream",
    "RocketMQConfig": "pyspark_rocketmq.dstream",
    "RocketMQError": "pyspark_rocketmq.errors",
    "RocketMQQueryListener": "pyspark_rocketmq.spark.monitor.listener",
    "RocketMQReceiver": "pyspark_rocketmq.dstream",
    "RocketMQUtils": "pyspark_rocketmq.dstream",
    "RocketMqUtils": "pyspark_rocketmq.dstream",
    "TopicQueueId": "pyspark_rocketmq.dstream",
    "lag": "pyspark_rocketmq.spark.monitor.lag",
}


def __getattr__(name: str) -> Any:
    """Resolve a public name on first use (PEP 562)."""
    if name == "DefaultSource":
        from pyspark_rocketmq._lookup import data_source  # noqa: PLC0415

        return data_source("RocketMQDataSource", "rocketmq")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
