"""Plots of a query log."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_rocketmq.dashboard.history import QueryHistory, QueryLogReader
from pyspark_rocketmq.errors import OptionError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_lag", "plot_rates"]


def plot_lag(folder: str | Path, query: str | None = None, *, ax: Axes | None = None) -> Axes:
    """Plot the lag of each queue over time.

    Parameters
    ----------
    folder : str or Path
        The folder of a `QueryLog`.
    query : str, optional
        A query's name or id; its newest run is plotted. Default: the newest query.
    ax : matplotlib.axes.Axes, optional
        The axes to draw on. Default: a new figure.

    Raises
    ------
    OptionError
        The query does not exist.
    """
    run, axes = _run(folder, query), _axes(ax)
    times = [_moment(batch.at_ms) for batch in run.batches]
    for queue in sorted({queue for batch in run.batches for queue in batch.lag}):
        axes.plot(times, [batch.lag.get(queue) for batch in run.batches], label=queue)  # type: ignore[arg-type]
    return _label(axes, run, "messages behind")


def plot_rates(folder: str | Path, query: str | None = None, *, ax: Axes | None = None) -> Axes:
    """Plot the input and processing rates in rows per second. Parameters and errors as in `plot_lag`."""
    run, axes = _run(folder, query), _axes(ax)
    times = [_moment(batch.at_ms) for batch in run.batches]
    axes.plot(times, [batch.input_rate for batch in run.batches], label="in")  # type: ignore[arg-type]
    axes.plot(times, [batch.processed_rate for batch in run.batches], label="processed")  # type: ignore[arg-type]
    return _label(axes, run, "rows a second")


def _run(folder: str | Path, query: str | None) -> QueryHistory:
    runs = QueryLogReader(Path(folder)).look()
    found = [run for run in runs if query is None or query in (run.name, run.query_id)]
    if found:
        return max(found, key=lambda run: run.started_ms)
    there = ", ".join(sorted({run.name or run.query_id for run in runs})) or "none"
    raise OptionError(f"the log has no such query; it has {there}", query=query, folder=folder)


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt  # noqa: PLC0415 - half a second that tables do not need

    return plt.subplots(figsize=(8, 3))[1]


def _label(axes: Axes, run: QueryHistory, what: str) -> Axes:
    axes.set_title(f"{run.name or run.query_id}: {what}")
    axes.set_ylim(bottom=0)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize="small")
    return axes


def _moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)
