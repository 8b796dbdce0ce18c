"""Whether the name servers know a broker. Clients can find it only then."""

# Facts (BrokerController.start, BrokerOuterAPI, NettyRemotingClient.scanAvailableNameSrv; 5.4.0)
# - A starting broker registers once with the name servers that a background scan has found so far, often
#   none, logs "boot success" in any case, and registers again only after 10 s.
# - An update of the setting brokerPermission, to any value, makes it register immediately
#   (AdminBrokerProcessor.updateBrokerConfig).

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from pyspark_rocketmq.client.clock import Clock, Deadline
from pyspark_rocketmq.client.net.connection import Connection
from pyspark_rocketmq.client.net.endpoint import ConnectionOptions
from pyspark_rocketmq.errors import BrokerError, TransportError
from pyspark_rocketmq.remoting.body import decode_cluster_info, encode_broker_properties
from pyspark_rocketmq.remoting.header import GetBrokerClusterInfoRequest, UpdateBrokerConfigRequest

__all__ = ["READ_WRITE", "is_registered", "register_now"]

READ_WRITE: Final = "6"
"""A broker's default permission."""


def is_registered(
    name_servers: Sequence[str],
    *,
    broker_name: str,
    address: str,
    options: ConnectionOptions,
    deadline: Deadline,
    clock: Clock,
) -> bool:
    """Return whether every one of these name servers has the broker at this address.

    Its id does not matter: controllers give brokers other ids than their settings have.

    Raises
    ------
    TransportError
        A name server does not answer.
    """
    for name_server in name_servers:
        with contextlib.closing(Connection(name_server, options, clock)) as connection:
            response = connection.call(GetBrokerClusterInfoRequest(), deadline=deadline).require()
            known = decode_cluster_info(response.body).brokers.get(broker_name)
        if known is None or address not in known.addresses.values():
            return False
    return True


def register_now(
    address: str, permission: str, *, options: ConnectionOptions, deadline: Deadline, clock: Clock
) -> None:
    """Ask a broker to register immediately. One that denies access registers at its own interval.

    ``permission`` is the broker's current permission.
    """
    with (
        contextlib.suppress(TransportError, BrokerError),
        contextlib.closing(Connection(address, options, clock)) as connection,
    ):
        settings = encode_broker_properties({"brokerPermission": permission})
        connection.call(UpdateBrokerConfigRequest(), settings, deadline=deadline).require()
