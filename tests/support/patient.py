"""Clients for what must succeed, on a machine where a server may not answer for seconds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from pyspark_rocketmq.client import Client, Producer
from pyspark_rocketmq.client.send.producer import ProducerOptions
from pyspark_rocketmq.options import ClientOptions, parse_options

PATIENCE_MS: Final = 30_000


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
