"""Backpressure: the rate of batches, estimated from the duration of the last ones.

Facts: ``PIDRateEstimator`` of Spark 4.3.0, whose numbers a test compares these with. Unlike Spark's this one
is a plain value: it goes into the checkpoint, so that the first batch after a recovery obeys it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark_rocketmq.errors import OptionError

__all__ = ["FinishedBatch", "PidSettings", "RateEstimate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PidSettings:
    """``spark.streaming.backpressure.pid.*``.

    Parameters
    ----------
    batch_interval_ms : int
    proportional, integral, derivative : float
        None below 0.
    min_rate : float
        Messages per second; above 0.

    Raises
    ------
    OptionError
        A setting is out of its bounds.
    """

    batch_interval_ms: int
    proportional: float = 1.0
    integral: float = 0.2
    derivative: float = 0.0
    min_rate: float = 100.0

    def __post_init__(self) -> None:
        if self.batch_interval_ms <= 0 or self.min_rate <= 0:
            raise OptionError("the batch interval and pid.minRate must be above 0", settings=repr(self))
        if min(self.proportional, self.integral, self.derivative) < 0:
            raise OptionError("no part of the PID estimator may be below 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedBatch:
    """Spark's report of a batch: its end (ms since the epoch), its size, its delays (ms)."""

    ended_at_ms: int
    messages: int
    processing_ms: int
    scheduling_ms: int


@dataclass(frozen=True, slots=True)
class RateEstimate:
    """The estimate after some batches; None before the second one.

    Parameters
    ----------
    rate : float, optional
        Messages per second.
    """

    rate: float | None = None
    latest_rate: float = -1.0
    latest_error: float = -1.0
    latest_time_ms: int = -1
    first: bool = True

    def after(self, batch: FinishedBatch, settings: PidSettings) -> RateEstimate:
        """Return the estimate after one more batch; empty batches do not change it."""
        if batch.ended_at_ms <= self.latest_time_ms or batch.messages <= 0 or batch.processing_ms <= 0:
            return self
        measured = batch.messages / batch.processing_ms * 1000
        if self.first:
            return RateEstimate(None, measured, 0.0, batch.ended_at_ms, first=False)
        since_s = (batch.ended_at_ms - self.latest_time_ms) / 1000
        error = self.latest_rate - measured
        # What waited: the scheduling delay, in messages, over a batch interval.
        historical = batch.scheduling_ms * measured / settings.batch_interval_ms
        change = (error - self.latest_error) / since_s
        rate = max(
            settings.min_rate,
            self.latest_rate
            - settings.proportional * error
            - settings.integral * historical
            - settings.derivative * change,
        )
        return replace(
            self, rate=rate, latest_rate=rate, latest_error=error, latest_time_ms=batch.ended_at_ms
        )
