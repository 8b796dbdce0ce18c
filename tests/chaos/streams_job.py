"""The pipelines that are killed: windows of a topic to a table, to files, and to a topic, a job each.

Arguments: name server, topic, group, folder, target topic, and how they end: "never" or "at-the-end".
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from pyspark_rocketmq.streams import CheckpointStrategy, DataStream, StreamBuilder, Time, TumblingWindow

SINKS = ("table", "files", "topic")


def windows(spark: SparkSession, sink: str, name_server: str, topic: str, group: str) -> DataStream:
    return (
        StreamBuilder.dataStream("chaos", sink, spark)
        .fromRocketmq(topic, group, True, name_server, maxOffsetsPerTrigger=os.environ["BATCH_ROWS"])
        .window(TumblingWindow.of(Time.seconds(10), "time"))
        .groupBy("key")
        .sum("value", "total")
        .count("n")
        .waterMark(0)
        .setLocalStorageOnly(sink != "files")
        .toDataStream()
        .selectFields("start_time", "key", "total", "n")
    )


def main() -> None:
    name_server, topic, group, folder, target, ends = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_ROCKETMQ_STREAMS_HOME"] = f"{folder}/home"
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    queries = []
    for sink in SINKS:
        stream = windows(spark, sink, name_server, topic, group)
        match sink:
            case "table":
                end = stream.toDB(f"sqlite:///{folder}/results.db", None, None, "results")
                place = CheckpointStrategy.local(f"{folder}/checkpoints/table")
            case "files":
                end = stream.toJson(f"{folder}/files")
                place = CheckpointStrategy.remote(f"file://{folder}/checkpoints/files")
            case _:
                end = stream.toRocketmq(target, name_server, guarantee="effectively-once")
                place = CheckpointStrategy.local(f"{folder}/checkpoints/topic")
        until = {"availableNow": True} if ends == "at-the-end" else {}
        query = end.with_(place).asyncStart(**until)
        assert query is not None
        queries.append(query)
    print("@started", flush=True)
    while any(query.isActive for query in queries):
        spark.streams.awaitAnyTermination()  # one that fails ends the process, and with it the others
        spark.streams.resetTerminated()
    for query in queries:
        query.awaitTermination()


if __name__ == "__main__":
    main()
