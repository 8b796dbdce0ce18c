"""Spark's Kafka source: the same query on the same messages, the reference for reading."""

from __future__ import annotations

import argparse

from benchmarks.workers.rounds import Done, serve
from benchmarks.workers.spark import session, total


def main() -> None:
    """Run the query once per round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("servers")
    parser.add_argument("topic")
    parser.add_argument("--conf", action="append", default=[], help="name=value, a setting of the session")
    parser.add_argument("--json", action="store_true", help="parse the bodies")
    args = parser.parse_args()
    spark = session(dict(pair.partition("=")[::2] for pair in args.conf))
    try:

        def read() -> Done:
            reader = spark.read.format("kafka").option("kafka.bootstrap.servers", args.servers)
            return total(reader.option("subscribe", args.topic).load(), "value", as_json=args.json)

        serve(read)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
