"""The program of rocketmq-flink's introduction: send the last word of an address, as JSON, to another topic.

python examples/seeds/003_rocketmq_flink.py localhost:9876 flink-source2 flink-sink2 /tmp/checkpoint
"""

import sys

from pyspark.sql import SparkSession

from pyspark_rocketmq.sql.flink import (
    OffsetResetStrategy,
    RocketMQConfig,
    RocketMQSink,
    RocketMQSourceFunction,
    SimpleKeyValueDeserializationSchema,
)

nameServer, sourceTopic, sinkTopic, checkpoint = sys.argv[1:]

# The parallelism of a job is its number of cores. minPartitions below sets that of the source.
spark = SparkSession.builder.master("local[2]").appName("rocketmq-flink-example").getOrCreate()

consumerProps = {
    RocketMQConfig.NAME_SERVER_ADDR: nameServer,
    RocketMQConfig.CONSUMER_GROUP: "c002",
    RocketMQConfig.CONSUMER_TOPIC: sourceTopic,
    "minPartitions": 2,  # .setParallelism(2) of the source
}
producerProps = {RocketMQConfig.NAME_SERVER_ADDR: nameServer}

source = RocketMQSourceFunction(SimpleKeyValueDeserializationSchema("id", "address"), consumerProps)
# use group offsets.
# If there is no committed offset, consumer would start from the latest offset.
source.setStartFromGroupOffsets(OffsetResetStrategy.LATEST)

provinces = source.load(spark).selectExpr("id", r"element_at(split(address, '\\s+'), -1) AS province")
messages = provinces.selectExpr(f"'{sinkTopic}' AS topic", "to_json(struct(id, province)) AS body")

query = (
    RocketMQSink(producerProps)
    .withBatchFlushOnCheckpoint(True)
    .writeStream(messages.coalesce(2))  # .setParallelism(2) of the sink
    .queryName("rocketmq-flink-example")  # .name(...), and the name that env.execute gives the job
    .trigger(processingTime="3 seconds")  # env.enableCheckpointing(3000)
    .option("checkpointLocation", checkpoint)
    .start()
)
query.awaitTermination()
