"""``pyspark-rocketmq topics`` and ``topic``: list, show, create, alter and delete topics."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pyspark_rocketmq.cli.command_groups import CommandGroup
from pyspark_rocketmq.cli.connect import Namesrv, Settings, Topic, connect, pairs
from pyspark_rocketmq.cli.printing import (
    AsJson,
    console,
    examples,
    name_queue,
    print_applied,
    print_json,
    print_table,
    timestamp,
    warn_of,
)
from pyspark_rocketmq.errors import OptionError, RocketMQError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_rocketmq.model import Permission
    from pyspark_rocketmq.planning.topics.topic_settings import TopicChange

__all__ = ["LIST_EXAMPLES", "app", "topics"]

LIST_EXAMPLES: Final = examples("topics", "topics --system --json", "topics -n '10.0.0.1:9876;10.0.0.2:9876'")

app = typer.Typer(cls=CommandGroup, help="Show, create, alter and delete a topic.", no_args_is_help=True)

Attributes = Annotated[
    list[str] | None,
    typer.Option("--attribute", "-a", help="Topic attribute (RocketMQ 5), name=value; repeatable."),
]

_QUEUES: Final = 8
_MOST_QUEUES: Final = 65_536
"""A route with more is refused by clients."""


def topics(
    namesrv: Namesrv = None,
    option: Settings = None,
    system: Annotated[bool, typer.Option("--system", help="Include RocketMQ's internal topics.")] = False,
    json: AsJson = False,
) -> None:
    """List the topics with their brokers and queues."""
    from pyspark_rocketmq.client.admin import Admin

    with connect(namesrv, option) as client:
        names = Admin(client).topics(include_system=system)
        routes = client.routes.find_many(names, deadline=client.deadline())
    found = [(name, route) for name, route in sorted(routes.items()) if route is not None]
    if json:
        print_json(
            [
                {
                    "topic": name,
                    "brokers": [data.broker_name for data in route.queues],
                    "readQueues": len(route.read_queues()),
                    "writeQueues": len(route.write_queues()),
                }
                for name, route in found
            ]
        )
        return
    print_table(
        ("Topic", "Brokers", "Read queues", "Write queues"),
        [
            (
                name,
                ", ".join(sorted(data.broker_name for data in route.queues)),
                len(route.read_queues()),
                len(route.write_queues()),
            )
            for name, route in found
        ],
    )


@app.command(epilog=examples("topic show orders", "topic show orders --json"))
def show(topic: Topic, namesrv: Namesrv = None, option: Settings = None, json: AsJson = False) -> None:
    """Show a topic's brokers, settings and queues."""
    from pyspark_rocketmq.client.admin import Admin
    from pyspark_rocketmq.planning.topics.topic_settings import permission_text

    with connect(namesrv, option) as client:
        admin = Admin(client)
        route = admin.topic_route(topic)
        away: dict[str, RocketMQError] = {}
        configs = admin.topic_configs(topic, on_away=away.__setitem__)
        stats = admin.topic_stats(topic, on_away=away.__setitem__)
    warn_of(away)
    if json:
        queues = [{"queue": queue, "stats": seen} for queue, seen in sorted(stats.items())]
        static = [{"queue": queue, "owner": owner} for queue, owner in sorted(route.static_queues.items())]
        found = {"topic": topic, "brokers": route.brokers, "configs": configs, "queues": queues}
        print_json(found | ({"staticQueues": static} if static else {}))
        return
    print_table(
        ("Broker", "Address", "Read queues", "Write queues", "Permission", "Attributes"),
        [
            (
                data.broker_name,
                ", ".join(data),
                config.read_queues,
                config.write_queues,
                permission_text(config.perm),
                ", ".join(f"{name}={value}" for name, value in config.attributes.items()),
            )
            for data in route.brokers
            if (config := configs.get(data.broker_name)) is not None
        ],
        title=topic,
    )
    if route.static_queues:
        print_table(
            ("Queue of the static topic", "Owner"),
            [(name_queue(queue), owner or "away") for queue, owner in sorted(route.static_queues.items())],
        )
    print_table(
        ("Queue", "Min", "Max", "Messages", "Last stored"),
        [
            (
                name_queue(queue),
                seen.min_offset,
                seen.max_offset,
                seen.max_offset - seen.min_offset,
                timestamp(seen.last_update_timestamp),
            )
            for queue, seen in sorted(stats.items())
        ],
    )


@app.command(epilog=examples("topic create orders --queues 8", "topic create payments -a message.type=FIFO"))
def create(
    topic: Topic,
    queues: Annotated[
        int | None, typer.Option(help="Number of queues per broker. [8]", min=1, max=_MOST_QUEUES)
    ] = None,
    perm: Annotated[str | None, typer.Option(help="Permission: rw, r or w. [rw]")] = None,
    cluster: Annotated[str | None, typer.Option(help="Only on this cluster's brokers.")] = None,
    broker: Annotated[str | None, typer.Option(help="Only on this broker.")] = None,
    attribute: Attributes = None,
    namesrv: Namesrv = None,
    option: Settings = None,
    json: AsJson = False,
) -> None:
    """Create a topic. An existing topic stays as it is: `topic alter` changes it.

    Exit code 1 if it exists with other settings than those given.
    """
    from pyspark_rocketmq.client.admin import Admin
    from pyspark_rocketmq.planning.topics.topic_settings import TopicSettings, require_unchanged
    from pyspark_rocketmq.tools.topic_change import existing_configs

    attributes = dict(pairs(attribute))
    settings = TopicSettings(
        read_queues=queues, write_queues=queues, perm=_permission_of(perm), attributes=attributes
    )
    with connect(namesrv, option) as client:
        admin = Admin(client)
        configs = existing_configs(admin, topic, cluster=cluster, broker=broker)
        require_unchanged(topic, configs, settings, remedy="pyspark-rocketmq topic alter")
        if not configs:
            perm_bits = _permission_of(perm or "rw")
            assert perm_bits is not None
            admin.create_topic(
                topic,
                queues=queues or _QUEUES,
                perm=perm_bits,
                cluster=cluster,
                brokers=None if broker is None else [broker],
                attributes=attributes,
            )
        readable = len(client.read_queues(topic))
    if json:
        print_json({"topic": topic, "readQueues": readable, "created": not configs})
    elif configs:
        console().print(f"{topic} already exists; unchanged")
    else:
        console().print(f"created {topic}: {readable} queues")


