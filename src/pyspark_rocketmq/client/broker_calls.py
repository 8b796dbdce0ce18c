"""The same call at several brokers, side by side."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.client.net.connection import Connection
from pyspark_rocketmq.client.net.pipelining import Call, pipeline
from pyspark_rocketmq.errors import BrokerNotFoundError, RocketMQError
from pyspark_rocketmq.inventory import ClusterInfo

__all__ = ["call_at_once"]

T = TypeVar("T")


def call_at_once(
    client: Client, info: ClusterInfo, broker_names: Iterable[str], call: Call[T], deadline: Deadline
) -> dict[str, T | RocketMQError]:
    """Make the same call at the masters of brokers, side by side and once; return what each came to."""
    placed: list[tuple[str, Connection, Call[T]]] = []
    found: dict[str, T | RocketMQError] = {}
    for name in broker_names:
        master = info.brokers[name].master if name in info.brokers else None
        try:
            if master is None:
                raise BrokerNotFoundError("no name server knows a master of the broker")
            placed.append((name, client.connection(master), call))
        except RocketMQError as error:
            found[name] = error
    outcomes = pipeline(placed, deadline=deadline)
    found.update(outcomes)
    for name, outcome in found.items():
        if isinstance(outcome, RocketMQError):
            outcome.facts.setdefault("broker_name", name)
    return found
