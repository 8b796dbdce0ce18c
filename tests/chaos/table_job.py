"""The job that is killed: a topic into a table of Parquet folders, one a micro-batch, replaced by a replay.

Arguments: name server, topic, group, checkpoint, table, the most offsets of a micro-batch, and how it ends:
"never" or "at-the-end".
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import DataFrame, SparkSession


def main() -> None:
    name_server, topic, group, checkpoint, table, batch_rows, ends = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    messages = (
        spark.readStream.format("rocketmq")
        .options(nameServer=name_server, topic=topic, startingOffsets="earliest", consumerGroup=group)
        .options(maxOffsetsPerTrigger=batch_rows, minPartitions=4, routeRefreshMs=500, bodyAs="string")
        .load()
        .select("brokerName", "queueId", "queueOffset", "body")
    )

    def replace(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"{table}/{number:06d}")

    trigger = {"availableNow": True} if ends == "at-the-end" else {"processingTime": "0 seconds"}
    query = (
        messages.writeStream.foreachBatch(replace)
        .option("checkpointLocation", checkpoint)
        .trigger(**trigger)
        .start()
    )
    print("@started", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main()
