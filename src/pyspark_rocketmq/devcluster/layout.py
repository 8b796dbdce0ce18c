"""Lay out servers on disk: folders, ports, settings, command lines."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark_rocketmq.devcluster.java import Java, class_path
from pyspark_rocketmq.devcluster.ports import BROKER_PORTS, free_port
from pyspark_rocketmq.devcluster.server import ServerSpec
from pyspark_rocketmq.devcluster.settings import (
    TEMPORARY,
    broker_properties,
    jvm_arguments,
    logback_files,
    name_server_properties,
    properties_text,
)

__all__ = ["JvmOptions", "Layout", "write_files"]

_NAME_SERVER: Final = "org.apache.rocketmq.namesrv.NamesrvStartup"
_BROKER: Final = "org.apache.rocketmq.broker.BrokerStartup"


@dataclass(frozen=True, slots=True)
class JvmOptions:
    """How to run a kind of server.

    Parameters
    ----------
    heap : str
        The value of ``-Xmx``.
    jvm_args : sequence of str
        Additional JVM arguments, such as ``-Dtls.server.mode=enforcing``.
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
    name_server_options, broker_options : JvmOptions
    name_server_config, broker_config : mapping of str to str
        They override this package's settings.
    source : random.Random
        Selects ports.
    """

    home: Path
    java: Java
    jars: Sequence[Path]
    name_server_options: JvmOptions
    broker_options: JvmOptions
    name_server_config: Mapping[str, str]
    broker_config: Mapping[str, str]
    source: random.Random

    def name_server(self, number: int) -> ServerSpec:
        """Lay out a name server."""
        port = free_port(self.source)
        properties = name_server_properties(port, self.name_server_config)
        return self._spec(f"namesrv-{number}", port, _NAME_SERVER, self.name_server_options, properties)

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
        return self._spec(name, port, _BROKER, self.broker_options, properties)

    def _spec(
        self, name: str, port: int, main_class: str, options: JvmOptions, properties: Mapping[str, str]
    ) -> ServerSpec:
        home = self.home / name
        settings = "conf/server.properties"
        write_files(home, {**options.files, settings: properties_text(properties)})
        command = (
            str(self.java.executable),
            *jvm_arguments(home, options.heap, options.jvm_args),
            "-cp",
            class_path([home / "conf", *self.jars]),
            main_class,
            "-c",
            str(home / settings),
        )
        return ServerSpec(name, home, port, command, options.env)


def write_files(home: Path, files: Mapping[str, str]) -> None:
    """Create a program's home folder and its files, including the logging settings."""
    (home / TEMPORARY).mkdir(parents=True, exist_ok=True)
    for name, text in {**logback_files(), **files}.items():
        file = home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
