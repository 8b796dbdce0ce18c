"""One RocketMQ for all processes of a test run.

Pytest's first process owns it: the cluster starts when the first of its workers asks for it, and stops after
all of them. If that process is killed, the cluster's watchdog ends the servers.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.wait import BUSY

from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.errors import DevClusterError

START_TIMEOUT_S: Final = 240.0
"""Two servers start within this time, on a machine that is not busy."""
_POLL_S: Final = 0.1


class ClusterOwner:
    """Starts a cluster when a process asks for it, and tells each where it is.

    Parameters
    ----------
    start : callable
        Returns the cluster, started. It is not called twice at the same time.
    """

    def __init__(self, start: Callable[[], DevCluster]) -> None:
        self._start = start
        self._cluster: DevCluster | None = None
        owner = self

        class Answer(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(json.dumps(owner._describe()).encode())

        self._server = socketserver.TCPServer(("127.0.0.1", 0), Answer)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="shared-cluster"
        )
        self._thread.start()

    @property
    def address(self) -> str:
        """Where `join_cluster` asks for the cluster."""
        host, port = self._server.server_address[:2]
        return f"{host}:{port}"

    def close(self) -> None:
        """Answer nobody from now on, and stop the cluster."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        if self._cluster is not None:
            self._cluster.stop()
            self._cluster = None

    def _describe(self) -> dict[str, Any]:
        try:
            self._cluster = self._cluster or self._start()
        except DevClusterError as error:
            return {"error": str(error)}
        return {
            "version": self._cluster.version,
            "name_server": self._cluster.name_server,
            "brokers": {broker.name: broker.address for broker in self._cluster.brokers},
            "home": str(self._cluster.home),
            "jars": [str(jar) for jar in self._cluster.jars],
        }


@dataclass(frozen=True)
class JoinedBroker:
    """A broker of another process."""

    name: str
    address: str


class JoinedCluster(DevCluster):
    """The running cluster of another process, with separate tools: it cannot be started or stopped."""

    def __init__(self, record: dict[str, Any]) -> None:
        super().__init__(version=record["version"])
        self._address = record["name_server"]
        self._brokers = tuple(JoinedBroker(*each) for each in record["brokers"].items())
        self._jars = tuple(map(Path, record["jars"]))
        self.owner_home = Path(record["home"])
        self._home = self.owner_home / f"process-{os.getpid()}"

    @property
    def name_server(self) -> str:
        return self._address

    def start(self) -> JoinedCluster:
        raise AssertionError("it runs, and other tests use it")

    def stop(self) -> None:
        raise AssertionError("other tests use it")


def join_cluster(address: str) -> JoinedCluster:
    """Return the cluster of the `ClusterOwner` at an address, as soon as it runs."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=START_TIMEOUT_S * BUSY) as asked:
        answer = json.loads(asked.makefile("rb").read())
    if "error" in answer:
        raise DevClusterError(answer["error"])
    return JoinedCluster(answer)


def settings_lock(cluster: DevCluster) -> Path:
    """Return the file that a process locks while a broker's settings must be what its test needs."""
    home = cluster.owner_home if isinstance(cluster, JoinedCluster) else cluster.home
    return home / "settings.lock"
