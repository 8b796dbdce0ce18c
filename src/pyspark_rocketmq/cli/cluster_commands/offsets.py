"""``pyspark-rocketmq offsets``: show, move, export and import offsets of groups and checkpoints."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_rocketmq.cli.cluster_commands.groups import topics_of, unknown_group
from pyspark_rocketmq.cli.command_groups import CommandGroup
from pyspark_rocketmq.cli.connect import (
    Group,
    Namesrv,
    Settings,
    Topic,
    complete_groups,
    connect,
    find_start,
    source_options,
)
from pyspark_rocketmq.cli.input import read_text
from pyspark_rocketmq.cli.printing import (
    AsJson,
    console,
    examples,
    name_queue,
    print_applied,
    print_json,
    print_table,
    show_offset,
    timestamp,
    warn_of,
)
from pyspark_rocketmq.errors import OptionError, RocketMQError, UnsupportedRequestError

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client
    from pyspark_rocketmq.model import MessageQueue

__all__ = ["app"]

app = typer.Typer(
    cls=CommandGroup,
    help="Show, move, export and import offsets of consumer groups and checkpoints.",
    no_args_is_help=True,
)

Topics = Annotated[list[str] | None, typer.Option("--topic", "-t", help="Only these topics; repeatable.")]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        help="A Spark query's checkpointLocation, a path or a URI that Spark can read; or a DStream's "
        "checkpoint directory on this machine."
    ),
]
Source = Annotated[
    str | None,
    typer.Option(
        help="If there are several: the query's source, by name or counted from 0, or the direct stream's id."
    ),
]
File = Annotated[str | None, typer.Option(help="Output of `offsets export`; - is standard input.")]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Apply the change. Without it the command only shows the change.")
]


@app.command(epilog=examples("offsets show billing", "offsets show billing --topic orders --json"))
def show(
    group: Group,
    topic: Topics = None,
    namesrv: Namesrv = None,
    option: Settings = None,
    json: AsJson = False,
) -> None:
    """Show a group's committed offsets and the offsets of the queues."""
    from pyspark_rocketmq.client.groups.group_lag import group_lag

    with connect(namesrv, option) as client:
        away: dict[str, RocketMQError] = {}
        names = topics_of(client, group, topic, on_away=away.__setitem__)
        rows = group_lag(client, group, names, on_away=away.__setitem__)
    warn_of(away)
    if json:
        print_json(rows)
        return
    print_table(
        ("Topic", "Queue", "Committed", "Min", "Max", "Consumed up to"),
        [
            (
                row.queue.topic,
                name_queue(row.queue),
                show_offset(row.committed),
                row.min_offset,
                row.max_offset,
                timestamp(row.consumed_timestamp),
            )
            for row in rows
        ],
        right=("Committed",),
    )


@app.command(
    epilog=examples(
        "offsets reset billing orders --to earliest",
        "offsets reset billing orders --to -2h --yes",
        "offsets reset billing orders --to 2030-01-31T08:00:00Z --yes",
    )
)
def reset(
    group: Group,
    topic: Topic,
    to: Annotated[
        str,
        typer.Option(
            help="earliest, latest, last:100, a time, a time ago (-2h), or JSON per topic and queue."
        ),
    ],
    yes: Yes = False,
    namesrv: Namesrv = None,
    option: Settings = None,
    json: AsJson = False,
) -> None:
    """Move a group's offsets of a topic. Only shows the change unless --yes is given."""
    options = source_options(namesrv, option, topic=topic, group=group, start=to, name="--to")
    with connect(namesrv, option) as client:
        wanted = _match_queues(client, find_start(client, options))
        _commit(client, group, wanted, yes=yes, json=json)


@app.command(
    epilog=examples(
        "offsets export billing --topic orders > offsets.json",
        "offsets export --checkpoint /checkpoints/billing",
        "offsets export --checkpoint hdfs://namenode:8020/checkpoints/billing",
    )
)
def export(
    group: Annotated[
        str | None, typer.Argument(help="The consumer group.", autocompletion=complete_groups)
    ] = None,
    topic: Topics = None,
    checkpoint: Checkpoint = None,
    source: Source = None,
    namesrv: Namesrv = None,
    option: Settings = None,
) -> None:
    """Print offsets as JSON for `offsets import` or the option startingOffsets.

    The offsets are a group's, or the finished offsets in the checkpoint of a Spark query or direct stream.
    """
    from pyspark_rocketmq.client.groups.group_lag import group_lag
    from pyspark_rocketmq.tools.checkpoint import offsets_to_json

    if (group is None) == (checkpoint is None):
        raise OptionError("give a group or --checkpoint")
    if checkpoint is not None:
        typer.echo(offsets_to_json(_read_finished(checkpoint, source)))
        return
    assert group is not None
    with connect(namesrv, option) as client:
        rows = group_lag(client, group, topics_of(client, group, topic))
    typer.echo(offsets_to_json({row.queue: row.committed for row in rows if row.committed is not None}))


