"""Download jars with coursier or Maven, for machines without PySpark's Ivy."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.devcluster.progress import DownloadProgress
from pyspark_rocketmq.devcluster.repositories import MIRROR_VARIABLE, REPOSITORIES_VARIABLE, Repositories
from pyspark_rocketmq.errors import DevClusterError

__all__ = ["fetch_with_coursier", "fetch_with_maven"]

_TAIL_LINES: Final = 40
_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
 <modelVersion>4.0.0</modelVersion>
 <groupId>local</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>
 <repositories>{repositories}</repositories>
 <pluginRepositories>{plugins}</pluginRepositories>
 <dependencies>{dependencies}</dependencies>
</project>
"""


def fetch_with_coursier(
    program: str, coordinates: tuple[str, ...], folder: Path, repositories: Repositories, deadline: Deadline
) -> tuple[Path, ...]:
    """Download into a folder and return the jars in class path order.

    Raises
    ------
    DevClusterError
        The coordinates do not resolve, or not in time. The error has the end of coursier's output.
    """
    urls = (*repositories.additional, *([repositories.mirror] if repositories.mirror else []))
    command = [program, "fetch", "--quiet", "--cache", str(folder / "coursier")]
    command += ["--no-default"] if repositories.mirror else []
    command += [word for url in urls for word in ("--repository", url)]
    output = _run([*command, *coordinates], coordinates, deadline)
    return tuple(Path(line) for line in output.splitlines() if line.endswith(".jar"))


def fetch_with_maven(
    program: str, coordinates: tuple[str, ...], folder: Path, repositories: Repositories, deadline: Deadline
) -> tuple[Path, ...]:
    """Download with the user's settings of Maven, copy the jars into a folder and return them.

    Raises
    ------
    DevClusterError
        The coordinates do not resolve, or not in time. The error has the end of Maven's output.
    """
    jars = folder / "maven" / hashlib.sha256("\n".join(coordinates).encode()).hexdigest()[:16]
    with tempfile.TemporaryDirectory() as place:
        pom = Path(place) / "pom.xml"
        pom.write_text(_pom(coordinates, repositories), encoding="utf-8")
        goal = ("dependency:copy-dependencies", f"-DoutputDirectory={jars}", "-DincludeScope=runtime")
        _run([program, "--batch-mode", "--file", str(pom), *goal], coordinates, deadline)
    return tuple(sorted(jars.glob("*.jar")))


def _pom(coordinates: tuple[str, ...], repositories: Repositories) -> str:
    mirror = [("central", repositories.mirror)] if repositories.mirror else []
    named = [*mirror, *((f"additional-{n}", url) for n, url in enumerate(repositories.additional))]
    dependencies = (coordinate.split(":") for coordinate in coordinates)
    return _POM.format(
        repositories="".join(_element("repository", id=name, url=url) for name, url in named),
        plugins="".join(_element("pluginRepository", id=name, url=url) for name, url in mirror),
        dependencies="".join(
            _element("dependency", groupId=group, artifactId=artifact, version=version)
            for group, artifact, version in dependencies
        ),
    )


def _element(tag: str, **children: str) -> str:
    inside = "".join(f"<{name}>{escape(text)}</{name}>" for name, text in children.items())
    return f"<{tag}>{inside}</{tag}>"


def _run(command: Sequence[str], coordinates: tuple[str, ...], deadline: Deadline) -> str:
    """Run a program to its end and return its standard output."""
    try:
        with DownloadProgress(coordinates):
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=max(1.0, deadline.remaining_s),
                check=False,
            )
    except subprocess.TimeoutExpired as error:
        raise DevClusterError(
            f"cannot resolve {', '.join(coordinates)} after {deadline.timeout_ms / 1000:g} s: check the "
            "network",
            program=command[0],
        ) from error
    if done.returncode:
        raise DevClusterError(
            f"cannot resolve {', '.join(coordinates)}: check the network, or name a mirror by "
            f"{MIRROR_VARIABLE} or {REPOSITORIES_VARIABLE}",
            log_tail="\n".join((done.stdout + done.stderr).splitlines()[-_TAIL_LINES:]),
            program=command[0],
        )
    return done.stdout
