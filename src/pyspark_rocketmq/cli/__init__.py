"""The command line ``pyspark-rocketmq``: one module per noun. Modules only parse arguments and print."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer
from rich.console import Console
from rich.markup import escape

from pyspark_rocketmq._version import __version__
from pyspark_rocketmq.cli import options
from pyspark_rocketmq.cli.cluster_commands import bench, cluster, doctor, groups, offsets, report, topics, tx
from pyspark_rocketmq.cli.job_commands import dashboard, demo, sql, streams, tables
from pyspark_rocketmq.cli.message_commands import consume, peek, produce, replay
from pyspark_rocketmq.errors import OptionError, RocketMQError, SqlError

__all__ = ["app", "main"]

app = typer.Typer(
    name="pyspark-rocketmq",
    help="Apache RocketMQ for PySpark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command(epilog=demo.EXAMPLES)(demo.demo)
app.command(epilog=doctor.EXAMPLES)(doctor.doctor)
app.add_typer(cluster.app, name="cluster")
app.command(epilog=topics.LIST_EXAMPLES)(topics.topics)
app.add_typer(topics.app, name="topic")
app.command(epilog=groups.GROUPS_EXAMPLES)(groups.groups)
app.command(epilog=groups.LAG_EXAMPLES)(groups.lag)
app.add_typer(offsets.app, name="offsets")
app.command(epilog=peek.EXAMPLES)(peek.peek)
app.command(epilog=produce.EXAMPLES)(produce.produce)
app.command(epilog=consume.EXAMPLES)(consume.consume)
app.command(epilog=bench.EXAMPLES)(bench.bench)
app.command(epilog=dashboard.EXAMPLES)(dashboard.dashboard)
app.command(epilog=options.EXAMPLES)(options.options)
app.command(epilog=replay.EXAMPLES)(replay.replay)
app.command(epilog=report.EXAMPLES)(report.report)
app.command(epilog=sql.EXAMPLES)(sql.sql)
app.add_typer(streams.app, name="streams")
app.add_typer(tables.app, name="tables")
app.add_typer(tx.app, name="tx")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    _version: bool = typer.Option(
        False, "--version", help="Print the version.", is_eager=True, callback=_print_version
    ),
) -> None:
    """Apache RocketMQ for PySpark."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. The package's own errors print one sentence and set an exit code, no traceback.

    Parameters
    ----------
    arguments : sequence of str, optional
        Default: the arguments of the process.

    Exit codes: 0 success, 1 failure, 2 usage error, 130 interrupted.
    """
    try:
        app(arguments, prog_name="pyspark-rocketmq")
    except RocketMQError as error:
        Console(stderr=True, highlight=False).print(f"[red]error:[/red] {escape(str(error))}", soft_wrap=True)
        sys.exit(2 if isinstance(error, OptionError | SqlError) else 1)
    except KeyboardInterrupt:
        sys.exit(130)
