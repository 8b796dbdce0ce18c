"""What a slave has, asked of it alone."""

from __future__ import annotations

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.client import requests as broker
from pyspark_rocketmq.client.requests import PullAnswer
from pyspark_rocketmq.errors import ServiceNotAvailableError
from pyspark_rocketmq.model import MessageQueue, MessageSelector, PullStatus

__all__ = ["end_at", "pull", "serves"]


def pull(client: Client, addr: str, queue: MessageQueue, offset: int) -> PullAnswer:
    call = broker.pull(queue, offset, group="g", max_nums=32, selector=MessageSelector())
    return call.on(client.connection(addr), deadline=client.deadline(30_000))


def serves(client: Client, addr: str, queue: MessageQueue, offset: int) -> bool:
    """Whether a slave has a message; it learns of a topic some seconds after its master."""
    try:
        return pull(client, addr, queue, offset).status is PullStatus.FOUND
    except ServiceNotAvailableError:
        return False


def end_at(client: Client, addr: str, queue: MessageQueue) -> int:
    return broker.max_offset(queue).on(client.connection(addr), deadline=client.deadline(30_000))
