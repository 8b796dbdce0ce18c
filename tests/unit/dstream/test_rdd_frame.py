"""The DataFrame of an RDD's ranges, without Spark."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyspark.core.rdd import PipelinedRDD

from pyspark_rocketmq.dstream import rdd
from pyspark_rocketmq.dstream.ranges import OffsetRanges
from pyspark_rocketmq.dstream.rdd import RocketMQRDD
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import OffsetRange
from pyspark_rocketmq.options import parse_direct_options


class Reader(dict):
    """Spark's reader: it keeps its options, whose case does not matter."""

    def format(self, _):
        return self

    def option(self, name, value):
        return self.options(**{name: value})

    def options(self, **given):
        self.update({name.lower(): value for name, value in given.items()})
        return self

    def load(self):
        return self


def rdd_of(until, *, fail=True, **given):
    """The RDD of a batch of a stream that was created with ``failOnDataLoss``."""
    made = RocketMQRDD.__new__(RocketMQRDD)
    given = {"nameServer": "h:1", **given}
    made._ranges = OffsetRanges([OffsetRange.create("orders", 0, "broker-a", 0, until)])
    made._committed, made._given = None, given
    options = parse_direct_options({**given, "failOnDataLoss": fail})
    made._options = options.source(("orders",), "group")
    made._has_messages = True
    return made


def test_a_frame_of_empty_ranges_has_the_columns_that_the_options_select():
    spark = SimpleNamespace(createDataFrame=lambda _, schema: schema)
    rdd = rdd_of(0)
    assert rdd.toDF(spark, columns="body", bodyAs="string").simpleString() == "struct<body:string>"
    named = rdd.toDF(spark, COLUMNS="queueId", includeProperties=True)
    assert named.simpleString() == "struct<queueId:int,properties:map<string,string>>"


def test_a_frame_skips_lost_messages_where_its_stream_does():
    for fail, text in ((False, "false"), (True, "true")):
        frame = rdd_of(5, fail=fail).toDF(SimpleNamespace(read=Reader()))
        assert frame["failondataloss"] == text


@pytest.mark.parametrize(
    "option", ["endingOffsets", "STARTINGTIMESTAMP", "topic", "subscribe", "assign", "isolation"]
)
def test_an_option_cannot_replace_the_ranges(option):
    with pytest.raises(OptionError, match=rf"the ranges of the RDD, which an option.*option={option}"):
        rdd_of(5).toDF(SimpleNamespace(read=Reader()), **{option: "latest"})


@pytest.mark.parametrize(
    ("given", "batches", "count"),
    [({}, False, 7), ({"onCorrupt": "skip"}, False, 5), ({"tags": "a"}, False, 5), ({}, True, 5)],
)
def test_elements_that_may_be_other_than_the_offsets_are_counted(monkeypatch, given, batches, count):
    """Messages that do not decode are skipped, and a record batch is one element."""
    monkeypatch.setattr(rdd, "_has_all", lambda *_: True)
    monkeypatch.setattr(rdd, "shared_client", lambda _: None)
    monkeypatch.setattr(PipelinedRDD, "count", lambda _: 5)
    made = rdd_of(7, **given)
    made._has_messages = not batches
    assert made.count() == count
