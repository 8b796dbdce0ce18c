"""Live many lives, and say what was wrong in which: ``python -m tests.simulation.run --seeds 0:500``."""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator

from rich.console import Console
from rich.progress import Progress
from tests.simulation.faults import Fault
from tests.simulation.life import Verdict, live
from tests.simulation.plan import Plan

__all__ = ["main", "shrink"]

_SHOWN = 40


def shrink(plan: Plan) -> tuple[list[Fault], Verdict]:
    """Return the fewest of a life's faults with which a judge still finds something, and that verdict."""
    faults = list(plan.faults)
    verdict = live(plan, faults)
    for fault in plan.faults:
        fewer = [each for each in faults if each is not fault]
        without = live(plan, fewer)
        if without.wrong:
            faults, verdict = fewer, without
    return faults, verdict


def _live(seed: int) -> tuple[int, dict[str, list[str]], Counter[str], int, float]:
    verdict = live(Plan.of(seed))
    return seed, verdict.wrong, verdict.did, verdict.rows, verdict.took_s


def _quiet() -> None:
    """Prepare a process for many lives: no log, and few searches for circles among millions of objects."""
    logging.disable(logging.CRITICAL)
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _lives(
    seeds: range, processes: int
) -> Iterator[tuple[int, dict[str, list[str]], Counter[str], int, float]]:
    if processes == 1:
        yield from map(_live, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes, _quiet) as pool:
        yield from pool.imap_unordered(_live, seeds, chunksize=4)


def _seeds(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end)) if end else range(int(first))


def _show(console: Console, seed: int) -> None:
    """Show a life's plan, its timeline with as few faults as possible, and what was wrong."""
    plan = Plan.of(seed)
    whole = live(plan)
    faults, verdict = shrink(plan) if whole.wrong else (list(plan.faults), whole)
    console.print(plan, soft_wrap=True)
    console.print(f"{len(faults)} of {len(plan.faults)} faults")
    for event in verdict.events[:_SHOWN]:
        console.print(event, markup=False, highlight=False, soft_wrap=True)
    for name, found in verdict.wrong.items():
        console.print(f"{name}: {len(found)}", *found[:5], sep="\n  ", markup=False, soft_wrap=True)
    console.print(f"{verdict.rows} rows, {verdict.took_s:.0f} virtual seconds")


def main(arguments: list[str] | None = None) -> int:
    """Run; the exit code is 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("--seeds", type=_seeds, default=range(500), help="the first N, or FIRST:END")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--show", type=int, metavar="SEED", help="print the timeline of one seed")
    given = parser.parse_args(arguments)
    console = Console()
    _quiet()
    if given.show is not None:
        _show(console, given.show)
        return 0
    did: Counter[str] = Counter()
    wrong: dict[int, dict[str, list[str]]] = {}
    rows, virtual_s, begin = 0, 0.0, time.monotonic()
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("lives", total=len(given.seeds))
        for seed, found, happened, count, took_s in _lives(given.seeds, given.processes):
            did += happened
            rows += count
            virtual_s += took_s
            if found:
                wrong[seed] = found
                first = "; ".join(f"{name}: {what[0]}" for name, what in found.items())
                console.print(f"seed {seed}: {first}", markup=False, soft_wrap=True)
            progress.advance(bar)
    for kind, count in sorted(did.items()):
        console.print(f"{count:>9,}  {kind}", markup=False, highlight=False)
    console.print(
        f"{len(given.seeds):,} lives, {rows:,} rows, {virtual_s / 3600:,.1f} virtual hours "
        f"in {time.monotonic() - begin:.0f} s; wrong: {len(wrong)}"
        + (f" (seeds {' '.join(map(str, sorted(wrong)))})" if wrong else ""),
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of strings is a source of chance: it has to be the same in every run.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation.run", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    sys.exit(main())
