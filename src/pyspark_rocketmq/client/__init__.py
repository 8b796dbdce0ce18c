"""A RocketMQ client in pure Python, usable without Spark.

``Client`` provides routes and offsets; ``Producer`` and ``SendPipeline`` send; ``PullConsumer`` reads at
offsets, ``PushConsumer`` as a member of a group, ``CommittedConsumer`` what is committed; ``Admin`` creates
and describes resources. Names are imported on first use, so that programs that do not need Arrow do not load
it.

Examples
--------
>>> from pyspark_rocketmq.client import Admin, Client, OutgoingMessage, Producer, PullConsumer
>>> with Client("127.0.0.1:9876") as client:  # doctest: +SKIP
...     Admin(client).create_topic("orders", queues=4)
...     Producer(client).send(OutgoingMessage("orders", b"42", tags="new", keys="order-42"))
...     consumer = PullConsumer("report", client=client)
...     for queue in consumer.fetch_subscribe_message_queues("orders"):
...         print(consumer.pull(queue, "*", consumer.min_offset(queue), 32).messages)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_rocketmq._lazy import lazy_names

if TYPE_CHECKING:
    from pyspark_rocketmq.client.admin import Admin
    from pyspark_rocketmq.client.aio.client import AsyncClient
    from pyspark_rocketmq.client.aio.consumer import AsyncPullConsumer
    from pyspark_rocketmq.client.aio.producer import AsyncProducer
    from pyspark_rocketmq.client.client import Client
    from pyspark_rocketmq.client.commits.committed_consumer import CommittedConsumer
    from pyspark_rocketmq.client.groups.push_consumer import PushConsumer
    from pyspark_rocketmq.client.groups.push_options import ConsumeFromWhere, ConsumeResult, PushOptions
    from pyspark_rocketmq.client.read.pull_consumer import PullConsumer
    from pyspark_rocketmq.client.send.message_encoding import Outgoing, encode_many, encode_one
    from pyspark_rocketmq.client.send.producer import Producer, ProducerOptions
    from pyspark_rocketmq.client.send.send_pipeline import SendOutcome, SendPipeline
    from pyspark_rocketmq.client.trace.records import TRACE_TOPIC
    from pyspark_rocketmq.client.trace.spans import current_traceparent
    from pyspark_rocketmq.inventory import ClusterInfo, GroupConfig, TopicConfig
    from pyspark_rocketmq.model import (
        Message,
        MessageQueue,
        MessageSelector,
        OffsetRange,
        OutgoingMessage,
        PullResult,
        PullStatus,
        SendResult,
        SendStatus,
    )
    from pyspark_rocketmq.options import ClientOptions
    from pyspark_rocketmq.record.compress import Compression

__all__ = [
    "TRACE_TOPIC",
    "Admin",
    "AsyncClient",
    "AsyncProducer",
    "AsyncPullConsumer",
    "Client",
    "ClientOptions",
    "ClusterInfo",
    "CommittedConsumer",
    "Compression",
    "ConsumeFromWhere",
    "ConsumeResult",
    "GroupConfig",
    "Message",
    "MessageQueue",
    "MessageSelector",
    "OffsetRange",
    "Outgoing",
    "OutgoingMessage",
    "Producer",
    "ProducerOptions",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "PushOptions",
    "SendOutcome",
    "SendPipeline",
    "SendResult",
    "SendStatus",
    "TopicConfig",
    "current_traceparent",
    "encode_many",
    "encode_one",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".admin": ("Admin",),
        ".aio.client": ("AsyncClient",),
        ".aio.consumer": ("AsyncPullConsumer",),
        ".aio.producer": ("AsyncProducer",),
        ".client": ("Client",),
        ".groups.push_consumer": ("PushConsumer",),
        ".groups.push_options": ("ConsumeFromWhere", "ConsumeResult", "PushOptions"),
        ".commits.committed_consumer": ("CommittedConsumer",),
        ".read.pull_consumer": ("PullConsumer",),
        ".send.message_encoding": ("Outgoing", "encode_many", "encode_one"),
        ".send.producer": ("Producer", "ProducerOptions"),
        ".send.send_pipeline": ("SendOutcome", "SendPipeline"),
        ".trace.records": ("TRACE_TOPIC",),
        ".trace.spans": ("current_traceparent",),
        "pyspark_rocketmq.inventory": ("ClusterInfo", "GroupConfig", "TopicConfig"),
        "pyspark_rocketmq.model": (
            *("Message", "MessageQueue", "MessageSelector", "OffsetRange", "OutgoingMessage"),
            *("PullResult", "PullStatus", "SendResult", "SendStatus"),
        ),
        "pyspark_rocketmq.options": ("ClientOptions",),
        "pyspark_rocketmq.record.compress": ("Compression",),
    },
)
