"""The settings of a job: ``SET`` and ``RESET``, without Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import JobOptions, list_spellings, option_reference, parse_options

__all__ = ["Settings", "first_settings", "query_checkpoint", "spark_setting", "trigger_of_ttl"]

_SPARK_SETTINGS: Final[Mapping[str, str]] = {
    "parallelism.default": "spark.sql.shuffle.partitions",
    "table.exec.resource.default-parallelism": "spark.sql.shuffle.partitions",
    "table.local-time-zone": "spark.sql.session.timeZone",
}
"""Flink's settings and the corresponding Spark settings."""

_SHORTEST_OF_TTL_MS: Final = 1_000
_NEXT_INSERT: Final = "queryName"
_SPELLINGS: Final[Mapping[str, frozenset[str]]] = {
    name.lower(): list_spellings(JobOptions, {row.name})
    for row in option_reference(JobOptions)
    for name in (row.name, *row.aliases)
}
"""All names of a setting, by each of them."""
_WITHOUT_EFFECT: Final = frozenset(name.lower() for name in JobOptions.COMPATIBILITY)


def spark_setting(name: str) -> str | None:
    """Return the name of the Spark setting that a setting is or corresponds to; None if it is the job's."""
    spark_name = _SPARK_SETTINGS.get(name.lower(), name)
    return spark_name if spark_name.startswith("spark.") else None


def first_settings(settings: Mapping[str, str] | None, checkpoint_location: str | None) -> dict[str, str]:
    """Return the settings that a job begins with, in the order in which they apply."""
    checkpoint = {} if checkpoint_location is None else {"checkpointLocation": checkpoint_location}
    return dict(settings or {}) | checkpoint


def query_checkpoint(options: JobOptions, name: str) -> str:
    """Return the checkpoint of a streaming query: the folder with its name.

    Raises
    ------
    OptionError
        No place of checkpoints is set, or the name's folder is not in it.
    """
    if options.checkpoint_location is None:
        raise OptionError(
            "a streaming query needs a checkpoint, from which it continues after a restart: SET "
            "'checkpointLocation' = '/a/folder' (or --checkpoint)"
        )
    if not {"", ".", ".."}.isdisjoint(re.split(r"[/\\]", name)):
        raise OptionError(
            f"{name!r} cannot be the name of a query, because its checkpoint would not be a folder in "
            "checkpointLocation: SET 'queryName' = 'another-name'",
            option="queryName",
        )
    return f"{options.checkpoint_location.rstrip('/')}/{name}"


def trigger_of_ttl(options: JobOptions) -> int:
    """Return the interval of a query whose state has a time to live: Spark runs a batch at each trigger.

    Raises
    ------
    OptionError
        The query would never end.
    """
    if options.trigger_ms is None:
        raise OptionError(
            "a query whose state has a time to live has no end: SET 'trigger' to an interval, such as '10 s' "
            "or RESET 'table.exec.state.ttl'",
            option="trigger",
        )
    return max(options.trigger_ms, _SHORTEST_OF_TTL_MS)


class Settings:
    """The job's own settings.

    Attributes
    ----------
    options : JobOptions
        The settings as values.
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self.options = parse_options(JobOptions, {})

    def set(self, name: str, value: str) -> None:
        """Change a setting.

        Raises
        ------
        OptionError
            The setting is unknown, or the value is not one of its.
        """
        self._use(self._without(name) | {name: value})

    def reset(self, name: str | None) -> None:
        """Forget a setting, or all.

        Raises
        ------
        OptionError
            The setting is unknown.
        """
        if name is not None and name.lower() not in _SPELLINGS.keys() | _WITHOUT_EFFECT:
            parse_options(JobOptions, {name: ""})  # says which settings there are
        self._use({} if name is None else self._without(name))

    def insert_begins(self) -> None:
        """Forget the settings that apply to one INSERT."""
        self._use(self._without(_NEXT_INSERT))

    def _without(self, name: str) -> dict[str, str]:
        """Return the settings without this one, under whichever of its names."""
        names = _SPELLINGS.get(name.lower(), {name.lower()})
        return {key: value for key, value in self._texts.items() if key.lower() not in names}

    def _use(self, texts: dict[str, str]) -> None:
        self.options = parse_options(JobOptions, texts)
        self._texts = texts
