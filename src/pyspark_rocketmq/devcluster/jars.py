"""Java artifacts by Maven coordinates, fetched once by the Ivy that ships with PySpark.

The resolved class path of a set of coordinates is stored with the downloads, so that only the first use
on a machine needs the network and a JVM.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError
from pyspark.find_spark_home import _find_spark_home

from pyspark_rocketmq._version import ROCKETMQ_VERSION
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock, Deadline
from pyspark_rocketmq.devcluster.java import find_java
from pyspark_rocketmq.devcluster.progress import DownloadProgress
from pyspark_rocketmq.devcluster.system.locking import file_lock
from pyspark_rocketmq.errors import DevClusterError, OptionError

__all__ = [
    "DEFAULT_VERSION",
    "Repositories",
    "cache_folder",
    "proxy_coordinates",
    "resolve",
    "rocketmq_coordinates",
]

DEFAULT_VERSION: Final = ROCKETMQ_VERSION
"""The default RocketMQ version."""

CACHE_VARIABLE: Final = "PYSPARK_ROCKETMQ_CACHE"
IVY_SETTINGS_VARIABLE: Final = "PYSPARK_ROCKETMQ_IVY_SETTINGS"
REPOSITORIES_VARIABLE: Final = "PYSPARK_ROCKETMQ_REPOSITORIES"

_RESOLVE_TIMEOUT_MS: Final = 15 * 60_000.0


@dataclass(frozen=True, slots=True)
class Repositories:
    """The repositories of artifacts, configured as in Spark.

    The default is Spark's: Maven Central, or the mirror in the environment variable
    ``DEFAULT_ARTIFACT_REPOSITORY``.

    Parameters
    ----------
    ivy_settings : str, optional
        Path to an Ivy settings file (``spark.jars.ivySettings``).
    repositories : str, optional
        Additional repositories, separated by commas (``spark.jars.repositories``).
    """

    ivy_settings: str | None = None
    repositories: str | None = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Repositories:
        """Read this package's environment variables. Those not set are read from spark-defaults.conf."""
        conf = _spark_defaults(environ)
        return cls(
            ivy_settings=environ.get(IVY_SETTINGS_VARIABLE) or conf.get("spark.jars.ivySettings"),
            repositories=environ.get(REPOSITORIES_VARIABLE) or conf.get("spark.jars.repositories"),
        )


def _spark_defaults(environ: Mapping[str, str]) -> dict[str, str]:
    folder = Path(environ.get("SPARK_CONF_DIR") or Path(_find_spark_home()) / "conf")
    file = folder / "spark-defaults.conf"
    if not file.exists():
        return {}
    lines = (line.strip() for line in file.read_text(encoding="utf-8").splitlines())
    pairs = (line.replace("=", " ", 1).split(None, 1) for line in lines if line and line[0] not in "#!")
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}


def rocketmq_coordinates(version: str = DEFAULT_VERSION) -> tuple[str, ...]:
    """Return the coordinates of RocketMQ's servers, tools and Java client."""
    modules = ("namesrv", "broker", "tools", "client")
    return tuple(f"org.apache.rocketmq:rocketmq-{module}:{version}" for module in modules)


def proxy_coordinates(version: str = DEFAULT_VERSION) -> tuple[str, ...]:
    """Return the coordinates of RocketMQ's proxy, which exists since 5.0."""
    return (f"org.apache.rocketmq:rocketmq-proxy:{version}",)


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
    jars = _ivy(coordinates, ivy_folder, repositories, deadline)
    broken = [jar for jar in jars if not zipfile.is_zipfile(jar)]
    if broken:
        # Ivy never copies an existing jar again, even if a killed process left only half of it.
        for jar in broken:
            jar.unlink(missing_ok=True)
        jars = _ivy(coordinates, ivy_folder, repositories, deadline)
        broken = [jar for jar in jars if not zipfile.is_zipfile(jar)]
    if broken:
        raise DevClusterError(
            "a downloaded artifact is not a jar: remove the cache folder and look at the repository settings",
            jar=broken[0],
        )
    return jars


def _ivy(
    coordinates: tuple[str, ...], ivy_folder: Path, repositories: Repositories, deadline: Deadline
) -> tuple[Path, ...]:
    with DownloadProgress(coordinates) as progress, _spark_jvm(progress.line, deadline) as jvm:
        try:
            return _resolve_in(jvm, coordinates, ivy_folder, repositories)
        except Py4JError as error:
            why = (
                f"after {deadline.timeout_ms / 1000:g} s"
                if deadline.expired
                else "with the repositories at hand"
            )
            raise DevClusterError(
                f"cannot resolve {', '.join(coordinates)} {why}: check the network, or name a mirror by "
                f"DEFAULT_ARTIFACT_REPOSITORY, {REPOSITORIES_VARIABLE} or {IVY_SETTINGS_VARIABLE}",
                log_tail=progress.tail(),
            ) from error


def _resolve_in(
    jvm: Any, coordinates: tuple[str, ...], ivy_folder: Path, repositories: Repositories
) -> tuple[Path, ...]:
    """Call Spark's resolver (``org.apache.spark.util.MavenUtils``, Spark 4.2 and 4.3)."""
    maven = getattr(getattr(jvm.org.apache.spark.util, "MavenUtils$"), "MODULE$")
    nil = getattr(getattr(jvm.scala.collection.immutable, "Nil$"), "MODULE$")
    option, out = jvm.scala.Option, jvm.System.err
    remote, ivy_path = option.apply(repositories.repositories), option.apply(str(ivy_folder))
    if repositories.ivy_settings:
        settings = maven.loadIvySettings(repositories.ivy_settings, remote, ivy_path, out)
    else:
        # The local Maven repository is not an Ivy cache: poms without jars in it make Ivy fail.
        settings = maven.buildIvySettings(remote, ivy_path, False, out)
    found = maven.resolveMavenCoordinates(
        ",".join(coordinates), settings, option.empty(), True, nil, False, out
    ).iterator()
    jars: list[Path] = []
    while found.hasNext():
        jars.append(Path(found.next()))
    return tuple(jars)


class _Listener(queue.Queue[str]):
    """A queue that passes every line on immediately. py4j writes output to queues only."""

    def __init__(self, listener: Callable[[str], None]) -> None:
        super().__init__()
        self._listener = listener

    def put(self, item: str, block: bool = True, timeout: float | None = None) -> None:  # noqa: ARG002
        self._listener(item.rstrip("\n"))


@contextlib.contextmanager
def _spark_jvm(listener: Callable[[str], None], deadline: Deadline) -> Iterator[Any]:
    """Run a JVM with Spark's jars but no Spark. It starts in 0.25 s and ends with its owner."""
    output = _Listener(listener)
    port, token, process = launch_gateway(
        classpath=str(Path(_find_spark_home()) / "jars" / "*"),
        java_path=str(find_java().executable),
        die_on_exit=True,
        enable_auth=True,
        redirect_stdout=output,
        redirect_stderr=output,
        return_proc=True,
    )
    parameters = GatewayParameters(port=port, auth_token=token, read_timeout=max(1.0, deadline.remaining_s))
    gateway = JavaGateway(gateway_parameters=parameters)
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()  # else objects that are garbage-collected later would call back
        gateway.close()
        process.stdin.close()
        process.kill()
        process.wait(timeout=30)
