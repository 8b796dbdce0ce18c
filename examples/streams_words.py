"""Count words with the newer API.

Run it with ``pyspark-rocketmq streams run examples/streams_words.py 127.0.0.1:9876 sourceTopic``.
"""

from __future__ import annotations

import re
import sys

from pyspark_rocketmq.streams import RocketMQStream, RStream, StreamBuilder


def words(builder: StreamBuilder, topic: str) -> RStream:
    return (
        builder.source(topic, lambda body: (None, body.decode()))
        .flatMap(lambda line: re.split(r"\W+", line.lower()))
        .keyBy(lambda word: word)
        .count()
        .toRStream()
        .print()
    )


if __name__ == "__main__":
    name_server, topic = sys.argv[1:]
    builder = StreamBuilder("wordCount")
    words(builder, topic)
    query = RocketMQStream(builder.build(), {"rocketmq.namesrv.addr": name_server}).start()
    if query is not None:
        query.awaitTermination()
