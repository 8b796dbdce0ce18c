"""A real Apache RocketMQ as child processes of this one."""

from __future__ import annotations

import os
import random
import re
import shutil
import string
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock
from pyspark_rocketmq.client.connection import ConnectionOptions
from pyspark_rocketmq.devcluster.jars import DEFAULT_VERSION, resolve, rocketmq_coordinates
from pyspark_rocketmq.devcluster.java import Java, class_path, find_java
from pyspark_rocketmq.devcluster.ports import BROKER_PORTS, free_port
from pyspark_rocketmq.devcluster.process import Watchdog
from pyspark_rocketmq.devcluster.server import Broker, NameServer, Server, ServerSpec
from pyspark_rocketmq.devcluster.settings import (
    SERVER_ENV,
    broker_properties,
    jvm_arguments,
    logback_files,
    name_server_properties,
    properties_text,
)
from pyspark_rocketmq.errors import DevClusterError, OptionError

__all__ = ["DevCluster", "JvmOptions"]

CLUSTER_NAME: Final = "DefaultCluster"

_MAIN_CLASSES: Final[Mapping[type[Server], str]] = {
    NameServer: "org.apache.rocketmq.namesrv.NamesrvStartup",
    Broker: "org.apache.rocketmq.broker.BrokerStartup",
}
_PORT_ATTEMPTS: Final = 3
_PORT_TAKEN: Final = re.compile(r"BindException|Address already in use|Failed to bind", re.IGNORECASE)
_TOOL_FAILED: Final = re.compile(
    r"^\S*(SubCommandException|MQClientException|MQBrokerException|Remoting\w*Exception)", re.MULTILINE
)
_TOOL_ARGS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@dataclass(frozen=True, slots=True)
class JvmOptions:
    """How a kind of server is run.

    Parameters
    ----------
    heap : str
        Its ``-Xmx``.
    jvm_args : sequence of str
        More JVM arguments, such as ``-Dtls.server.mode=enforcing``.
    env : mapping of str to str
        Added to its environment.
    files : mapping of str to str
        Files of its home folder by relative path, such as ``conf/plain_acl.yml``.
    """

    heap: str
    jvm_args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


