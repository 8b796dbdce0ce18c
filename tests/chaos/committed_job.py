"""The job that is killed: two queries copy a topic each into one topic, by committed ranges.

Arguments: name server, target, the most rows of a batch, and for each query its source and its checkpoint. It
ends at the ends of the sources.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery


def main() -> None:
    name_server, target, batch_rows, *pairs = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2,8]")  # a task is tried eight times
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    def copy(source: str, checkpoint: str) -> StreamingQuery:
        rows = (
            spark.readStream.format("rocketmq")
            .options(nameServer=name_server, topic=source, startingOffsets="earliest", columns="body,queueId")
            .options(maxOffsetsPerTrigger=batch_rows, partitionPerQueue="true")  # a key's rows: one task
            .load()
            .selectExpr("body", f"concat('{source}-', queueId) AS shardingKey")
        )
        return (
            rows.writeStream.format("rocketmq")
            .options(nameServer=name_server, topic=target, checkpointLocation=checkpoint)
            .options(deliveryGuarantee="transactional", transactionVisibility="committed")
            .options(batchSize="20", outageTimeout="300s")
            .trigger(availableNow=True)
            .start()
        )

    queries = [copy(source, checkpoint) for source, checkpoint in zip(pairs[::2], pairs[1::2], strict=True)]
    for query in queries:
        query.awaitTermination()


if __name__ == "__main__":
    main()
