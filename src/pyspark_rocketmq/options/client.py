"""The options that every API shares: name servers, timeouts, credentials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model.arguments import require, require_whole
from pyspark_rocketmq.options.declare import Options, option, option_values
from pyspark_rocketmq.options.text.kinds import ADDRESSES, BOOLEAN, FILE, NAMESPACE, TEXT, whole_number

__all__ = ["KAFKA_CLIENT", "ClientOptions"]

_TIMEOUT: Final = whole_number(1, example=10_000)

_TEXTS: Final = (TEXT.label, NAMESPACE.label)

KAFKA_CLIENT: Final = {
    "kafka.bootstrap.servers": "nameServer",
    "bootstrap.servers": "nameServer",
    "kafka.request.timeout.ms": "requestTimeoutMs",
    "kafka.metadata.max.age.ms": "routeRefreshMs",
    "kafka.sasl.jaas.config": "credentialsFile",
    "kafka.sasl.mechanism": "credentialsFile",
    "kafka.security.protocol": "tls",
    "kafka.ssl.truststore.location": "tlsCaFile",
    "kafka.ssl.keystore.location": "tlsCertFile",
}
"""Keys of Spark's Kafka source and sink, in lower case, and the options to use instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions(Options):
    """How to connect to RocketMQ. Hashable, so that a process keeps one client for equal options.

    Raises
    ------
    OptionError
        No name server, half a key pair, or TLS details without ``tls=true``.
    """

    name_servers: tuple[str, ...] = option(
        "nameServer",
        ADDRESSES,
        env="NAMESRV_ADDR",
        aliases=("namesrvAddr", "nameServerAddress", "nameserver.address", "nameserver.addr"),
        doc="Name servers, separated by semicolons. One is sufficient; the others are used if it fails.",
    )
    profile: str | None = option(
        "profile",
        TEXT,
        default=None,
        env="ROCKETMQ_PROFILE",
        example="production",
        doc="Name of a cluster in ~/.config/pyspark-rocketmq/config.toml (or $ROCKETMQ_CONFIG_FILE), which "
        "sets the options of the connection. Options set directly override it. Only the driver reads it.",
    )
    request_timeout_ms: int = option(
        "requestTimeoutMs",
        _TIMEOUT,
        default=10_000,
        aliases=("pullTimeoutMs", "pull.timeout.ms"),
        doc="Request timeout, in milliseconds. A read waits longer while an answer is arriving slowly.",
    )
    connect_timeout_ms: int = option(
        "connectTimeoutMs",
        _TIMEOUT,
        default=3_000,
        example="3000",
        doc="Connect timeout, in milliseconds.",
    )
    route_refresh_ms: int = option(
        "routeRefreshMs",
        whole_number(1, example=30_000),
        default=30_000,
        aliases=("nameserver.poll.interval",),
        doc="Interval at which a topic's route is refreshed, in milliseconds.",
    )
    namespace: str | None = option(
        "namespace",
        NAMESPACE,
        default=None,
        doc="Namespace of topics and groups: a prefix of their names on the server.",
    )
    access_key: str | None = option(
        "accessKey",
        TEXT,
        default=None,
        secret=True,
        env="ROCKETMQ_ACCESS_KEY",
        example="orders-service",
        doc="User name (ACL 1.0: access key) for brokers with authentication.",
    )
    secret_key: str | None = option(
        "secretKey",
        TEXT,
        default=None,
        secret=True,
        env="ROCKETMQ_SECRET_KEY",
        example="a-long-random-text",
        doc="Secret that signs the requests. It is never sent.",
    )
    credentials_file: str | None = option(
        "credentialsFile",
        FILE,
        default=None,
        env="ROCKETMQ_CREDENTIALS_FILE",
        holds=("accessKey", "secretKey", "securityToken"),
        example="/etc/rocketmq/credentials",
        doc="File with lines accessKey=… and secretKey=… (and securityToken=…). Only the driver reads it.",
    )
    security_token: str | None = option(
        "securityToken",
        TEXT,
        default=None,
        secret=True,
        env="ROCKETMQ_SECURITY_TOKEN",
        example="the-token-of-a-session",
        doc="Token of a temporary key pair.",
    )
    tls: bool = option(
        "tls", BOOLEAN, default=False, aliases=("tls.enable",), doc="Speak TLS to every server."
    )
    tls_ca_file: str | None = option(
        "tlsCaFile",
        FILE,
        default=None,
        default_text="the system's authorities",
        doc="PEM file of the trusted certificate authorities.",
    )
    tls_cert_file: str | None = option(
        "tlsCertFile",
        FILE,
        default=None,
        example="/etc/rocketmq/client.pem",
        doc="PEM file of the client certificate.",
    )
    tls_key_file: str | None = option(
        "tlsKeyFile",
        FILE,
        default=None,
        example="/etc/rocketmq/client.key",
        doc="PEM file of the client certificate's private key, without a password.",
    )
    tls_server_name: str | None = option(
        "tlsServerName",
        TEXT,
        default=None,
        default_text="the address",
        example="broker.example.com",
        doc="Name that the servers' certificates must contain, since brokers are addressed by IP.",
    )
    tls_verify: bool = option(
        "tlsVerify",
        BOOLEAN,
        default=True,
        doc="Verify the servers' certificates. false trusts any certificate: for tests only.",
    )
    wire_log: bool = option(
        "wireLog",
        BOOLEAN,
        default=False,
        doc="For debugging: print a line for each frame to standard error, without bodies and secrets.",
    )

    def __post_init__(self) -> None:
        for declared, value in option_values(self):
            if declared.kind.label in _TEXTS and not isinstance(value, str | None):  # it may be a secret
                raise OptionError(f"{declared.name} must be a text, not a {type(value).__name__}")
        for name, least in (("request_timeout_ms", 1), ("connect_timeout_ms", 1), ("route_refresh_ms", 0)):
            require_whole(getattr(self, name), name, least)
        for name in ("tls", "tls_verify", "wire_log"):
            require(getattr(self, name), bool, name)
        # A str would be iterated character by character.
        if not _are_texts(self.name_servers) or not self.name_servers:
            raise OptionError("name_servers must be a tuple of host:port texts", option="nameServer")
        if (self.access_key is None) != (self.secret_key is None):
            missing = "secretKey" if self.secret_key is None else "accessKey"
            raise OptionError(
                f"accessKey and secretKey belong together: {missing} is missing", option=missing
            )
        if self.security_token is not None and self.access_key is None:
            raise OptionError("securityToken needs accessKey and secretKey", option="securityToken")
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            missing = "tlsKeyFile" if self.tls_key_file is None else "tlsCertFile"
            raise OptionError(
                f"tlsCertFile and tlsKeyFile belong together: {missing} is missing", option=missing
            )
        details = (self.tls_ca_file, self.tls_cert_file, self.tls_server_name)
        if not self.tls and (any(details) or not self.tls_verify):
            raise OptionError("TLS details are given, but TLS is off: set tls=true", option="tls")


def _are_texts(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(each, str) for each in value)
