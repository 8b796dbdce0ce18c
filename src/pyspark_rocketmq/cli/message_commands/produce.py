"""``pyspark-rocketmq produce``: send lines as messages."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pyspark_rocketmq.cli.connect import Namesrv, Settings, Topic, connect, pairs
from pyspark_rocketmq.cli.printing import AsJson, examples, print_json
from pyspark_rocketmq.errors import OptionError

if TYPE_CHECKING:
    from pyspark_rocketmq.client.send.producer import Producer
    from pyspark_rocketmq.client.send.send_pipeline import SendOutcome
    from pyspark_rocketmq.model import OutgoingMessage
    from pyspark_rocketmq.tools.transfer.pace import Pace

__all__ = ["EXAMPLES", "produce"]

EXAMPLES: Final = examples(
    "produce greetings <<< 'hello'",
    "produce orders --file orders.txt --tags new --rate 100",
    'produce orders --jsonl <<< \'{"body": {"id": 1}, "keys": "1", "tags": "new"}\'',
)

_FIELDS: Final = frozenset({"body", "tags", "keys", "properties", "shardingKey"})


def produce(
    topic: Topic,
    file: Annotated[str, typer.Option(help="File with one message per line; - is standard input.")] = "-",
    jsonl: Annotated[
        bool,
        typer.Option(
            "--jsonl",
            help="Lines are JSON objects: body, and optionally tags, keys, properties, shardingKey.",
        ),
    ] = False,
    tags: Annotated[str | None, typer.Option(help="The tag of every message.")] = None,
    keys: Annotated[str | None, typer.Option(help="The keys of every message.")] = None,
    prop: Annotated[
        list[str] | None, typer.Option("--property", "-p", help="A property, name=value; repeatable.")
    ] = None,
    rate: Annotated[float, typer.Option(help="Maximum messages per second; 0 for no limit.", min=0)] = 0,
    namesrv: Namesrv = None,
    option: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Send each line of a file or of standard input as a message. Empty lines are skipped.

    If a send fails, the command ends with exit code 1. Messages sent before stay sent.
    """
    from pyspark_rocketmq.client.send.producer import Producer
    from pyspark_rocketmq.tools.transfer.pace import Pace

    properties = pairs(prop)
    with contextlib.ExitStack() as resources:
        lines = resources.enter_context(_lines(file))
        client = resources.enter_context(connect(namesrv, option))
        pace = Pace(rate, client.clock)
        client.route(topic)  # reports a missing topic before anything is read
        messages = (
            _message(topic, line, number, jsonl=jsonl, tags=tags, keys=keys, properties=properties)
            for number, line in enumerate(_show(lines, file), 1)
            if line.strip()
        )
        sent = _send(Producer(client), _pace(messages, pace))
    if as_json:
        print_json({"topic": topic, "sent": sent})
    else:
        typer.echo(f"{sent:,} messages sent to {topic}")


def _send(producer: Producer, messages: Iterable[OutgoingMessage]) -> int:
    from pyspark_rocketmq.client.send.message_encoding import encode_one
    from pyspark_rocketmq.client.send.send_pipeline import SendPipeline

    sent = 0
    with SendPipeline(producer) as pipeline:
        for message in messages:
            outgoing = encode_one(message, producer.ids)
            sent += _check(pipeline.submit(outgoing, key=message.sharding_key))
        return sent + _check(pipeline.flush())


def _check(outcomes: list[SendOutcome]) -> int:
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    return len(outcomes)


def _message(
    topic: str,
    line: str,
    number: int,
    *,
    jsonl: bool,
    tags: str | None,
    keys: str | None,
    properties: dict[str, str],
) -> OutgoingMessage:
    from pyspark_rocketmq.model import OutgoingMessage

    if not jsonl:
        return OutgoingMessage(topic, line.encode(), tags=tags, keys=keys or (), properties=properties)
    try:
        given: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"the line is not JSON: {error}", line=number) from None
    if not isinstance(given, dict) or "body" not in given or not given.keys() <= _FIELDS:
        raise OptionError(
            f"a line is an object with body and any of {', '.join(sorted(_FIELDS))}", line=number
        )
    _check_parts(given, number)
    try:
        body = _text(given["body"]).encode()
    except UnicodeEncodeError as error:
        raise OptionError(f"the body cannot be written as UTF-8: {error.reason}", line=number) from None
    own = given.get("properties", {})
    return OutgoingMessage(
        topic,
        body,
        tags=given.get("tags", tags),
        keys=given.get("keys", keys) or (),
        properties=properties | {name: _text(value) for name, value in own.items() if value is not None},
        sharding_key=given.get("shardingKey"),
    )


def _text(value: Any) -> str:
    """Return a text as it is, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _check_parts(given: Mapping[str, Any], number: int) -> None:
    """Raise an error if a field that must be text is not."""
    texts = [given.get("tags"), given.get("shardingKey")]
    keys = given.get("keys")
    texts += keys if isinstance(keys, list) else [keys]
    if not all(text is None or isinstance(text, str) for text in texts):
        raise OptionError("tags, keys and shardingKey are texts, keys may be a list of them", line=number)
    if not isinstance(given.get("properties", {}), dict):
        raise OptionError("properties are an object", line=number)


@contextlib.contextmanager
def _lines(file: str) -> Iterator[Iterator[str]]:
    try:
        # Reads standard input's own buffer, so that each line of a slow pipe is sent immediately.
        source = io.TextIOWrapper(sys.stdin.buffer, "utf-8") if file == "-" else open(file, encoding="utf-8")  # noqa: PTH123, SIM115
    except OSError as error:
        raise OptionError(f"the file cannot be read: {error.strerror}", file=file) from error
    with source:
        yield _decode(source, file)


def _decode(source: Iterable[str], file: str) -> Iterator[str]:
    try:
        for line in source:
            yield line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise OptionError(f"the lines are not UTF-8: {error.reason}", file=file) from error
    except OSError as error:  # a folder can be opened, but not read
        raise OptionError(f"the file cannot be read: {error.strerror}", file=file) from error


def _pace(messages: Iterable[OutgoingMessage], pace: Pace) -> Iterator[OutgoingMessage]:
    for message in messages:
        pace.wait()
        yield message


def _show(lines: Iterable[str], file: str) -> Iterator[str]:
    """Count the lines that pass, unless a person types them. A file's size gives the total."""
    from pyspark_rocketmq.cli.progress import progress

    if file == "-" and sys.stdin.isatty():
        yield from lines
        return
    total = None if file == "-" else Path(file).stat().st_size
    unit = "messages" if total is None else "bytes"
    with progress("sending", total=total, unit=unit) as advance:
        for line in lines:
            yield line
            advance(1 if total is None else len(line.encode()) + 1)
