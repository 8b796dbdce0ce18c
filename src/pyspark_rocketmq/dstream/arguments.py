"""What the entry points refuse before anything runs: arguments of the wrong kind."""

from __future__ import annotations

from typing import Any

from pyspark_rocketmq.dstream.strategies import (
    EarliestStrategy,
    LatestStrategy,
    LocationStrategy,
    SpecificOffsetStrategy,
)
from pyspark_rocketmq.errors import OptionError

__all__ = ["check_reading", "check_stream"]


def check_reading(location: Any, handler: Any) -> None:
    """Check what an RDD and a stream have in common.

    Raises
    ------
    OptionError
        The location strategy is none, or the message handler cannot be called.
    """
    if not isinstance(location, LocationStrategy):
        raise OptionError(
            "locationStrategy is LocationStrategies.PreferConsistent or .PreferFixed({...})",
            locationStrategy=location,
        )
    if handler is not None and not callable(handler):
        raise OptionError("messageHandler is a function of a Message", messageHandler=handler)


def check_stream(strategy: Any, location: Any, handler: Any, **flags: Any) -> None:
    """Check the arguments of a direct stream. A text such as ``"false"`` would be true.

    Raises
    ------
    OptionError
        An argument is of the wrong kind.
    """
    check_reading(location, handler)
    if not isinstance(strategy, EarliestStrategy | LatestStrategy | SpecificOffsetStrategy):
        raise OptionError(
            "consumerStrategy is ConsumerStrategy.earliest, .latest or .specificOffset({...})",
            consumerStrategy=strategy,
        )
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise OptionError(f"{name} is True or False", value=flag)
