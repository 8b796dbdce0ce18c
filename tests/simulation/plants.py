"""Search for planted mistakes: ``python -m tests.simulation.plants --seeds 2000 [NUMBER ...]``.

Each replaces a piece of a module's source as it is imported, in a process of its own. The search for one ends
at the first life in which a judge objects.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Final

from tests.simulation.mistakes import PLANTS, Plant

if TYPE_CHECKING:
    from tests.simulation.life import Verdict

__all__ = ["FOUND_BY", "Found", "apart", "check", "live_again", "plant", "search"]

FOUND_BY: Final = Path(__file__).with_name("found_by.json")
"""The seed that found each mistake the last time: it is tried first, then all in their order."""

_LIVES: Final = 400


@dataclass(frozen=True, slots=True)
class Found:
    """The end of a search: the seed that found a mistake, or None, after how many lives, and its story."""

    what: str
    seed: int | None
    judges: tuple[str, ...]
    lives: int
    cpu_s: float
    story: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.seed is None:
            return f"{self.what}: not found in {self.lives:,} lives"
        return f"{self.what}: seed {self.seed}: {', '.join(self.judges)}"


def check(one: Plant) -> None:
    """Check that the code has the piece that a mistake replaces.

    Raises
    ------
    ValueError
        The piece is not in the source exactly once: the code has changed.
    """
    path = Path(__file__).resolve().parents[2] / "src" / one.path
    times = path.read_text().count(one.before) if path.exists() else 0
    if times != 1:
        raise ValueError(f"{one.what}: {one.path} has its piece {times} times")


def plant(one: Plant) -> None:
    """Have a mistake made in every import from now on. Raises as `check`."""
    check(one)
    genuine = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
        path = loader.get_filename(name)
        if not path.endswith(one.path):
            return genuine(loader, name)
        changed = Path(path).read_text().replace(one.before, one.after)
        return compile(changed, path, "exec", dont_inherit=True)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
    assert f"pyspark_rocketmq.{one.module}" not in sys.modules


def search(
    one: Plant, seeds: range, first: int | None = None, *, kept: Path | None = None, lives: int = _LIVES
) -> Found:
    """Plant a mistake in this process, and live until a judge objects; after all seeds, live the kept life.

    Parameters
    ----------
    one : Plant
    seeds : range
    first : int, optional
        A seed to begin with.
    kept : Path, optional
        Where the life is kept, after it was shrunk.
    lives : int
        How many may be lived to shrink it.
    """
    logging.disable(logging.CRITICAL)
    plant(one)
    # After `plant`: they import the code under test.
    from tests.simulation.drawing import draw_plan  # noqa: PLC0415
    from tests.simulation.life import live  # noqa: PLC0415
    from tests.simulation.scenarios import FOLDER, load  # noqa: PLC0415

    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    begin = time.process_time()
    order = list(seeds) if first is None else [first, *seeds]
    for lived, seed in enumerate(order, start=1):
        verdict = live(draw_plan(seed))
        if verdict.wrong:
            story = () if kept is None else _shrink(one, verdict, kept, lives)
            cpu_s = time.process_time() - begin
            return Found(one.what, seed, tuple(sorted(verdict.wrong)), lived, cpu_s, story)
    for scenario in map(load, sorted(FOLDER.glob("*.json"))):
        if scenario.plant == one.what and (wrong := live(scenario.plan).wrong):
            judges, cpu_s = (*sorted(wrong), "in a kept life"), time.process_time() - begin
            return Found(one.what, scenario.seed, judges, len(order) + 1, cpu_s)
    return Found(one.what, None, (), len(order), time.process_time() - begin)


def _shrink(one: Plant, verdict: Verdict, kept: Path, lives: int) -> tuple[str, ...]:
    """Shrink a life, keep it, and return its story."""
    from tests.simulation.life import live  # noqa: PLC0415
    from tests.simulation.report import story  # noqa: PLC0415
    from tests.simulation.scenarios import Scenario, save  # noqa: PLC0415
    from tests.simulation.shrink import shrink  # noqa: PLC0415

    before = len(verdict.plan.faults) + len(verdict.accidents)
    _, shrunk = shrink(verdict.plan, live, lives=lives)
    after = len(shrunk.plan.faults) + len(shrunk.accidents)
    judges = tuple(sorted(shrunk.wrong))
    save(
        kept,
        Scenario(sentence=one.what, seed=verdict.plan.seed, judges=judges, plant=one.what, plan=shrunk.plan),
    )
    return (f"shrunk from {before} to {after} faults and accidents:", *story(shrunk))


def live_again(one: Plant | None, path: Path) -> list[str]:
    """Live a kept life with a planted mistake, or without one, and return who objects."""
    logging.disable(logging.CRITICAL)
    if one is not None:
        plant(one)
    from tests.simulation.life import live  # noqa: PLC0415
    from tests.simulation.scenarios import load  # noqa: PLC0415

    return sorted(live(load(path).plan).wrong)


def wrong_without(seeds: frozenset[int]) -> dict[int, tuple[str, ...]]:
    """Return who objects to the lives of seeds without a planted mistake: they show nothing."""
    logging.disable(logging.CRITICAL)
    from tests.simulation.drawing import draw_plan  # noqa: PLC0415
    from tests.simulation.life import live  # noqa: PLC0415

    lives = {seed: live(draw_plan(seed)) for seed in sorted(seeds)}
    return {seed: tuple(sorted(life.wrong)) for seed, life in lives.items() if life.wrong}


def apart(processes: int = 1) -> ProcessPoolExecutor:
    """Return processes for one call each, which begin with everything imported but the package."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pyarrow.compute", "pyspark.sql.pandas.types", "numpy", "greenlet"])
    return ProcessPoolExecutor(processes, mp_context=context, max_tasks_per_child=1)


