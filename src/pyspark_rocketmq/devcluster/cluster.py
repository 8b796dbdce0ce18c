"""A real Apache RocketMQ as child processes of this process."""

from __future__ import annotations

import os
import random
import re
import shutil
import string
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock
from pyspark_rocketmq.client.net.endpoint import ConnectionOptions
from pyspark_rocketmq.devcluster.jars import DEFAULT_VERSION, proxy_coordinates, proxy_jars, rocketmq_jars
from pyspark_rocketmq.devcluster.java import Java, find_java
from pyspark_rocketmq.devcluster.layout import JvmOptions, Layout, write_files
from pyspark_rocketmq.devcluster.registration import READ_WRITE
from pyspark_rocketmq.devcluster.server import Broker, NameServer, Proxy, Runtime, Server
from pyspark_rocketmq.devcluster.settings import SERVER_ENV, jvm_arguments
from pyspark_rocketmq.devcluster.system.disk import check_disk
from pyspark_rocketmq.devcluster.system.process import Watchdog
from pyspark_rocketmq.errors import DevClusterError, OptionError, PortTakenError

__all__ = ["DevCluster"]

CLUSTER_NAME: Final = "DefaultCluster"

_HIGHEST_PORT: Final = 65_535
_PORT_ATTEMPTS: Final = 3
_TOOL_FAILED: Final = re.compile(
    r"^\S*(SubCommandException|MQClientException|MQBrokerException|Remoting\w*Exception)", re.MULTILINE
)
_BROKER_JVM: Final = JvmOptions(heap="1g")
_SMALL_JVM: Final = JvmOptions(heap="256m", jvm_args=("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"))


