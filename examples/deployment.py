"""A job that ships the package as a zip with ``--py-files`` and registers the source itself.

spark-submit --py-files pyspark_rocketmq.zip examples/deployment.py 127.0.0.1:9876 orders
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main(name_server: str, topic: str) -> None:
    """Count a topic's messages."""
    spark = SparkSession.builder.getOrCreate()
    from pyspark_rocketmq.spark import register  # noqa: PLC0415 - Spark first, then its files

    register(spark)
    print(spark.read.format("rocketmq").options(nameServer=name_server, topic=topic).load().count())


if __name__ == "__main__":
    main(*sys.argv[1:])
