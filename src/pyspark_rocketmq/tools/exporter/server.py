"""Serves metrics over HTTP, to this machine only unless a token is set."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import make_wsgi_app
from prometheus_client.registry import CollectorRegistry

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.http_access import has_bearer

__all__ = ["MetricsServer"]

_REQUEST_S: Final = 30
"""How long a client may take for its request."""

_App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class _Handler(WSGIRequestHandler):
    timeout = _REQUEST_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Log nothing for each scrape."""


class MetricsServer(ThreadingMixIn, WSGIServer):
    """An HTTP server that answers every GET with the metrics. ``serve_forever`` serves until ``shutdown``.

    Parameters
    ----------
    registry : CollectorRegistry
    host : str
    port : int
        0 picks a free one.
    token : str, optional
        Requests must carry it as a bearer token (``authorization`` in Prometheus' scrape settings).

    Raises
    ------
    OptionError
        The address is in use, or does not belong to this machine.
    """

    daemon_threads = True

    def __init__(
        self, registry: CollectorRegistry, host: str, port: int, *, token: str | None = None
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host.strip("[]"), port), _Handler)
        except OSError as error:
            raise OptionError(f"cannot listen there: {error.strerror}", host=host, port=port) from error
        app = make_wsgi_app(registry)
        self.set_app(app if token is None else _guarded(app, token))

    @property
    def url(self) -> str:
        """The address of the metrics."""
        host, port = self.server_address[:2]
        shown = f"[{host!s}]" if self.address_family == socket.AF_INET6 else str(host)
        return f"http://{shown}:{port}/metrics"


def _guarded(app: _App, token: str) -> _App:
    """Return an application that answers only requests with the token."""

    def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if has_bearer(str(environ.get("HTTP_AUTHORIZATION", "")), token):
            return app(environ, start_response)
        start_response("401 Unauthorized", [("WWW-Authenticate", "Bearer"), ("Content-Type", "text/plain")])
        return [b"a token is needed: set authorization.credentials in the scrape settings\n"]

    return guarded
