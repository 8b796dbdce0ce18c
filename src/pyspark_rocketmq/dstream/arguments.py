"""What the entry points refuse before anything runs: arguments of the wrong kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pyspark_rocketmq.dstream.strategies import (
    EarliestStrategy,
    LatestStrategy,
    LocationStrategy,
    SpecificOffsetStrategy,
)
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import SourceOptions
from pyspark_rocketmq.options.declare import list_declared

__all__ = ["check_frame", "check_reading", "check_stream"]

_OF_RANGES: Final = ("topic", "subscribePattern", "assign", "isolation")
"""What the ranges of an RDD have decided, in addition to where reading starts and ends."""


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


def check_frame(names: Iterable[str]) -> None:
    """Check the options of a DataFrame of an RDD's ranges.

    Raises
    ------
    OptionError
        One would replace the ranges.
    """
    replacing = {
        spelling.lower()
        for each in list_declared(SourceOptions)
        if each.name in _OF_RANGES or each.name.startswith(("starting", "ending"))
        for spelling in each.spellings
    }
    for name in names:
        if name.lower() in replacing:
            raise OptionError(
                "toDF reads the ranges of the RDD, which an option cannot replace: use spark.read",
                option=name,
            )
