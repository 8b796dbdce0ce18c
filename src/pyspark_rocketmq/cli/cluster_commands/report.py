"""``pyspark-rocketmq report``: the facts a bug report needs, without secrets."""

from __future__ import annotations

import os
import platform
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pyspark_rocketmq.cli.connect import Namesrv, Settings, client_options, is_cluster_given
from pyspark_rocketmq.cli.printing import AsJson, examples, print_json
from pyspark_rocketmq.errors import DevClusterError, RocketMQError

if TYPE_CHECKING:
    from pyspark_rocketmq.options import ClientOptions

__all__ = ["EXAMPLES", "report"]

EXAMPLES: Final = examples("report > report.txt", "report --topic orders --json")

_TIMEOUT_MS: Final = 5_000


def report(
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="Include this topic's route; repeatable.")
    ] = None,
    namesrv: Namesrv = None,
    option: Settings = None,
    json: AsJson = False,
) -> None:
    """Print versions, brokers, routes and options for a bug report, without secrets."""
    from pyspark_rocketmq.tools.machine import package_versions

    told: dict[str, Any] = {"machine": _machine(), "packages": package_versions()}
    if is_cluster_given(namesrv, option):
        options = client_options(namesrv, option)
        told["options"] = _options(options)
        told |= _cluster(options, topic or [])
    if json:
        print_json(told)
        return
    for part, facts in told.items():
        typer.echo(f"{part}:")
        for name, value in facts.items():
            typer.echo(f"  {name}: {value}")


def _machine() -> dict[str, Any]:
    from pyspark_rocketmq.devcluster.java import find_java

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


def _options(options: ClientOptions) -> dict[str, Any]:
    """Return the options; for secret ones only whether they are set."""
    from pyspark_rocketmq.options import option_values

    return {
        declared.name: "(set)" if declared.secret and value is not None else value
        for declared, value in option_values(options)
    }


def _cluster(options: ClientOptions, topics: list[str]) -> dict[str, dict[str, Any]]:
    """Return the cluster's facts. An error stands in place of an answer that failed."""
    from pyspark_rocketmq.client.admin import Admin
    from pyspark_rocketmq.client.client import Client

    with Client(options, operation_timeout_ms=_TIMEOUT_MS) as client:
        admin = Admin(client)
        try:
            info = admin.cluster_info()
        except RocketMQError as error:
            return {"brokers": {"error": str(error)}}
        brokers: dict[str, Any] = {}
        for name, data in sorted(info.brokers.items()):
            try:
                version = admin.broker_runtime_info(name).get("brokerVersionDesc", "?")
            except RocketMQError as error:
                version = str(error)
            brokers[name] = f"{version}, {data.cluster}, {dict(data.addresses)}"
        routes: dict[str, Any] = {}
        for topic in topics:
            try:
                route = admin.topic_route(topic)
            except RocketMQError as error:
                routes[topic] = str(error)
            else:
                routes[topic] = [
                    f"{data.broker_name} r{data.read_queues} w{data.write_queues} perm {int(data.perm)}"
                    for data in route.queues
                ]
    return {"brokers": brokers, "topics": routes} if routes else {"brokers": brokers}
