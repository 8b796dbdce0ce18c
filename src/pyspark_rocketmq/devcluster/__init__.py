"""A real Apache RocketMQ for development: ``with DevCluster()``, or ``pyspark-rocketmq cluster start``."""

from __future__ import annotations

from pyspark_rocketmq.devcluster.cluster import DevCluster
from pyspark_rocketmq.devcluster.jars import Repositories, cache_folder, resolve
from pyspark_rocketmq.devcluster.java import Java, find_java
from pyspark_rocketmq.devcluster.layout import JvmOptions
from pyspark_rocketmq.devcluster.server import Broker, NameServer, Server

__all__ = [
    "Broker",
    "DevCluster",
    "Java",
    "JvmOptions",
    "NameServer",
    "Repositories",
    "Server",
    "cache_folder",
    "find_java",
    "resolve",
]
