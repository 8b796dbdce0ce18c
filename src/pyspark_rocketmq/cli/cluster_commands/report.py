"""``pyspark-rocketmq report``: the facts a bug report needs, without secrets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pyspark_rocketmq.cli.connect import Namesrv, Settings, client_options, complete_groups, is_cluster_given
from pyspark_rocketmq.cli.printing import AsJson, console, examples, print_json, print_table
from pyspark_rocketmq.errors import OptionError

if TYPE_CHECKING:
    from pyspark_rocketmq.options import ClientOptions

__all__ = ["EXAMPLES", "report"]

EXAMPLES: Final = examples(
    "report > report.txt",
    "report --topic orders --json",
    "report --bundle report.zip --query-log /var/log/queries",
    "report --bundle report.zip --topic orders --group billing -o wireLog=true",
)

_TIMEOUT_MS: Final = 5_000


def report(
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="Include this topic's route; repeatable.")
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(help="Write an archive of what others need to find a cause.", dir_okay=False),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            "-g",
            help="Of the bundle: only these groups; repeatable. Default: all.",
            autocompletion=complete_groups,
        ),
    ] = None,
    query_log: Annotated[
        Path | None,
        typer.Option(
            help="Of the bundle: add the last hour of this folder of a `QueryLog`.",
            file_okay=False,
            exists=True,
        ),
    ] = None,
    wire_log: Annotated[
        Path | None,
        typer.Option(
            help="Of the bundle: add the last hour of the wire log that a program wrote to this file.",
            dir_okay=False,
            exists=True,
        ),
    ] = None,
    namesrv: Namesrv = None,
    option: Settings = None,
    json: AsJson = False,
) -> None:
    """Print versions, brokers, routes and options for a bug report, without secrets.

    With --bundle, write an archive with also the offsets of all topics or those of --topic, positions and lag
    of groups, the findings of `doctor`, and logs. It has no bodies, keys and properties of messages, and no
    secrets; its manifest lists what is in it. With -o wireLog=true, it has the wire log of these requests.
    """
    from pyspark_rocketmq.tools.bundle.facts import machine_facts, option_facts
    from pyspark_rocketmq.tools.machine import package_versions

    options = client_options(namesrv, option) if is_cluster_given(namesrv, option) else None
    if options is None and (topic or group):
        raise OptionError("a topic or group needs --namesrv, or NAMESRV_ADDR in the environment")
    if bundle is not None:
        from pyspark_rocketmq.tools.bundle.collect import BundleScope, write_bundle

        scope = BundleScope(
            topics=tuple(topic or ()), groups=tuple(group or ()), query_log=query_log, wire_log=wire_log
        )
        files = write_bundle(bundle, options, scope, environ=os.environ)
        if json:
            print_json({"file": str(bundle), "files": files})
        else:
            print_table(("File", "Bytes", "What"), [(file.name, file.bytes, file.what) for file in files])
            console().print(f"{bundle}: read it before you pass it on", markup=False)
        return
    if group or query_log or wire_log:
        raise OptionError("--group, --query-log and --wire-log belong to --bundle")
    told: dict[str, Any] = {"machine": machine_facts(), "packages": package_versions()}
    if options is not None:
        told["options"] = option_facts(options)
        told |= _cluster(options, topic or [])
    if json:
        print_json(told)
        return
    for part, facts in told.items():
        typer.echo(f"{part}:")
        for name, value in facts.items():
            typer.echo(f"  {name}: {value}")


def _cluster(options: ClientOptions, topics: list[str]) -> dict[str, dict[str, Any]]:
    from pyspark_rocketmq.client.client import Client
    from pyspark_rocketmq.tools.bundle.facts import broker_facts, route_facts

    with Client(options, operation_timeout_ms=_TIMEOUT_MS) as client:
        brokers = broker_facts(client)
        routes = {} if "error" in brokers else route_facts(client, topics)
    return {"brokers": brokers, "topics": routes} if routes else {"brokers": brokers}
