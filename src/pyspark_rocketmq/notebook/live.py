"""A live table of a DataFrame."""

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
from pyspark_rocketmq.spark.query_end import stop_query

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
    """Show a DataFrame in a table that is refreshed until a limit is reached or the cell is interrupted.

    A stream runs as a separate query with a memory sink. It starts where its options say and leaves no
    checkpoint. Show aggregations, or limit the rows, because the sink uses the driver's memory. A batch
    DataFrame is read again at each refresh.

    Parameters
    ----------
    df : DataFrame
    seconds, batches : optional
        The duration, or the number of finished batches of a stream. Default: until the cell is interrupted.
    every : float
        Seconds between refreshes.
    rows : int
        Number of rows: the last ones of a stream, the first ones of a batch DataFrame.
    mode : str
        A stream's output mode. Use ``"complete"`` or ``"update"`` for aggregations.

    Returns
    -------
    Shown
        The last table shown.

    Raises
    ------
    OptionError
        A number is not above 0.
    pyspark.errors.StreamingQueryException
        The stream failed.
    """
    if every <= 0 or rows < 1:
        raise OptionError("every and rows must be above 0", every=every, rows=rows)
    deadline = None if seconds is None else Deadline(clock, seconds * 1000)
    with _look(df, rows, mode) as look:
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
def _look(df: DataFrame, rows: int, mode: str) -> Iterator[Callable[[], tuple[Shown, int]]]:
    """Yield a function that returns the current table and its number of a stream's batches."""
    if not df.isStreaming:
        yield lambda: (_show(df.limit(rows), f"the first {rows} rows"), 0)
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
        return _show(table, f"{batch}, the last {rows} rows", last=rows), finished

    try:
        yield look
    finally:
        stop_query(query)
        df.sparkSession.catalog.dropTempView(name)


def _show(df: DataFrame, title: str, *, last: int | None = None) -> Shown:
    found = df.collect() if last is None else df.tail(last)
    return Shown(title, df.columns, [tuple(row) for row in found])
