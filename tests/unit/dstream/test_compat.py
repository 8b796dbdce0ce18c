"""What programs written for rocketmq-spark may call."""

from __future__ import annotations

import pytest
from pyspark import RDD
from pyspark.core.rdd import PipelinedRDD

from pyspark_rocketmq import dstream
from pyspark_rocketmq.dstream import RocketMQRDD, explain_missing_ranges
from pyspark_rocketmq.errors import NoOffsetRangesError


def test_pyspark_s_class_changes_only_on_request(monkeypatch):
    assert not hasattr(RDD, "offsetRanges")
    monkeypatch.setattr(RDD, "offsetRanges", None, raising=False)  # removed again at the end
    explain_missing_ranges()
    for kind in (RDD, PipelinedRDD):
        rdd = kind.__new__(kind)
        with pytest.raises(NoOffsetRangesError, match="in the first transform or foreachRDD"):
            _ = rdd.offsetRanges
        assert not hasattr(rdd, "offsetRanges")
    assert RocketMQRDD.offsetRanges is not RDD.offsetRanges


def test_the_other_spelling_is_the_same_class():
    assert dstream.RocketMqUtils is dstream.RocketMQUtils
