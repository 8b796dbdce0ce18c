"""A stream job of a cluster: master, name server, topic, a folder for its checkpoint; it prints results."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from pyspark_rocketmq.streams import CheckpointStrategy, StreamBuilder, Time, TumblingWindow


def main() -> None:
    master, name_server, topic, folder = sys.argv[1:]
    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.cores", "1")
        .config("spark.executor.memory", "512m")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.locality.wait", "0s")
        .getOrCreate()
    )
    source = StreamBuilder.dataStream("tests", "cluster", spark)
    (
        source.fromRocketmq(topic, "cluster", True, name_server, maxOffsetsPerTrigger=60)
        .window(TumblingWindow.of(Time.seconds(10), "time"))
        .groupBy("key")
        .sum("value", "total")
        .setLocalStorageOnly(False)
        .toDataStream()
        .selectFields("start_time", "key", "total")
        .with_(CheckpointStrategy.remote(f"file://{folder}/checkpoint"))
        .toPrint()
        .start()
    )


if __name__ == "__main__":
    main()
