from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.planning.rate import FinishedBatch, PidSettings, RateEstimate

SETTINGS = PidSettings(batch_interval_ms=1000)


def after(
    estimate: RateEstimate, ended, messages, processing, scheduling=0, settings=SETTINGS
) -> RateEstimate:
    batch = FinishedBatch(
        ended_at_ms=ended, messages=messages, processing_ms=processing, scheduling_ms=scheduling
    )
    return estimate.after(batch, settings)


def test_the_first_batch_only_measures():
    first = after(RateEstimate(), 1000, 500, 500)
    assert first.rate is None
    assert first.latest_rate == 1000


@pytest.mark.parametrize(
    ("processing", "scheduling", "rate"),
    [(1000, 0, 500), (250, 0, 2000), (1000, 1000, 400), (1000, 60_000, 100)],
    ids=["slower", "faster", "waiting costs", "never below the least rate"],
)
def test_the_rate_follows_what_was_measured(processing, scheduling, rate):
    second = after(after(RateEstimate(), 1000, 500, 500), 2000, 500, processing, scheduling)
    assert second.rate == rate


def test_the_estimate_is_that_of_spark():
    """With Spark's own answers, of ``PIDRateEstimator(500, 1.0, 0.2, 0.1, 100.0)``."""
    settings = PidSettings(batch_interval_ms=500, derivative=0.1)
    estimate, rates = RateEstimate(), []
    for batch in [(1000, 500, 200), (2000, 900, 450, 30), (2600, 80, 700, 400), (3000, 100, 90)]:
        estimate = after(estimate, *batch, settings=settings)
        rates.append(estimate.rate)
    assert rates == [None, 1926.0, 100.0, pytest.approx(1816.81746)]


def test_empty_late_and_instant_batches_teach_nothing():
    estimate = after(RateEstimate(), 1000, 500, 500)
    assert after(estimate, 2000, 0, 500) is estimate
    assert after(estimate, 1000, 500, 500) is estimate
    assert after(estimate, 2000, 500, 0) is estimate


@pytest.mark.parametrize("wrong", [{"min_rate": 0}, {"proportional": -1}, {"batch_interval_ms": 0}])
def test_settings_out_of_bounds_are_told(wrong):
    with pytest.raises(OptionError):
        PidSettings(**{"batch_interval_ms": 1000, **wrong})
