"""A table that follows a DataFrame."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from typing import Protocol

from IPython.display import display
from pyspark.sql import DataFrame

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock, Deadline
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.notebook.tables import Shown

__all__ = ["live"]


class _Display(Protocol):
    def update(self, obj: object) -> None: ...


def live(
    df: DataFrame,
    *,
    seconds: float | None = None,
    batches: int | None = None,
    every: float = 1.0,
    rows: int = 20,
    mode: str = "append",
    clock: Clock = SYSTEM_CLOCK,
) -> Shown:
    """Show a DataFrame in a table that is drawn anew until enough was seen or the cell is interrupted.

    A stream runs meanwhile as a query of its own with a sink in memory: it starts where its options say, and
    leaves no checkpoint behind. Show aggregations, or limit what comes: the memory is the driver's. A batch
    is read anew each time.

    Parameters
    ----------
    df : DataFrame
    seconds, batches : optional
        For how long, or how many finished batches of a stream; without both, until the cell is interrupted.
    every : float
        Seconds between two looks.
    rows : int
        The last rows of a stream, the first of a batch.
    mode : str
        A stream's output mode; aggregations take ``"complete"`` or ``"update"``.

    Returns
    -------
    Shown
        What was shown last.

    Raises
    ------
    OptionError
        A number that is not above 0.
    pyspark.errors.StreamingQueryException
        The stream failed.
    """
    if every <= 0 or rows < 1:
        raise OptionError("every and rows must be above 0", every=every, rows=rows)
    deadline = None if seconds is None else Deadline(clock, seconds * 1000)
    with _looking(df, rows, mode) as look:
        shown, finished = look()
        handle: _Display | None = display(shown, display_id=True)  # type: ignore[no-untyped-call]
        with contextlib.suppress(KeyboardInterrupt):
            while (deadline is None or not deadline.expired) and (batches is None or finished < batches):
                clock.sleep(every if deadline is None else min(every, deadline.remaining_s))
                shown, finished = look()
                if handle is not None:
                    handle.update(shown)
    return shown


@contextlib.contextmanager
def _looking(df: DataFrame, rows: int, mode: str) -> Iterator[Callable[[], tuple[Shown, int]]]:
    """Yield what returns the table of now, and how many batches of a stream it is made of."""
    if not df.isStreaming:
        yield lambda: (_shown(df.limit(rows), f"the first {rows} rows"), 0)
        return
    name = f"live_{secrets.token_hex(4)}"
    query = df.writeStream.format("memory").queryName(name).outputMode(mode).start()

    def look() -> tuple[Shown, int]:
        failure = query.exception()
        if failure is not None:
            raise failure
        progress = query.lastProgress
        finished = 0 if progress is None else progress.batchId + 1
        batch = f"batch {finished - 1}" if finished else "no batch yet"
        table = df.sparkSession.table(name)
        return _shown(table, f"{batch}, the last {rows} rows", last=rows), finished

    try:
        yield look
    finally:
        query.stop()
        df.sparkSession.catalog.dropTempView(name)


def _shown(df: DataFrame, title: str, *, last: int | None = None) -> Shown:
    found = df.collect() if last is None else df.tail(last)
    return Shown(title, df.columns, [tuple(row) for row in found])
