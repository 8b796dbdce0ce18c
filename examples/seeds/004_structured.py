"""The article's Structured Streaming: the source's DataFrame goes straight into the sink.

python examples/seeds/004_structured.py 127.0.0.1:9876 OrderTopic ResultTopic /tmp/checkpoint
"""

import sys

from pyspark.sql import SparkSession

namesrvAddr, topic, resultTopic, checkpoint = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()

df = (
    spark.readStream.format("org.apache.rocketmq.spark")
    .option("namesrvAddr", namesrvAddr)
    .option("consumerGroup", "test_group")
    .option("topics", topic)
    .load()
)

query = (
    df.writeStream.format("org.apache.rocketmq.spark")
    .option("namesrvAddr", namesrvAddr)
    .option("producerGroup", "result_group")
    .option("topic", resultTopic)
    .option("checkpointLocation", checkpoint)
    .start()
)
query.awaitTermination()
