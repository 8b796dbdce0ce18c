"""``pyspark-rocketmq peek``: show messages without consuming them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from pyspark_rocketmq.cli.connect import Namesrv, Settings, Topic, connect
from pyspark_rocketmq.cli.message_commands.bounds import select_queues
from pyspark_rocketmq.cli.message_commands.exact_json import write_json
from pyspark_rocketmq.cli.message_commands.messages import message_json, message_panel
from pyspark_rocketmq.cli.printing import AsJson, console, examples
from pyspark_rocketmq.cli.times import moment
from pyspark_rocketmq.errors import OptionError

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client
    from pyspark_rocketmq.model import Message

__all__ = ["EXAMPLES", "peek"]

EXAMPLES: Final = examples(
    "peek orders",
    "peek orders -c 3 --queue broker-a:0",
    "peek orders --at 2030-01-31T08:00:00Z",
    "peek orders --at -10m --json",
    "peek orders --key order-0000042",
    "peek orders --id 7F00000100002A9F0000000000000000",
)


def peek(
    topic: Topic,
    count: Annotated[
        int, typer.Option("--count", "-c", help="Maximum number of messages.", min=1, max=10_000)
    ] = 10,
    at: Annotated[
        str | None, typer.Option(help="The first messages stored at or after a time, or a time ago (-10m).")
    ] = None,
    key: Annotated[str | None, typer.Option(help="The messages with this key.")] = None,
    message_id: Annotated[
        str | None, typer.Option("--id", help="The message with this message id or offset message id.")
    ] = None,
    queue: Annotated[str | None, typer.Option(help="Only this queue, broker:queueId.")] = None,
    namesrv: Namesrv = None,
    option: Settings = None,
    json: AsJson = False,
) -> None:
    """Show messages of a topic: the newest ones, or by time, key or id. Consumes nothing.

    Exit code 1 if no message is found.
    """
    if sum(given is not None for given in (at, key, message_id)) > 1:
        raise OptionError("give one of --at, --key and --id")
    if queue is not None and (key is not None or message_id is not None):
        raise OptionError("keys and ids are searched in every queue: remove --queue")
    with connect(namesrv, option) as client:
        found = _find(client, topic, count, at=at, key=key, message_id=message_id, queue=queue)
    if json:
        typer.echo(write_json([message_json(message) for message in found], pretty=True))
    else:
        for message in found:
            console().print(message_panel(message), soft_wrap=False)  # a line in a panel would be cut
        if not found:
            console().print("no message")
    if not found:
        raise typer.Exit(1)


def _find(
    client: Client,
    topic: str,
    count: int,
    *,
    at: str | None,
    key: str | None,
    message_id: str | None,
    queue: str | None,
) -> list[Message]:
    from pyspark_rocketmq.client.read.message_search import (
        last_messages,
        message_by_id,
        messages_at,
        messages_by_key,
    )

    if message_id is not None:
        message = message_by_id(client, topic, message_id)
        return [] if message is None else [message]
    if key is not None:
        return messages_by_key(client, topic, key, count)
    queues = select_queues(client, topic, None if queue is None else [queue])
    if at is None:
        return last_messages(client, queues, count)
    return messages_at(client, queues, moment("--at", at, client.clock.now_ms()), count)
