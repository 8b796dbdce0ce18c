"""Output of the command line: tables for people, JSON for programs, examples in every help text."""

from __future__ import annotations

import dataclasses
import enum
import json
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from pyspark_rocketmq.errors import RocketMQError
    from pyspark_rocketmq.model import MessageQueue

__all__ = ["AsJson", "console", "examples", "name_queue", "print_applied", "print_json", "print_table"]
__all__ += ["show_offset", "table", "timestamp", "to_plain", "warn_of"]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def examples(*lines: str) -> str:
    """Return the examples at the end of a command's help, as Markdown. ``lines`` omit the program's name."""
    return "\n".join(["```", *(f"pyspark-rocketmq {line}" for line in lines), "```"])


def console() -> Console:
    """Return a console for stdout. If that is not a terminal: no colors, and lines as wide as $COLUMNS."""
    from rich.console import Console

    terminal = sys.stdout.isatty()
    return Console(highlight=False, soft_wrap=not terminal, width=None if terminal else _piped_width())


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    right: Collection[str] = (),
) -> Table:
    """Return a table. Numbers have thousands separators; they and the columns ``right`` are right-aligned."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    cells = [list(row) for row in rows]
    shown = None if title is None else escape(title)
    made = Table(box=SIMPLE_HEAD, pad_edge=False, title=shown, title_justify="left", title_style="bold")
    for at, name in enumerate(columns):
        numeric = any(isinstance(row[at], int | float) for row in cells)
        justify: Literal["left", "right"] = "right" if numeric or name in right else "left"
        made.add_column(escape(name), justify=justify, no_wrap=numeric, overflow="fold")
    for row in cells:
        made.add_row(*map(_cell, row))
    return made


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    right: Collection[str] = (),
) -> None:
    """Print a table."""
    console().print(table(columns, rows, title=title, right=right))


def print_applied(*, applied: bool) -> None:
    """Print whether a shown change was applied, and how to apply it."""
    console().print("done" if applied else "nothing was changed: apply it with --yes")


def print_json(value: object) -> None:
    """Print a value as JSON; see `to_plain`."""
    typer.echo(json.dumps(to_plain(value), ensure_ascii=False, indent=2))


def name_queue(queue: MessageQueue) -> str:
    """Return a queue's name within its topic."""
    return f"{queue.broker_name}:{queue.queue_id}"


def show_offset(committed: int | None) -> str:
    """Return a committed offset."""
    return "never" if committed is None else f"{committed:,}"


def warn_of(away: Mapping[str, RocketMQError]) -> None:
    """Print to stderr which brokers did not answer: the output is without them, also for programs."""
    if away:
        from pyspark_rocketmq.client.groups.group_lag import without

        print(f"warning: {without(away).removeprefix(', ')}", file=sys.stderr)


def timestamp(milliseconds: int) -> str:
    """Return a timestamp in local time with its offset, which every option that takes a time accepts.

    Brokers report 0 for "none", which is an empty text.
    """
    if milliseconds <= 0:
        return ""
    seconds, rest = divmod(milliseconds, 1000)
    try:
        moment = datetime.fromtimestamp(seconds, UTC).astimezone()
    except (ValueError, OverflowError, OSError):  # producers may send any number as the time of birth
        return str(milliseconds)
    return moment.replace(microsecond=rest * 1000).isoformat(timespec="milliseconds")


def to_plain(value: object, *, names: bool = False) -> Any:
    """Return a value for JSON: dataclasses as objects, enums by their value, bytes as text.

    Parameters
    ----------
    value : object
    names : bool
        The keys of this mapping are Python names, which become camelCase as the fields of dataclasses do.
    """
    if hasattr(value, "_asdict"):  # a named tuple
        value, names = value._asdict(), True
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        names = True
    match value:
        case enum.Enum():
            return value.name if isinstance(value, enum.Flag) else value.value
        case bytes():
            return value.decode(errors="backslashreplace")
        case Mapping():
            return {_camel(str(key)) if names else str(key): to_plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [to_plain(item) for item in value]
    return value


_WIDE: Final = 200
_NARROWEST: Final = 20


def _piped_width() -> int:
    columns = os.environ.get("COLUMNS", "")
    return max(_NARROWEST, int(columns)) if columns.isdecimal() and int(columns) else _WIDE


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _cell(value: object) -> str:
    from rich.markup import escape

    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case _:
            return escape(str(value))  # names and bodies may have [brackets]
