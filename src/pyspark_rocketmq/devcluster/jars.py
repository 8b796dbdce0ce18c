"""Java artifacts by Maven coordinates, fetched once by PySpark's Ivy, else by coursier or Maven.

The resolved class path of a set of coordinates is stored with the downloads, so that only the first use
on a machine needs the network and a JVM.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pyspark_rocketmq._version import ROCKETMQ_VERSION
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock, Deadline
from pyspark_rocketmq.devcluster.build_tools import fetch_with_coursier, fetch_with_maven
from pyspark_rocketmq.devcluster.repositories import Repositories, spark_home
from pyspark_rocketmq.devcluster.system.locking import file_lock
from pyspark_rocketmq.errors import DevClusterError, OptionError

__all__ = [
    "DEFAULT_VERSION",
    "cache_folder",
    "proxy_coordinates",
    "proxy_jars",
    "resolve",
    "rocketmq_coordinates",
    "rocketmq_jars",
]

DEFAULT_VERSION: Final = ROCKETMQ_VERSION
"""The default RocketMQ version."""

CACHE_VARIABLE: Final = "PYSPARK_ROCKETMQ_CACHE"

_RESOLVE_TIMEOUT_MS: Final = 15 * 60_000.0


def rocketmq_coordinates(version: str = DEFAULT_VERSION) -> tuple[str, ...]:
    """Return the coordinates of RocketMQ's servers, tools and Java client."""
    modules = ("namesrv", "broker", "tools", "client")
    return tuple(f"org.apache.rocketmq:rocketmq-{module}:{version}" for module in modules)


def proxy_coordinates(version: str = DEFAULT_VERSION) -> tuple[str, ...]:
    """Return the coordinates of RocketMQ's proxy.

    Raises
    ------
    OptionError
        The version has none.
    """
    if version.startswith("4."):
        raise OptionError("RocketMQ has proxies since 5.0", version=version)
    return (f"org.apache.rocketmq:rocketmq-proxy:{version}",)


def rocketmq_jars(
    version: str = DEFAULT_VERSION, environ: Mapping[str, str] = os.environ
) -> tuple[Path, ...]:
    """Return RocketMQ's jars in class path order.

    They are fetched as by `resolve`. Without PySpark, the unpacked distribution of this version that
    ``ROCKETMQ_HOME`` names is used as it is.

    Raises
    ------
    DevClusterError
        As `resolve`.
    """
    return _unpacked_jars("broker", version, environ) or resolve(rocketmq_coordinates(version))


