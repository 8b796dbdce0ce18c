"""Download jars with the Ivy that ships with PySpark."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError

from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.devcluster.java import find_java
from pyspark_rocketmq.devcluster.progress import DownloadProgress
from pyspark_rocketmq.devcluster.repositories import (
    IVY_SETTINGS_VARIABLE,
    REPOSITORIES_VARIABLE,
    Repositories,
    spark_home,
)
from pyspark_rocketmq.errors import DevClusterError

__all__ = ["fetch_with_ivy"]


def fetch_with_ivy(
    coordinates: tuple[str, ...], folder: Path, repositories: Repositories, deadline: Deadline
) -> tuple[Path, ...]:
    """Download into a folder, which is Ivy's cache, and return the jars in class path order.

    Raises
    ------
    DevClusterError
        The coordinates do not resolve, or not in time. The error has the end of Ivy's output.
    """
    with DownloadProgress(coordinates) as progress, _spark_jvm(progress.line, deadline) as jvm:
        try:
            return _resolve_in(jvm, coordinates, folder, repositories)
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
    home = spark_home()
    assert home is not None
    port, token, process = launch_gateway(
        classpath=str(home / "jars" / "*"),
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
