"""A simulated proxy in cluster mode: it forwards requests, and drops answers that overfill a connection."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tests.simulation.servers import Handler, Server

from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.frame import Frame
from pyspark_rocketmq.testing.wire import Reply

__all__ = ["WATER_MARK", "Proxy"]

WATER_MARK: Final = 65_536
_SERVED: Final = frozenset({10, 310, 320, 36, 37, 370, 34, 35, 46, 11, 361, 15, 14, 30, 31, 29, 38, 105})
"""The requests that 5.4.0's proxy registers (``RemotingProtocolServer``) and clients make."""
_KEPT: Final = frozenset({34, 35, 46})
"""Heartbeats, farewells and filters to check, of which brokers do not hear."""
_OF_PROXIES: Final = {"TRACE_ON": "false", "MSG_REGION": ""}


@dataclass(slots=True)
class Proxy:
    """What a proxy does with a request.

    Facts: ``tests/support/mock_proxy.py``, which real proxies are compared with.

    Parameters
    ----------
    addr : str
    name_servers : Callable
        Returns the name servers that run.
    brokers : Callable
        Returns how a broker's master executes a request; None while it is down.
    """

    addr: str
    name_servers: Callable[[], Sequence[Server]]
    brokers: Callable[[str], Handler | None]
    _routes: dict[str, Reply] = field(default_factory=dict)

    def handle(self, frame: Frame, most: int | None) -> Reply | None:
        """Execute a request; None: there is no answer."""
        code, fields = frame.command.code, frame.command.fields
        if code not in _SERVED:
            reply: Reply | None = Reply(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f" request type {code} not supported"
            )
        elif code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            reply = self._route(frame)
        elif code in _KEPT:
            reply = Reply()
        else:
            broker = self.brokers(fields.get("n" if code == RequestCode.SEND_MESSAGE_V2 else "bname", ""))
            reply = None if broker is None else broker(frame, most)
        return None if reply is None else replace(reply, fields={**reply.fields, **_OF_PROXIES})

    def _route(self, frame: Frame) -> Reply | None:
        """Return a route with the proxy's address for each broker; the last one if no name server answers."""
        topic = frame.command.fields["topic"]
        for server in self.name_servers():
            reply = server.handle(frame, None)
            if reply is not None and reply.body:
                route = json.loads(reply.body)
                for broker in route["brokerDatas"]:
                    broker["brokerAddrs"] = {"0": self.addr}
                reply = replace(reply, body=json.dumps(route).encode())
            if reply is not None:
                self._routes[topic] = reply
            return reply
        return self._routes.get(topic)
