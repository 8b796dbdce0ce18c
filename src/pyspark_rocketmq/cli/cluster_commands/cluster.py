"""``pyspark-rocketmq cluster``: a real RocketMQ for development that runs until it is stopped."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_rocketmq._version import ROCKETMQ_VERSION
from pyspark_rocketmq.cli.command_groups import CommandGroup
from pyspark_rocketmq.cli.connect import pairs
from pyspark_rocketmq.cli.printing import AsJson, examples, print_json

if TYPE_CHECKING:
    from pyspark_rocketmq.devcluster.detached import DetachedCluster

__all__ = ["app"]

app = typer.Typer(
    cls=CommandGroup,
    help="Start, inspect and stop a local RocketMQ cluster for development.",
    no_args_is_help=True,
)


@app.command(epilog=examples("cluster start", "cluster start --brokers 2 --config enablePropertyFilter=true"))
def start(
    brokers: Annotated[int, typer.Option(help="Number of master brokers.", min=1)] = 1,
    slaves: Annotated[int, typer.Option(help="Replicas per master.", min=0)] = 0,
    proxies: Annotated[
        int, typer.Option(help="Number of proxies, RocketMQ 5 only. They listen on every interface.", min=0)
    ] = 0,
    version: Annotated[str, typer.Option(help="RocketMQ release: 4.9.x or 5.x.")] = ROCKETMQ_VERSION,
    port: Annotated[
        int | None,
        typer.Option(
            help="The name server's port. Kept over restarts that keep the data.",
            min=1,
            max=65_535,
            show_default="9876, or a free one if it is in use",
        ),
    ] = None,
    workdir: Annotated[Path | None, typer.Option(help="Folder for stores and logs.")] = None,
    config: Annotated[list[str] | None, typer.Option(help="A broker setting, key=value; repeatable.")] = None,
    json: AsJson = False,
) -> None:
    """Start a name server and brokers; they run until `cluster stop`."""
    from pyspark_rocketmq.devcluster.detached import start_detached

    cluster = start_detached(
        brokers,
        slaves=slaves,
        proxies=proxies,
        version=version,
        broker_config=pairs(config),
        port=port,
        workdir=workdir,
    )
    if json:
        print_json(cluster)
        return
    typer.echo(f"RocketMQ {cluster.version} is up, its name server is {cluster.name_server}")
    typer.echo(f"  export NAMESRV_ADDR='{cluster.name_server}'")
    if cluster.proxy:
        typer.echo(f"  its proxies are {cluster.proxy}")
    typer.echo(f"  stores and logs: {cluster.home}")
    typer.echo("  stop it with: pyspark-rocketmq cluster stop")


@app.command(epilog=examples("cluster stop", "cluster stop --keep-data"))
def stop(
    keep_data: Annotated[
        bool, typer.Option("--keep-data", help="Shut down gracefully and keep the messages.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Stop the cluster that `cluster start` started, and nothing else."""
    from pyspark_rocketmq.devcluster.detached import stop_detached

    cluster = stop_detached(keep_data=keep_data)
    if json:
        print_json(None if cluster is None else {"nameServer": cluster.name_server, "keptData": keep_data})
    elif cluster is None:
        typer.echo("no cluster to stop")
    elif keep_data:
        typer.echo(f"stopped; its data is in {cluster.home}")
    else:
        typer.echo("stopped and removed")


@app.command(epilog=examples("cluster status", "cluster status --json"))
def status(json: AsJson = False) -> None:
    """Show the servers. Exit code 0 if all of them run, else 1."""
    from pyspark_rocketmq.devcluster.detached import find_detached

    cluster = find_detached()
    if cluster is None:
        if json:
            print_json(None)
        else:
            typer.echo("no cluster; start one with: pyspark-rocketmq cluster start")
        raise typer.Exit(1)
    if json:
        servers = [{"server": each, "running": each.is_running} for each in cluster.servers]
        print_json({"version": cluster.version, "nameServer": cluster.name_server, "servers": servers})
    else:
        _show(cluster)
    if not all(server.is_running for server in cluster.servers):
        raise typer.Exit(1)


@app.command(epilog=examples("cluster fetch", "cluster fetch --version 5.4.0 --proxy"))
def fetch(
    version: Annotated[
        list[str] | None, typer.Option(help="RocketMQ release; repeatable.", show_default=ROCKETMQ_VERSION)
    ] = None,
    proxy: Annotated[
        bool, typer.Option("--proxy", help="Also download the proxy's JARs, RocketMQ 5 only.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Download RocketMQ's jars, so that later starts need no network."""
    from pyspark_rocketmq.devcluster.jars import proxy_coordinates, proxy_jars, rocketmq_jars

    releases = dict.fromkeys(version or [ROCKETMQ_VERSION])
    if proxy:
        for release in releases:
            proxy_coordinates(release)  # a release without one is an error before anything is downloaded
    fetched = []
    for release in releases:
        start_s = time.monotonic()
        jars = rocketmq_jars(release)
        if proxy:
            jars = tuple(dict.fromkeys((*jars, *proxy_jars(release))))
        seconds = time.monotonic() - start_s
        size = sum(jar.stat().st_size for jar in jars)
        fetched.append({"version": release, "jars": len(jars), "bytes": size, "folder": str(jars[0].parent)})
        if not json:
            typer.echo(
                f"RocketMQ {release}: {len(jars)} jars, {size / 1e6:.0f} MB, in {jars[0].parent} "
                f"after {seconds:.1f} s"
            )
    if json:
        print_json(fetched)


def _show(cluster: DetachedCluster) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"RocketMQ {cluster.version}, name server {cluster.name_server}", title_justify="left"
    )
    for column in ("server", "address", "pid", "state"):
        table.add_column(column)
    table.add_column("memory", justify="right")
    for server in cluster.servers:
        up = server.is_running
        table.add_row(
            server.name,
            server.address,
            str(server.pid),
            "[green]running[/green]" if up else "[red]gone[/red]",
            f"{server.rss_bytes / 2**20:.0f} MiB" if up else "",
        )
    Console().print(table)
