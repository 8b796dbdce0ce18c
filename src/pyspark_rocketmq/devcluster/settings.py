"""The files and JVM arguments of a server's start, without I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

__all__ = [
    "SERVER_ENV",
    "broker_properties",
    "jvm_arguments",
    "logback_files",
    "name_server_properties",
    "properties_text",
    "proxy_settings",
    "without_own_certificate",
]

# Java 17 closes the internals that the servers' mapped files and fastjson use.
_OPENED: Final = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
)

# The user's environment variables for other installations must not reach these servers.
SERVER_ENV: Final = {"NAMESRV_ADDR": "", "ROCKETMQ_SERIALIZE_TYPE": ""}

_SMALL_STORE: Final = {
    # Defaults are files of 1 GiB and 400 MB: sparse, but slow to create on some file systems.
    "mappedFileSizeCommitLog": str(64 * 1024 * 1024),
    "maxHashSlotNum": "500000",
    "maxIndexNum": "2000000",
    # Above 85 % disk usage a broker deletes messages before their retention ends. A developer's disk often
    # is that full for other reasons.
    "diskMaxUsedSpaceRatio": "95",
    "cleanFileForciblyEnable": "false",
    # A restarted name server knows the brokers again after 10 s (the minimum) instead of 30 s.
    "registerNameServerPeriod": "10000",
    # TransactionMetricsFlushService (5.4) spins on a core until this time has passed once: 10 s by default.
    "transactionMetricFlushInterval": "500",
    # TransactionalOpBatchService (5.x, issue apache/rocketmq#10966) spins on a core from this time after a
    # broker's first transaction on. With these settings a decision is written at once, and nothing spins.
    "transactionOpBatchInterval": str(24 * 60 * 60 * 1000),
    "transactionOpMsgMaxSize": "1",
    # TimerWheel.flush (5.x) compares 37 MiB byte by byte, every second by default: an eighth of a core.
    "timerFlushIntervalMs": "10000",
}

TEMPORARY: Final = "tmp"
"""A server's folder for temporary files, in its home folder. It must exist when the server starts."""

_LOGBACK: Final = """<configuration>
  <appender name="STDOUT" class="{package}ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{{HH:mm:ss.SSS}} %-5level [%thread] %logger{{20}} - %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="STDOUT"/></root>
</configuration>
"""


def jvm_arguments(home: Path, heap: str, extra: Sequence[str]) -> list[str]:
    """Return a server's JVM arguments; ``user.home`` keeps every default path inside ``home``."""
    # Reserve no memory up front, and set no collector that could conflict with ``extra``. Unpacked libraries
    # and generated certificates of a killed server would otherwise stay in the system's temporary folder.
    folders = [f"-Duser.home={home}", f"-Drocketmq.home.dir={home}", f"-Djava.io.tmpdir={home / TEMPORARY}"]
    return [f"-Xmx{heap}", *_OPENED, *folders, *extra]


def without_own_certificate(jvm_args: Sequence[str]) -> tuple[str, ...]:
    """Return a name server's or broker's JVM arguments: TLS is off, unless they set it up.

    By default these servers also accept TLS. For that they create a certificate at each start, which no
    client can verify, and which takes half of the start.
    """
    if any(argument.startswith("-Dtls.") for argument in jvm_args):
        return tuple(jvm_args)
    return ("-Dtls.server.mode=disabled", *jvm_args)


def logback_files() -> dict[str, str]:
    """Return the logging settings of 4.9 and 5.x: warnings and errors, to the process's own log file.

    5.x finds ``rmq.logback.xml`` (its proxy ``rmq.proxy.logback.xml``) on the class path. 4.9 requires files
    in its home folder.
    """
    v4 = _LOGBACK.format(package="")
    v5 = _LOGBACK.format(package="org.apache.rocketmq.logging.")
    old = {f"conf/logback_{program}.xml": v4 for program in ("broker", "namesrv", "tools")}
    return {"conf/rmq.logback.xml": v5, "conf/rmq.proxy.logback.xml": v5, **old}


def name_server_properties(port: int, overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a name server that listens on the loopback interface."""
    return {"listenPort": str(port), "bindAddress": "127.0.0.1", **overrides}


def broker_properties(
    *,
    cluster: str,
    broker_name: str,
    broker_id: int,
    port: int,
    name_server: str,
    home: Path,
    overrides: Mapping[str, str],
) -> dict[str, str]:
    """Return the settings of a broker that is small, local and otherwise like a default broker.

    The replication port has no address setting, and 4.9 has no address settings at all. Such ports listen
    on every interface.
    """
    store = home / "store"
    return {
        **_SMALL_STORE,
        "brokerClusterName": cluster,
        "brokerName": broker_name,
        "brokerId": str(broker_id),
        "brokerRole": "SLAVE" if broker_id else "ASYNC_MASTER",
        "listenPort": str(port),
        "haListenPort": str(port + 1),
        "bindAddress": "127.0.0.1",
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "namesrvAddr": name_server,
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
        **overrides,
    }


def proxy_settings(
    *, cluster: str, port: int, grpc_port: int, name_server: str, overrides: Mapping[str, str]
) -> str:
    """Return the settings of a proxy in cluster mode, as JSON. It listens on every interface.

    Parameters
    ----------
    cluster : str
        The brokers' cluster.
    port, grpc_port : int
        For the remoting protocol and for gRPC.
    name_server : str
    overrides : mapping of str to str
        The proxy converts texts to the settings' types.
    """
    settings = {
        "rocketMQClusterName": cluster,
        "proxyClusterName": cluster,
        "proxyMode": "CLUSTER",
        "namesrvAddr": name_server,
        "localServeAddr": "127.0.0.1",
        "remotingAccessAddr": "127.0.0.1",
        "remotingListenPort": port,
        "grpcServerPort": grpc_port,
        # gRPC on the remoting port needs a native library for TLS that Ivy does not fetch.
        "enableRemotingLocalProxyGrpc": False,
        # A topic that was created or changed is seen after a second instead of 20.
        "topicRouteServiceCacheRefreshSeconds": 1,
        "topicConfigCacheRefreshSeconds": 1,
        **overrides,
    }
    return json.dumps(settings, indent=1)


def properties_text(properties: Mapping[str, str]) -> str:
    """Return a Java properties file. Its text is ASCII, because the servers read it as ISO 8859-1."""
    return "".join(f"{key}={_escape(value)}\n" for key, value in properties.items())


def _escape(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    escaped = "".join(c if c.isascii() else _utf16(c) for c in escaped)
    return "\\" + escaped if escaped.startswith(" ") else escaped


def _utf16(character: str) -> str:
    """Return a character as Java escapes it: one or two units of UTF-16."""
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
