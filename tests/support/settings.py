"""Settings of a broker that tests share, changed for the length of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Final

from tests.support.patient import patient_client
from tests.support.shared_cluster import settings_lock
from tests.support.wait import BUSY

from pyspark_rocketmq.client import Admin
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Deadline
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.devcluster.system.locking import file_lock
from pyspark_rocketmq.testing import MockBroker

_OTHERS_MS: Final = 200_000 * BUSY


@contextmanager
def broker_settings(cluster: DevCluster | MockBroker, **settings: str) -> Iterator[None]:
    """Give ``broker-a`` settings that it looks at with every request, and put them back.

    A test that needs a default, because another one changes it, says so in the same way: processes that share
    the broker take turns. No test may change what the others need without saying so.
    """
    if isinstance(cluster, DevCluster):
        turn = file_lock(settings_lock(cluster), Deadline(SYSTEM_CLOCK, _OTHERS_MS), SYSTEM_CLOCK)
    else:
        turn = nullcontext()
    with turn, patient_client(cluster.name_server) as client:
        admin = Admin(client)
        current = admin.broker_config("broker-a")
        admin.set_broker_config("broker-a", settings)
        try:
            yield
        finally:
            admin.set_broker_config("broker-a", {name: current[name] for name in settings})
