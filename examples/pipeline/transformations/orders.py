"""Two tables: the messages of a topic as they come, and how many there are a tag."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table
def messages() -> DataFrame:
    """Every message once: the pipeline keeps the stream's checkpoint."""
    return (
        spark.readStream.format("rocketmq")
        .option("nameServer", spark.conf.get("spark.rocketmq.nameServer"))
        .option("topic", spark.conf.get("spark.rocketmq.topic"))
        .option("startingOffsets", "earliest")
        .option("bodyAs", "string")
        .load()
    )


@dp.materialized_view
def messages_by_tag() -> DataFrame:
    """Computed anew with each run."""
    return spark.read.table("messages").groupBy("tags").count()
