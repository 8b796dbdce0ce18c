"""Authorities and certificates for tests, by OpenSSL's command line."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

_LOOPBACK = "IP:127.0.0.1"


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(
        ["openssl", *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key as PEM files; the key is PKCS#8, as RocketMQ wants it."""

    cert: Path
    key: Path

    def server_context(self, *, client_ca: Path | None = None) -> ssl.SSLContext:
        """Return what a server speaks TLS with; with ``client_ca`` it asks clients for a certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert, self.key)
        if client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(client_ca)
        return context


@dataclass(frozen=True)
class Authority:
    """A certificate authority of its own, below a folder."""

    home: Path
    root: Certificate

    @classmethod
    def create(cls, home: Path, name: str = "authority") -> Authority:
        cert, key = home / f"{name}.pem", home / f"{name}.key"
        # Python 3.13 wants of an authority that it says what its key is for, as RFC 5280 does.
        usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
        subject = ("-subj", f"/CN={name}", "-days", "2", *usage)
        _openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, *subject)
        return cls(home, Certificate(cert, key))

    def issue(self, name: str, *, alt_name: str = _LOOPBACK, days: int = 2) -> Certificate:
        """Sign a certificate; a negative number of days makes one that has expired."""
        key, request, cert = (self.home / f"{name}{suffix}" for suffix in (".key", ".csr", ".pem"))
        _openssl(
            *("req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        )
        extensions = self.home / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alt_name}\nauthorityKeyIdentifier=keyid\n")
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.root.cert, "-CAkey", self.root.key),
            *("-CAcreateserial", "-out", cert, "-extfile", extensions, "-days", str(days)),
        )
        return Certificate(cert, key)
