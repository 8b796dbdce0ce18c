"""Planted defects: mistakes in the code under test that the simulation has to find.

Each replaces a piece of a module's source as it is imported, in a process of its own.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

from tests.simulation.mistakes import NOT_FOUND_YET, PLANTS, Plant

__all__ = ["plant"]


def plant(one: Plant) -> None:
    """Have a mistake made in every import from now on.

    Raises
    ------
    ValueError
        The piece is not in the source exactly once: the code has changed.
    """
    root = Path(__file__).resolve().parents[2] / "src"
    source = (root / one.path).read_text()
    if source.count(one.before) != 1:
        raise ValueError(f"{one.what}: {one.path} has its piece {source.count(one.before)} times")
    genuine = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
        path = loader.get_filename(name)
        if not path.endswith(one.path):
            return genuine(loader, name)
        changed = Path(path).read_text().replace(one.before, one.after)
        return compile(changed, path, "exec", dont_inherit=True)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
    assert f"pyspark_rocketmq.{one.module}" not in sys.modules


def _search(number: int, seeds: int) -> int:
    """Live until a judge finds the mistake; return the exit code."""
    logging.disable(logging.CRITICAL)
    one = (PLANTS + NOT_FOUND_YET)[number]
    plant(one)
    # After `plant`: they import the code under test.
    from tests.simulation.life import live  # noqa: PLC0415
    from tests.simulation.plan import Plan  # noqa: PLC0415

    for seed in range(seeds):
        wrong = live(Plan.of(seed)).wrong
        if wrong:
            print(f"{one.what}: seed {seed}: {', '.join(sorted(wrong))}")
            return 0
    print(f"{one.what}: not found in {seeds} lives")
    return 1


def main(arguments: list[str] | None = None) -> int:
    """Search for planted mistakes: ``python -m tests.simulation.plants --seeds 2000 [NUMBER ...]``."""
    parser = argparse.ArgumentParser(prog="plants", description=main.__doc__)
    parser.add_argument("numbers", type=int, nargs="*", help="all that were found before by default")
    parser.add_argument("--seeds", type=int, default=2_000)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args(arguments)
    numbers = given.numbers or list(range(len(PLANTS)))
    if len(numbers) == 1:
        return _search(numbers[0], given.seeds)
    missed = 0
    with ThreadPoolExecutor(given.processes) as pool:  # each waits for a process
        for code in pool.map(lambda number: _in_a_process(number, given.seeds), numbers):
            missed += code != 0
    print(f"{len(numbers) - missed} of {len(numbers)} found")
    return 1 if missed else 0


def _in_a_process(number: int, seeds: int) -> int:
    command = [sys.executable, "-m", "tests.simulation.plants", str(number), "--seeds", str(seeds)]
    return subprocess.run(command, check=False, env={**os.environ, "PYTHONHASHSEED": "0"}).returncode


if __name__ == "__main__":
    sys.exit(main())
