"""The job that is killed: copies a topic to another, each row once, and ends at the source's end.

Arguments: name server, source, target, checkpoint.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from pyspark_rocketmq.spark import start_transactional


def main() -> None:
    name_server, source, target, checkpoint = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2,8]")  # a task is tried eight times
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    messages = (
        spark.readStream.format("rocketmq")
        .options(nameServer=name_server, topic=source, startingOffsets="earliest")
        .options(maxOffsetsPerTrigger=os.environ["BATCH_ROWS"], partitionPerQueue="true")
        .load()
    )
    writer = messages.writeStream.trigger(availableNow=True)
    options = {"nameServer": name_server, "topic": target, "checkpointLocation": checkpoint}
    if os.environ["GUARANTEE"] == "transactional":
        with start_transactional(writer, **options) as running:
            running.query.awaitTermination()
        return
    if os.environ["GUARANTEE"] == "staged":
        options |= {"deliveryGuarantee": "transactional", "transactionVisibility": "staged"}
    else:
        options |= {"deliveryGuarantee": os.environ["GUARANTEE"]}
    query = writer.format("rocketmq").options(**options, batchSize=50).start()
    query.awaitTermination()


if __name__ == "__main__":
    main()
