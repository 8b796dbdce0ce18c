"""The README's first section and the quickstart, pasted block by block, where nothing is configured.

Only the block that installs is replaced: the present tree's wheel is installed into a fresh environment, and
what the wheel needs is lent by the one of the tests. The jars are those that the tests have; the cluster is
the test's own. JVMs start lean, as in every test. ``test_readme.py`` runs the code in shared processes.

What is pasted and printed is kept in ``tests/golden/newcomer``. After an intended change, run this test with
``UPDATE_GOLDEN=1``, and read the difference.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.pasted_page import Step, blocks, run, transcript
from tests.support.scratch import scratch_env
from tests.support.wait import BUSY
from tests.support.wheel import ROOT, Installation, build

from pyspark_rocketmq.devcluster.jars import resolve, rocketmq_coordinates

TIMEOUT_S = 300
"""A minute on an idle machine."""

GOLDEN = ROOT / "tests" / "golden" / "newcomer"

CHANGING = {
    r"127\.0\.0\.1:\d+": "127.0.0.1:9876",
    r"(?<=stores and logs: ).*": "<folder>",
    r"(?m)^✔ (Python|pyspark|pyarrow|numpy|pandas|Java|Spark's workers)  .*$": r"✔ \1  <found>",
    r"(?m)^( quickstart +broker-a:\d) .* 0$": r"\1 <as many> 0",  # rows go to any queue
    r"\d{4}-\d\d-\d\d[T ][\d:.+]+Z?": "<time>",
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    folder = tmp_path_factory.mktemp("installed")
    (wheel,) = build(ROOT, folder / "dist", "wheel")
    return Installation(folder / "venv", wheel, "spark")


@pytest.fixture
def environ(installed: Installation, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Nothing configured but the places of temporary files, of the jars and of the cluster's record."""
    cache, ivy = tmp_path / "cache", resolve(rocketmq_coordinates())[0].parents[1]
    cache.mkdir()
    (cache / "ivy").symlink_to(ivy)
    (cache / "locks").symlink_to(ivy.parent / "locks")
    env = installed.environ(PYSPARK_ROCKETMQ_CACHE=str(cache), COLUMNS="100", **scratch_env(tmp_path))
    yield env
    stop = [str(installed.bin / "pyspark-rocketmq"), "cluster", "stop"]
    subprocess.run(stop, env=env, check=True, capture_output=True, timeout=60)


def paste(page: str, env: dict[str, str], tmp_path: Path) -> list[Step]:
    install = "export PYSPARK_PYTHON=$(which python)"
    return run(blocks(page), install=install, folder=tmp_path, env=env, timeout_s=TIMEOUT_S * BUSY)


def check(name: str, steps: list[Step]) -> None:
    for step in steps:
        assert step.block.shown is None or step.output.strip() == step.block.shown.strip()
    text, kept = transcript(steps, CHANGING), GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        kept.write_text(text, encoding="utf-8")
    assert text == kept.read_text(encoding="utf-8")


@pytest.mark.needs("programs")
@pytest.mark.timeout(TIMEOUT_S + 20)
def test_the_readme_s_first_minutes(environ: dict[str, str], tmp_path: Path) -> None:
    _, first, *rest = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## ")
    assert first.startswith("The first five minutes")
    assert not any("```sh" in section for section in rest), "only the first section is pasted"
    check("readme", paste(first, environ, tmp_path))


@pytest.mark.needs("programs")
@pytest.mark.timeout(TIMEOUT_S + 20)
def test_the_quickstart(environ: dict[str, str], tmp_path: Path) -> None:
    page = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    check("quickstart", paste(page, environ, tmp_path))


def test_the_quickstart_s_python_blocks_are_the_example() -> None:
    page = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    python = [block.code for block in blocks(page) if block.language == "python"]
    example = (ROOT / "examples" / "quickstart.py").read_text(encoding="utf-8")
    assert len(python) > 4
    shown = [line for code in python for line in code.splitlines() if line]
    program = [line for line in example.split('"""')[2].splitlines() if line]

    def imports(lines: list[str]) -> list[str]:
        return sorted(line for line in lines if line.startswith("from "))

    assert imports(shown) == imports(program)
    assert [line for line in shown if line not in imports(shown)] == [
        line for line in program if line not in imports(program)
    ]
