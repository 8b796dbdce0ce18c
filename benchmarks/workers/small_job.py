"""RocketMQ Streams' first example with little memory. Prints its windows until it is stopped."""

from __future__ import annotations

import argparse
import json
import sys

from pyspark_rocketmq.streams import CheckpointStrategy, StreamBuilder, Time, TumblingWindow, WindowStrategy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name_server")
    parser.add_argument("topic")
    parser.add_argument("checkpoint")
    parser.add_argument("--hard-limit", action="store_true")
    args = parser.parse_args()
    source = StreamBuilder.dataStream("benchmark", "small")
    (
        source.fromRocketmq(args.topic, "small", False, args.name_server)
        .map(lambda message: json.loads(message))  # noqa: PLW0108 - as the example has it
        .window(TumblingWindow.of(Time.seconds(10)))
        .groupBy("key")
        .sum("value", "sum")
        .count("total")
        .waterMark(5)
        .setLocalStorageOnly(True)
        .toDataStream()
        .with_(CheckpointStrategy.local(args.checkpoint), WindowStrategy.lowMemory(hardLimit=args.hard_limit))
        .toPrint(1)
        .start()
    )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(0)
