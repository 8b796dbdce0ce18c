"""``pyspark-rocketmq topics`` and ``topic``: list, show, create and delete topics."""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from pyspark_rocketmq.cli.command_groups import CommandGroup
from pyspark_rocketmq.cli.connect import Namesrv, Settings, Topic, connect, pairs
from pyspark_rocketmq.cli.printing import AsJson, console, examples, print_json, print_table, timestamp
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import Permission

__all__ = ["LIST_EXAMPLES", "app", "topics"]

LIST_EXAMPLES: Final = examples("topics", "topics --system --json", "topics -n 10.0.0.1:9876;10.0.0.2:9876")

app = typer.Typer(cls=CommandGroup, help="Show, create and delete a topic.", no_args_is_help=True)

_PERMISSIONS: Final = {"r": Permission.READ, "w": Permission.WRITE, "rw": Permission.READ | Permission.WRITE}


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

    with connect(namesrv, option) as client:
        admin = Admin(client)
        route = admin.topic_route(topic)
        configs, stats = admin.topic_configs(topic), admin.topic_stats(topic)
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
                _permission(config.perm),
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
            [
                (f"{queue.broker_name}:{queue.queue_id}", owner or "away")
                for queue, owner in sorted(route.static_queues.items())
            ],
        )
    print_table(
        ("Queue", "Min", "Max", "Messages", "Last stored"),
        [
            (
                f"{queue.broker_name}:{queue.queue_id}",
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
    queues: Annotated[int, typer.Option(help="Number of queues per broker.", min=1)] = 8,
    perm: Annotated[str, typer.Option(help="Permission: rw, r or w.")] = "rw",
    cluster: Annotated[str | None, typer.Option(help="Only on this cluster's brokers.")] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option("--attribute", "-a", help="Topic attribute (RocketMQ 5), name=value; repeatable."),
    ] = None,
    namesrv: Namesrv = None,
    option: Settings = None,
    json: AsJson = False,
) -> None:
    """Create a topic, or change an existing one."""
    from pyspark_rocketmq.client.admin import Admin

    if perm not in _PERMISSIONS:
        raise OptionError("a permission is rw, r or w", perm=perm)
    with connect(namesrv, option) as client:
        Admin(client).create_topic(
            topic, queues=queues, perm=_PERMISSIONS[perm], cluster=cluster, attributes=pairs(attribute)
        )
        there = len(client.read_queues(topic))
    if json:
        print_json({"topic": topic, "readQueues": there})
    else:
        console().print(f"{topic} is there, with {there} queues to read")


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
        console().print(f"{topic} is deleted, with {messages:,} messages")


def _permission(perm: Permission) -> str:
    names = [name for bit, name in ((Permission.READ, "read"), (Permission.WRITE, "write")) if bit in perm]
    return ", ".join(names) or "none"
