"""Results as a table in the terminal, Markdown, JSON and plots."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from rich.console import Console
from rich.table import Table

from benchmarks.contender import Contender
from benchmarks.harness import Results, Round
from benchmarks.processes import KINDS

mpl.use("Agg")
from matplotlib import pyplot as plt

_HEAD = ("contender", "k msg/s (min-max)", "MB/s", "wall s", "first s", "CPU s/M client", "JVM", "Python",
         "broker", "peak MB", "others", "rounds")  # fmt: skip


class Report:
    """The named result of one run.

    Parameters
    ----------
    name : str
        The name of the files.
    title : str
    facts : mapping
        Facts of the machine and the case.
    baseline : str
        The contender to which ratios refer.
    """

    def __init__(
        self,
        name: str,
        title: str,
        *,
        contenders: Sequence[Contender],
        results: Results,
        facts: Mapping[str, object],
        baseline: str,
    ) -> None:
        self.name = name
        self._title = title
        self._contenders = [each for each in contenders if results.of(each.name)]
        self._results = results
        self._facts = facts
        self._baseline = baseline

    def print(self, console: Console) -> None:
        """Print the table."""
        table = Table(title=self._title, caption=self._caption())
        for head in (*_HEAD, f"vs {self._baseline}"):
            table.add_column(head, justify="left" if head == "contender" else "right")
        for contender in self._contenders:
            table.add_row(*self._cells(contender.name))
        console.print(table)

    def write(self, folder: Path) -> list[Path]:
        """Write Markdown, JSON and plots. Return the files."""
        folder.mkdir(parents=True, exist_ok=True)
        markdown, raw = folder / f"{self.name}.md", folder / f"{self.name}.json"
        markdown.write_text(self._markdown(), encoding="utf-8")
        document = {
            "title": self._title,
            "facts": self._facts,
            "baseline": self._baseline,
            **self._results.as_json(),
        }
        raw.write_text(json.dumps(document, indent=1), encoding="utf-8")
        return [markdown, raw, *self._plot(folder)]

    def _cells(self, name: str) -> list[str]:
        rounds = self._results.of(name)

        def median(figure: str) -> float:
            return statistics.median(getattr(each, figure) for each in rounds)

        rates = sorted(each.rate / 1e3 for each in rounds)
        cpu = [statistics.median(each.cpu_per_million(kind) for each in rounds) for kind in KINDS]
        peak = statistics.median(_peak_outside_broker(each) for each in rounds) / 1e6
        base = self._results.of(self._baseline)
        first = next((each for each in self._results.warm_ups if each.contender == name), None)
        ratio = f"{median('rate') / statistics.median(each.rate for each in base):.2f}x" if base else "-"
        repeated = sum(each.repeated for each in self._results.rounds if each.contender == name)
        noisy = sum(each.noisy for each in rounds)
        notes = (
            f"{len(rounds)}"
            + (f", {repeated} repeated" if repeated else "")
            + (f", {noisy} noisy" if noisy else "")
        )
        return [
            name,
            f"{statistics.median(rates):.0f} ({rates[0]:.0f}-{rates[-1]:.0f})",
            f"{statistics.median(each.bytes / each.wall_s for each in rounds) / 1e6:.0f}",
            f"{median('wall_s'):.2f}",
            f"{first.wall_s:.1f}" if first is not None else "-",
            *(f"{seconds:.2f}" if seconds >= 0.005 else "-" for seconds in cpu),
            f"{peak:.0f}",
            f"{median('other_cpu_share'):.0%}",
            notes,
            ratio,
        ]

    def _caption(self) -> str:
        return (
            "medians, but first: the wall time of the very first round, cold; CPU in seconds per million;"
            " a noisy round had other processes use the CPU"
        )

    def _markdown(self) -> str:
        head = (*_HEAD, f"vs {self._baseline}")
        lines = [f"# {self._title}", "", *(f"- {key}: {value}" for key, value in self._facts.items()), ""]
        lines += [f"- **{each.name}**: {each.about}" for each in self._contenders]
        lines += ["", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
        lines += ["| " + " | ".join(self._cells(each.name)) + " |" for each in self._contenders]
        return "\n".join([*lines, "", self._caption() + ".", ""])

    def _plot(self, folder: Path) -> list[Path]:
        names = [each.name for each in self._contenders]
        figure, (speed, cost) = plt.subplots(1, 2, figsize=(11, 0.55 * len(names) + 1.8), sharey=True)
        for place, name in enumerate(names):
            rates = [each.rate / 1e3 for each in self._results.of(name)]
            speed.barh(place, statistics.median(rates), color="#4c78a8")
            speed.plot([min(rates), max(rates)], [place, place], color="black", linewidth=1)
        speed.set_xlabel("thousand messages a second (median; line: min to max)")
        left = [0.0] * len(names)
        for kind, colour in zip(KINDS, ("#4c78a8", "#f58518", "#54a24b", "#b0b0b0"), strict=True):
            widths = [
                self._results.median(name, lambda each, kind=kind: each.cpu_per_million(kind))
                for name in names
            ]
            cost.barh(range(len(names)), widths, left=left, color=colour, label=kind)
            left = [before + width for before, width in zip(left, widths, strict=True)]
        cost.set_xlabel("CPU seconds per million messages")
        cost.legend(fontsize="small")
        speed.set_yticks(range(len(names)), names)
        speed.invert_yaxis()
        figure.suptitle(self._title)
        figure.tight_layout()
        files = [folder / f"{self.name}.{kind}" for kind in ("png", "svg")]
        for file in files:
            figure.savefig(file)
        plt.close(figure)
        return files


def _peak_outside_broker(each: Round) -> float:
    return sum(size for kind, size in each.peak_rss.items() if kind != "broker")
