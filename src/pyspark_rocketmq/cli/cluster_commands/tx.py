"""``pyspark-rocketmq tx``: transactional writes that a crash interrupted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_rocketmq.cli.command_groups import CommandGroup
from pyspark_rocketmq.cli.connect import Namesrv, Settings, connect
from pyspark_rocketmq.cli.printing import AsJson, console, examples, print_json, print_table, timestamp
from pyspark_rocketmq.errors import OptionError

if TYPE_CHECKING:
    from pyspark_rocketmq.spark.write.transaction import Finished
    from pyspark_rocketmq.tools.open_batches import OpenBatch, StagedBatch
    from pyspark_rocketmq.tools.transactions import Unfinished

__all__ = ["app"]

app = typer.Typer(
    cls=CommandGroup,
    help="List, finish and give up transactional writes that a crash interrupted.",
    no_args_is_help=True,
)

Folder = Annotated[
    str, typer.Argument(help="A query's checkpointLocation, or its transactionLog: a path or URI.")
]


CommitTopic = Annotated[
    str | None, typer.Option("--commit-topic", help="The commit topic, if it is not TOPIC-commits.")
]


@app.command(
    "list",
    epilog=examples("tx list --topic orders", "tx list /data/checkpoints/orders", "tx list /data/tx --json"),
)
def list_(
    folder: Annotated[
        str | None,
        typer.Argument(help="Half messages: a query's checkpointLocation, or its transactionLog."),
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Committed ranges: the topic that is written.")
    ] = None,
    commit_topic: CommitTopic = None,
    namesrv: Namesrv = None,
    option: Settings = None,
    json: AsJson = False,
) -> None:
    """List the batches that were begun and are not known to be finished."""
    from pyspark_rocketmq.model.names import commit_topic_of
    from pyspark_rocketmq.tools.open_batches import find_open_batches
    from pyspark_rocketmq.tools.transactions import open_log, unfinished

    if (folder is None) == (topic is None):
        raise OptionError("give either a folder or --topic")
    if folder is not None and commit_topic is not None:
        raise OptionError("--commit-topic is that of --topic, not of a folder")
    if topic is not None:
        with connect(namesrv, option) as client:
            batches = find_open_batches(client, commit_topic_of(topic, commit_topic))
        _show_open(topic, batches, json=json)
        return
    assert folder is not None
    found = unfinished(open_log(folder))
    if json:
        print_json([_plain(each) for each in found])
        return
    _print(folder, found)


@app.command("abort", epilog=examples("tx abort orders orders/9a2c 7 --yes"))
def abort_(
    topic: Annotated[str, typer.Argument(help="The topic that is written.")],
    query: Annotated[str, typer.Argument(help="The query or job, as 'tx list --topic' prints it.")],
    batch: Annotated[int, typer.Argument(help="The number of its batch.")],
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Give the batch up. Without it the command only lists it.")
    ] = False,
    commit_topic: CommitTopic = None,
    namesrv: Namesrv = None,
    option: Settings = None,
    json: AsJson = False,
) -> None:
    """Give up a batch of committed ranges: its rows are never visible, also if its query continues.

    For batches of queries that will never be started again. A query that continues skips the batch, and its
    rows are lost.
    """
    from pyspark_rocketmq.model.names import commit_topic_of
    from pyspark_rocketmq.tools.open_batches import find_open_batches, give_up

    name = commit_topic_of(topic, commit_topic)
    with connect(namesrv, option) as client:
        found = [
            each for each in find_open_batches(client, name) if (each.owner, each.number) == (query, batch)
        ]
        if not found:
            raise OptionError("there is no such open batch: see tx list --topic", query=query, batch=batch)
        done = yes and give_up(client, name, found[0])
    if json:
        print_json({**_plain_open(found[0]), "applied": done})
        return
    _show_open(topic, tuple(found))
    if yes:
        console().print("given up" if done else "nothing was changed: it was committed meanwhile")
    else:
        console().print("nothing was changed: give it up with --yes")


@app.command("append", epilog=examples("tx append orders --yes"))
def append_(
    topic: Annotated[str, typer.Argument(help="The topic that consumers read.")],
    yes: Annotated[
        bool,
        typer.Option("--yes", "-y", help="Append the rows. Without it the command only lists the batches."),
    ] = False,
    staging_topic: Annotated[
        str | None, typer.Option("--staging-topic", help="The staging topic, if it is not TOPIC-staging.")
    ] = None,
    skip_lost: Annotated[
        bool,
        typer.Option("--skip-lost", help="Also finish batches of which the staging topic has lost rows."),
    ] = False,
    commit_topic: CommitTopic = None,
    namesrv: Namesrv = None,
    option: Settings = None,
    json: AsJson = False,
) -> None:
    """Append committed rows of staged writes that are not yet in their topic. A running query fails.

    A restarted query does this itself: use the command if you will not restart the query soon.
    """
    from pyspark_rocketmq.model.names import commit_topic_of, staging_topic_of
    from pyspark_rocketmq.tools.open_batches import StagedTopics, append, find_staged_batches

    staging = staging_topic_of(topic, staging_topic)
    topics = StagedTopics(
        topic=topic, staging_topic=staging, commit_topic=commit_topic_of(staging, commit_topic)
    )
    with connect(namesrv, option) as client:
        found = find_staged_batches(client, topics)
        sent: list[int | None] = [
            append(client, topics, each, skip_lost=skip_lost) if yes else None for each in found
        ]
    if json:
        print_json(
            [{**_plain_staged(each), "appended": rows} for each, rows in zip(found, sent, strict=True)]
        )
    elif not found:
        typer.echo(f"every committed row is in {topic}")
    else:
        rows = [
            [each.query, str(each.number), str(each.rows), timestamp(each.committed_at_ms)] for each in found
        ]
        print_table(["query or job", "batch", "rows", "committed"], rows)
        text = f"{sum(filter(None, sent))} rows appended" if yes else "nothing was changed: append with --yes"
        console().print(text)


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


def _show_open(topic: str, found: tuple[OpenBatch, ...], *, json: bool = False) -> None:
    if json:
        print_json([_plain_open(each) for each in found])
    elif not found:
        typer.echo(f"no open batches in {topic}")
    else:
        rows = [[each.owner, str(each.number), timestamp(each.begun_at_ms)] for each in found]
        print_table(["query or job", "batch", "begun"], rows)


def _plain_open(each: OpenBatch) -> dict[str, object]:
    return {"query": each.owner, "batch": each.number, "startTimestamp": each.begun_at_ms}


def _plain_staged(each: StagedBatch) -> dict[str, object]:
    return {
        "query": each.query,
        "batch": each.number,
        "rows": each.rows,
        "commitTimestamp": each.committed_at_ms,
    }


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
