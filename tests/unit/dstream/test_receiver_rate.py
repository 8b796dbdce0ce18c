from __future__ import annotations

import pytest

from pyspark_rocketmq.dstream.pace import pace_of
from pyspark_rocketmq.dstream.receiver.stream import receiver_rate
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.planning.rate import RateEstimate

PREFIX = "spark.streaming.backpressure"
LEARNED = RateEstimate(rate=300.0)


@pytest.mark.parametrize(
    ("conf", "most", "estimate", "rate"),
    [
        ({}, None, LEARNED, None),
        ({}, 50.0, LEARNED, 50),
        ({f"{PREFIX}.enabled": "true"}, None, RateEstimate(), None),
        ({f"{PREFIX}.enabled": "true"}, None, LEARNED, 150),
        ({f"{PREFIX}.enabled": "true"}, 120.0, LEARNED, 120),
        ({f"{PREFIX}.enabled": "true", f"{PREFIX}.initialRate": "70"}, None, RateEstimate(), 70),
        ({f"{PREFIX}.enabled": "true", f"{PREFIX}.initialRate": "70"}, None, LEARNED, 150),
        ({f"{PREFIX}.initialRate": "70"}, None, RateEstimate(), None),
    ],
)
def test_two_receivers_share_what_was_learned(conf, most, estimate, rate):
    assert receiver_rate(pace_of(conf.get, 1_000), most, estimate, 2) == rate


def test_the_estimator_s_settings_are_spark_s():
    conf = {f"{PREFIX}.pid.minRate": "7", f"{PREFIX}.pid.derived": "0.5"}
    pace = pace_of(conf.get, 400)
    assert (pace.pid.min_rate, pace.pid.derivative, pace.pid.proportional) == (7.0, 0.5, 1.0)
    assert pace.pid.batch_interval_ms == 400


@pytest.mark.parametrize("rate", ["0", "-5"])
def test_a_rate_at_which_nothing_passes_is_refused(rate):
    with pytest.raises(OptionError, match="initialRate must be above 0"):
        pace_of({f"{PREFIX}.initialRate": rate}.get, 1_000)


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("initialRate", "1k", "a whole number"),
        ("pid.minRate", "many", "a number"),
        ("pid.minRate", "nan", "a number"),
    ],
)
def test_a_setting_that_is_no_number_is_named(name, text, what):
    with pytest.raises(OptionError, match=rf"{PREFIX}\.{name} must be {what} \[value={text}\]"):
        pace_of({f"{PREFIX}.{name}": text}.get, 1_000)
