"""How messages are printed in a terminal and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_rocketmq.cli.message_commands.exact_json import parse_json, write_json
from pyspark_rocketmq.cli.printing import timestamp

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pyspark_rocketmq.model import Message

__all__ = ["message_json", "message_panel", "message_text"]

_HEX_BYTES = 256
_OWN = frozenset({"UNIQ_KEY", "KEYS", "TAGS", "WAIT"})


def message_panel(message: Message) -> RenderableType:
    """Return a message for a terminal: position and times, properties, and the formatted body."""
    from rich.console import Group
    from rich.markup import escape
    from rich.panel import Panel
    from rich.text import Text

    facts = [f"stored {timestamp(message.store_timestamp)}", f"born {timestamp(message.born_timestamp)}"]
    facts += [f"{name} {value}" for name, value in (("tags", message.tags), ("keys", message.keys)) if value]
    if message.reconsume_times:
        facts.append(f"redelivered {message.reconsume_times} times")
    parts: list[RenderableType] = [Text(" · ".join(facts), style="dim")]
    own = {name: value for name, value in message.properties.items() if name not in _OWN}
    if own:
        parts.append(Text(", ".join(f"{name}={value}" for name, value in own.items()), style="cyan"))
    title = f"{message.broker_name}:{message.queue_id} @ {message.queue_offset:,}"
    return Panel(
        Group(*parts, _body(message.body)), title=title, subtitle=escape(message.msg_id),
        title_align="left", subtitle_align="right",
    )  # fmt: skip


def message_text(body: bytes, *, shortened: bool = False) -> str:
    """Return a body as text: UTF-8 as it is, anything else in hexadecimal, which a terminal has shortened."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        if not shortened or len(body) <= _HEX_BYTES:
            return body.hex(" ")
        return f"{body[:_HEX_BYTES].hex(' ')} … {len(body):,} bytes"


def message_json(message: Message) -> dict[str, Any]:
    """Return a message for `write_json`, named as the data source's columns, with a JSON body parsed."""
    return {
        "topic": message.topic,
        "brokerName": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "keys": message.keys,
        "tags": message.tags,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "properties": message.properties,
        "body": _parse(message.body)[1],
    }


def _body(body: bytes) -> RenderableType:
    from rich.highlighter import JSONHighlighter
    from rich.text import Text

    is_json, value = _parse(body)
    if is_json and isinstance(value, dict | list):
        return JSONHighlighter()(Text(write_json(value, pretty=True)))
    return Text(message_text(body, shortened=True))


def _parse(body: bytes) -> tuple[bool, Any]:
    try:
        return True, parse_json(body)
    except (ValueError, RecursionError):
        return False, message_text(body)
