"""The program of the article on RocketMQ Streams, line for line.

Start it with the name server and the topic, and send JSON with ``groupByKey`` and ``OutFlow`` there::

    python examples/seeds/001_windows.py 127.0.0.1:9876 topicName
"""

import json
import sys

from pyspark_rocketmq.streams import StreamBuilder, Time, TumblingWindow

namesrvAddr, topicName = sys.argv[1:]

source = StreamBuilder.dataStream("namespace", "pipeline")
(
    source.fromRocketmq(topicName, "groupName", False, namesrvAddr)
    .map(lambda message: json.loads(message))
    .window(TumblingWindow.of(Time.seconds(10)))
    .groupBy("groupByKey")
    .sum("OutFlow", "outFlow")
    .count("total")
    .waterMark(5)
    .setLocalStorageOnly(True)
    .toDataSteam()
    .toPrint(1)
    .start()
)
