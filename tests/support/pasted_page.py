"""A page's blocks, pasted one after the other into a shell and an interactive Python, as a reader does.

Shell blocks are fenced ``sh``, Python blocks ``python``; a ``text`` block right after one shows its output.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Block", "Step", "blocks", "run", "transcript"]

_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_MARK: Final = "\x1e"
"""ASCII's record separator: it ends each block's output, with the time."""

_ADDRESS: Final = "127.0.0.1:9876"


@dataclass(frozen=True, slots=True)
class Block:
    """A block to paste, with the output that the page shows after it, if any."""

    language: str
    code: str
    shown: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A pasted block, what it printed, and after how many seconds it was done."""

    block: Block
    output: str
    end_s: float


def blocks(page: str) -> list[Block]:
    """Return the blocks to paste of a page's text, in order. Other fences are not for pasting."""
    found: list[Block] = []
    end = 0
    for fence in _FENCE.finditer(page):
        language, code = fence.groups()
        if language == "text" and found and not page[end : fence.start()].strip():
            found[-1] = Block(found[-1].language, found[-1].code, code)
        elif language in ("sh", "python"):
            found.append(Block(language, code))
        end = fence.end()
    return found


def run(
    pasted: Iterable[Block], *, install: str, folder: Path, env: Mapping[str, str], timeout_s: float
) -> list[Step]:
    """Paste blocks into one shell, consecutive Python blocks into one ``python`` there.

    Parameters
    ----------
    pasted : iterable of Block
    install : str
        Takes the place of the block that contains ``pip install``.
    folder : Path
        For files of the run; the shell starts in its subfolder ``home``.
    env : mapping of str to str
        The shell's environment, with ``PYSPARK_ROCKETMQ_CACHE``.
    timeout_s : float

    Raises
    ------
    AssertionError
        The shell or Python reported an error.
    """
    given = list(pasted)
    pieces, home = folder / "pieces", folder / "home"
    pieces.mkdir()
    home.mkdir()
    printed, complaints = folder / "stdout.log", folder / "stderr.log"
    with printed.open("w") as out, complaints.open("w") as errors:
        start_s = time.time()
        # timeout(1) ends the shell and its children, but not a cluster, which has its own session.
        done = subprocess.run(
            ["timeout", "-k", "10", str(timeout_s), "bash", "-c", _script(given, install, pieces)],
            cwd=home,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            timeout=timeout_s + 20,
            check=False,
        )
    *outputs, rest = printed.read_text(encoding="utf-8").split(_MARK)
    ends = [output.split("\n", 1) for output in [*outputs[1:], rest]]
    seen = complaints.read_text(encoding="utf-8")[-4_000:]
    assert done.returncode == 0, f"exit code {done.returncode} after {len(outputs)} blocks\n{rest}\n{seen}"
    assert "Traceback" not in seen, seen
    assert len(outputs) == len(given)
    bodies = [outputs[0], *(body for _, body in ends)]
    return [
        Step(block, body, float(end) - start_s)
        for block, body, (end, _) in zip(given, bodies, ends, strict=False)
    ]


def transcript(steps: Iterable[Step], changing: Mapping[str, str]) -> str:
    """Return what was pasted and printed, with ``changing`` patterns replaced, so that two runs are equal."""
    parts = []
    for step in steps:
        output = re.sub(r"[ \t]+$", "", step.output, flags=re.MULTILINE)
        for pattern, name in changing.items():
            output = re.sub(pattern, name, output)
        prompt = {"sh": "$ ", "python": ">>> "}[step.block.language]
        parts.append("".join(f"{prompt}{line}" if line.strip() else line for line in _lines(step)) + output)
    return "\n".join(parts)


def _lines(step: Step) -> list[str]:
    return step.block.code.splitlines(keepends=True)


def _script(given: list[Block], install: str, folder: Path) -> str:
    """Write the blocks below ``folder``; return the shell script that pastes them, with a mark after each."""
    lines = ["set -eu", _RIGHT_ADDRESS]
    for at, (language, group) in enumerate(itertools.groupby(given, key=lambda block: block.language)):
        for number, block in enumerate(group):
            file = folder / f"{at:02}-{number:02}.{language}"
            file.write_text(install if "pip install" in block.code else block.code, encoding="utf-8")
            (folder / f"{file.name}.mark").write_text(_PRINT_MARK[language], encoding="utf-8")
        files = f"{folder}/{at:02}-*"
        if language == "sh":
            lines += [f"for file in {files}; do right_address <$file >{folder}/now; . {folder}/now; done"]
        else:
            # -i: an interactive Python, which reads blocks as from a keyboard and knows where each ends.
            lines += [f"cat {files} | right_address | python -i -q"]
    return "\n".join(lines)


_PRINT_MARK: Final = {
    "sh": f"\necho '{_MARK}'$(date +%s.%N)\n",
    "python": f"\nprint({_MARK!r}, __import__('time').time(), sep='', flush=True)\n",
}

_RIGHT_ADDRESS: Final = f"""right_address() {{
  record=$PYSPARK_ROCKETMQ_CACHE/cluster.json
  address=$(sed -n 's/.*"name_server": "\\(.*\\)".*/\\1/p' "$record" 2>/dev/null || true)
  sed "s/{_ADDRESS}/${{address:-{_ADDRESS}}}/g"
}}"""
"""Port 9876 may be in use where tests run: readers then take the address that `cluster start` printed."""
