"""The package as users get it: built, and installed into an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

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


class Installation:
    """An environment with nothing but the wheel; what the wheel needs is lent by the one of the tests."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        venv.EnvBuilder(symlinks=True).create(folder)
        self.bin = folder / "bin"
        self.site_packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
        # A path in a .pth file lends packages, but not the editable installation of this tree: for that,
        # the .pth files of the lent folder would have to be read, and they are not.
        (self.site_packages / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install", "--quiet"]
        offline = ["--no-index", "--no-deps", "--ignore-installed", "--disable-pip-version-check"]
        subprocess.run([*pip, *offline, str(wheel)], check=True, capture_output=True, timeout=60 * BUSY)

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
