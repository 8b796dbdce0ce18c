"""The bodies of requests and answers, most of them JSON of RocketMQ's own kind."""

from __future__ import annotations

from pyspark_rocketmq.remoting.body.config import (
    decode_broker_properties,
    decode_group_config,
    decode_group_configs,
    decode_runtime_info,
    decode_topic_config,
    decode_topic_configs,
    encode_acl,
    encode_broker_properties,
    encode_group_config,
    encode_topic_attributes,
    encode_user,
)
from pyspark_rocketmq.remoting.body.group import (
    decode_consumer_connection,
    decode_consumer_ids,
    decode_locked_queues,
    decode_producer_connection,
    encode_client_check,
    encode_heartbeat,
    encode_queue_lock,
)
from pyspark_rocketmq.remoting.body.route import (
    decode_cluster_info,
    decode_group_list,
    decode_route,
    decode_topic_list,
)
from pyspark_rocketmq.remoting.body.stats import (
    decode_consume_stats,
    decode_reset_offsets,
    decode_topic_stats,
)

__all__ = [
    "decode_broker_properties",
    "decode_cluster_info",
    "decode_consume_stats",
    "decode_consumer_connection",
    "decode_consumer_ids",
    "decode_group_config",
    "decode_group_configs",
    "decode_group_list",
    "decode_locked_queues",
    "decode_producer_connection",
    "decode_reset_offsets",
    "decode_route",
    "decode_runtime_info",
    "decode_topic_config",
    "decode_topic_configs",
    "decode_topic_list",
    "decode_topic_stats",
    "encode_acl",
    "encode_broker_properties",
    "encode_client_check",
    "encode_group_config",
    "encode_heartbeat",
    "encode_queue_lock",
    "encode_topic_attributes",
    "encode_user",
]
