"""``pyspark-rocketmq replay``: send retry and dead-letter messages again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from pyspark_rocketmq.cli.connect import Namesrv, Settings, connect
from pyspark_rocketmq.cli.message_commands.messages import message_text
from pyspark_rocketmq.cli.printing import AsJson, console, examples, print_json, print_table, timestamp
from pyspark_rocketmq.cli.times import moment
from pyspark_rocketmq.tools.origins import Origin

if TYPE_CHECKING:
    from pyspark_rocketmq.tools.replay import Replay

__all__ = ["EXAMPLES", "replay"]

EXAMPLES: Final = examples(
    "replay billing",
    "replay billing --since -1d --tag refund --yes",
    "replay billing --from retry --to orders-repaired --limit 100 --yes",
    "replay billing --make-readable",
)

_SHOWN: Final = 20
_BODY_CHARACTERS: Final = 60


def replay(
    group: Annotated[str, typer.Argument(help="The consumer group.")],
    origin: Annotated[
        Origin, typer.Option("--from", help="The group's dead-letter topic or its retry topic.")
    ] = Origin.DLQ,
    to: Annotated[
        str | None, typer.Option(help="The topic to send to. [each message's original topic]")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only messages with this tag; repeatable.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="Only messages with this key; repeatable.")] = None,
    topic: Annotated[str | None, typer.Option(help="Only messages originally sent to this topic.")] = None,
    since: Annotated[
        str | None, typer.Option(help="Only messages stored at or after a time, or a time ago (-2h).")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Only messages stored before a time.")] = None,
    text: Annotated[str | None, typer.Option(help="Only messages whose body contains this text.")] = None,
    limit: Annotated[int | None, typer.Option(help="Maximum number of messages.", min=1)] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Send the messages. Without it the command only lists them.")
    ] = False,
    readable: Annotated[
        bool, typer.Option("--make-readable", help="First give the group's topic read permission.")
    ] = False,
    namesrv: Namesrv = None,
    option: Settings = None,
    json: AsJson = False,
) -> None:
    """Resend messages that a group's consumers could not process. A dry run unless --yes is given.

    The originals stay: a second run sends them again. A resent message has the property `replayOf` with the
    original message's id.
    """
    from pyspark_rocketmq.tools.replay import ReplayFilter, find_replays, make_readable, send_replays

    with connect(namesrv, option) as client:
        now_ms = client.clock.now_ms()
        chosen = ReplayFilter(
            tags=frozenset(tag or ()),
            keys=frozenset(key or ()),
            topic=topic,
            since_ms=None if since is None else moment("--since", since, now_ms),
            until_ms=None if until is None else moment("--until", until, now_ms),
            text=text,
            limit=limit,
        )
        if readable:
            make_readable(client, group, origin)
        found = find_replays(client, group, origin, chosen, to=to)
        sent = sum(1 for _ in send_replays(client, found)) if yes else 0
    if json:
        print_json({"found": len(found), "sent": sent, "messages": [_plain(each) for each in found]})
        return
    print_table(
        ("Stored", "To", "Tag", "Keys", "Redelivered", "Body"),
        [
            (
                timestamp(each.message.store_timestamp),
                each.topic,
                each.message.tags,
                each.message.keys,
                each.message.reconsume_times,
                message_text(each.message.body)[:_BODY_CHARACTERS],
            )
            for each in found[:_SHOWN]
        ],
    )
    if len(found) > _SHOWN:
        console().print(f"and {len(found) - _SHOWN:,} more")
    said = f"{sent:,} messages sent" if yes else f"{len(found):,} messages to send: send them with --yes"
    console().print(said)


def _plain(each: Replay) -> dict[str, object]:
    message = each.message
    return {"msgId": message.msg_id, "to": each.topic, "tags": message.tags, "keys": message.keys}
