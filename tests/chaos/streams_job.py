"""The pipeline that is killed: windows of a topic to a table, to files, and to a topic.

Arguments: name server, topic, group, folder, target topic, the kind of sink, and how it ends: "never" or
"at-the-end".
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from pyspark_rocketmq.streams import CheckpointStrategy, StreamBuilder, Time, TumblingWindow


def main() -> None:
    name_server, topic, group, folder, target, sink, ends = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_ROCKETMQ_STREAMS_HOME"] = f"{folder}/home"
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    windows = (
        StreamBuilder.dataStream("chaos", sink, spark)
        .fromRocketmq(topic, group, True, name_server, maxOffsetsPerTrigger=os.environ["BATCH_ROWS"])
        .window(TumblingWindow.of(Time.seconds(10), "time"))
        .groupBy("key")
        .sum("value", "total")
        .count("n")
        .waterMark(0)
        .toDataSteam()
        .selectFields("start_time", "key", "total", "n")
        .with_(CheckpointStrategy.local(f"{folder}/checkpoint-{sink}"))
    )
    match sink:
        case "table":
            end = windows.toDB(f"sqlite:///{folder}/results.db", None, None, "results")
        case "files":
            end = windows.toJson(f"{folder}/files")
        case _:
            end = windows.toRocketmq(target, name_server)
    query = end.asyncStart(**({"availableNow": True} if ends == "at-the-end" else {}))
    assert query is not None
    print("@started", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main()
