"""``pyspark-rocketmq tables``: topics as SQL tables."""

from __future__ import annotations

from typing import Annotated

import typer

from pyspark_rocketmq.cli.command_groups import CommandGroup
from pyspark_rocketmq.cli.connect import Namesrv, Settings, connect
from pyspark_rocketmq.cli.printing import AsJson, console, examples, print_json, print_table

__all__ = ["app"]

app = typer.Typer(cls=CommandGroup, help="Show topics as SQL tables.", no_args_is_help=True)


@app.command("list", epilog=examples("tables list", "tables list --json"))
def list_(namesrv: Namesrv = None, option: Settings = None, json: AsJson = False) -> None:
    """List the topics that a SQL job can read and write."""
    from pyspark_rocketmq.sql.catalog import list_tables

    with connect(namesrv, option) as client:
        found = list_tables(client)
    if json:
        print_json(found)
        return
    print_table(("Table",), [(name,) for name in found])


@app.command(epilog=examples("tables describe orders", "tables describe orders --ddl >> job.sql"))
def describe(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    sample: Annotated[int, typer.Option(help="Number of newest messages to inspect.", min=1)] = 1_000,
    ddl: Annotated[bool, typer.Option("--ddl", help="Print its CREATE TABLE statement.")] = False,
    namesrv: Namesrv = None,
    option: Settings = None,
    json: AsJson = False,
) -> None:
    """Show the columns of a topic's JSON bodies, inferred from its newest messages. Consumes nothing."""
    from pyspark_rocketmq.sql.catalog import describe_table

    with connect(namesrv, option) as client:
        table = describe_table(client, topic, sample=sample)
    inferred = table.inferred
    if json:
        print_json(
            {"topic": topic, "columns": inferred.columns, "seen": inferred.seen, "unfit": inferred.unfit}
        )
    elif ddl:
        typer.echo(table.ddl(namesrv))
    else:
        rows = [(name, kind, name in inferred.always) for name, kind in inferred.columns.items()]
        print_table(("Column", "Type", "Always there"), rows, title=topic)
        console().print(f"from {inferred.seen:,} messages, of which {inferred.unfit:,} are not JSON objects")
