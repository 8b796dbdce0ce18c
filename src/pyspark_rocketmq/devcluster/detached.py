"""The cluster that outlives the command that started it: one per user, recorded in a file."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock, Deadline
from pyspark_rocketmq.devcluster.cluster import DevCluster
from pyspark_rocketmq.devcluster.jars import DEFAULT_VERSION, cache_folder
from pyspark_rocketmq.devcluster.layout import read_port
from pyspark_rocketmq.devcluster.system.locking import file_lock
from pyspark_rocketmq.devcluster.system.ports import is_free
from pyspark_rocketmq.devcluster.system.process import command_line, end_processes, resident_bytes
from pyspark_rocketmq.errors import DevClusterError

__all__ = [
    "DEFAULT_PORT",
    "DetachedCluster",
    "DetachedServer",
    "find_detached",
    "start_detached",
    "stop_detached",
]

DEFAULT_PORT: Final = 9876
"""RocketMQ's own default for name servers."""

_STATE_FILE: Final = "cluster.json"
_LOCK_TIMEOUT_MS: Final = 10_000
_STOP_TIMEOUT_MS: Final = 40_000


@dataclass(frozen=True, slots=True)
class DetachedServer:
    """One server of a detached cluster. ``home`` is its folder."""

    name: str
    address: str
    pid: int
    home: str

    @property
    def is_running(self) -> bool:
        """Whether the pid still belongs to this server, not to a later process that reuses it."""
        return f"-Duser.home={self.home}" in command_line(self.pid)

    @property
    def rss_bytes(self) -> int:
        """Resident memory in bytes."""
        return resident_bytes(self.pid) if self.is_running else 0


@dataclass(frozen=True, slots=True)
class DetachedCluster:
    """The record of a detached cluster.

    Parameters
    ----------
    version : str
        RocketMQ's version.
    name_server : str
        In the format of clients.
    home : str
        The folder of stores and logs.
    servers : tuple of DetachedServer
    proxy : str
        The proxies' addresses, in the format of clients; empty without proxies.
    """

    version: str
    name_server: str
    home: str
    servers: tuple[DetachedServer, ...]
    proxy: str = ""

    @classmethod
    def of(cls, cluster: DevCluster) -> Self:
        """Describe a running cluster."""
        servers = tuple(
            DetachedServer(server.name, server.address, server.pid, str(server.home))
            for server in cluster.servers
            if server.pid is not None
        )
        return cls(cluster.version, cluster.name_server, str(cluster.home), servers, cluster.proxy)

    @property
    def is_running(self) -> bool:
        """Whether any of its servers is running."""
        return any(server.is_running for server in self.servers)


def start_detached(
    brokers: int = 1,
    *,
    slaves: int = 0,
    proxies: int = 0,
    version: str = DEFAULT_VERSION,
    broker_config: dict[str, str] | None = None,
    port: int | None = None,
    workdir: Path | None = None,
    cache: Path | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> DetachedCluster:
    """Start the user's cluster. Return when it serves requests; it runs until `stop_detached`.

    Parameters
    ----------
    brokers, slaves, proxies, version, broker_config
        As in `DevCluster`.
    port : int, optional
        The name server's port. Default: the port of the folder's last cluster, else 9876, if it is free, else
        a random free one.
    workdir : Path, optional
        Default: a folder in the cache.
    cache : Path, optional
        The folder of the record. Default: `cache_folder`.

    Raises
    ------
    DevClusterError
        A cluster already runs, the given port is in use, or this cluster did not start.
    """
    cache = cache or cache_folder()
    with file_lock(cache / "cluster.lock", Deadline(clock, _LOCK_TIMEOUT_MS), clock):
        running = find_detached(cache)
        if running is not None and running.is_running:
            raise DevClusterError("a cluster runs already: stop it first", name_server=running.name_server)
        workdir = workdir or cache / "cluster"
        mq = DevCluster(
            brokers,
            slaves=slaves,
            proxies=proxies,
            version=version,
            broker_config=broker_config,
            port=_free_port(workdir) if port is None else port,
            workdir=workdir,
            clock=clock,
        )
        with mq:
            cluster = DetachedCluster.of(mq)
            draft = (cache / _STATE_FILE).with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps(dataclasses.asdict(cluster), indent=1), encoding="utf-8")
            draft.replace(cache / _STATE_FILE)
            mq.detach()
        return cluster


def _free_port(workdir: Path) -> int | None:
    """Return the preferred port of a cluster in this folder, or None if it is in use."""
    port = read_port(workdir) or DEFAULT_PORT
    return port if is_free(port) else None


def find_detached(cache: Path | None = None) -> DetachedCluster | None:
    """Return the user's cluster as it was started, running or not, or None."""
    try:
        state = json.loads(((cache or cache_folder()) / _STATE_FILE).read_bytes())
        servers = tuple(DetachedServer(**server) for server in state.pop("servers"))
        return DetachedCluster(**state, servers=servers)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def stop_detached(
    *, keep_data: bool = False, cache: Path | None = None, clock: Clock = SYSTEM_CLOCK
) -> DetachedCluster | None:
    """Stop the user's cluster and return its record, or None if there is none.

    Parameters
    ----------
    keep_data : bool, default False
        Shut down gracefully, which takes about 20 s, and keep its folder for the next start. Otherwise
        end it immediately and remove the folder.
    """
    cache = cache or cache_folder()
    with file_lock(cache / "cluster.lock", Deadline(clock, _LOCK_TIMEOUT_MS), clock):
        cluster = find_detached(cache)
        if cluster is None:
            return None
        ours = {server.pid: server for server in cluster.servers}
        end_processes(
            list(reversed(ours)),
            is_ours=lambda pid: ours[pid].is_running,
            deadline=Deadline(clock, _STOP_TIMEOUT_MS if keep_data else 0),
            clock=clock,
        )
        if not keep_data:
            for server in cluster.servers:
                shutil.rmtree(server.home, ignore_errors=True)
            shutil.rmtree(Path(cluster.home) / "tools", ignore_errors=True)
        (cache / _STATE_FILE).unlink(missing_ok=True)
    return cluster
