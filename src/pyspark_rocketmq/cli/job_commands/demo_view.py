"""The demo's display: its phases, the stream, the revenue table and the timings."""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from pyspark_rocketmq.demo.orders import PRODUCTS, SPAN_MS, WINDOW_MS, Total, Totals
from pyspark_rocketmq.demo.run import DemoRun
from pyspark_rocketmq.demo.timeline import Phase

__all__ = ["LiveView", "result_json", "result_view", "summary"]

_BAR: Final = 24
_THOUSANDS_FROM: Final = 10_000
_RATE_SPAN_S: Final = 3.0


class LiveView:
    """Draws a running demo."""

    def __init__(self, run: DemoRun) -> None:
        self._run = run
        self._spinner = Spinner("dots", style="cyan")
        self._history: deque[tuple[float, int, int]] = deque()

    def render(self) -> RenderableType:
        """Return the current display."""
        run = self._run
        parts: list[RenderableType] = [_title(), self._phases()]
        if run.feed is not None:
            parts += [self._stream(), _revenue(run.totals)]
        return Group(*parts)

    def _phases(self) -> Table:
        table = Table.grid(padding=(0, 1))
        for phase in self._run.timeline.phases:
            running = phase.end_s is None
            mark = self._spinner if running else Text("✔", style="green")
            seconds = (self._run.timeline.now_s() if phase.end_s is None else phase.end_s) - phase.start_s
            table.add_row(mark, phase.name, f"{seconds:5.1f} s", Text(phase.note, style="dim"))
        return table

    def _stream(self) -> Table:
        run = self._run
        total = run.settings.messages
        sent_rate, read_rate = self._rates()
        table = Table.grid(padding=(0, 1))
        table.add_column(min_width=6)
        for name, count, rate in (("sent", run.sent, sent_rate), ("read", run.read, read_rate)):
            bar = ProgressBar(total=total, completed=count, width=_BAR)
            table.add_row(name, bar, f"{count:>11,} / {total:,}", f"{rate:>9,.0f} /s")
        stream = run.stream
        if stream is not None and stream.batches:
            facts = f"lag {run.sent - run.read:,} · batch {stream.batches} took {stream.batch_s:.2f} s"
            table.add_row("", Text(facts, style="dim"))
        return table

    def _rates(self) -> tuple[float, float]:
        """Return the send and read rates per second, over the last few seconds."""
        run, history = self._run, self._history
        history.append((run.timeline.now_s(), run.sent, run.read))
        while history[-1][0] - history[0][0] > _RATE_SPAN_S:
            history.popleft()
        (start, sent, read), (end, sent_now, read_now) = history[0], history[-1]
        seconds = end - start
        return ((sent_now - sent) / seconds, (read_now - read) / seconds) if seconds > 0 else (0.0, 0.0)


def result_view(run: DemoRun) -> RenderableType:
    """Return the result table and timings of a finished run."""
    return Group(_title(), _revenue(run.totals), _where_time_went(run))


def result_json(run: DemoRun) -> dict[str, object]:
    """Return the result of a finished run as plain values, with money in cents."""
    return {
        "nameServer": run.name_server,
        "topic": run.topic,
        "sent": run.sent,
        "read": run.read,
        "cents": sum(total.cents for total in run.totals.values()),
        "differences": len(run.differences),
        "seconds": {phase.name: round(_seconds(phase), 3) for phase in run.timeline.phases},
        "revenue": [
            {"windowStart": start, "product": product, "orders": total.orders, "cents": total.cents}
            for (start, product), total in sorted(run.totals.items())
        ],
    }