class DevCluster:
    """A RocketMQ of one's own: for development, tests and benchmarks on one machine.

    A context manager. The servers never outlive this process, also when it is killed, unless they
    are ``detached``. Brokers behave like default ones (topics are created by sending, for example)
    but keep small files; clients reach them over the loopback interface only.

    Parameters
    ----------
    brokers : int, default 1
        Masters: ``broker-a``, ``broker-b``, ….
    slaves : int, default 0
        Slaves of each master: ``broker-a-1``, …; they replicate asynchronously.
    name_servers : int, default 1
    version : str, default "5.4.0"
        Any 4.9.x or 5.x release.
    broker_config, name_server_config : mapping of str to str
        Settings in RocketMQ's own spelling; they win over this class's.
    broker, name_server, tools : JvmOptions
        Heap sizes, JVM arguments, environment and files (keys, access lists) of the three programs.
    workdir : Path, optional
        Where stores and logs go, kept and used again by the next start. Default: a temporary
        folder that is removed at the end.
    start_timeout_s : float, default 60
        For each server.
    detached : bool, default False
        The servers outlive this process; needs a ``workdir``.
    connection : ConnectionOptions, optional
        How this class itself reaches the servers, where they ask for credentials or TLS.
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
        version: str = DEFAULT_VERSION,
        broker_config: Mapping[str, str] | None = None,
        name_server_config: Mapping[str, str] | None = None,
        broker_options: JvmOptions = JvmOptions(heap="1g"),
        name_server_options: JvmOptions = JvmOptions(heap="256m", jvm_args=_TOOL_ARGS),
        tools_options: JvmOptions = JvmOptions(heap="256m", jvm_args=_TOOL_ARGS),
        workdir: Path | None = None,
        start_timeout_s: float = 60.0,
        detached: bool = False,
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
        if detached and workdir is None:
            raise OptionError("a detached cluster needs a workdir of its own")
        self.version = version
        self._shape = (brokers, slaves, name_servers)
        self._broker_config = dict(broker_config or {})
        self._name_server_config = dict(name_server_config or {})
        self._options = {Broker: broker_options, NameServer: name_server_options}
        self._tools_options = tools_options
        self._workdir = workdir
        self._start_timeout_s = start_timeout_s
        self._detached = detached
        self._connection = connection or ConnectionOptions()
        self._java = java
        self._clock = clock
        self._random = source or random.Random()  # noqa: S311 - ports, no secrets
        self._jars: tuple[Path, ...] = ()
        self._resources = ExitStack()
        self._owner = 0
        self._home = Path()
        self._watchdog: Watchdog | None = None
        self._name_servers: tuple[NameServer, ...] = ()
        self._brokers: tuple[Broker, ...] = ()

    # --- what it is made of ------------------------------------------------------------------

    @property
    def name_server(self) -> str:
        """The name servers' addresses as clients take them: ``host:port;host:port``."""
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
    def servers(self) -> tuple[Server, ...]:
        """All servers in the order of their start."""
        return (*self._name_servers, *self._brokers)

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
            There is none of that name.
        """
        for broker in self._brokers:
            if broker.name == name:
                return broker
        raise OptionError("no such broker", broker=name, brokers=[broker.name for broker in self._brokers])

    # --- life --------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start every server and return when all of them serve.

        Raises
        ------
        DevClusterError
            Java is missing or too old, the jars do not resolve, or a server did not come up; nothing is left
            running then.
        """
        if self._name_servers:
            raise DevClusterError("this cluster was started already")
        java = self.java
        self._jars = resolve(rocketmq_coordinates(self.version))
        self._owner = os.getpid()
        with ExitStack() as resources:
            self._home = self._make_home(resources)
            if not self._detached:
                self._watchdog = resources.enter_context(Watchdog())
                if self._workdir is None:
                    self._watchdog.remove(self._home)
            resources.callback(self._end_servers)
            self._start_servers(java)
            self._resources = resources.pop_all()
        return self

    def stop(self) -> None:
        """End every server: in order when the ``workdir`` is kept, at once when it is not."""
        if self._owner == os.getpid():  # not in a forked copy of this process
            self._resources.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- tools -------------------------------------------------------------------------------

    def mqadmin(self, *args: str, timeout_s: float = 60.0) -> str:
        """Run RocketMQ's own ``mqadmin`` against this cluster and return what it printed.

        Raises
        ------
        DevClusterError
            It failed; carries its output.
        """
        home = self._home / "tools"
        self._write_files(home, self._tools_options.files)
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
        """Run a compiled Java program with RocketMQ's jars and return what it printed."""
        home = self._home / "tools"
        self._write_files(home, self._tools_options.files)
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

    def _start_servers(self, java: Java) -> None:
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            self._lay_out(java)
            try:
                self._bring_up()
            except DevClusterError as error:
                self._kill_servers()
                # Somebody took a port between our look and the server's bind.
                if attempt == _PORT_ATTEMPTS or not _PORT_TAKEN.search(error.log_tail):
                    raise
            else:
                return

    def _bring_up(self) -> None:
        # One wave after the other: a broker looks once for name servers while it starts, a slave for
        # its master, and both again only after 10 s.
        masters = [broker for broker in self._brokers if broker.broker_id == 0]
        slaves = [broker for broker in self._brokers if broker.broker_id != 0]
        for wave in (self._name_servers, masters, slaves):
            for server in wave:
                server.launch()
            for server in wave:
                server.await_up()

    def _lay_out(self, java: Java) -> None:
        brokers, slaves, name_servers = self._shape
        self._name_servers = tuple(self._lay_out_name_server(java, number) for number in range(name_servers))
        self._brokers = tuple(
            self._lay_out_broker(java, f"broker-{letter}", broker_id)
            for broker_id in range(slaves + 1)
            for letter in string.ascii_lowercase[:brokers]
        )

    def _lay_out_name_server(self, java: Java, number: int) -> NameServer:
        home = self._home / f"namesrv-{number}"
        port = free_port(self._random)
        properties = name_server_properties(port, self._name_server_config)
        spec = self._spec(java, NameServer, home, port=port, properties=properties)
        return NameServer(
            spec, start_timeout_s=self._start_timeout_s, watchdog=self._watchdog, clock=self._clock
        )

    def _lay_out_broker(self, java: Java, broker_name: str, broker_id: int) -> Broker:
        home = self._home / (f"{broker_name}-{broker_id}" if broker_id else broker_name)
        port = free_port(self._random, BROKER_PORTS)
        properties = broker_properties(
            cluster=CLUSTER_NAME,
            broker_name=broker_name,
            broker_id=broker_id,
            port=port,
            name_server=self.name_server,
            home=home,
            overrides=self._broker_config,
        )
        spec = self._spec(java, Broker, home, port=port, properties=properties)
        return Broker(
            spec,
            broker_name=broker_name,
            broker_id=broker_id,
            name_servers=self._name_servers,
            connection=self._connection,
            start_timeout_s=self._start_timeout_s,
            watchdog=self._watchdog,
            clock=self._clock,
        )

    def _spec(
        self, java: Java, kind: type[Server], home: Path, *, port: int, properties: Mapping[str, str]
    ) -> ServerSpec:
        options = self._options[kind]
        self._write_files(home, {**options.files, "conf/server.properties": properties_text(properties)})
        command = (
            str(java.executable),
            *jvm_arguments(home, options.heap, options.jvm_args),
            "-cp",
            class_path([home / "conf", *self._jars]),
            _MAIN_CLASSES[kind],
            "-c",
            str(home / "conf" / "server.properties"),
        )
        return ServerSpec(home.name, home, port, command, options.env)

    @staticmethod
    def _write_files(home: Path, files: Mapping[str, str]) -> None:
        for name, text in {**logback_files(), **files}.items():
            file = home / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")

    def _kill_servers(self) -> None:
        for server in reversed(self.servers):
            server.kill()

    def _end_servers(self) -> None:
        if self._workdir is not None:
            for server in reversed(self.servers):
                server.stop()
        self._kill_servers()
