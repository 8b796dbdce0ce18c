"""``pyspark-rocketmq exporter``: lag, dead letters and topics for Prometheus."""

from __future__ import annotations

import contextlib
import enum
import logging
import sys
from importlib.resources import files
from typing import Annotated, Final

import typer

from pyspark_rocketmq.cli.connect import Host, Namesrv, Port, Settings, client_options, complete_groups
from pyspark_rocketmq.cli.printing import AsJson, examples, print_json
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.http_access import choose_token

__all__ = ["EXAMPLES", "exporter"]

EXAMPLES: Final = examples(
    "exporter --all",
    "exporter --group billing --group shipping --port 9401",
    "exporter --all --once > rocketmq.prom",
    "exporter --print dashboard > rocketmq-dashboard.json",
    "exporter --print alerts > rocketmq-alerts.yml",
)


class _Printed(enum.Enum):
    DASHBOARD = "dashboard"
    ALERTS = "alerts"


_FILES: Final = {_Printed.DASHBOARD: "dashboard.json", _Printed.ALERTS: "alerts.yml"}


def exporter(
    group: Annotated[
        list[str] | None,
        typer.Option("--group", "-g", help="Export this group; repeatable.", autocompletion=complete_groups),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Export all groups and topics.")] = False,
    host: Host = "127.0.0.1",
    port: Port = 9401,
    token: Annotated[
        str | None,
        typer.Option(
            help="Bearer token of scrapes; generated if --host is not local.",
            envvar="ROCKETMQ_EXPORTER_TOKEN",
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print the metrics and exit.")] = False,
    printed: Annotated[
        _Printed | None,
        typer.Option("--print", help="Print the Grafana dashboard or the alert rules, and exit."),
    ] = None,
    namesrv: Namesrv = None,
    option: Settings = None,
    json: AsJson = False,
) -> None:
    """Serve lag, dead letters and topic rates for Prometheus, until Ctrl-C.

    Each scrape asks the brokers, at most every 5 s. Changes nothing on them. With --group, the topics are
    those that the groups read.
    """
    if printed is not None:
        package = files("pyspark_rocketmq.tools.exporter")
        typer.echo((package / _FILES[printed]).read_text(encoding="utf-8"), nl=False)
        return
    if everything == bool(group):
        raise OptionError("name what to export: groups with --group, or everything with --all")
    if once and json:
        raise OptionError("--once prints Prometheus' text format, which --json does not change: leave it out")
    chosen = choose_token(token, host)
    try:
        from prometheus_client import generate_latest
        from prometheus_client.registry import CollectorRegistry

        from pyspark_rocketmq.tools.exporter.collector import ClusterCollector
        from pyspark_rocketmq.tools.exporter.measurement import ClusterMeter
        from pyspark_rocketmq.tools.exporter.server import MetricsServer
    except ModuleNotFoundError as error:
        raise OptionError(
            f"{error.name} is not installed: pip install 'pyspark-rocketmq[prometheus]'"
        ) from error
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")
    registry = CollectorRegistry()
    meter = ClusterMeter(client_options(namesrv, option), None if everything else group)
    with contextlib.closing(meter):
        registry.register(ClusterCollector(meter))
        if once:
            typer.echo(generate_latest(registry).decode(), nl=False)
            if not meter.state().up:
                raise typer.Exit(1)
            return
        shown = chosen if chosen != token else None
        with MetricsServer(registry, host, port, token=chosen) as server:
            if json:
                print_json({"url": server.url, **({"token": shown} if shown else {})})
            else:
                typer.echo(f"{server.url}  (Ctrl-C ends it)" + (f"  token {shown}" if shown else ""))
            server.serve_forever()