class DevCluster:
    """A local RocketMQ cluster for development, tests and benchmarks on one machine.

    A context manager. The servers never outlive this process, even if it is killed, unless you call
    `detach`. Brokers behave like default ones (sending creates topics, for example) but keep small
    files, and accept no TLS unless JVM arguments set it up. Clients reach them over the loopback
    interface only.

    Parameters
    ----------
    brokers : int, default 1
        Number of master brokers: ``broker-a``, ``broker-b``, ….
    slaves : int, default 0
        Slaves per master: ``broker-a-1``, …. They replicate asynchronously.
    name_servers : int, default 1
    proxies : int, default 0
        RocketMQ 5 only.
    version : str, default "5.5.0"
        Any 4.9.x or 5.x release.
    broker_config, name_server_config, proxy_config : mapping of str to str
        Settings by RocketMQ's names. They override the settings of this class.
    broker_options, name_server_options, proxy_options, tools_options : JvmOptions
        Heap sizes, JVM arguments, environment and files (keys, access lists) of the programs.
    port : int, optional
        The first name server's port. Default: a random free one.
    workdir : Path, optional
        The folder of stores and logs. It is kept, and the next start reuses it. Default: a temporary
        folder that is removed at the end.
    start_timeout_s : float, default 120
        Per server.
    connection : ConnectionOptions, optional
        How this class connects to the servers, if they require credentials or TLS.
    java : Java, optional
        Default: `find_java`.

    Examples
    --------
    >>> with DevCluster(brokers=2) as mq:  # doctest: +SKIP
    ...     spark.read.format("rocketmq").option("nameServer", mq.name_server)
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        slaves: int = 0,
        name_servers: int = 1,
        proxies: int = 0,
        version: str = DEFAULT_VERSION,
        broker_config: Mapping[str, str] | None = None,
        name_server_config: Mapping[str, str] | None = None,
        proxy_config: Mapping[str, str] | None = None,
        broker_options: JvmOptions = _BROKER_JVM,
        name_server_options: JvmOptions = _SMALL_JVM,
        proxy_options: JvmOptions = _SMALL_JVM,
        tools_options: JvmOptions = _SMALL_JVM,
        port: int | None = None,
        workdir: Path | None = None,
        start_timeout_s: float = 120.0,
        connection: ConnectionOptions | None = None,
        java: Java | None = None,
        clock: Clock = SYSTEM_CLOCK,
        source: random.Random | None = None,
    ) -> None:
        if not 1 <= brokers <= len(string.ascii_lowercase) or slaves < 0 or name_servers < 1:
            raise OptionError(
                "a cluster has 1 to 26 brokers, no or more slaves, and a name server",
                brokers=brokers,
                slaves=slaves,
                name_servers=name_servers,
            )
        if port is not None and not 1 <= port <= _HIGHEST_PORT:
            raise OptionError(
                "a port is a number from 1 to 65535; without one, a free one is used", port=port
            )
        if proxies < 0:
            raise OptionError("the number of proxies is negative", proxies=proxies)
        if proxies:
            proxy_coordinates(version)  # a version without one is an error before anything is downloaded
        self.version = version
        self._shape = (brokers, slaves, name_servers, proxies)
        self._broker_config = dict(broker_config or {})
        self._name_server_config = dict(name_server_config or {})
        self._proxy_config = dict(proxy_config or {})
        self._broker_options = broker_options
        self._name_server_options = name_server_options
        self._proxy_options = proxy_options
        self._tools_options = tools_options
        self._port = port
        self._workdir = workdir
        self._start_timeout_s = start_timeout_s
        self._connection = connection or ConnectionOptions()
        self._java = java
        self._clock = clock
        self._random = source or random.Random()  # noqa: S311 - ports, no secrets
        self._jars: tuple[Path, ...] = ()
        self._proxy_jars: tuple[Path, ...] = ()
        self._resources = ExitStack()
        self._is_started = False
        self._owner = 0
        self._home = Path()
        self._name_servers: tuple[NameServer, ...] = ()
        self._brokers: tuple[Broker, ...] = ()
        self._proxies: tuple[Proxy, ...] = ()

    # --- parts -------------------------------------------------------------------------------

    @property
    def name_server(self) -> str:
        """The name servers' addresses in the format of clients: ``host:port;host:port``."""
        return ";".join(server.address for server in self._name_servers)

    @property
    def name_servers(self) -> tuple[NameServer, ...]:
        """The name servers."""
        return self._name_servers

    @property
    def brokers(self) -> tuple[Broker, ...]:
        """All brokers, masters first."""
        return self._brokers

    @property
    def proxy(self) -> str:
        """The proxies' addresses: clients take them in place of `name_server`."""
        return ";".join(server.address for server in self._proxies)

    @property
    def proxies(self) -> tuple[Proxy, ...]:
        """The proxies."""
        return self._proxies

    @property
    def servers(self) -> tuple[Server, ...]:
        """All servers, in start order."""
        return (*self._name_servers, *self._brokers, *self._proxies)

    @property
    def home(self) -> Path:
        """The folder with a subfolder for each server."""
        return self._home

    @property
    def jars(self) -> tuple[Path, ...]:
        """RocketMQ's jars (servers, tools, Java client) of this version."""
        return self._jars

    @property
    def java(self) -> Java:
        """The Java that the servers run on."""
        if self._java is None:
            self._java = find_java()
        return self._java

    def broker(self, name: str = "broker-a") -> Broker:
        """Return a broker by its name in this cluster (a slave is ``broker-a-1``).

        Raises
        ------
        OptionError
            No broker has that name.
        """
        for broker in self._brokers:
            if broker.name == name:
                return broker
        raise OptionError(
            "no such broker", broker_name=name, brokers=[broker.name for broker in self._brokers]
        )

    # --- life --------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start every server. Return when all of them serve requests.

        Raises
        ------
        DevClusterError
            Java is missing or too old, the jars do not resolve, the disk is too full, the port is in use,
            or a server did not start. No server is left running then.
        """
        if self._is_started:
            raise DevClusterError("this cluster was started already")
        java = self.java
        self._jars = rocketmq_jars(self.version)
        *_, proxies = self._shape
        if proxies:
            self._proxy_jars = proxy_jars(self.version)
        self._owner = os.getpid()
        with ExitStack() as resources:
            self._home = self._make_home(resources)
            check_disk(self._home)
            watchdog = resources.enter_context(Watchdog())
            if self._workdir is None:
                watchdog.remove(self._home)
            resources.callback(self._end_servers)
            self._start_servers(java, watchdog)
            self._resources = resources.pop_all()
        self._is_started = True
        return self

    def stop(self) -> None:
        """Stop every server: gracefully if the ``workdir`` is kept, else immediately."""
        if self._owner == os.getpid():  # not in a fork of this process
            self._resources.close()

    def detach(self) -> None:
        """Let the servers outlive this process. The caller must then stop them.

        Raises
        ------
        DevClusterError
            The cluster has no ``workdir``, or does not run.
        """
        if self._workdir is None or not self._is_started:
            raise DevClusterError("only a running cluster with its own workdir can be detached")
        for server in self.servers:
            server.release()
        # The end of the watchdog's pipe has no effect now. The other callbacks would stop the servers.
        self._resources.pop_all()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- tools -------------------------------------------------------------------------------

    def mqadmin(self, *args: str, timeout_s: float = 60.0) -> str:
        """Run RocketMQ's ``mqadmin`` against this cluster and return its output.

        Raises
        ------
        DevClusterError
            The command failed. The error has its output.
        """
        home = self._home / "tools"
        write_files(home, self._tools_options.files)
        options = self._tools_options
        output = self.java.run(
            "org.apache.rocketmq.tools.command.MQAdminStartup",
            *args,
            jars=[home / "conf", *self._jars],
            jvm_args=[
                *jvm_arguments(home, options.heap, options.jvm_args),
                f"-Drocketmq.namesrv.addr={self.name_server}",
            ],
            env={**SERVER_ENV, "ROCKETMQ_HOME": str(home), **options.env},
            timeout_s=timeout_s,
        )
        if _TOOL_FAILED.search(output):
            raise DevClusterError(f"mqadmin {' '.join(args)} failed", log_tail=output)
        return output

    def compile_java(self, *sources: Path) -> Path:
        """Compile Java sources against RocketMQ's jars and return the folder of their classes."""
        return self.java.compile(sources, jars=self._jars, output=self._home / "classes")

    def run_java(
        self,
        main_class: str,
        *args: str,
        classes: Path,
        jvm_args: Sequence[str] = (),
        timeout_s: float = 120.0,
    ) -> str:
        """Run a compiled Java program with RocketMQ's jars and return its output."""
        home = self._home / "tools"
        write_files(home, self._tools_options.files)
        return self.java.run(
            main_class,
            *args,
            jars=[home / "conf", classes, *self._jars],
            jvm_args=[*jvm_arguments(home, self._tools_options.heap, ()), *jvm_args],
            env=SERVER_ENV,
            timeout_s=timeout_s,
        )

    # --- inside ------------------------------------------------------------------------------

    def _make_home(self, resources: ExitStack) -> Path:
        if self._workdir is not None:
            self._workdir.mkdir(parents=True, exist_ok=True)
            return self._workdir.absolute()
        home = Path(tempfile.mkdtemp(prefix="pyspark-rocketmq-"))
        resources.callback(shutil.rmtree, home, ignore_errors=True)
        return home

    def _start_servers(self, java: Java, watchdog: Watchdog) -> None:
        layout = Layout(
            home=self._home,
            java=java,
            jars=self._jars,
            proxy_jars=self._proxy_jars,
            name_server_options=self._name_server_options,
            broker_options=self._broker_options,
            proxy_options=self._proxy_options,
            name_server_config=self._name_server_config,
            broker_config=self._broker_config,
            proxy_config=self._proxy_config,
            source=self._random,
            port=self._port,
        )
        runtime = Runtime(watchdog, self._connection, self._start_timeout_s, self._clock)
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            self._lay_out(layout, runtime)
            try:
                self._bring_up()
            except PortTakenError:  # by another process, between our check and the server's bind
                self._kill_servers()
                if attempt == _PORT_ATTEMPTS:
                    raise
            else:
                return

    def _lay_out(self, layout: Layout, runtime: Runtime) -> None:
        brokers, slaves, name_servers, proxies = self._shape
        self._name_servers = tuple(
            NameServer(layout.name_server(number), runtime) for number in range(name_servers)
        )
        self._brokers = tuple(
            Broker(
                layout.broker(name, broker_id, cluster=CLUSTER_NAME, name_server=self.name_server),
                runtime,
                broker_name=name,
                broker_id=broker_id,
                permission=self._broker_config.get("brokerPermission", READ_WRITE),
                name_servers=self._name_servers,
            )
            for broker_id in range(slaves + 1)
            for name in [f"broker-{letter}" for letter in string.ascii_lowercase[:brokers]]
        )
        self._proxies = tuple(
            Proxy(layout.proxy(number, cluster=CLUSTER_NAME, name_server=self.name_server), runtime)
            for number in range(proxies)
        )

    def _bring_up(self) -> None:
        # One wave after the other: while it starts, a slave looks up its master once, and again only after
        # 10 s. A proxy ends if it finds no broker. A master registers when `await_up` asks it to.
        masters = [broker for broker in self._brokers if broker.broker_id == 0]
        slaves = [broker for broker in self._brokers if broker.broker_id != 0]
        for wave in ((*self._name_servers, *masters), slaves, self._proxies):
            for server in wave:
                server.launch()
            for server in wave:
                server.await_up()

    def _kill_servers(self) -> None:
        for server in reversed(self.servers):
            server.kill()

    def _end_servers(self) -> None:
        if self._workdir is not None:
            for server in reversed(self.servers):
                server.stop()
        self._kill_servers()
