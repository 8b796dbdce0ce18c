"""Two tables: the messages of a topic as they arrive, and their number per tag."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table
def messages() -> DataFrame:
    """Contains every message once: the pipeline keeps the stream's checkpoint."""
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
    """Recomputed in each run."""
    return spark.read.table("messages").groupBy("tags").count()
