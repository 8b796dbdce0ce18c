"""Copies a RocketMQ topic to the Kafka topic of the same name: keys, bodies, properties, queues."""

from __future__ import annotations

import argparse

from benchmarks.workers.spark import session


def main() -> None:
    """Copy once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name_server")
    parser.add_argument("servers", help="of the Kafka")
    parser.add_argument("topic")
    parser.add_argument("--conf", action="append", default=[], help="name=value, a setting of the session")
    args = parser.parse_args()
    spark = session(dict(pair.partition("=")[::2] for pair in args.conf))
    try:
        reader = spark.read.format("rocketmq").option("nameServer", args.name_server)
        rows = reader.option("topic", args.topic).option("columns", "queueId,keys,body,properties").load()
        header = "struct(e.key AS key, CAST(e.value AS binary) AS value)"
        writer = rows.selectExpr(
            "queueId AS partition",
            "keys AS key",
            "body AS value",
            f"transform(map_entries(properties), e -> {header}) AS headers",
        ).write.format("kafka")
        writer.option("kafka.bootstrap.servers", args.servers).option("topic", args.topic).option(
            "includeHeaders", "true"
        ).save()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
