"""Sessions by user, exact distinct counts, and functions that run in Python.

Run it with ``pyspark-rocketmq streams run examples/streams_sessions.py 127.0.0.1:9876 visits``.
"""

from __future__ import annotations

import json
import sys

from pyspark_rocketmq.streams import DataStream, SessionWindow, StreamBuilder, Time


def pipeline(name_server: str, topic: str) -> DataStream:
    return (
        StreamBuilder.dataStream("namespace", "sessions")
        .fromRocketmq(topic, "sessions", False, name_server)
        .map(lambda message: {**json.loads(message), "double": json.loads(message)["n"] * 2})
        .filter(lambda record: record["double"] < 100)
        .window(SessionWindow.of(Time.seconds(3)))
        .groupBy("user")
        .count_distinct("page", "pages")
        .max("double")
        .count("visits")
        .waterMark(1)
        .toDataStream()
        .toPrint()
    )


if __name__ == "__main__":
    pipeline(*sys.argv[1:]).start()
