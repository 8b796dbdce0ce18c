"""What a Spark task, reading or writing, has from its process: a client, and cheap garbage collections."""

# Facts (pyspark/daemon.py of 4.0 to 4.3): with spark.python.worker.reuse, the default, a worker collects all
# its garbage after each task or planning call, whatever it allocated. With pandas, Arrow and this package
# loaded, that looks at 86,000 objects, which is most of what a small task costs.

from __future__ import annotations

import functools
import gc
import os
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext

from pyspark_rocketmq.client.shared import shared_client

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client
    from pyspark_rocketmq.options import ClientOptions

__all__ = ["spare_collections", "task_client"]

_IS_REUSED: Final = "SPARK_REUSE_WORKER"
"""The variable that Spark sets for workers that run one task after another."""


def task_client(options: ClientOptions) -> Client:
    """Return the client of the task's process. A retried task gets new connections and routes.

    The cause of the failure may be a connection or a route, also of a topic that only the rows name.
    """
    spare_collections()
    client = shared_client(options)
    context = TaskContext.get()
    if context is not None and context.attemptNumber() > 0:
        client.renew()
    return client


def spare_collections() -> None:
    """Let this worker's garbage collections pass over what is loaded by now; of use from the second task on.

    What tasks allocate later is collected as before. Outside of a worker, this does nothing.
    """
    if os.environ.get(_IS_REUSED):
        _freeze_once()


@functools.cache
def _freeze_once() -> None:
    gc.collect()  # garbage that is frozen would stay
    gc.freeze()
