"""A progress bar with rate and time left for long work. Without a terminal nothing is shown."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

__all__ = ["Advance", "progress"]

Advance = Callable[[float], None]
"""Called with the amount of work done since the last call."""


class _RateColumn(ProgressColumn):
    """The amount done, and the rate per second."""

    def render(self, task: Task) -> Text:
        rate = "" if task.speed is None else f", {task.speed:,.0f}/s"
        return Text(f"{task.completed:,.0f} {task.fields['unit']}{rate}")


@contextlib.contextmanager
def progress(what: str, *, total: float | None = None, unit: str = "messages") -> Iterator[Advance]:
    """Show a progress bar on standard error, if that is a terminal, until the block ends.

    Parameters
    ----------
    what : str
    total : float, optional
        Without it the time left is not shown.
    unit : str
        The unit of ``total`` and of the yielded function's argument.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    known = total is not None
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        *((BarColumn(),) if known else ()),
        _RateColumn(),
        *((TimeRemainingColumn(),) if known else (TimeElapsedColumn(),)),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total, unit=unit)
        yield lambda more: bar.advance(task, more)
