"""What the entry points refuse before anything runs, and arguments in Kafka's words."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyspark_rocketmq.dstream.strategies import (
    ConsumerStrategy,
    EarliestStrategy,
    LatestStrategy,
    LocationStrategy,
    SpecificOffsetStrategy,
    Strategy,
)
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import CompatibilityWarning, SourceOptions, list_spellings
from pyspark_rocketmq.options.choices import KAFKA_RESET
from pyspark_rocketmq.options.declare import list_declared

__all__ = ["check_frame", "check_reading", "check_stream", "with_kafka_reset"]

_OF_RANGES: Final = ("topic", "subscribePattern", "assign", "isolation")
"""What the ranges of an RDD have decided, in addition to where reading starts and ends."""
_KAFKA_RESET: Final = "auto.offset.reset"


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
    bounds = {
        each.name for each in list_declared(SourceOptions) if each.name.startswith(("starting", "ending"))
    }
    replacing = list_spellings(SourceOptions, {*_OF_RANGES, *bounds})
    for name in names:
        if name.lower() in replacing:
            raise OptionError(
                "toDF reads the ranges of the RDD, which an option cannot replace: use spark.read",
                option=name,
            )


def with_kafka_reset(strategy: Strategy, options: Mapping[str, Any]) -> tuple[Strategy, Mapping[str, Any]]:
    """Translate Kafka's ``auto.offset.reset`` to the equivalent strategy, with a warning.

    Raises
    ------
    OptionError
        The value is another one, or the strategy is not the default.
    """
    named = [key for key in options if key.lower() == _KAFKA_RESET]
    if not named:
        return strategy, options
    value = str(options[named[0]])
    meant: dict[str, Strategy] = {"earliest": ConsumerStrategy.earliest, "latest": ConsumerStrategy.latest}
    wanted = meant.get(KAFKA_RESET.get(value.lower(), ""))
    if wanted is None or strategy not in [ConsumerStrategy.earliest, wanted]:
        raise OptionError(
            f"{_KAFKA_RESET} is smallest or largest (earliest or latest), and no other consumerStrategy is "
            "given beside it",
            option=_KAFKA_RESET,
            value=value,
            consumerStrategy=strategy,
        )
    warnings.warn(
        f"{_KAFKA_RESET}={value} became ConsumerStrategy.{KAFKA_RESET[value.lower()]}: the group's committed "
        "offset, and only where it has none this end of the queue",
        CompatibilityWarning,
        stacklevel=3,
    )
    return wanted, {key: text for key, text in options.items() if key not in named}
