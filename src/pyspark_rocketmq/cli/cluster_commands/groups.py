"""``pyspark-rocketmq groups`` and ``lag``: consumer groups and their lag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pyspark_rocketmq.cli.connect import Group, Namesrv, Settings, connect
from pyspark_rocketmq.cli.printing import (
    AsJson,
    console,
    examples,
    name_queue,
    print_json,
    print_table,
    show_offset,
    table,
    timestamp,
    warn_of,
)
from pyspark_rocketmq.errors import OptionError, RocketMQError, RouteError

if TYPE_CHECKING:
    from rich.table import Table

    from pyspark_rocketmq.client.client import Client
    from pyspark_rocketmq.client.groups.group_lag import GroupPosition, OnAway
    from pyspark_rocketmq.model import MessageQueue

__all__ = ["GROUPS_EXAMPLES", "LAG_EXAMPLES", "groups", "lag", "topics_of", "unknown_group"]

GROUPS_EXAMPLES: Final = examples("groups", "groups --json")
LAG_EXAMPLES: Final = examples(
    "lag billing", "lag billing --topic orders --watch", "lag billing --max 10000 --json"
)


def groups(
    namesrv: Namesrv = None,
    option: Settings = None,
    system: Annotated[bool, typer.Option("--system", help="Include RocketMQ's internal groups.")] = False,
    json: AsJson = False,
) -> None:
    """List the consumer groups of the brokers."""
    from pyspark_rocketmq.client.admin import Admin

    away: dict[str, RocketMQError] = {}
    with connect(namesrv, option) as client:
        found = Admin(client).groups(include_system=system, on_away=away.__setitem__)
    warn_of(away)
    if json:
        print_json(list(found.values()))
        return
    print_table(
        ("Group", "May consume", "Broadcast", "Orderly", "Retries"),
        [
            (
                group.group,
                group.consume_enable,
                group.consume_broadcast_enable,
                group.consume_message_orderly,
                group.retry_max_times,
            )
            for group in found.values()
        ],
    )


def lag(
    group: Group,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="Only these topics; repeatable.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(help="Seconds between refreshes.", min=0.1)] = 2.0,
    most: Annotated[
        int | None, typer.Option("--max", help="Exit code 1 if the lag is larger, for alerts.", min=0)
    ] = None,
    namesrv: Namesrv = None,
    option: Settings = None,
    json: AsJson = False,
) -> None:
    """Show a consumer group's lag per queue.

    With --max, exit code 1 if the group has more messages to read, or a broker does not answer.
    """
    from pyspark_rocketmq.client.groups.group_lag import group_lag

    if watch and most is not None:
        raise OptionError("--max checks once: remove --watch")
    if watch and json:
        raise OptionError("--json prints once: remove --watch")
    away: dict[str, RocketMQError] = {}
    with connect(namesrv, option) as client:
        names = topics_of(client, group, topic, on_away=away.__setitem__)
        if watch:
            _watch(client, group, names, interval)
            return
        rows = group_lag(client, group, names, on_away=away.__setitem__)
    if json:
        print_json(
            {
                "group": group,
                "lag": sum(row.lag for row in rows),
                "queues": [_plain(row) for row in rows],
                "away": sorted(away),
            }
        )
    else:
        console().print(_table(group, rows, {}, away, client.clock.now_ms()))
    if most is not None and (away or sum(row.lag for row in rows) > most):
        raise typer.Exit(1)


def topics_of(
    client: Client, group: str, topics: Sequence[str] | None, *, on_away: OnAway | None = None
) -> tuple[str, ...]:
    """Return the given topics, or those for which the group has committed offsets.

    Raises
    ------
    RocketMQError
        The group has committed no offsets.
    """
    from pyspark_rocketmq.client.groups.group_lag import group_topics

    names = tuple(topics or ()) or group_topics(client, group, on_away=on_away)
    if not names:
        stranger = unknown_group(client, group) or f"the group {group} exists"
        raise RocketMQError(
            f"{stranger}; it has committed no offset of any topic: name one with --topic, or look for the "
            "group's name with `pyspark-rocketmq groups`",
            group=group,
        )
    return names


def unknown_group(client: Client, group: str) -> str | None:
    """Return the fact that the brokers do not know a group, with near names; None if they know it."""
    from pyspark_rocketmq.client.admin import Admin
    from pyspark_rocketmq.model.names import suggest_names

    known = Admin(client).groups(include_system=True)
    if group in known:
        return None
    meant = suggest_names(group, known)
    return f"the group {group} does not exist" + (f" ({meant})" if meant else "")


def _watch(client: Client, group: str, topics: Sequence[str], interval_s: float) -> None:
    from rich.live import Live
    from rich.text import Text

    from pyspark_rocketmq.client.groups.group_lag import group_lag

    with Live(console=console(), auto_refresh=False) as live:
        before: dict[MessageQueue, int] = {}
        looked_s = client.clock.monotonic()
        while True:
            away: dict[str, RocketMQError] = {}
            try:
                rows = group_lag(client, group, topics, on_away=away.__setitem__)
            except RocketMQError as error:
                if not (error.retriable or isinstance(error, RouteError)):
                    raise
                live.update(Text(f"{timestamp(client.clock.now_ms())} error: {error}"), refresh=True)
                client.clock.sleep(interval_s)
                continue
            seconds = client.clock.monotonic() - looked_s
            looked_s += seconds
            rates = {
                row.queue: ((row.committed or 0) - before[row.queue]) / seconds
                for row in rows
                if row.queue in before
            }
            before = {row.queue: row.committed or 0 for row in rows}
            live.update(_table(group, rows, rates, away, client.clock.now_ms()), refresh=True)
            client.clock.sleep(interval_s)


def _table(
    group: str,
    rows: Sequence[GroupPosition],
    rates: dict[MessageQueue, float],
    away: Mapping[str, RocketMQError],
    now_ms: int,
) -> Table:
    from pyspark_rocketmq.client.groups.group_lag import without

    return table(
        ("Topic", "Queue", "Committed", "Max", "Lag", "Behind", *(("Consumed/s",) if rates else ())),
        [
            (
                row.queue.topic,
                name_queue(row.queue),
                show_offset(row.committed),
                row.max_offset,
                row.lag,
                _behind(row, now_ms),
                *((round(rates.get(row.queue, 0.0)),) if rates else ()),
            )
            for row in rows
        ],
        title=f"{group} is {sum(row.lag for row in rows):,} messages behind{without(away)}",
        right=("Committed", "Behind"),
    )


def _behind(row: GroupPosition, now_ms: int) -> str:
    """Return the age of the last consumed message, if there is more to consume."""
    if not row.lag or not row.consumed_timestamp:
        return ""
    seconds = max(0, (now_ms - row.consumed_timestamp) // 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"


def _plain(row: GroupPosition) -> dict[str, object]:
    return {
        "topic": row.queue.topic,
        "brokerName": row.queue.broker_name,
        "queueId": row.queue.queue_id,
        "committed": row.committed,
        "minOffset": row.min_offset,
        "maxOffset": row.max_offset,
        "lag": row.lag,
        "consumedTimestamp": row.consumed_timestamp,
    }
