"""A real Apache RocketMQ for development: ``with DevCluster()``, or ``pyspark-rocketmq cluster start``."""

from __future__ import annotations

from pyspark_rocketmq.devcluster.cluster import DevCluster
from pyspark_rocketmq.devcluster.layout import JvmOptions

__all__ = ["DevCluster", "JvmOptions"]
