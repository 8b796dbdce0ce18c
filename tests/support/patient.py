"""Clients for what must succeed, on a machine where a server may not answer for seconds."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

from tests.support.wait import eventually

from pyspark_rocketmq.client import Client, Producer
from pyspark_rocketmq.client.send.producer import ProducerOptions
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.errors import DevClusterError
from pyspark_rocketmq.options import ClientOptions, parse_options

PATIENCE_MS: Final = 30_000

_LOOK_UP_TIMED_OUT: Final = re.compile(
    r"Remoting(Connect|Timeout|SendRequest)Exception.*?\.(getBrokerClusterInfo|getTopicRouteInfoFromNameServer)\(",
    re.DOTALL,
)


def patient_client(name_server: str) -> Client:
    """Return a client that waits for a name server that does not answer at once."""
    options = parse_options(ClientOptions, {"nameServer": name_server}, environ={})
    return Client(replace(options, connect_timeout_ms=PATIENCE_MS))


def patient_producer(client: Client, **options: Any) -> Producer:
    """Return a producer that stores each message once, even if the broker answers late.

    With the default timeout it would send a message again after 10 s, so that it is stored twice, and give up
    a broker that is busy for a second.
    """
    return Producer(client, options=ProducerOptions(send_timeout_ms=PATIENCE_MS, retries=10, **options))


def patient_mqadmin(cluster: DevCluster, *args: str) -> str:
    """Run ``mqadmin``, and again while it gives up its first look-up, which changes nothing.

    It gives the look-up 5 s, in which its JVM also loads its network classes, and has no option for that.
    """
    output: list[str] = []

    def done() -> bool:
        try:
            output.append(cluster.mqadmin(*args))
        except DevClusterError as error:
            if _LOOK_UP_TIMED_OUT.search(error.log_tail) is None:
                raise
            return False
        return True

    eventually(done, PATIENCE_MS / 1_000, what=f"mqadmin {args[0]}")
    return output[0]
