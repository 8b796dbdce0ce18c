"""The client of a Spark task, reading or writing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import TaskContext

from pyspark_rocketmq.client.shared import shared_client

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client
    from pyspark_rocketmq.options import ClientOptions

__all__ = ["task_client"]


def task_client(options: ClientOptions) -> Client:
    """Return the client of the task's process. A retried task gets new connections and routes.

    The cause of the failure may be a connection or a route, also of a topic that only the rows name.
    """
    client = shared_client(options)
    context = TaskContext.get()
    if context is not None and context.attemptNumber() > 0:
        client.renew()
    return client