def _search_all(
    plants: list[Plant], seeds: range, processes: int, kept: Path | None, lives: int
) -> Iterator[Found]:
    """Search for each in a process of its own."""
    hints: dict[str, int] = json.loads(FOUND_BY.read_text()) if FOUND_BY.exists() else {}
    with apart(processes) as pool:
        searches = [
            pool.submit(
                search, one, seeds, hints.get(one.what), kept=kept and kept / f"{at}.json", lives=lives
            )
            for at, one in enumerate(plants)
        ]
        for done in as_completed(searches):
            yield done.result()


def main(arguments: list[str] | None = None) -> int:
    """Run; the exit code is 1 if a mistake was not found."""
    parser = argparse.ArgumentParser(prog="plants", description=__doc__)
    parser.add_argument("numbers", type=int, nargs="*", help="all by default")
    parser.add_argument("--seeds", type=int, default=2_000)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", action="store_true", help="keep the seeds, for the next search")
    parser.add_argument("--shrink", type=Path, metavar="FOLDER", help="shrink the lives, and keep them there")
    parser.add_argument("--lives", type=int, default=_LIVES, help="how many are lived to shrink one")
    given = parser.parse_args(arguments)
    plants = [PLANTS[number] for number in given.numbers] or list(PLANTS)
    if given.shrink is not None:
        given.shrink.mkdir(parents=True, exist_ok=True)
    found: dict[str, int] = {}
    for each in _search_all(
        plants, range(given.seeds), min(given.processes, len(plants)), given.shrink, given.lives
    ):
        print(f"{each}  ({each.lives:,} lives, {each.cpu_s:.0f} s)", *each.story, sep="\n", flush=True)
        if each.seed is not None:
            found[each.what] = each.seed
    with apart() as pool:
        wrong = pool.submit(wrong_without, frozenset(found.values())).result()
    for seed, judges in wrong.items():
        print(f"seed {seed} is wrong without a mistake: {', '.join(judges)}")
    found = {what: seed for what, seed in found.items() if seed not in wrong}
    print(f"{len(found)} of {len(plants)} found")
    if given.keep:
        kept = json.loads(FOUND_BY.read_text()) if FOUND_BY.exists() else {}
        known = {one.what for one in PLANTS}
        kept = {what: seed for what, seed in sorted((kept | found).items()) if what in known}
        FOUND_BY.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    return 0 if len(found) == len(plants) else 1


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED", "random") == "random":
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation.plants", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    sys.exit(main())
