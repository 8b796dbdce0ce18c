"""One stream with two sinks that share one query: the topic is read once.

Run it with ``pyspark-rocketmq streams run examples/streams_split.py 127.0.0.1:9876 people folder``.
"""

from __future__ import annotations

import sys

from pyspark_rocketmq.streams import DataStream, StreamBuilder


def pipeline(name_server: str, topic: str, folder: str) -> DataStream:
    people = StreamBuilder.dataStream("namespace", "split").fromRocketmq(topic, "split", True, name_server)
    by_age = people.split(lambda person: "adult" if person["age"] >= 18 else "child")
    by_age.select("adult").toJson(f"{folder}/adults")
    return by_age.select("child").toJson(f"{folder}/children")


if __name__ == "__main__":
    pipeline(*sys.argv[1:]).start()
