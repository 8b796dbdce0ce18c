"""Windows of pipelines, against tables worked out by hand and RocketMQ Streams' published results."""

from __future__ import annotations

import json

import pytest
from pyspark_rocketmq.streams import StreamBuilder, Time, TumblingWindow
from tests.spark.streams_support import CLICKS, FLOWS, table


def source(spark, name="t"):
    return StreamBuilder.dataStream("tests", name, spark)


def stream(spark):
    return source(spark).fromRocketmq("topic", "group", True, "127.0.0.1:1")


def test_the_articles_program_gives_the_published_sums(spark):
    pipeline = (
        source(spark)
        .fromRocketmq("topicName", "groupName", False, "namesrvAddr")
        .map(lambda message: json.loads(message))  # noqa: PLW0108 - as the article writes it
        .window(TumblingWindow.of(Time.seconds(10)))
        .groupBy("ProjectName", "LogStore")
        .sum("InFlow", "InFlow")
        .sum("OutFlow", "OutFlow")
        .count("total")
        .waterMark(5)
        .setLocalStorageOnly(True)
        .toDataSteam()
        .toPrint(1)
    )
    rows = pipeline.test(FLOWS)
    assert table(rows, "InFlow", "OutFlow", "total", "start_time", "end_time", "fire_time") == [
        (15, 12, 3, "2030-01-01 00:00:00", "2030-01-01 00:00:10", "2030-01-01 00:00:15"),
        (18, 15, 3, "2030-01-01 00:00:00", "2030-01-01 00:00:10", "2030-01-01 00:00:15"),
        (22, 18, 4, "2030-01-01 00:00:00", "2030-01-01 00:00:10", "2030-01-01 00:00:15"),
    ]
    assert "python" not in pipeline.explain()


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (
            "userId",
            [
                *[("18:00:00", "1", 2), ("18:00:00", "2", 1), ("18:00:00", "3", 1)],
                *[("18:01:00", "1", 2), ("18:01:00", "2", 2), ("18:01:00", "3", 1), ("18:02:00", "4", 1)],
            ],
        ),
        (
            "url",
            [
                *[("18:00:00", "page-1", 1), ("18:00:00", "page-2", 2), ("18:00:00", "page-3", 1)],
                *[("18:01:00", "page-2", 2), ("18:01:00", "page-3", 3), ("18:02:00", "page-1", 1)],
            ],
        ),
    ],
)
def test_page_clicks_by_the_time_in_the_record(spark, field, expected):
    spark.conf.set("spark.sql.session.timeZone", "Asia/Shanghai")
    try:
        rows = (
            stream(spark)
            .window(TumblingWindow.of(Time.minutes(1), "eventTime"))
            .groupBy(field)
            .count("total")
            .waterMark(5)
            .toDataStream()
            .test(CLICKS)
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    found = [
        (start.removeprefix("2021-09-15 "), *rest)
        for start, *rest in table(rows, "start_time", field, "total")
    ]
    assert found == expected
