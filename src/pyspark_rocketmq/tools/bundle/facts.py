"""Facts of this machine and of a cluster for reports. An error stands in place of an answer that failed."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable
from typing import Any

from pyspark_rocketmq.client.admin import Admin
from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.devcluster.java import find_java
from pyspark_rocketmq.errors import DevClusterError, RocketMQError
from pyspark_rocketmq.options import ClientOptions, option_values

__all__ = ["broker_facts", "machine_facts", "option_facts", "route_facts"]


def machine_facts() -> dict[str, Any]:
    """Return the platform, and the versions of Python and Java."""
    try:
        java = str(find_java().version)
    except DevClusterError as error:
        java = error.message
    return {
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "python": sys.version.split()[0],
        "java": java,
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON"),
    }


def option_facts(options: ClientOptions) -> dict[str, Any]:
    """Return the options; for secret ones only whether they are set."""
    return {
        declared.name: "(set)" if declared.secret and value is not None else value
        for declared, value in option_values(options)
    }


def broker_facts(client: Client) -> dict[str, Any]:
    """Return version, cluster and addresses of each broker."""
    admin = Admin(client)
    away: dict[str, RocketMQError] = {}
    try:
        info = admin.cluster_info()
        found = admin.runtime_infos(on_away=away.__setitem__)
    except RocketMQError as error:
        return {"error": str(error)}
    brokers: dict[str, Any] = {}
    for name, data in sorted(info.brokers.items()):
        version = found[name].get("brokerVersionDesc", "?") if name in found else away.get(name, "?")
        brokers[name] = f"{version}, {data.cluster}, {dict(data.addresses)}"
    return brokers


def route_facts(client: Client, topics: Iterable[str]) -> dict[str, Any]:
    """Return each topic's queues and permissions by broker."""
    routes: dict[str, Any] = {}
    for topic in topics:
        try:
            route = client.route(topic)
        except RocketMQError as error:
            routes[topic] = str(error)
        else:
            routes[topic] = [
                f"{data.broker_name} r{data.read_queues} w{data.write_queues} perm {int(data.perm)}"
                for data in route.queues
            ]
    return routes
