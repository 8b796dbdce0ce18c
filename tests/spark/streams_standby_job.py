"""A job for ``pyspark-rocketmq streams run``: name server, topic, folder, and whether it stands by."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from pyspark_rocketmq.streams import StreamBuilder

NAME = "tests.standby"


def main() -> None:
    name_server, topic, folder, role = sys.argv[1:]
    spark = None
    if role != "second":  # one that is not to run needs no session
        spark = (
            SparkSession.builder.master("local[1]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
            .getOrCreate()
        )
    source = StreamBuilder.dataStream(*NAME.split("."), spark)
    numbers = source.fromRocketmq(topic, "standby", True, name_server).selectFields("n")
    print("@ready", flush=True)
    numbers.toJson(f"{folder}/out").start(standby=role == "standby")
    print("@stopped", flush=True)


if __name__ == "__main__":
    main()
