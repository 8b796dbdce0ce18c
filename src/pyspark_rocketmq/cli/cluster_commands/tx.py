"""``pyspark-rocketmq tx``: transactional writes that a crash interrupted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_rocketmq.cli.command_groups import CommandGroup
from pyspark_rocketmq.cli.connect import Namesrv, Settings, connect
from pyspark_rocketmq.cli.printing import AsJson, console, examples, print_json, print_table

if TYPE_CHECKING:
    from pyspark_rocketmq.spark.write.transaction import Finished
    from pyspark_rocketmq.tools.transactions import Unfinished

__all__ = ["app"]

app = typer.Typer(
    cls=CommandGroup,
    help="List and finish transactional writes that a crash interrupted.",
    no_args_is_help=True,
)

Folder = Annotated[
    str, typer.Argument(help="A query's checkpointLocation, or its transactionLog: a path or URI.")
]


@app.command("list", epilog=examples("tx list /data/checkpoints/orders", "tx list /data/tx --json"))
def list_(folder: Folder, json: AsJson = False) -> None:
    """List the batches whose commit was started and is not known to be finished."""
    from pyspark_rocketmq.tools.transactions import open_log, unfinished

    found = unfinished(open_log(folder))
    if json:
        print_json([_plain(each) for each in found])
        return
    _print(folder, found)


@app.command("recover", epilog=examples("tx recover /data/checkpoints/orders --yes"))
def recover_(
    folder: Folder,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Finish the batches. Without it the command only lists them.")
    ] = False,
    skip_lost: Annotated[
        bool,
        typer.Option(
            "--skip-lost",
            help="Also finish batches of which brokers have lost messages, without those messages.",
        ),
    ] = False,
    namesrv: Namesrv = None,
    option: Settings = None,
    json: AsJson = False,
) -> None:
    """Commit the rest of unfinished batches. If the query is running, it fails.

    A restarted query does this itself: use the command if you will not restart the query soon.
    """
    from pyspark_rocketmq.tools.transactions import open_log, recover, unfinished

    log = open_log(folder)
    found = unfinished(log)
    done: dict[str, Finished] = {}
    if yes and found:
        with connect(namesrv, option) as client:
            done = {str(each.name): what for each, what in recover(client, log, skip_lost=skip_lost)}
    if json:
        print_json([{**_plain(each), **_outcome(done.get(str(each.name)))} for each in found])
        return
    _print(folder, found)
    if found:
        text = (
            f"{sum(what.committed for what in done.values())} messages committed, "
            f"{sum(what.lost for what in done.values())} lost"
            if yes
            else "nothing was changed: finish them with --yes"
        )
        console().print(text)


def _plain(each: Unfinished) -> dict[str, object]:
    return {
        "query": each.name.owner,
        "batch": each.name.number,
        "producerGroup": each.group,
        "messages": each.messages,
    }


def _outcome(what: Finished | None) -> dict[str, object]:
    return {"committed": what and what.committed, "lost": what and what.lost}


def _print(folder: str, found: tuple[Unfinished, ...]) -> None:
    if not found:
        typer.echo(f"no unfinished transactions in {folder}")
        return
    print_table(
        ["query or job", "batch", "producer group", "messages"],
        [[each.name.owner, str(each.name.number), each.group, str(each.messages)] for each in found],
    )
