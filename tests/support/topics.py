"""Fresh topics and groups, named after the test that uses them."""

from __future__ import annotations

import itertools
import re
import secrets
from typing import Protocol

from tests.support.patient import patient_client

from pyspark_rocketmq.client import Admin
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.model import Permission

_numbers = itertools.count()
_run = secrets.token_hex(3)


class TopicFactory(Protocol):
    """Creates a fresh topic and returns its name."""

    def __call__(self, queues: int = 4, *, cluster: DevCluster | None = None, perm: int = 6) -> str: ...


def fresh_name(test_name: str) -> str:
    """Return a name that no other test, and no other run, uses; at most 60 characters."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", test_name).strip("_")[:44]
    return f"{plain}-{_run}-{next(_numbers)}"


def create_topic(cluster: DevCluster, topic: str, queues: int, perm: int) -> None:
    """Create a topic on every broker of the cluster; its route is there when this returns."""
    with patient_client(cluster.name_server) as client:
        Admin(client).create_topic(topic, queues=queues, perm=Permission(perm))
