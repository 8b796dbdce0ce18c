"""Reads a topic on two executors of their own and prints which of them read each queue, as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import psutil
from pyspark import SparkConf, SparkContext
from tests.support.wait import eventually

from pyspark_rocketmq import LocationStrategies, RocketMQUtils
from pyspark_rocketmq.client import Client
from pyspark_rocketmq.dstream import LocationStrategy
from pyspark_rocketmq.dstream.jvm import executors
from pyspark_rocketmq.model import Message, OffsetRange


def main(name_server: str, topic: str) -> None:
    """Read twice as `PreferConsistent` places it, once as `PreferFixed` does."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.locality.wait": "60s",
        "spark.locality.wait.process": "60s",
    }
    conf = SparkConf().setMaster("local-cluster[2,1,512]").setAppName("placement").setAll([*settings.items()])
    sc = SparkContext(conf=conf)
    try:
        eventually(lambda: len(executors(sc)) == 2, 90, what="two executors")
        with Client(name_server) as client:
            ends = client.max_offsets(client.read_queues(topic))
        ranges = [OffsetRange(queue, 0, end) for queue, end in ends.items()]
        there = executors(sc)
        consistent = LocationStrategies.PreferConsistent
        fixed = LocationStrategies.PreferFixed({queue: there[queue.queue_id % 2] for queue in ends})

        def read(strategy: LocationStrategy) -> dict[str, int]:
            rdd = RocketMQUtils.createRDD(sc, "placement", ranges, {"nameServer": name_server}, strategy)
            return dict(rdd.mapPartitions(_where).collect())

        answer = {
            "wanted": {str(queue.queue_id): at for queue, at in consistent.locations(ends, there).items()},
            "consistent": [read(consistent), read(consistent)],
            "fixed": read(fixed),
        }
        print(f"@{json.dumps(answer)}", flush=True)
    finally:
        sc.stop()


def _where(messages: Iterable[Message]) -> Iterator[tuple[int, int]]:
    """Yield the queue, and the process id of the executor: the parent of the daemon that forked this."""
    found: list[Any] = list(messages)
    yield found[0].queue_id, psutil.Process(os.getppid()).ppid()


if __name__ == "__main__":
    main(*sys.argv[1:])
