"""Name servers, brokers and proxies as objects to stop, kill, pause and restart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark_rocketmq.client.clock import Clock, Deadline
from pyspark_rocketmq.client.net.endpoint import ConnectionOptions
from pyspark_rocketmq.devcluster.registration import is_registered, register_now
from pyspark_rocketmq.devcluster.settings import SERVER_ENV
from pyspark_rocketmq.devcluster.system.ports import LOOPBACK
from pyspark_rocketmq.devcluster.system.process import ChildProcess, Watchdog
from pyspark_rocketmq.errors import TransportError

__all__ = ["Broker", "NameServer", "Proxy", "Runtime", "Server", "ServerSpec"]

_UP: Final = "(boot|startup) success"
_STOP_TIMEOUT_S: Final = 40.0  # a 5.4 broker takes 17 s to shut down


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """How to run one server.

    Parameters
    ----------
    name : str
    home : Path
        Its folder: settings, store, log.
    port : int
    command : tuple of str
    env : mapping of str to str
    """

    name: str
    home: Path
    port: int
    command: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Runtime:
    """The context shared by the servers of a cluster.

    Parameters
    ----------
    watchdog : Watchdog
    connection : ConnectionOptions
        How to connect to the servers: credentials, TLS.
    start_timeout_s : float
        Per server.
    clock : Clock
    """

    watchdog: Watchdog
    connection: ConnectionOptions
    start_timeout_s: float
    clock: Clock


class Server:
    """A server of a `DevCluster`, running or stopped.

    It keeps its port and folder while it is stopped.
    """

    def __init__(self, spec: ServerSpec, runtime: Runtime) -> None:
        self._spec = spec
        self._runtime = runtime
        self._process = ChildProcess(
            spec.name,
            spec.command,
            log_file=spec.home / "server.log",
            env={**SERVER_ENV, "ROCKETMQ_HOME": str(spec.home), **spec.env},
            watchdog=runtime.watchdog,
            clock=runtime.clock,
        )

    @property
    def name(self) -> str:
        """Its name in this cluster, such as ``broker-a`` or, for a slave, ``broker-a-1``."""
        return self._spec.name

    @property
    def home(self) -> Path:
        """Its folder."""
        return self._spec.home

    @property
    def address(self) -> str:
        """Its address, as ``host:port``."""
        return f"{LOOPBACK}:{self._spec.port}"

    @property
    def pid(self) -> int | None:
        """Its process id while it runs, else None."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether its process exists, running or paused."""
        return self._process.is_running

    @property
    def rss_bytes(self) -> int:
        """Resident memory of its process in bytes."""
        return self._process.rss_bytes

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines logged since its last start."""
        return self._process.log_tail(lines)

    def launch(self) -> None:
        """Start the server and return immediately. To wait for it, use `await_up`."""
        self._process.start()

    def await_up(self) -> None:
        """Wait until the server serves requests.

        Raises
        ------
        DevClusterError
            It ended, or does not serve within the cluster's ``start_timeout_s``. The error has its log's
            tail.
        """
        self._process.wait_for_log(_UP, self._start_deadline())

    def _start_deadline(self) -> Deadline:
        return Deadline(self._runtime.clock, self._runtime.start_timeout_s * 1000)

    def start(self) -> None:
        """Start the server (again) and wait until it serves requests.

        Raises
        ------
        DevClusterError
            As `await_up`, or the server already runs.
        """
        self.launch()
        self.await_up()

    def stop(self) -> None:
        """Shut the server down gracefully. A broker takes ten seconds or more; `kill` is faster."""
        self._process.terminate(_STOP_TIMEOUT_S)

    def kill(self) -> None:
        """Kill the server, as a crash or ``kill -9`` does."""
        self._process.kill()

    def pause(self) -> None:
        """Pause the server: connections stay open, but it does not answer, as in a network outage."""
        self._process.pause()

    def resume(self) -> None:
        """Resume the server after `pause`."""
        self._process.resume()

    def release(self) -> None:
        """Let the server outlive this process, see `DevCluster.detach`."""
        self._process.release()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.address!r}, pid={self.pid})"


class NameServer(Server):
    """A name server."""


class Proxy(Server):
    """A proxy in cluster mode. Its address is that of the remoting protocol."""


class Broker(Server):
    """A broker.

    Parameters
    ----------
    broker_name : str
        The name of its replica group, equal for a master and its slaves.
    broker_id : int
        0 for the master.
    permission : str
        Its ``brokerPermission``.
    name_servers : sequence of NameServer
        The name servers with which it registers.
    """

    def __init__(
        self,
        spec: ServerSpec,
        runtime: Runtime,
        *,
        broker_name: str,
        broker_id: int,
        permission: str,
        name_servers: Sequence[NameServer],
    ) -> None:
        super().__init__(spec, runtime)
        self.broker_name = broker_name
        self.broker_id = broker_id
        self._permission = permission
        self._name_servers = tuple(name_servers)

    def await_up(self) -> None:
        """Wait until the broker serves requests and every running name server knows it.

        Raises
        ------
        DevClusterError
            As `Server.await_up`.
        """
        deadline = self._start_deadline()
        self._process.wait_for_log(_UP, deadline)
        self._process.wait_until(
            lambda: self._registers(deadline), deadline, "has not registered with the name servers"
        )

    def _registers(self, deadline: Deadline) -> bool:
        """Return whether every name server knows the broker, and if not, ask it to register.

        Each time: it registers with the name servers that it has found so far.
        """
        if self._is_registered(deadline):
            return True
        register_now(
            self.address,
            self._permission,
            options=self._runtime.connection,
            deadline=deadline,
            clock=self._runtime.clock,
        )
        return self._is_registered(deadline)

    def _is_registered(self, deadline: Deadline) -> bool:
        try:
            return is_registered(
                [server.address for server in self._name_servers if server.is_running],
                broker_name=self.broker_name,
                address=self.address,
                options=self._runtime.connection,
                deadline=deadline,
                clock=self._runtime.clock,
            )
        except TransportError:  # the name server ended just now, or is paused
            return False
