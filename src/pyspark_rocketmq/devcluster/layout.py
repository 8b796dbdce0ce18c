"""Lay out servers on disk: folders, ports, settings, command lines."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pyspark_rocketmq.devcluster.java import Java, class_path
from pyspark_rocketmq.devcluster.server import ServerSpec
from pyspark_rocketmq.devcluster.settings import (
    TEMPORARY,
    broker_properties,
    jvm_arguments,
    logback_files,
    name_server_properties,
    properties_text,
    proxy_settings,
    without_own_certificate,
)
from pyspark_rocketmq.devcluster.system.ports import BROKER_PORTS, free_port, is_free
from pyspark_rocketmq.errors import PortTakenError

__all__ = ["JvmOptions", "Layout", "read_port", "write_files"]

_NAME_SERVER: Final = "org.apache.rocketmq.namesrv.NamesrvStartup"
_SETTINGS: Final = "conf/server.properties"
_BROKER: Final = "org.apache.rocketmq.broker.BrokerStartup"
_PROXY: Final = "org.apache.rocketmq.proxy.ProxyStartup"
_PROXY_SETTINGS: Final = "conf/rmq-proxy.json"
_GRPC_PORT: Final = 1
"""A proxy's gRPC port, counted from its remoting port."""


@dataclass(frozen=True, slots=True)
class JvmOptions:
    """How to run a kind of server.

    Parameters
    ----------
    heap : str
        The value of ``-Xmx``.
    jvm_args : sequence of str
        Additional JVM arguments. Those that begin with ``-Dtls.`` set up TLS, such as
        ``-Dtls.server.mode=enforcing``: without any, name servers and brokers accept none.
    env : mapping of str to str
        Added to its environment.
    files : mapping of str to str
        Contents of files in its home folder by relative path, such as ``conf/plain_acl.yml``.
    """

    heap: str
    jvm_args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Gives every server a folder below ``home``, free ports and its settings.

    Parameters
    ----------
    home : Path
    java : Java
    jars : sequence of Path
        RocketMQ's jars.
    proxy_jars : sequence of Path
        Those of RocketMQ's proxy, if there is one.
    name_server_options, broker_options, proxy_options : JvmOptions
    name_server_config, broker_config, proxy_config : mapping of str to str
        They override this package's settings.
    source : random.Random
        Selects ports.
    port : int, optional
        The first name server's. Default: a free one.
    """

    home: Path
    java: Java
    jars: Sequence[Path]
    proxy_jars: Sequence[Path]
    name_server_options: JvmOptions
    broker_options: JvmOptions
    proxy_options: JvmOptions
    name_server_config: Mapping[str, str]
    broker_config: Mapping[str, str]
    proxy_config: Mapping[str, str]
    source: random.Random
    port: int | None = None

    def name_server(self, number: int) -> ServerSpec:
        """Lay out a name server.

        Raises
        ------
        PortTakenError
            Its given port is in use.
        """
        port = self.port if self.port is not None and number == 0 else free_port(self.source)
        if port == self.port and not is_free(port):
            raise PortTakenError("the name server's port is in use: choose another one", port=port)
        properties = properties_text(name_server_properties(port, self.name_server_config))
        return self._spec(
            f"namesrv-{number}",
            port,
            _starting_fast(self.name_server_options),
            (_NAME_SERVER, "-c"),
            (_SETTINGS, properties),
        )

    def broker(self, broker_name: str, broker_id: int, *, cluster: str, name_server: str) -> ServerSpec:
        """Lay out a broker. A slave's folder and name end with its id."""
        name = f"{broker_name}-{broker_id}" if broker_id else broker_name
        port = free_port(self.source, BROKER_PORTS)
        properties = broker_properties(
            cluster=cluster,
            broker_name=broker_name,
            broker_id=broker_id,
            port=port,
            name_server=name_server,
            home=self.home / name,
            overrides=self.broker_config,
        )
        settings = (_SETTINGS, properties_text(properties))
        return self._spec(name, port, _starting_fast(self.broker_options), (_BROKER, "-c"), settings)

    def proxy(self, number: int, *, cluster: str, name_server: str) -> ServerSpec:
        """Lay out a proxy."""
        port = free_port(self.source, (0, _GRPC_PORT))
        settings = proxy_settings(
            cluster=cluster,
            port=port,
            grpc_port=port + _GRPC_PORT,
            name_server=name_server,
            overrides=self.proxy_config,
        )
        return self._spec(
            f"proxy-{number}",
            port,
            self.proxy_options,
            (_PROXY, "-pc"),
            (_PROXY_SETTINGS, settings),
            jars=self.proxy_jars,
        )

    def _spec(
        self,
        name: str,
        port: int,
        options: JvmOptions,
        program: tuple[str, str],
        settings: tuple[str, str],
        *,
        jars: Sequence[Path] | None = None,
    ) -> ServerSpec:
        """Write a server's files. A program is its class and its flag, settings a file and its text."""
        home = self.home / name
        main_class, flag = program
        file, text = settings
        write_files(home, {**options.files, file: text})
        command = (
            str(self.java.executable),
            *jvm_arguments(home, options.heap, options.jvm_args),
            "-cp",
            class_path([home / "conf", *(self.jars if jars is None else jars)]),
            main_class,
            flag,
            str(home / file),
        )
        return ServerSpec(name, home, port, command, options.env)


def _starting_fast(options: JvmOptions) -> JvmOptions:
    return replace(options, jvm_args=without_own_certificate(options.jvm_args))


def read_port(home: Path) -> int | None:
    """Return the port that the first name server had in this folder's last cluster, or None."""
    try:
        settings = (home / "namesrv-0" / _SETTINGS).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    port = re.search(r"^listenPort=(\d+)$", settings, re.MULTILINE)
    return int(port[1]) if port else None


def write_files(home: Path, files: Mapping[str, str]) -> None:
    """Create a program's home folder and its files, including the logging settings."""
    (home / TEMPORARY).mkdir(parents=True, exist_ok=True)
    for name, text in {**logback_files(), **files}.items():
        file = home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
