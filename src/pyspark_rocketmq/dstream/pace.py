"""The rate limits of a DStream: Spark's backpressure settings."""

from __future__ import annotations

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
        A rate is not above 0.
    """
    prefix = "spark.streaming.backpressure"
    initial = setting(f"{prefix}.initialRate")
    if initial and int(initial) <= 0:
        raise OptionError(f"{prefix}.initialRate must be above 0", value=initial)

    def number(name: str, default: str) -> float:
        return float(setting(f"{prefix}.pid.{name}") or default)

    return Pace(
        pid=PidSettings(
            batch_interval_ms=batch_interval_ms,
            proportional=number("proportional", "1.0"),
            integral=number("integral", "0.2"),
            derivative=number("derived", "0.0"),
            min_rate=number("minRate", "100"),
        ),
        backpressure=(setting(f"{prefix}.enabled") or "false").lower() == "true",
        initial_rate=int(initial) if initial else None,
    )
