"""Output of the command line: tables for people, JSON for programs, examples in every help text."""

from __future__ import annotations

import dataclasses
import enum
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from pyspark_rocketmq.model import Message

__all__ = ["AsJson", "console", "examples", "print_json", "print_table", "table", "timestamp"]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def examples(*lines: str) -> str:
    """Return the examples at the end of a command's help, as Markdown. ``lines`` omit the program's name."""
    return "\n".join(["```", *(f"pyspark-rocketmq {line}" for line in lines), "```"])


def console() -> Console:
    """Return a console for stdout, without colors and wrapping if stdout is not a terminal."""
    terminal = sys.stdout.isatty()
    return Console(highlight=False, soft_wrap=not terminal, width=None if terminal else _WIDE)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> Table:
    """Return a table. Numbers are right-aligned and have thousands separators."""
    cells = [list(row) for row in rows]
    made = Table(box=SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left", title_style="bold")
    for at, name in enumerate(columns):
        numeric = any(isinstance(row[at], int | float) for row in cells)
        made.add_column(name, justify="right" if numeric else "left", no_wrap=numeric, overflow="fold")
    for row in cells:
        made.add_row(*map(_cell, row))
    return made


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None
) -> None:
    """Print a table."""
    console().print(table(columns, rows, title=title))


def print_json(value: object) -> None:
    """Print a value as JSON: dataclasses as objects, enums by their value, bytes as text."""
    typer.echo(json.dumps(_plain(value), ensure_ascii=False, indent=2))


def timestamp(milliseconds: int) -> str:
    """Return a timestamp in local time, or an empty text for 0, which brokers report for "none"."""
    if milliseconds <= 0:
        return ""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone()
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{milliseconds % 1000:03}"


_WIDE = 200


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case _:
            return str(value)


def _plain(value: object) -> Any:
    if isinstance(value, Message):
        value = value._asdict()
    if isinstance(value, enum.Enum):
        return value.name if isinstance(value, enum.Flag) else value.value
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value
