"""Apache RocketMQ for PySpark: batch, streaming and sink, in pure Python.

After ``pip install`` both ``spark.read`` and ``spark.readStream`` know ``format("rocketmq")``. Spark
finds it by importing every top-level module called ``pyspark_*``, so this module imports nothing
heavy and resolves its public names on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_rocketmq._lazy import lazy_names
from pyspark_rocketmq._version import __version__

if TYPE_CHECKING:
    from pyspark_rocketmq.client import Admin, Client, Producer, PullConsumer, PushConsumer
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
    "PushConsumer",
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

_resolve, __dir__ = lazy_names(
    __name__,
    {
        ".client": ("Admin", "Client", "Producer", "PullConsumer", "PushConsumer"),
        ".devcluster": ("DevCluster",),
        ".dstream": (
            *("CanCommitOffsets", "ConsumerStrategy", "HasOffsetRanges", "LocationStrategies"),
            *("ReliableRocketMQReceiver", "RocketMQConfig", "RocketMQReceiver"),
            *("RocketMQUtils", "RocketMqUtils", "TopicQueueId"),
        ),
        ".errors": ("RocketMQError",),
        ".model": ("Message", "MessageQueue", "OffsetRange", "OutgoingMessage"),
        ".spark.monitor.lag": ("lag",),
        ".spark.monitor.listener": ("RocketMQQueryListener",),
    },
)


def __getattr__(name: str) -> Any:
    """Resolve a public name on first use (PEP 562)."""
    if name == "DefaultSource":
        from pyspark_rocketmq._lookup import data_source  # noqa: PLC0415

        return data_source("RocketMQDataSource", "rocketmq")
    return _resolve(name)