def summary(run: DemoRun) -> Text:
    """Return the verdict and the next steps."""
    text = Text()
    grand = sum(run.totals.values(), Total())
    if run.differences:
        sent = sum(run.expected.values(), Total())
        text.append("✘ ", style="red")
        text.append(
            f"{len(run.differences)} of {len(run.expected)} sums differ from what was sent: "
            f"{grand.orders:,} of {sent.orders:,} orders, {_money(grand.cents)} of {_money(sent.cents)}\n"
        )
    else:
        text.append("✔ ", style="green")
        text.append(
            f"{grand.orders:,} orders, {_money(grand.cents)}: each of {len(run.totals)} sums equals what was "
            "sent, to the cent\n"
        )
    if run.settings.keep:
        text.append(f"The topic {run.topic} stays. Read it again:\n", style="dim")
        text.append(
            f'  spark.read.format("rocketmq").option("nameServer", "{run.name_server}")'
            f'.option("topic", "{run.topic}").load().show()\n'
        )
        if run.settings.name_server is None:
            text.append("  and stop RocketMQ with: pyspark-rocketmq cluster stop\n")
    return text


def _title() -> Text:
    return Text.assemble(
        ("pyspark-rocketmq", "bold"), ("   orders → RocketMQ → Spark → revenue, as it grows\n", "dim")
    )


def _revenue(totals: Totals) -> Table:
    """Return a table of products by windows, with revenue in the cells."""
    table = Table(box=SIMPLE_HEAD, show_footer=True, pad_edge=False)
    starts = sorted({start for start, _ in totals}) or [0]
    starts = [starts[0] + number * WINDOW_MS for number in range(SPAN_MS // WINDOW_MS)] if totals else []
    table.add_column("Product", "Total", footer_style="bold", no_wrap=True)
    for start in starts:
        cents = sum(total.cents for (at, _), total in totals.items() if at == start)
        name = datetime.fromtimestamp(start / 1000, UTC).strftime("%H:%M")
        table.add_column(name, _euros(cents), justify="right", no_wrap=True)
    grand = sum(totals.values(), Total())
    table.add_column("Orders", f"{grand.orders:,}", justify="right", no_wrap=True)
    table.add_column("Revenue", _money(grand.cents), justify="right", no_wrap=True, style="bold green",
                     footer_style="bold green")  # fmt: skip
    for product in PRODUCTS:
        cells = [totals.get((start, product), Total()) for start in starts]
        whole = sum(cells, Total())
        table.add_row(
            product, *(_euros(cell.cents) for cell in cells), f"{whole.orders:,}", _money(whole.cents)
        )
    return table


def _where_time_went(run: DemoRun) -> Table:
    table = Table.grid(padding=(0, 1))
    phases = run.timeline.phases
    end_s = max(phase.end_s or 0.0 for phase in phases)
    for phase in phases:
        table.add_row(
            phase.name, f"{_seconds(phase):5.1f} s", _bar(phase, end_s), Text(phase.note, style="dim")
        )
    rest = next(_seconds(phase) for phase in phases if phase.name == "stream the rest")
    first = next(_seconds(phase) for phase in phases if phase.name == "first rows")
    rate = run.read / (first + rest)
    table.add_row(
        Text("all", style="bold"), f"{end_s:5.1f} s", "", Text(f"{rate:,.0f} orders/s streamed", style="dim")
    )
    return table


def _bar(phase: Phase, end_s: float) -> Text:
    """Return the phase as a segment of the whole run."""
    start = round(phase.start_s / end_s * _BAR)
    length = max(1, round((phase.end_s or end_s) / end_s * _BAR) - start)
    start = min(start, _BAR - length)
    return Text(" " * start + "━" * length + " " * (_BAR - start - length), style="cyan")


def _seconds(phase: Phase) -> float:
    return (phase.end_s or phase.start_s) - phase.start_s


def _money(cents: int) -> str:
    return f"€{cents // 100:,}.{cents % 100:02}"


def _euros(cents: int) -> str:
    euros = cents / 100
    if not cents:
        return "·"
    return f"{euros:,.0f}" if euros < _THOUSANDS_FROM else f"{euros / 1000:,.0f}k"
