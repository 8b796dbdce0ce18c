"""Live many lives, and say what was wrong in which: ``python -m tests.simulation.run --seeds 0:500``."""

from __future__ import annotations

import argparse
import faulthandler
import gc
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from tests.simulation.drawing import draw_plan
from tests.simulation.life import Verdict, live
from tests.simulation.report import missing, story, summary
from tests.simulation.scenarios import Scenario, load, save
from tests.simulation.shrink import shrink

__all__ = ["Result", "live_all", "main"]

_LONGEST_LIFE_S: Final = 300.0
_TOLD_EACH: Final = 1_000
"""Without a terminal, a line is printed after so many lives: else nobody knows how far a night has come."""
_SHRUNK: Final = 3
"""So many of the seeds that failed are shrunk and told."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a process says of a life that it lived."""

    seed: int
    wrong: dict[str, list[str]]
    did: Counter[str]
    rows: int
    took_s: float
    digest: str


def _live(seed: int) -> Result:
    # A task that waits for a real lock, which another task of its thread holds, stops the whole process.
    faulthandler.dump_traceback_later(_LONGEST_LIFE_S / 2)
    verdict = live(draw_plan(seed))
    faulthandler.cancel_dump_traceback_later()
    return Result(seed, verdict.wrong, verdict.did, verdict.rows, verdict.took_s, verdict.digest)


def quiet() -> None:
    """Prepare a process for many lives: no log, and few searches for circles among millions of objects."""
    logging.disable(logging.CRITICAL)
    gc.freeze()
    gc.set_threshold(300_000, 20, 100)


def live_all(seeds: range, processes: int) -> Iterator[Result]:
    """Live a life for each seed, in any order.

    Raises
    ------
    TimeoutError
        No life has ended for a long time; the trace of the one that hangs is printed.
    """
    if processes == 1:
        yield from map(_live, seeds)
        return
    # A process that is forked has everything imported: a second and a half less for each.
    start = "fork" if sys.platform == "linux" else "spawn"
    with multiprocessing.get_context(start).Pool(processes, quiet) as pool:
        results, left = pool.imap_unordered(_live, seeds), set(seeds)
        while left:
            try:
                result = results.next(_LONGEST_LIFE_S)
            except multiprocessing.TimeoutError:
                raise TimeoutError(f"a life hangs: one of the seeds {sorted(left)[:10]}") from None
            left.discard(result.seed)
            yield result


def _seeds(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end)) if end else range(int(first))


def _print(console: Console, *lines: str) -> None:
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _run(
    console: Console, seeds: range, processes: int, *, histories: bool
) -> tuple[Counter[str], dict[int, list[str]]]:
    """Live all lives; return what happened in them, and the judges that objected to each."""
    did: Counter[str] = Counter()
    wrong: dict[int, list[str]] = {}
    rows, virtual_s, begin = 0, 0.0, time.monotonic()
    columns = (TextColumn("lives"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("lives", total=len(seeds))
        for lived, result in enumerate(live_all(seeds, processes), 1):
            did += result.did
            rows += result.rows
            virtual_s += result.took_s
            if result.wrong:
                wrong[result.seed] = sorted(result.wrong)
                first = "; ".join(f"{name}: {found[0]}" for name, found in result.wrong.items())
                _print(console, f"seed {result.seed}: {first}")
            if histories:
                _print(console, f"seed {result.seed}: history {result.digest}")
            progress.advance(bar)
            if lived % _TOLD_EACH == 0 and not console.is_terminal:
                _print(console, f"{lived:,} of {len(seeds):,} lives, wrong: {len(wrong)}")
    _print(
        console,
        *summary(did),
        f"{len(seeds):,} lives, {rows:,} rows, {virtual_s / 3600:,.1f} virtual hours "
        f"in {time.monotonic() - begin:.0f} s; wrong: {len(wrong)}"
        + (f" (seeds {' '.join(map(str, sorted(wrong)))})" if wrong else ""),
    )
    return did, wrong


def _tell(console: Console, seed: int, folder: Path | None) -> Verdict:
    """Tell a seed's life; one in which a judge objects is shrunk before, and kept in ``folder``."""
    verdict = live(draw_plan(seed))
    if verdict.wrong:
        schedule = len(verdict.plan.faults) + len(verdict.accidents)
        _, verdict = shrink(verdict.plan, live)
        left = len(verdict.plan.faults) + len(verdict.accidents)
        _print(console, f"seed {seed}, with {left} of {schedule} faults and accidents:")
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            kept = Scenario(sentence="?", seed=seed, judges=tuple(sorted(verdict.wrong)), plan=verdict.plan)
            save(folder / f"seed-{seed}.json", kept)
    _print(console, *story(verdict))
    return verdict


def _tell_kept(console: Console, path: Path) -> bool:
    """Tell the life of a kept scenario; return whether a judge objects."""
    scenario = load(path)
    verdict = live(scenario.plan)
    _print(console, scenario.sentence, *story(verdict))
    return bool(verdict.wrong)


def main(arguments: list[str] | None = None) -> int:
    """Run; the exit code is 1 if anything was wrong, or if something never happened that must."""
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("--seeds", type=_seeds, default=range(500), help="the first N, or FIRST:END")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--show", type=int, metavar="SEED", help="tell the life of one seed")
    parser.add_argument("--scenario", type=Path, nargs="+", help="tell the lives of kept scenarios")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where to keep shrunk lives that failed")
    parser.add_argument("--histories", action="store_true", help="print the hash of each life's history")
    given = parser.parse_args(arguments)
    console = Console()
    quiet()
    if given.scenario is not None:
        wrong = [path for path in given.scenario if _tell_kept(console, path)]
        return 1 if wrong else 0
    if given.show is not None:
        return 1 if _tell(console, given.show, given.keep).wrong else 0
    did, wrong = _run(console, given.seeds, given.processes, histories=given.histories)
    for seed in sorted(wrong)[:_SHRUNK]:
        _tell(console, seed, given.keep)
    never = missing(did, len(given.seeds))
    _print(console, *(f"never happened: {kind}" for kind in never))
    return 1 if wrong or never else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED", "random") == "random":
        # No history depends on the order of sets of strings. If one does, it is the same in every run.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation.run", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    sys.exit(main())
