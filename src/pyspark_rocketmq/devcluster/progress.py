"""The progress display of downloading jars."""

from __future__ import annotations

import sys
from collections import deque
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

__all__ = ["DownloadProgress"]

_TAIL_LINES = 40


class DownloadProgress:
    """A progress bar driven by Ivy's output if stderr is a terminal, else one line.

    Ivy first reads the description of every artifact and then fetches the jars, so the number of
    jars is known when the second part begins.
    """

    def __init__(self, coordinates: tuple[str, ...], stream: TextIO | None = None) -> None:
        self._what = ", ".join(coordinates)
        self._stream = stream or sys.stderr
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._found = self._fetched = 0
        self._bar: Progress | None = None

    def line(self, line: str) -> None:
        """Process one line of Ivy's output."""
        self._tail.append(line)
        text = line.strip()
        if text.startswith("found "):
            self._found += 1
        elif text.startswith("[SUCCESSFUL"):
            self._fetched += 1
        else:
            return
        if self._bar is not None:
            step = "fetching jars" if self._fetched else "resolving"
            total = self._found if self._fetched else None
            self._bar.update(
                self._task, description=step, completed=self._fetched or self._found, total=total
            )

    def tail(self) -> str:
        """Return the last lines of Ivy's output."""
        return "\n".join(self._tail)

    def __enter__(self) -> Self:
        print(f"Fetching {self._what} (once, into the cache folder)", file=self._stream, flush=True)
        if self._stream.isatty():
            columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            self._bar = Progress(
                *columns,
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=Console(file=self._stream),
                transient=True,
            )
            self._task = self._bar.add_task("resolving", total=None)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
