"""``pyspark-rocketmq consume``: print messages as they arrive."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pyspark_rocketmq.cli.connect import Namesrv, Settings, Topic, connect, find_start, source_options
from pyspark_rocketmq.cli.message_commands.messages import message_json, message_text
from pyspark_rocketmq.cli.printing import AsJson, examples, timestamp
from pyspark_rocketmq.errors import OptionError

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client
    from pyspark_rocketmq.client.read.read_options import ReadOptions
    from pyspark_rocketmq.model import Message, MessageQueue

__all__ = ["EXAMPLES", "consume"]

EXAMPLES: Final = examples(
    "consume orders",
    "consume orders --from latest --follow",
    "consume orders --from -10m --tags 'DE || FR' --count 20 --json",
    "consume orders --from group --group billing --commit",
)

_POLL_S: Final = 0.2


def consume(
    topic: Topic,
    start: Annotated[
        str,
        typer.Option("--from", help="earliest, latest, last:100, group, a time, a time ago (-10m), or JSON."),
    ] = "earliest",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more until Ctrl-C.")] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-c", help="Stop after this number of messages.", min=1)
    ] = None,
    tags: Annotated[str, typer.Option(help="Only messages with these tags: 'A || B'.")] = "*",
    group: Annotated[
        str | None, typer.Option(help="The consumer group for --from group and --commit.")
    ] = None,
    commit: Annotated[
        bool, typer.Option("--commit", help="At the end, commit the printed messages for the group.")
    ] = False,
    namesrv: Namesrv = None,
    option: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Print a topic's messages, one per line. Stops at the end unless --follow is given.

    Existing messages are printed queue by queue. If the output is not a terminal, a line is the body only;
    with --json it is the whole message.
    """
    from pyspark_rocketmq.client.read.read_options import ReadOptions
    from pyspark_rocketmq.client.requests import TOOLS_GROUP
    from pyspark_rocketmq.model import MessageSelector

    if group is None and (commit or start.strip().lower() == "group"):
        raise OptionError(f"{'--commit' if commit else '--from group'} needs --group")
    options = source_options(namesrv, option, topic=topic, group=group, start=start, name="--from")
    with connect(namesrv, option) as client:
        positions = find_start(client, options)
        read = ReadOptions(consumer_group=group or TOOLS_GROUP, selector=MessageSelector.by_tag(tags))
        try:
            for message in islice(_messages(client, positions, read, follow=follow), count):
                _print(message, as_json=as_json)
        finally:
            if commit and group is not None:
                client.commit_offsets(group, positions)


def _messages(
    client: Client, positions: dict[MessageQueue, int], options: ReadOptions, *, follow: bool
) -> Iterator[Message]:
    """Yield messages and keep ``positions`` at the next offset after the last yielded message."""
    from pyspark_rocketmq.client.read.queue_reader import read_messages
    from pyspark_rocketmq.model import OffsetRange

    while True:
        ends = client.max_offsets(positions)
        for queue, end in ends.items():
            if positions[queue] >= end:
                continue
            for message in read_messages(client, [OffsetRange(queue, positions[queue], end)], options):
                positions[queue] = message.queue_offset + 1  # printed counts as consumed, even if last
                yield message
            positions[queue] = end
        if not follow:
            return
        client.clock.sleep(_POLL_S)


def _print(message: Message, *, as_json: bool) -> None:
    if as_json:
        line = json.dumps(message_json(message), ensure_ascii=False)
    elif sys.stdout.isatty():
        where = f"{message.broker_name}:{message.queue_id}@{message.queue_offset}"
        line = (
            f"{timestamp(message.store_timestamp)} {where} {message.tags or ''} {message_text(message.body)}"
        )
    else:
        line = message_text(message.body)
    print(line, flush=True)
