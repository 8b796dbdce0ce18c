"""An instance of an elastic job: name server, topic, and the folder that its results go to."""

from __future__ import annotations

import json
import sys

from pyspark_rocketmq.streams import StreamBuilder, Time, TumblingWindow

JOB = "tests.elastic"


def main() -> None:
    name_server, topic, folder = sys.argv[1:]
    source = StreamBuilder.dataStream(*JOB.split("."))
    (
        source.fromRocketmq(topic, "elastic", False, name_server, maxOffsetsPerTrigger=60)
        .map(lambda message: json.loads(message))  # noqa: PLW0108 - as the example has it
        .window(TumblingWindow.of(Time.seconds(10), "time"))
        .groupBy("key")
        .sum("value", "total")
        .setLocalStorageOnly(True)
        .toDataStream()
        .selectFields("start_time", "key", "total")
        .toJson(f"{folder}/out")
        .start(elastic=True)
    )


if __name__ == "__main__":
    main()
