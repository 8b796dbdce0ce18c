"""The package as users get it: built, and installed into an environment of its own."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.support.wait import BUSY

ROOT = Path(__file__).parents[2]
EPOCH = "1767225600"
"""A moment for the archives' files: 2026-01-01, so that builds do not depend on the clock."""


def build(source: Path, target: Path, *kinds: str) -> list[Path]:
    """Build wheel and sdist (or the ``kinds`` named) of a source tree, without any download."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", str(target)]
        + [argument for kind in kinds for argument in ("--target", kind)],
        cwd=source,
        env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH},
        check=True,
        capture_output=True,
        timeout=60 * BUSY,
    )
    return sorted(target.iterdir())


def _wanted(requirements: Iterable[str], extras: frozenset[str]) -> Iterator[Requirement]:
    """Yield what applies here of a package's requirements."""
    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker is None or any(
            requirement.marker.evaluate({"extra": extra}) for extra in extras | {""}
        ):
            yield requirement


def _link(lent: Path, place: Path) -> None:
    """Link a file or folder. Folders that several packages fill (``google``) are merged."""
    if place.is_symlink() and place.is_dir() and place.readlink() != lent:
        other = place.readlink()
        place.unlink()
        place.mkdir()
        for inner in other.iterdir():
            _link(inner, place / inner.name)
    if place.is_dir() and not place.is_symlink():
        for inner in lent.iterdir():
            _link(inner, place / inner.name)
    elif not place.exists():
        place.symlink_to(lent)


class Installation:
    """An environment with nothing but the wheel and what its metadata says that it needs.

    The environment of the tests lends these packages. What it has besides is not there.

    Parameters
    ----------
    *extras : str
        The wheel's extras to install.
    """

    def __init__(self, folder: Path, wheel: Path, *extras: str) -> None:
        venv.EnvBuilder(symlinks=True).create(folder)
        self.bin = folder / "bin"
        self.site_packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
        self.pip("--no-index", "--no-deps", str(wheel))
        (metadata,) = self.site_packages.glob("pyspark_rocketmq-*.dist-info")
        needed = importlib.metadata.PathDistribution(metadata).requires or []
        self.lend(*_wanted(needed, frozenset(extras)))

    def pip(self, *arguments: str, timeout_s: float = 60) -> None:
        """Install packages."""
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install", "--quiet"]
        subprocess.run(
            [*pip, "--disable-pip-version-check", *arguments],
            check=True,
            capture_output=True,
            timeout=timeout_s * BUSY,
        )

    def lend(self, *requirements: Requirement) -> None:
        """Link installed packages, and what they need."""
        pending, lent = list(requirements), set()
        while pending:
            requirement = pending.pop()
            key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
            if key in lent:
                continue
            lent.add(key)
            found = importlib.metadata.distribution(requirement.name)
            assert requirement.specifier.contains(found.version, prereleases=True), requirement
            for top in {file.parts[0] for file in found.files or () if file.parts[0] != ".."}:
                _link(Path(found.locate_file(top)), self.site_packages / top)
            pending += _wanted(found.requires or [], frozenset(requirement.extras))

    def environ(self, **more: str) -> dict[str, str]:
        """Return an environment in which nothing points to this tree."""
        dropped = ("PYTHON", "PYSPARK", "NAMESRV_ADDR", "VIRTUAL_ENV")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        return {**kept, "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}", **more}

    def run(
        self, program: str, *arguments: str, cwd: Path, timeout_s: float = 60, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Run one of its programs."""
        return subprocess.run(
            [str(self.bin / program), *arguments],
            cwd=cwd,
            env=self.environ(**environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s * BUSY,
            check=False,
        )
