"""What a person sees of long work: a bar with rate and time left; nothing where there is no terminal."""

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
"""Called with how much more has been done."""


class _RateColumn(ProgressColumn):
    """How much was done, and how much a second."""

    def render(self, task: Task) -> Text:
        rate = "" if task.speed is None else f", {task.speed:,.0f}/s"
        return Text(f"{task.completed:,.0f} {task.fields['unit']}{rate}")


@contextlib.contextmanager
def progress(what: str, *, total: float | None = None, unit: str = "messages") -> Iterator[Advance]:
    """Show a bar on the standard error, if that is a terminal, until the block ends.

    Parameters
    ----------
    what : str
    total : float, optional
        Without it there is no time left to tell.
    unit : str
        Of ``total``, and of what the yielded function is called with.
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
