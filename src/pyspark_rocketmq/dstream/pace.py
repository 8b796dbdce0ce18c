"""The rate limits of a DStream: Spark's backpressure settings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.planning.rate import PidSettings

__all__ = ["Pace", "pace_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The rate limits of batches.

    Parameters
    ----------
    pid : PidSettings
    backpressure : bool
        ``spark.streaming.backpressure.enabled``.
    initial_rate : int, optional
        Messages per second over all queues, until backpressure has an estimate.
    """

    pid: PidSettings
    backpressure: bool = False
    initial_rate: int | None = None


def pace_of(setting: Callable[[str], str | None], batch_interval_ms: int) -> Pace:
    """Return the settings ``spark.streaming.backpressure.*`` of a SparkConf.

    Raises
    ------
    OptionError
        A setting is no number, or a rate is not above 0.
    """
    prefix = "spark.streaming.backpressure"
    text = setting(f"{prefix}.initialRate")
    try:
        initial = int(text) if text else None
    except ValueError:
        raise OptionError(f"{prefix}.initialRate must be a whole number", value=text) from None
    if initial is not None and initial <= 0:
        raise OptionError(f"{prefix}.initialRate must be above 0", value=text)

    def number(name: str, default: str) -> float:
        given = setting(f"{prefix}.pid.{name}") or default
        try:
            found = float(given)
        except ValueError:
            found = math.nan
        if not math.isfinite(found):
            raise OptionError(f"{prefix}.pid.{name} must be a number", value=given)
        return found

    return Pace(
        pid=PidSettings(
            batch_interval_ms=batch_interval_ms,
            proportional=number("proportional", "1.0"),
            integral=number("integral", "0.2"),
            derivative=number("derived", "0.0"),
            min_rate=number("minRate", "100"),
        ),
        backpressure=(setting(f"{prefix}.enabled") or "false").lower() == "true",
        initial_rate=initial,
    )