@app.command(
    epilog=examples(
        "topic alter orders --queues 16",
        "topic alter orders --write-queues 4 --yes",
        "topic alter orders --perm r --yes",
    )
)
def alter(
    topic: Topic,
    queues: Annotated[
        int | None,
        typer.Option(help="Number of queues per broker, to read and to write.", min=1, max=_MOST_QUEUES),
    ] = None,
    write_queues: Annotated[
        int | None,
        typer.Option(help="Number of queues per broker that receive messages.", min=1, max=_MOST_QUEUES),
    ] = None,
    perm: Annotated[str | None, typer.Option(help="Permission: rw, r or w.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Only on this cluster's brokers.")] = None,
    attribute: Attributes = None,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", "-y", help="Apply the change. Without it the command asks, or changes nothing."
        ),
    ] = False,
    namesrv: Namesrv = None,
    option: Settings = None,
    json: AsJson = False,
) -> None:
    """Change a topic's queues, permission or attributes. Shows the change first.

    What is not given stays as it is. To remove queues without losing sight of messages, first reduce
    --write-queues. Reduce --queues when the messages have been read.
    """
    from pyspark_rocketmq.client.admin import Admin
    from pyspark_rocketmq.planning.topics.topic_settings import TopicSettings, changes_of, hidden_messages
    from pyspark_rocketmq.tools.topic_change import alterable_configs

    attributes = {name: value or None for name, value in pairs(attribute).items()}
    if queues is not None and write_queues is not None:
        raise OptionError("give --queues or --write-queues")
    if queues is None and write_queues is None and perm is None and not attributes:
        raise OptionError("give what to change: --queues, --write-queues, --perm or --attribute")
    settings = TopicSettings(
        read_queues=queues,
        write_queues=queues or write_queues,
        perm=_permission_of(perm),
        attributes=attributes,
    )
    with connect(namesrv, option) as client:
        admin = Admin(client)
        configs = alterable_configs(admin, topic, cluster=cluster)
        changes = changes_of(configs, settings)
        hidden = hidden_messages(configs, settings, admin.topic_stats(topic))
        if not json:
            _print_changes(topic, changes, hidden)
        asked = changes and not yes and not json and sys.stdin.isatty()
        applied = bool(changes) and (yes or bool(asked and typer.confirm(f"Change {topic}?")))
        if applied:
            admin.alter_topic(
                topic,
                queues=settings.write_queues,
                read_queues=queues,
                perm=settings.perm,
                attributes=attributes,
                brokers=configs,
            )
    if json:
        rows = [
            {"brokerName": each.broker_name, "setting": each.setting, "from": each.before, "to": each.after}
            for each in changes
        ]
        print_json({"topic": topic, "applied": applied, "changes": rows, "hiddenMessages": hidden})
    elif changes:
        print_applied(applied=applied)


@app.command(epilog=examples("topic delete orders", "topic delete orders --yes"))
def delete(
    topic: Topic,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    namesrv: Namesrv = None,
    option: Settings = None,
    json: AsJson = False,
) -> None:
    """Delete a topic and all its messages on every broker."""
    from pyspark_rocketmq.client.admin import Admin

    with connect(namesrv, option) as client:
        stats = Admin(client).topic_stats(topic)
        messages = sum(seen.max_offset - seen.min_offset for seen in stats.values())
        if not yes:
            if not sys.stdin.isatty():
                raise OptionError("deleting cannot be undone: confirm with --yes", topic=topic)
            typer.confirm(f"Delete {topic} and its {messages:,} messages?", abort=True)
        Admin(client).delete_topic(topic)
    if json:
        print_json({"topic": topic, "deletedMessages": messages})
    else:
        console().print(f"deleted {topic} and its {messages:,} messages")


def _permission_of(text: str | None) -> Permission | None:
    from pyspark_rocketmq.model import Permission

    bits = {"r": Permission.READ, "w": Permission.WRITE, "rw": Permission.READ | Permission.WRITE}
    if text is not None and text not in bits:
        raise OptionError("a permission is rw, r or w", perm=text)
    return None if text is None else bits[text]


def _print_changes(topic: str, changes: Sequence[TopicChange], hidden: int) -> None:
    if not changes:
        console().print(f"{topic} has these settings already; unchanged")
        return
    rows = [(each.broker_name, each.setting, each.before, each.after) for each in changes]
    print_table(("Broker", "Setting", "From", "To"), rows, title=topic)
    if hidden:
        console().print(
            f"[yellow]{hidden:,} messages are in queues that could no longer be read. First reduce "
            "--write-queues, and --queues when they are read.[/yellow]"
        )
