"""The page and its data over HTTP: read-only, and for this machine only unless a token is set."""

from __future__ import annotations

import hashlib
import json
import socket
from dataclasses import asdict
from importlib.resources import files
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock
from pyspark_rocketmq.dashboard.cluster import ClusterView
from pyspark_rocketmq.dashboard.history import QueryHistory, QueryLogReader
from pyspark_rocketmq.dashboard.spark_metrics import SparkMetrics
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.http_access import has_bearer, is_loopback, is_token

__all__ = ["create_app", "listen", "serve"]

_KINDS: Final = {
    "dashboard.css": "text/css",
    "dashboard.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "uplot.min.css": "text/css",
    "uplot.min.js": "text/javascript",
}
_HEADERS: Final = (
    # uPlot sets styles of the elements that it creates. Scripts come from this server only.
    (
        b"content-security-policy",
        b"default-src 'self'; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
_COOKIE: Final = "pyspark-rocketmq-dashboard"


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, so that the address can be printed before requests are served.

    Raises
    ------
    OptionError
        The address is in use, or does not belong to this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family)
    except OSError as error:
        raise OptionError(f"cannot listen there: {error.strerror}", host=host, port=port) from error


def serve(app: Starlette, sock: socket.socket) -> None:
    """Serve until the process is interrupted."""
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1, lifespan="off")
    uvicorn.Server(config).run(sockets=[sock])


def create_app(
    queries: QueryLogReader | SparkMetrics | None,
    cluster: ClusterView | None,
    *,
    token: str | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Starlette:
    """Return the application.

    Parameters
    ----------
    queries : QueryLogReader or SparkMetrics, optional
    cluster : ClusterView, optional
    token : str, optional
        Requests must carry it as ``?token=`` (a cookie then keeps it) or as a bearer token. Without a token
        only requests with a loopback host name are answered, so that no other web page can send requests
        through a browser on this machine.
    clock : Clock
    """

    def state(_request: Request) -> Response:
        runs: tuple[QueryHistory, ...] = ()
        problem = None
        try:
            runs = () if queries is None else queries.look()
        except OptionError as error:
            problem = str(error)
        told = {
            "now": clock.now_ms(),
            "nothing": None if queries is None else queries.nothing,
            "error": problem,
            "queries": [_plain(run) for run in runs],
            "cluster": None if cluster is None else cluster.state(),
        }
        # In ASCII: a cause may have half of a surrogate pair, which UTF-8 does not have.
        return Response(json.dumps(told, allow_nan=False), media_type="application/json")

    def page(request: Request) -> Response:
        response = Response(_page_file("index.html"), media_type="text/html")
        given = request.query_params.get("token")
        if token is not None and given is not None:
            response.set_cookie(_cookie_name(token), given, httponly=True, samesite="strict")
        return response

    def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _KINDS:
            return PlainTextResponse("not found", 404)
        return Response(_page_file(name), media_type=_KINDS[name])

    routes = [Route("/", page), Route("/state", state), Route("/assets/{name}", asset)]
    return Starlette(routes=routes, middleware=[Middleware(_Guard, token=token)])


class _Guard:
    """Allows only authorized read requests."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        refusal = self._refusal(Request(scope))
        await (refusal or self._app)(scope, receive, with_headers)

    def _refusal(self, request: Request) -> Response | None:
        if request.method not in {"GET", "HEAD"}:
            return PlainTextResponse("this page only reads", 405, {"allow": "GET, HEAD"})
        if self._token is None:
            host = request.url.hostname or ""
            return None if is_loopback(host) else PlainTextResponse("not this host", 403)
        given = (request.query_params.get("token"), request.cookies.get(_cookie_name(self._token)))
        if any(each is not None and is_token(each, self._token) for each in given):
            return None
        if has_bearer(request.headers.get("authorization", ""), self._token):
            return None
        return PlainTextResponse("a token is needed: open the address that the command printed", 401)


def _cookie_name(token: str) -> str:
    """Return the name of a server's own cookie: browsers send the cookies of a host to all of its ports."""
    return f"{_COOKIE}-{hashlib.sha256(token.encode()).hexdigest()[:16]}"


def _page_file(name: str) -> bytes:
    return (files(__package__) / "page" / name).read_bytes()


def _plain(run: QueryHistory) -> dict[str, Any]:
    return {
        "runId": run.run_id,
        "queryId": run.query_id,
        "name": run.name,
        "startedMs": run.started_ms,
        "seenMs": run.seen_ms,
        "ended": run.ended,
        "failed": run.failed,
        "reason": run.reason,
        "trace": run.trace,
        "restarted": run.restarted,
        "groups": run.groups,
        "batches": [asdict(batch) for batch in run.batches],
    }
