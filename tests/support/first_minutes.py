"""Measures the README's first section from a clone to the last block: ``make first-minutes``.

Everything is as a newcomer has it: a fresh clone, a fresh environment, nothing configured. Only the caches
are warm, if the machine's are: pip's, and RocketMQ's jars. Fails above five minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.support.pasted_page import Step, blocks, run

from pyspark_rocketmq.devcluster.jars import cache_folder

ROOT: Final = Path(__file__).parents[2]
LIMIT_S: Final = 300
_DROPPED: Final = ("PYTHON", "PYSPARK", "SPARK", "NAMESRV_ADDR", "VIRTUAL_ENV")


def measure(folder: Path, env: Mapping[str, str]) -> list[Step]:
    """Clone this repository and paste its README's first section there."""
    start_s = time.monotonic()
    clone = folder / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    clone_s = time.monotonic() - start_s
    section = (clone / "README.md").read_text(encoding="utf-8").split("\n## ")[1]
    pasted = blocks(section)
    (install,) = [block.code for block in pasted if "pip install" in block.code]
    steps = run(pasted, install=f"cd {clone}\n{install}", folder=folder, env=env, timeout_s=3 * LIMIT_S)
    return [Step(step.block, step.output, clone_s + step.end_s) for step in steps]


def main() -> None:
    """Measure, print a line for each block, and fail if it took too long."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}
    with tempfile.TemporaryDirectory(prefix="first-minutes-") as temporary:
        folder = Path(temporary)
        cache = folder / "cache"
        cache.mkdir()
        for part in ("ivy", "locks"):  # the jars, if this machine has them
            if (cache_folder() / part).exists():
                (cache / part).symlink_to(cache_folder() / part)
        env["PYSPARK_ROCKETMQ_CACHE"] = str(cache)
        try:
            steps = measure(folder, env)
        finally:
            stop = [sys.executable, "-m", "pyspark_rocketmq", "cluster", "stop"]
            subprocess.run(
                stop,
                env={**os.environ, "PYSPARK_ROCKETMQ_CACHE": str(cache)},
                check=True,
                capture_output=True,
            )
    before_s = 0.0
    for step in steps:
        first = step.block.code.strip().splitlines()[0]
        print(f"{step.end_s - before_s:6.1f} s  {first[:80]}")
        before_s = step.end_s
    print(f"{before_s:6.1f} s  from the clone to the last block")
    sys.exit(before_s > LIMIT_S)


if __name__ == "__main__":
    main()
