"""Where to connect and how: addresses, time-outs, TLS, and the socket that comes of them."""

from __future__ import annotations

import functools
import re
import socket
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from pyspark_rocketmq.errors import ConnectError
from pyspark_rocketmq.options import ClientOptions
from pyspark_rocketmq.remoting.acl import Credentials
from pyspark_rocketmq.remoting.command import Serializer
from pyspark_rocketmq.remoting.namespace import NO_NAMESPACE, Namespace

__all__ = ["ConnectionOptions", "TlsOptions", "open_socket", "split_address"]

_PORT: Final = re.compile("[0-9]{1,5}")
_LEAST_S: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """How to speak TLS; brokers are addressed by IP, so the name to verify can be given apart.

    Parameters
    ----------
    ca_file : str, optional
        PEM file of the authorities to trust; the system's when absent.
    cert_file, key_file : str, optional
        PEM files of the client's certificate and key.
    server_name : str, optional
        The name to ask for and to verify instead of the address.
    verify : bool
        False takes any certificate: for tests only.
    """

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """Return the context of these options: one for all connections, until one of the files changes.

        Reading the authorities takes some 70 ms; certificates are renewed while a process runs.

        Raises
        ------
        OSError
            A file cannot be read, or is no certificate or key.
        """
        files = (self.ca_file, self.cert_file, self.key_file)
        return _context(self, tuple(_version(name) for name in files if name))


def _version(name: str) -> tuple[int, int, int]:
    """Return what differs when a file was written or replaced."""
    status = Path(name).stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


@functools.lru_cache(maxsize=8)
def _context(options: TlsOptions, versions: tuple[tuple[int, int, int], ...]) -> ssl.SSLContext:
    del versions  # a file that changed is read again
    context = ssl.create_default_context(cafile=options.ca_file)
    context.check_hostname = options.verify
    context.verify_mode = ssl.CERT_REQUIRED if options.verify else ssl.CERT_NONE
    if options.cert_file:
        context.load_cert_chain(options.cert_file, options.key_file, _no_password)
    return context


def _no_password() -> str:
    """Refuse a key with a password: OpenSSL would ask at the terminal, and wait for someone to type it.

    Raises
    ------
    OSError
    """
    raise OSError(
        "the private key has a password: give tlsKeyFile one without, which only its owner can read"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """What a connection needs to know; times in milliseconds."""

    connect_timeout_ms: int = 3_000
    request_timeout_ms: int = 10_000
    credentials: Credentials | None = None
    tls: TlsOptions | None = None
    serializer: Serializer = Serializer.JSON
    namespace: Namespace = NO_NAMESPACE
    wire_log: bool = False

    @classmethod
    def of(cls, options: ClientOptions, namespace: Namespace) -> Self:
        """Return what a client's options say of connections."""
        credentials = None
        if options.access_key is not None and options.secret_key is not None:
            credentials = Credentials(options.access_key, options.secret_key, options.security_token)
        tls = None
        if options.tls:
            tls = TlsOptions(
                ca_file=options.tls_ca_file,
                cert_file=options.tls_cert_file,
                key_file=options.tls_key_file,
                server_name=options.tls_server_name,
                verify=options.tls_verify,
            )
        return cls(
            connect_timeout_ms=options.connect_timeout_ms,
            request_timeout_ms=options.request_timeout_ms,
            credentials=credentials,
            tls=tls,
            namespace=namespace,
            wire_log=options.wire_log,
        )


def split_address(addr: str) -> tuple[str, int]:
    """Split ``host:port`` at the last colon (IPv6 addresses come without brackets).

    Raises
    ------
    ConnectError
        If there is no port.
    """
    host, _, port = addr.rpartition(":")
    if not host or not _PORT.fullmatch(port) or not 0 < int(port) < 65536:
        raise ConnectError("not an address: expected host:port", addr=addr)
    return host.strip("[]"), int(port)


def open_socket(addr: str, options: ConnectionOptions) -> socket.socket:
    """Open a non-blocking socket, with TLS if asked.

    Of a name with several addresses each one has a share of the time, until one answers.

    Raises
    ------
    ConnectError
        If there is no connection (or no TLS session) within ``connect_timeout_ms``.
    """
    host, port = split_address(addr)
    timeout_s = options.connect_timeout_ms / 1000
    try:
        sock = _connect(host, port, timeout_s)
    except (OSError, UnicodeError) as cause:  # a UnicodeError of what cannot be a host's name: "ns..example"
        raise ConnectError(f"cannot connect: {cause}", addr=addr) from cause
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if options.tls is not None:
            context = options.tls.context()
            name = (options.tls.server_name or host).encode("idna").decode()  # else TLS's socket stays open
            sock = context.wrap_socket(sock, server_hostname=name)
    except (OSError, UnicodeError) as cause:  # of TLS, of a certificate's file, of what cannot be a name
        sock.close()
        raise ConnectError(f"no TLS session: {cause}", addr=addr) from cause
    sock.setblocking(False)
    return sock


def _connect(host: str, port: int, timeout_s: float) -> socket.socket:
    """Connect to the first address of a host that answers; the socket has the time-out for what follows."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    places = dict.fromkeys(str(each[4][0]) for each in found)
    end_s = time.monotonic() + timeout_s
    for left, place in zip(range(len(places), 0, -1), places, strict=True):
        try:
            share_s = max(_LEAST_S, (end_s - time.monotonic()) / left)  # the process may have been frozen
            sock = socket.create_connection((place, port), timeout=share_s)
        except OSError:
            if left == 1:
                raise
        else:
            sock.settimeout(timeout_s)
            return sock
    raise OSError(f"{host} has no address")
