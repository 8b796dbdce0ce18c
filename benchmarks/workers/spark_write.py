"""A Spark sink: a whole job that writes a DataFrame of numbered bodies, in a warm local session."""

from __future__ import annotations

import argparse
import uuid

from benchmarks.blank_source import BlankSource
from benchmarks.workers.rounds import Done, serve
from benchmarks.workers.spark import session

_NUMBER_BYTES = 20


def main() -> None:
    """Write once per round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("format", choices=("rocketmq", "kafka", "blank", "noop"))
    parser.add_argument("servers")
    parser.add_argument("topic")
    parser.add_argument("--messages", type=int, required=True)
    parser.add_argument("--body-bytes", type=int, required=True)
    parser.add_argument("--conf", action="append", default=[], help="name=value, a setting of the session")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        help="name=value, more options of the sink; {round} is new in each",
    )
    args = parser.parse_args()
    spark = session(dict(pair.partition("=")[::2] for pair in args.conf))
    spark.dataSource.register(BlankSource)
    try:
        column = "value" if args.format == "kafka" else "body"

        def write() -> Done:
            # Cheap to create: padding each row to its size would cost more than sending it.
            filler = "." * (args.body_bytes - _NUMBER_BYTES)
            body = f"concat(lpad(cast(id AS string), {_NUMBER_BYTES}, '0'), '{filler}') AS {column}"
            rows = spark.range(0, args.messages, 1, 2).selectExpr(body)
            writer = rows.write.format(args.format).mode("append")
            if args.format == "kafka":
                writer = writer.option("kafka.bootstrap.servers", args.servers)
            elif args.format == "rocketmq":
                writer = writer.option("nameServer", args.servers)
            for option in args.option:
                name, _, value = option.partition("=")
                writer = writer.option(name, value.replace("{round}", uuid.uuid4().hex))
            writer.option("topic", args.topic).save()
            return Done(args.messages, args.messages * args.body_bytes)

        serve(write)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
