"""Policies of regular replays: which dead letters of which groups, how often, how many times each.

The file::

    every = "10m"

    [[replay]]
    group = "billing"
    maxAge = "7d"
    maxReplays = 3
    rate = 50
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model.names import suggest_names
from pyspark_rocketmq.options.text.kinds import parse_duration_ms
from pyspark_rocketmq.tools.origins import Origin
from pyspark_rocketmq.tools.replay import ReplayFilter
from pyspark_rocketmq.tools.transfer.pace import A_RATE, check_rate

__all__ = ["ReplayPolicy", "ReplayRule", "parse_policy", "read_policy"]

_KEYS: Final = (
    "group",
    "from",
    "to",
    "tags",
    "keys",
    "topic",
    "text",
    "limit",
    "rate",
    "maxAge",
    "maxReplays",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRule:
    """What is replayed of one group.

    Parameters
    ----------
    group : str
    origin : Origin
    to : str, optional
        The topic to send to. Default: each message's original topic.
    chosen : ReplayFilter
    rate : float
        Maximum messages per second; 0 for no limit.
    max_age_ms : int, optional
        Older messages are not replayed.
    max_replays : int
        A message that was replayed this number of times is not replayed again.
    """

    group: str
    origin: Origin = Origin.DLQ
    to: str | None = None
    chosen: ReplayFilter = field(default_factory=ReplayFilter)
    rate: float = 0
    max_age_ms: int | None = None
    max_replays: int = 3

    def chosen_at(self, now_ms: int) -> ReplayFilter:
        """Return the filter of a run at this time."""
        since_ms = None if self.max_age_ms is None else now_ms - self.max_age_ms
        return replace(self.chosen, since_ms=since_ms, max_replays=self.max_replays)


@dataclass(frozen=True, slots=True)
class ReplayPolicy:
    """Rules, and the pause between their runs; None for one run."""

    rules: tuple[ReplayRule, ...]
    every_ms: int | None


def read_policy(path: str) -> ReplayPolicy:
    """Read a file of rules.

    Raises
    ------
    OptionError
        The file cannot be read, or is invalid.
    """
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise OptionError(f"the policy cannot be read: {error.strerror}", file=path) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise OptionError(f"the policy is not TOML: {error}", file=path) from error
    return parse_policy(content, path)


def parse_policy(content: Mapping[str, Any], path: str) -> ReplayPolicy:
    """Return the rules of a parsed file.

    Raises
    ------
    OptionError
        A key is unknown, or a value malformed.
    """
    _check_keys(content, ("every", "replay"), path)
    rules = content.get("replay")
    if not isinstance(rules, list) or not rules or not all(isinstance(each, dict) for each in rules):
        raise OptionError("a policy has one or more tables [[replay]]", file=path)
    every = content.get("every")
    parsed = tuple(_rule(each, path) for each in rules)
    for at, rule in enumerate(parsed):
        if any((each.group, each.origin) == (rule.group, rule.origin) for each in parsed[:at]):
            raise OptionError(
                "a group has one position, so one table of a policy: the second would find nothing",
                file=path,
                group=rule.group,
            )
    return ReplayPolicy(parsed, None if every is None else _duration(every, "every", path))


def _rule(given: Mapping[str, Any], path: str) -> ReplayRule:
    _check_keys(given, _KEYS, path)
    group = given.get("group")
    if not isinstance(group, str) or not group:
        raise OptionError("a table [[replay]] needs group, the consumer group's name", file=path)
    max_age = given.get("maxAge")
    return ReplayRule(
        group=group,
        origin=_origin(given.get("from", "dlq"), path),
        to=_text(given, "to", path),
        chosen=ReplayFilter(
            tags=_texts(given, "tags", path),
            keys=_texts(given, "keys", path),
            topic=_text(given, "topic", path),
            text=_text(given, "text", path),
            limit=_count(given, "limit", None, path),
        ),
        rate=_rate(given.get("rate", 0), path),
        max_age_ms=None if max_age is None else _duration(max_age, "maxAge", path),
        max_replays=_count(given, "maxReplays", 3, path) or 3,
    )


def _check_keys(given: Mapping[str, Any], known: tuple[str, ...], path: str) -> None:
    for key in given:
        if key not in known:
            hint = suggest_names(key, known) or f"known are {', '.join(known)}"
            raise OptionError(f"unknown key {key}: {hint}", file=path)


def _duration(value: Any, name: str, path: str) -> int:
    try:
        if isinstance(value, str) and (found := parse_duration_ms(value)) > 0:
            return found
    except ValueError:
        pass
    raise OptionError(f'{name} takes a duration, such as "10m", "36h" or "7d"', file=path, given=value)


def _origin(value: Any, path: str) -> Origin:
    try:
        return Origin(value)
    except ValueError:
        names = " or ".join(each.value for each in Origin)
        raise OptionError(f"from takes {names}", file=path, given=value) from None


def _text(given: Mapping[str, Any], name: str, path: str) -> str | None:
    value = given.get(name)
    if value is not None and (not isinstance(value, str) or not value):
        raise OptionError(f"{name} takes a text", file=path, given=value)
    return value


def _texts(given: Mapping[str, Any], name: str, path: str) -> frozenset[str]:
    value = given.get(name, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise OptionError(f"{name} takes a list of texts", file=path, given=value)
    return frozenset(value)


def _count(given: Mapping[str, Any], name: str, default: int | None, path: str) -> int | None:
    value = given.get(name, default)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise OptionError(f"{name} takes a whole number from 1", file=path, given=value)
    return value


def _rate(value: Any, path: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise OptionError(f"rate takes {A_RATE}", file=path, given=value)
    return check_rate(value, file=path)
