"""The quickstart's blocks in one file: write a topic, read it, and follow it as a stream.

    pyspark-rocketmq cluster start
    python examples/quickstart.py

Each block is the same as in docs/quickstart.md.
"""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_rocketmq.spark import from_rocketmq

builder = SparkSession.builder.master("local[2]").appName("quickstart")
spark = builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()
options = {"nameServer": "127.0.0.1:9876", "topic": "quickstart"}

rows = [
    ("order-1", "new", '{"product": "tent", "cents": 24900}'),
    ("order-2", "new", '{"product": "lamp", "cents": 1990}'),
    ("order-3", "paid", '{"product": "tent", "cents": 24900}'),
]
orders = spark.createDataFrame(rows, "keys STRING, tags STRING, body STRING")
writer = orders.write.format("rocketmq").options(**options)
writer.options(createTopic=True, topicQueues=4).mode("append").save()

messages = spark.read.format("rocketmq").options(**options).load()
messages.selectExpr("keys", "tags", "string(body)").orderBy("keys").show(truncate=False)

reader = spark.readStream.format("rocketmq").options(**options)
stream = reader.options(startingOffsets="earliest", consumerGroup="revenue").load()
order = from_rocketmq(stream, "json", schema="product STRING, cents LONG")
revenue = order.groupBy("product").agg(F.sum("cents").alias("cents"), F.count("*").alias("orders"))

writer = revenue.writeStream.format("memory").queryName("revenue").outputMode("complete")
query = writer.option("checkpointLocation", "quickstart-checkpoint").start()
query.processAllAvailable()
spark.table("revenue").orderBy("product").show()
query.stop()
