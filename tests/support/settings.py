"""Settings of the shared broker, changed for the length of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.patient import patient_client

from pyspark_rocketmq.client import Admin
from pyspark_rocketmq.devcluster import DevCluster


@contextmanager
def broker_settings(cluster: DevCluster, **settings: str) -> Iterator[None]:
    """Change settings of ``broker-a`` that it looks at with every request, and put them back."""
    with patient_client(cluster.name_server) as client:
        admin = Admin(client)
        current = admin.broker_config("broker-a")
        admin.set_broker_config("broker-a", settings)
        try:
            yield
        finally:
            admin.set_broker_config("broker-a", {name: current[name] for name in settings})
