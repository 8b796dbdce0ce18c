"""Tables for notebooks and terminals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from pyspark_rocketmq.client.admin import Admin
from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.groups.group_lag import OnAway, count_messages, group_lag, group_topics, without
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.options import ClientOptions, parse_options

__all__ = ["Shown", "lag", "offsets", "topics"]


@dataclass(frozen=True, slots=True)
class Shown:
    """A table: HTML in a notebook, text elsewhere. Its values are in ``.columns`` and ``.rows``.

    Parameters
    ----------
    title : str
    columns : sequence of str
    rows : sequence of sequences
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in self.rows)
        return (
            f"<table><caption>{escape(self.title)}</caption><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table>"
        )

    def __repr__(self) -> str:
        texts = [list(self.columns), *([_text(value) for value in row] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in texts)
        return "\n".join([self.title, *lines])


def topics(name_server: str, **options: Any) -> Shown:
    """Return the topics with their queues and messages.

    Parameters
    ----------
    name_server : str
    **options
        Client options, such as ``tls`` and ``accessKey``.

    Raises
    ------
    OptionError, NameServerError, TransportError, BrokerError
    """
    with _client(name_server, options) as client:
        held = count_messages(client, Admin(client).topics())
    rows = [
        (topic, ", ".join(sorted({queue.broker_name for queue in queues})), len(queues), sum(queues.values()))
        for topic, queues in held.items()
    ]
    return Shown(f"{len(rows)} topics", ("topic", "brokers", "queues", "messages"), rows)


def lag(name_server: str, group: str, *names: str, **options: Any) -> Shown:
    """Return a group's lag per queue. The title names brokers that do not answer.

    Parameters
    ----------
    name_server, group : str
    *names : str
        The topics. Default: those for which the group has committed offsets.

    Raises
    ------
    RocketMQError
        The group has committed no offsets and no topic is given; or as `topics`.
    """
    away: dict[str, RocketMQError] = {}
    with _client(name_server, options) as client:
        topics = _topics(client, group, names, on_away=away.__setitem__)
        found = group_lag(client, group, topics, on_away=away.__setitem__)
    behind = sum(row.lag for row in found)
    rows = [
        (
            row.queue.topic,
            f"{row.queue.broker_name}:{row.queue.queue_id}",
            row.committed,
            row.max_offset,
            row.lag,
        )
        for row in found
    ]
    columns = ("topic", "queue", "committed", "max", "lag")
    return Shown(f"{group} is {behind:,} messages behind{without(away)}", columns, rows)


def offsets(name_server: str, group: str, *names: str, **options: Any) -> Shown:
    """Return a group's committed offsets and the queues' offsets. Parameters and errors as in `lag`."""
    with _client(name_server, options) as client:
        found = group_lag(client, group, _topics(client, group, names))
    rows = [
        (
            row.queue.topic,
            f"{row.queue.broker_name}:{row.queue.queue_id}",
            row.min_offset,
            row.committed,
            row.max_offset,
        )
        for row in found
    ]
    return Shown(f"offsets of {group}", ("topic", "queue", "min", "committed", "max"), rows)


def _client(name_server: str, options: dict[str, Any]) -> Client:
    return Client(parse_options(ClientOptions, {**options, "nameServer": name_server}))


def _topics(
    client: Client, group: str, names: Sequence[str], *, on_away: OnAway | None = None
) -> Sequence[str]:
    found = names or group_topics(client, group, on_away=on_away)
    if not found:
        raise RocketMQError("the group has committed no offset of any topic: name one", group=group)
    return found


def _text(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return str(value)
        case int():
            return f"{value:,}"
        case bytes() | bytearray():
            return bytes(value).decode(errors="backslashreplace")
        case _:
            return str(value)


def _cell(value: Any) -> str:
    right = ' style="text-align: right"' if isinstance(value, int | float) else ""
    return f"<td{right}>{escape(_text(value))}</td>"
