"""Count clicks by user and minute, by the time in the record, and send them to a topic. In snake_case.

Run it with ``pyspark-rocketmq streams run examples/streams_clicks.py 127.0.0.1:9876 pageClick pageClickOut``.
"""

from __future__ import annotations

import sys

from pyspark_rocketmq.streams import DataStream, StreamBuilder, Time, TumblingWindow


def pipeline(name_server: str, topic: str, target: str) -> DataStream:
    return (
        StreamBuilder.data_stream("namespace", "clicks")
        .from_rocketmq(topic, "clicks", True, name_server)
        .window(TumblingWindow.of(Time.minutes(1), "eventTime"))
        .group_by("userId")
        .count("total")
        .water_mark(5)
        .to_data_stream()
        .to_rocketmq(target, "clicks-results", name_server)
    )


if __name__ == "__main__":
    pipeline(*sys.argv[1:]).start()