def proxy_jars(version: str = DEFAULT_VERSION, environ: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Return the jars of RocketMQ's proxy in class path order, from where `rocketmq_jars` has the servers'.

    Raises
    ------
    OptionError
        The version has no proxy.
    DevClusterError
        As `resolve`.
    """
    coordinates = proxy_coordinates(version)
    return _unpacked_jars("proxy", version, environ) or resolve(coordinates)


def _unpacked_jars(module: str, version: str, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the jars of the distribution that replaces downloads, if it has this module and version."""
    home = environ.get("ROCKETMQ_HOME")
    if not home or spark_home(environ) is not None:
        return ()
    jars = tuple(sorted((Path(home) / "lib").glob("*.jar")))
    return jars if f"rocketmq-{module}-{version}.jar" in {jar.name for jar in jars} else ()


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of this package's downloads and state.

    ``PYSPARK_ROCKETMQ_CACHE``, else ``pyspark-rocketmq`` in the user's cache folder.
    """
    own = environ.get(CACHE_VARIABLE)
    if own:
        return Path(own).absolute()
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "pyspark-rocketmq"


def resolve(
    coordinates: Sequence[str],
    *,
    cache: Path | None = None,
    repositories: Repositories | None = None,
    timeout_ms: float = _RESOLVE_TIMEOUT_MS,
    clock: Clock = SYSTEM_CLOCK,
) -> tuple[Path, ...]:
    """Return the jars of Maven coordinates and all their dependencies, in class path order.

    The first call on a machine downloads them and shows progress on stderr. Later calls take milliseconds.
    Calls from several processes wait for each other. An interrupted call leaves no incomplete result.

    Spark's exclusions apply: artifacts of Spark and of Scala's library are never returned, because PySpark
    includes them.

    Parameters
    ----------
    coordinates : sequence of str
        Each as ``group:artifact:version``.
    cache : Path, optional
        Default: `cache_folder`.
    repositories : Repositories, optional
        Default: `Repositories.from_environment`.
    timeout_ms : float
        For waiting for other processes and for the downloads in total.

    Raises
    ------
    OptionError
        A coordinate is malformed.
    DevClusterError
        The coordinates do not resolve, or not in time. The error has the end of Ivy's output.
    """
    wanted = tuple(coordinates)
    for coordinate in wanted:
        if len([part for part in coordinate.split(":") if part]) != 3:
            raise OptionError("a Maven coordinate is group:artifact:version", coordinate=coordinate)
    deadline = Deadline(clock, timeout_ms)
    cache = cache or cache_folder()
    lock_file = _LockFile(cache, wanted)
    jars = lock_file.read()
    if jars is not None:
        return jars
    with file_lock(cache / "jars.lock", deadline, clock):
        jars = lock_file.read()  # another process may have resolved them while this one waited
        if jars is None:
            repositories = repositories or Repositories.from_environment()
            jars = _download(wanted, lock_file.ivy_folder, repositories, deadline)
            lock_file.write(jars)
    return jars


class _LockFile:
    """The stored class path of coordinates, and whether it is still valid."""

    def __init__(self, cache: Path, coordinates: tuple[str, ...]) -> None:
        self.ivy_folder = cache / "ivy"
        self._coordinates = list(coordinates)
        digest = hashlib.sha256("\n".join(coordinates).encode()).hexdigest()[:16]
        self._file = cache / "locks" / f"{digest}.json"

    def read(self) -> tuple[Path, ...] | None:
        """Return the jars, or None if they must be resolved (again)."""
        try:
            known = json.loads(self._file.read_bytes())
            if known["coordinates"] != self._coordinates:
                return None
            jars = [(self.ivy_folder / name, int(size)) for name, size in known["jars"]]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        with contextlib.suppress(FileNotFoundError):
            if all(jar.stat().st_size == size for jar, size in jars):
                return tuple(jar for jar, _ in jars)
        return None

    def write(self, jars: Sequence[Path]) -> None:
        """Store the result atomically: a reader sees all of it or nothing."""
        known = {
            "coordinates": self._coordinates,
            "jars": [[jar.relative_to(self.ivy_folder).as_posix(), jar.stat().st_size] for jar in jars],
        }
        self._file.parent.mkdir(parents=True, exist_ok=True)
        draft = self._file.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(known, indent=1), encoding="utf-8")
        draft.replace(self._file)


def _download(
    coordinates: tuple[str, ...], ivy_folder: Path, repositories: Repositories, deadline: Deadline
) -> tuple[Path, ...]:
    jars = _fetch(coordinates, ivy_folder, repositories, deadline)
    broken = [jar for jar in jars if not zipfile.is_zipfile(jar)]
    if broken:
        # Ivy never copies an existing jar again, even if a killed process left only half of it.
        for jar in broken:
            jar.unlink(missing_ok=True)
        jars = _fetch(coordinates, ivy_folder, repositories, deadline)
        broken = [jar for jar in jars if not zipfile.is_zipfile(jar)]
    if broken:
        raise DevClusterError(
            "a downloaded artifact is not a jar: remove the cache folder and look at the repository settings",
            jar=broken[0],
        )
    return jars


def _fetch(
    coordinates: tuple[str, ...], folder: Path, repositories: Repositories, deadline: Deadline
) -> tuple[Path, ...]:
    """Download with the first of PySpark's Ivy, coursier and Maven that this machine has."""
    if spark_home() is not None:
        from pyspark_rocketmq.devcluster.ivy import fetch_with_ivy  # noqa: PLC0415 - needs py4j

        return fetch_with_ivy(coordinates, folder, repositories, deadline)
    if repositories.ivy_settings is not None:
        raise DevClusterError("only PySpark reads Ivy settings: `pip install 'pyspark-rocketmq[spark]'`")
    if (coursier := shutil.which("coursier") or shutil.which("cs")) is not None:
        return fetch_with_coursier(coursier, coordinates, folder, repositories, deadline)
    if (maven := shutil.which("mvn")) is not None:
        return fetch_with_maven(maven, coordinates, folder, repositories, deadline)
    raise DevClusterError(
        f"nothing here can download {', '.join(coordinates)}: `pip install 'pyspark-rocketmq[spark]'`, or "
        "install coursier or Maven (mvn), or point ROCKETMQ_HOME at an unpacked RocketMQ of this version"
    )
