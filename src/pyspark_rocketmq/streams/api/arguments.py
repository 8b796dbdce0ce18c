"""The arguments of sources and sinks of topics. None replaces another one: what is given twice is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.options.declare import Options, given_value
from pyspark_rocketmq.streams.api.schema_config import SchemaConfig
from pyspark_rocketmq.streams.connectors.base import option_texts
from pyspark_rocketmq.streams.plan.times import Time, Window

__all__ = [
    "JavaArguments",
    "all_options",
    "check_accumulator",
    "check_names",
    "check_seconds",
    "check_window",
]

_SIZES: Final = ("size", "slide", "gap")
_ACCUMULATORS: Final = (
    ("addValue", "result", "clone"),
    ("createAccumulator", "accumulate", "getValue"),
)
"""The methods of an accumulator, in each API."""


def all_options(
    step: str, own: Mapping[str, Any], more: Mapping[str, Any], options: type[Options] | None = None
) -> dict[str, str]:
    """Return the options of a step in Spark's format.

    Parameters
    ----------
    step : str
    own : Mapping
        The options that are parameters of the method. None is not given.
    more : Mapping
        The other options.
    options : type, optional
        Declares the options with all their spellings.

    Raises
    ------
    PlanError
        An option is given twice, with different values.
    """
    parameters, others = option_texts(own), option_texts(more)
    for name, text in parameters.items():
        if options is not None:
            again = given_value(options, others, name)
        else:
            again = next((value for key, value in others.items() if key.lower() == name.lower()), None)
        if again not in {None, text}:
            raise PlanError(
                f"{name} is given twice, with different values: as a parameter and as an option; remove one",
                step=step,
            )
    return {**others, **parameters}


@dataclass(frozen=True, slots=True)
class JavaArguments:
    """The arguments of ``fromRocketmq`` after the group, as in Java or by name."""

    name_server: str | None
    tags: str | None
    is_json: bool
    config: SchemaConfig | None

    @classmethod
    def of(
        cls,
        step: str,
        more: Sequence[str | bool | SchemaConfig | None],
        *,
        name_server: str | None,
        tags: str | None,
        is_json: bool,
    ) -> Self:
        """Return the arguments.

        Raises
        ------
        PlanError
            They are not those of a method in Java, or one is given twice.
        """
        texts = [value for value in more if isinstance(value, str)]
        flags = [value for value in more if isinstance(value, bool)]
        configs = [value for value in more if isinstance(value, SchemaConfig)]
        if len(texts) > 2 or len(flags) > 1 or len(configs) > 1:
            raise PlanError(
                "fromRocketmq takes topic, groupName, then namesrvAddr; isJson, namesrvAddr; or tags, "
                "isJson, namesrvAddr; and a SchemaConfig",
                step=step,
            )
        if (
            (texts and name_server is not None)
            or (len(texts) > 1 and tags is not None)
            or (flags and is_json)
        ):
            raise PlanError("an argument is given twice, by its place and by its name: remove one", step=step)
        return cls(
            name_server=texts[-1] if texts else name_server,
            tags=texts[0] if len(texts) > 1 else tags,
            is_json=flags[0] if flags else is_json,
            config=configs[0] if configs else None,
        )


def check_seconds(seconds: Any, method: str, step: str) -> None:
    """Raise a PlanError for what is no number of seconds from 0."""
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds < math.inf:
        raise PlanError(f"{method} must be at least 0 seconds", step=step, seconds=seconds)


def check_names(names: Sequence[object], method: str, step: str) -> None:
    """Raise a PlanError for names of fields that are no texts, such as a list of them."""
    for name in names:
        if not isinstance(name, str):
            raise PlanError(
                f"{method} takes names of fields, such as {method}('a', 'b'), not {name!r}", step=step
            )


def check_window(window: object, step: str) -> None:
    """Raise a PlanError for what is no window, or a window of what is no duration."""
    sizes = [getattr(window, size) for size in _SIZES if hasattr(window, size)]
    if not isinstance(window, Window) or not all(isinstance(size, Time) for size in sizes):
        raise PlanError(
            f"a window is TumblingWindow.of(Time.seconds(10)) or its kin, not {window!r}", step=step
        )


def check_accumulator(accumulator: object, step: str) -> None:
    """Raise a PlanError for what is no accumulator of either API, such as the class of one."""
    complete = any(all(hasattr(accumulator, name) for name in names) for names in _ACCUMULATORS)
    if isinstance(accumulator, type) or not complete:
        raise PlanError(
            f"aggregate takes an object with {' or '.join(map(', '.join, _ACCUMULATORS))}, "
            f"not {accumulator!r}",
            step=step,
        )