@app.command(
    "import",
    epilog=examples(
        "offsets import billing --checkpoint /checkpoints/billing",
        "offsets import billing --file offsets.json --yes",
    ),
)
def import_(
    group: Group,
    file: File = None,
    checkpoint: Checkpoint = None,
    source: Source = None,
    yes: Yes = False,
    namesrv: Namesrv = None,
    option: Settings = None,
    json: AsJson = False,
) -> None:
    """Commit offsets for a group, from a file or from the checkpoint of a Spark query or a direct stream.

    Only shows the change unless --yes is given.
    """
    from pyspark_rocketmq.tools.checkpoint import offsets_from_json

    if (file is None) == (checkpoint is None):
        raise OptionError("give --file or --checkpoint")
    if checkpoint is not None:
        wanted = _read_finished(checkpoint, source)
    else:
        assert file is not None
        wanted = offsets_from_json(read_text(file))
    with connect(namesrv, option) as client:
        _commit(client, group, _match_queues(client, wanted), yes=yes, json=json)


@app.command(
    "seek",
    epilog=examples(
        "offsets seek /checkpoints/billing --group billing",
        "offsets seek /checkpoints/billing --file offsets.json --yes",
    ),
)
def seek_(
    checkpoint: Annotated[
        str, typer.Argument(help="A Spark query's checkpointLocation: a path, or a URI that Spark can read.")
    ],
    group: Annotated[
        str | None, typer.Option(help="Use this group's offsets.", autocompletion=complete_groups)
    ] = None,
    file: File = None,
    source: Source = None,
    yes: Yes = False,
    namesrv: Namesrv = None,
    option: Settings = None,
    json: AsJson = False,
) -> None:
    """Make a stopped Spark query continue from a group's offsets, or from offsets in a file.

    The query keeps its state. Only shows the change unless --yes is given.
    """
    from pyspark_rocketmq.planning.topics.queue_names import rename_queues
    from pyspark_rocketmq.tools.checkpoint import offsets_from_json, read_finished_offsets, seek

    if (group is None) == (file is None):
        raise OptionError("give --group or --file")
    found = read_finished_offsets(checkpoint, source=source)
    with connect(namesrv or found.source.name_server, option) as client:
        if file is not None:
            wanted = offsets_from_json(read_text(file))
        else:
            committed = client.committed_offsets(str(group), list(found.offsets))
            wanted = {queue: offset for queue, offset in committed.items() if offset is not None}
            if not wanted:
                raise OptionError("the group has committed nothing for the query's queues", group=group)
        wanted = _match_queues(client, wanted)
    if yes:
        seek(checkpoint, wanted, source=source)
    before = rename_queues(found.offsets, wanted, choose=max)
    now = {queue: before.get(queue) for queue in wanted}
    if json:
        print_json({"checkpoint": checkpoint, "applied": yes, "offsets": _changes(now, wanted)})
    else:
        _print_changes(now, wanted, yes=yes)


