"""Check this machine: Python, PySpark, Arrow, Java, and the interpreter of Spark's workers."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from typing import Final

from pyspark_rocketmq._missing_pyspark import MINIMUM_PYSPARK
from pyspark_rocketmq._version import __version__
from pyspark_rocketmq.devcluster.java import find_java
from pyspark_rocketmq.errors import DevClusterError
from pyspark_rocketmq.tools.findings import Finding, bad, good, poor

__all__ = ["examine_machine", "package_versions"]

PACKAGES: Final = ("pyspark", "pyarrow", "numpy", "pandas", "py4j", "rich", "typer")

_MINIMUM: Final = {"pyspark": MINIMUM_PYSPARK, "pyarrow": (18,), "numpy": (1, 26), "pandas": (2, 2)}
_BELOW: Final = {"pyspark": (5,), "pandas": (3,)}
_SPARK_S: Final = ("pyspark", "pandas")
_SPARK_EXTRA: Final = "pip install 'pyspark-rocketmq[spark]'"
_WORKER_TIMEOUT_S: Final = 4
_PROBE: Final = "import pyspark_rocketmq, pyspark; print(pyspark_rocketmq.__version__, pyspark.__version__)"


def package_versions() -> dict[str, str | None]:
    """Return the installed versions of this package's dependencies; None for a missing one."""
    versions: dict[str, str | None] = {"pyspark-rocketmq": __version__}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    if versions["pyspark"] is None and find_spec("pyspark") is not None:
        # pyspark-client, or the PySpark of a Spark that is not installed by pip.
        import pyspark  # noqa: PLC0415

        versions["pyspark"] = pyspark.__version__
    return versions


def examine_machine(environ: Mapping[str, str]) -> list[Finding]:
    """Check the requirements of every job, in a second or two."""
    versions = package_versions()
    return [
        good("Python", sys.version.split()[0]),
        *(_package(name, versions[name]) for name in ("pyspark", "pyarrow", "numpy", "pandas")),
        _java(environ, versions["pyspark"]),
        *(_interpreters(environ, versions["pyspark"]) if versions["pyspark"] else ()),
    ]


def _package(name: str, version: str | None) -> Finding:
    lowest, above = _MINIMUM[name], _BELOW.get(name)
    wanted = f"{name}>={_join_dotted(lowest)}" + (f",<{_join_dotted(above)}" if above else "")
    if version is None:
        if name in _SPARK_S:
            return poor(name, "not installed: only the client works", f"Spark needs it: {_SPARK_EXTRA}")
        return bad(name, "not installed", f"install it: pip install '{wanted}'")
    numbers = tuple(int(digits) for digits in re.findall(r"\d+", version)[:2])
    if numbers < lowest or (above is not None and numbers >= above):
        return bad(name, f"{version} is not supported", f"install another one: pip install '{wanted}'")
    return good(name, version)


def _java(environ: Mapping[str, str], pyspark: str | None) -> Finding:
    try:
        java = find_java(environ)
    except DevClusterError as error:
        missing = bad if pyspark else poor
        return missing("Java", str(error), "Spark does not start without it")
    return good("Java", f"{java.version} at {java.executable}")


def _interpreters(environ: Mapping[str, str], pyspark: str | None) -> list[Finding]:
    """Check the interpreters that Spark starts.

    RDDs and functions run ``PYSPARK_PYTHON``. Data sources are looked up, and read, with
    ``PYSPARK_DRIVER_PYTHON`` if it is set.
    """
    workers, driver = environ.get("PYSPARK_PYTHON"), environ.get("PYSPARK_DRIVER_PYTHON")
    check = partial(_interpreter, path=environ.get("PATH"), pyspark=pyspark)
    export = f"export PYSPARK_PYTHON={sys.executable}"
    findings = []
    if driver and driver != workers:
        advice = f"{export} PYSPARK_DRIVER_PYTHON={sys.executable}, here and on every executor"
        findings = [check("Spark's data sources", driver, "PYSPARK_DRIVER_PYTHON", advice)]
    origin = "PYSPARK_PYTHON" if workers else "PYSPARK_PYTHON is not set: python3 on PATH"
    advice = f"{export}, here and on every executor"
    return [*findings, check("Spark's workers", workers or "python3", origin, advice)]


def _interpreter(
    subject: str, program: str, origin: str, advice: str, *, path: str | None, pyspark: str | None
) -> Finding:
    """Start an interpreter and import this package in it."""
    found = shutil.which(program, path=path)
    if found is None:
        return bad(subject, f"{program} ({origin}) is not there", advice)
    try:
        done = subprocess.run(
            [found, "-c", _PROBE], capture_output=True, text=True, timeout=_WORKER_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return poor(subject, f"{found} ({origin}) gave no answer: {error}", advice)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return bad(
            subject,
            f"{found} ({origin}) cannot import this package, so Spark says DATA_SOURCE_NOT_FOUND: {reason}",
            advice,
        )
    ours, theirs = done.stdout.split()[-2:]
    if (ours, theirs) != (__version__, pyspark):
        return bad(subject, f"{found} ({origin}) has pyspark-rocketmq {ours}, PySpark {theirs}", advice)
    return good(subject, f"{found} has this package")


def _join_dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
