"""Two receivers on executors of their own: prints each message, and where each block is kept."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.streaming import StreamingContext
from tests.support.wait import eventually

from pyspark_rocketmq import RocketMQUtils
from pyspark_rocketmq.dstream.jvm import executors

_INTERVAL_S = 0.5


def main(name_server: str, topic: str, group: str, *more: str) -> None:
    """Receive until the standard input ends. ``more`` are settings of Spark, ``key=value``."""
    warnings.filterwarnings("ignore", "DStream is deprecated", FutureWarning)
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        **dict(setting.split("=", 1) for setting in more),
    }
    conf = SparkConf().setMaster("local-cluster[2,2,512]").setAppName("receivers").setAll([*settings.items()])
    sc = SparkContext(conf=conf)
    try:
        eventually(lambda: len(executors(sc)) == 2, 90, what="two executors")
        ssc = StreamingContext(sc, _INTERVAL_S)
        properties = {
            "nameserver.addr": name_server,
            "consumer.group": group,
            "consumer.topic": topic,
            "consumer.offset.reset.to": "earliest",
            "consumer.offset.persist.interval": 200,
        }
        stream = RocketMQUtils.createInputDStream(ssc, properties, "MEMORY_ONLY_2", receivers=2)
        stream.foreachRDD(lambda rdd: show(sc, rdd))
        ssc.start()
        eventually(
            lambda: sum(info.active for info in RocketMQUtils.receiverInfos()) == 2, 60, what="receivers"
        )
        print("|started", flush=True)
        sys.stdin.read()
        print(f"|failures: {sum(info.failures for info in RocketMQUtils.receiverInfos())}", flush=True)
        RocketMQUtils.stopReceivers(60)
        ssc.stop(stopSparkContext=False, stopGraceFully=True)
        print("|stopped", flush=True)
    finally:
        sc.stop()


def show(sc: SparkContext, rdd: Any) -> None:
    """Print what there is."""
    rows = rdd.map(lambda m: (m.queue_id, m.queue_offset, m.body.decode())).collect()
    if rows:
        blocks = sc._jvm.scala.jdk.javaapi.CollectionConverters.asJava(
            sc._jsc.sc().statusStore().streamBlocksList()
        )
        places = sorted({(str(block.name()), str(block.executorId())) for block in blocks})
        print("".join(f"@{name}\t{executor}\n" for name, executor in places), end="")
    print("".join(f"|{queue_id}\t{offset}\t{body}\n" for queue_id, offset, body in rows), end="", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