@app.command(
    "forget",
    epilog=examples(
        "offsets forget /checkpoints/billing payments",
        "offsets forget /checkpoints/billing @broker-b orders@broker-a:3 --yes",
    ),
)
def forget_(
    checkpoint: Annotated[
        str, typer.Argument(help="A Spark query's checkpointLocation: a path, or a URI that Spark can read.")
    ],
    queues: Annotated[list[str], typer.Argument(help="topic, topic@broker, topic@broker:queue or @broker.")],
    source: Source = None,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Remove queues of a deleted topic or a retired broker from a stopped Spark query.

    The query keeps its state. Only shows the change unless --yes is given.
    """
    from pyspark_rocketmq.options.text.queue_patterns import QUEUE_PATTERNS, covers
    from pyspark_rocketmq.tools.checkpoint import forget, read_finished_offsets

    try:
        patterns = QUEUE_PATTERNS.parse(",".join(queues))
    except ValueError as error:
        raise OptionError(f"queues are malformed: {error}") from None
    found = read_finished_offsets(checkpoint, source=source)
    dropped = {queue: at for queue, at in sorted(found.offsets.items()) if covers(patterns, queue)}
    if not dropped:
        raise OptionError("the query reads no such queue", queues=" ".join(queues))
    if yes:
        forget(checkpoint, patterns, source=source)
    if json:
        rows = [{"queue": queue, "offset": at} for queue, at in dropped.items()]
        print_json({"checkpoint": checkpoint, "applied": yes, "forgotten": rows})
        return
    print_table(("Topic", "Queue", "Offset"), [(q.topic, name_queue(q), at) for q, at in dropped.items()])
    print_applied(applied=yes)


def _read_finished(checkpoint: str, source: str | None) -> Mapping[MessageQueue, int]:
    """Return the finished offsets of a query or a direct stream."""
    from pyspark_rocketmq.offsets.direct_log import is_direct_checkpoint, next_offsets
    from pyspark_rocketmq.spark.filesystem import local_folder
    from pyspark_rocketmq.tools.checkpoint import read_finished_offsets

    folder = local_folder(checkpoint)
    if folder is not None and is_direct_checkpoint(folder):
        if source is not None and not source.isdigit():
            raise OptionError("--source of a direct stream is its id, a number", source=source)
        return next_offsets(folder, stream=None if source is None else int(source))
    return read_finished_offsets(checkpoint, source=source).offsets


def _commit(client: Client, group: str, wanted: Mapping[MessageQueue, int], *, yes: bool, json: bool) -> None:
    """Show the change, and apply it if requested. A person is asked before a new group is created."""
    from rich.markup import escape

    from pyspark_rocketmq.client.admin import Admin

    now = client.committed_offsets(group, wanted)
    online: int | None
    try:
        online = sum(len(seen.clients) for seen in Admin(client).consumer_connections(group).values())
    except UnsupportedRequestError:  # a proxy, which lists no members and no groups
        online = None
    idle = online == 0 and all(offset is None for offset in now.values())
    stranger = unknown_group(client, group) if idle else None
    if stranger and not json:
        console().print(f"[yellow]{escape(stranger)}[/yellow]")
        if yes and sys.stdin.isatty():
            typer.confirm(f"Create the group {group}?", abort=True)
    if yes:
        client.commit_offsets(group, wanted)
    if json:
        changes = _changes(now, wanted)
        told = {"group": group, "groupExists": stranger is None, "applied": yes}
        print_json({**told, "consumersOnline": online, "offsets": changes})
        return
    if online is None:
        console().print(
            "[yellow]A proxy does not show whether consumers of the group are online: they would commit "
            "their own offsets over these.[/yellow]"
        )
    elif online:
        console().print(
            f"[yellow]{online} consumers of the group are online: they will commit their own offsets over "
            "these. Stop them first.[/yellow]"
        )
    _print_changes(now, wanted, yes=yes)


def _changes(
    now: Mapping[MessageQueue, int | None], wanted: Mapping[MessageQueue, int]
) -> list[dict[str, object]]:
    return [{"queue": queue, "from": now[queue], "to": offset} for queue, offset in wanted.items()]


def _print_changes(
    now: Mapping[MessageQueue, int | None], wanted: Mapping[MessageQueue, int], *, yes: bool
) -> None:
    print_table(
        ("Topic", "Queue", "From", "To", "Change"),
        [
            (
                queue.topic,
                name_queue(queue),
                show_offset(now[queue]),
                offset,
                f"{offset - (now[queue] or 0):+,}",
            )
            for queue, offset in sorted(wanted.items())
        ],
        right=("From", "Change"),
    )
    print_applied(applied=yes)


def _match_queues(client: Client, wanted: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
    """Return the offsets keyed by existing queues. Others, and offsets after a queue's end, are an error.

    Brokers would accept them.
    """
    from pyspark_rocketmq.planning.topics.queue_names import rename_queues

    there = {queue for topic in {queue.topic for queue in wanted} for queue in client.read_queues(topic)}
    named = rename_queues(wanted, there, choose=max)
    strangers = sorted(set(named) - there)
    if strangers:
        raise OptionError("there is no such queue", queue=strangers[0])
    ends = client.max_offsets(sorted(named))
    for queue, offset in sorted(named.items()):
        if offset > ends[queue]:
            raise OptionError(
                "the offset is after the queue's end: another cluster's, or the topic was created again",
                queue=queue,
                offset=offset,
                max_offset=ends[queue],
            )
    return named
