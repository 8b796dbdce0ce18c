"""The program of the article on RocketMQ Streams: sums in windows of ten seconds.

Run it with ``pyspark-rocketmq streams run examples/streams_windows.py 127.0.0.1:9876 topic``.
"""

from __future__ import annotations

import json
import sys

from pyspark_rocketmq.streams import DataStream, StreamBuilder, Time, TumblingWindow


def pipeline(name_server: str, topic: str) -> DataStream:
    source = StreamBuilder.dataStream("namespace", "windows")
    return (
        source.fromRocketmq(topic, "windows", False, name_server)
        .map(lambda message: json.loads(message))  # noqa: PLW0108 - as the article writes it
        .window(TumblingWindow.of(Time.seconds(10)))
        .groupBy("ProjectName", "LogStore")
        .sum("InFlow", "InFlow")
        .sum("OutFlow", "OutFlow")
        .count("total")
        .waterMark(5)
        .setLocalStorageOnly(True)
        .toDataStream()
        .toPrint(1)
    )


if __name__ == "__main__":
    pipeline(*sys.argv[1:]).start()
