"""``pyspark-rocketmq produce``: send lines as messages."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pyspark_rocketmq.cli.connect import Namesrv, Settings, Topic, connect, pairs
from pyspark_rocketmq.cli.message_commands.exact_json import parse_json, write_json
from pyspark_rocketmq.cli.printing import AsJson, examples, print_json
from pyspark_rocketmq.errors import OptionError, RocketMQError

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

    Without --jsonl, a line may have any bytes. If a line is no message or a send fails, the command says how
    many messages were sent before; they stay sent.
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
    """Return the number of messages that brokers have stored, which an error has as ``acknowledged``."""
    from pyspark_rocketmq.client.send.message_encoding import encode_one
    from pyspark_rocketmq.client.send.send_pipeline import SendPipeline

    sent = 0
    error: RocketMQError | None = None
    with SendPipeline(producer) as pipeline:
        try:
            for message in messages:
                outgoing = encode_one(message, producer.ids)
                outcomes = pipeline.submit(outgoing, key=message.sharding_key)
                sent += _stored(outcomes)
                if error := _failure(outcomes):
                    break
        except RocketMQError as wrong:  # a line that is no message: those before it are sent
            error = wrong
        last = pipeline.flush()
        sent += _stored(last)
        error = error or _failure(last)
    if error:
        raise error.with_facts(acknowledged=sent)
    return sent


def _stored(outcomes: Sequence[SendOutcome]) -> int:
    return sum(outcome.error is None for outcome in outcomes)


def _failure(outcomes: Sequence[SendOutcome]) -> RocketMQError | None:
    return next((outcome.error for outcome in outcomes if outcome.error), None)


def _message(
    topic: str,
    line: bytes,
    number: int,
    *,
    jsonl: bool,
    tags: str | None,
    keys: str | None,
    properties: dict[str, str],
) -> OutgoingMessage:
    from pyspark_rocketmq.model import OutgoingMessage

    if not jsonl:
        return OutgoingMessage(topic, line, tags=tags, keys=keys or (), properties=properties)
    try:
        given: Any = parse_json(line)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"the line is not JSON: {error}", line=number) from None
    if not isinstance(given, dict) or "body" not in given or not given.keys() <= _FIELDS:
        raise OptionError(
            f"a line is an object with body and any of {', '.join(sorted(_FIELDS))}", line=number
        )
    if given["body"] is None:
        raise OptionError("the body is null, which no message has", line=number)
    _check_parts(given, number)
    try:
        body = _text(given["body"]).encode()
    except UnicodeEncodeError as error:
        raise OptionError(f"the body cannot be written as UTF-8: {error.reason}", line=number) from None
    own = given.get("properties") or {}
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
    return value if isinstance(value, str) else write_json(value)


def _check_parts(given: Mapping[str, Any], number: int) -> None:
    """Raise an error if a field that must be text is not."""
    texts = [given.get("tags"), given.get("shardingKey")]
    keys = given.get("keys")
    texts += keys if isinstance(keys, list) else [keys]
    if not all(text is None or isinstance(text, str) for text in texts):
        raise OptionError("tags, keys and shardingKey are texts, keys may be a list of them", line=number)
    if not isinstance(given.get("properties"), dict | None):
        raise OptionError("properties are an object", line=number)


@contextlib.contextmanager
def _lines(file: str) -> Iterator[Iterator[bytes]]:
    try:
        # Standard input's own buffer, so that each line of a slow pipe is sent immediately.
        source = sys.stdin.buffer if file == "-" else open(file, "rb")  # noqa: PTH123, SIM115
    except OSError as error:
        raise _unreadable(file, error) from error
    with source:
        yield _without_ends(source, file)


def _without_ends(source: Iterable[bytes], file: str) -> Iterator[bytes]:
    try:
        for line in source:
            yield line.removesuffix(b"\n").removesuffix(b"\r")
    except OSError as error:  # a folder can be opened, but not read
        raise _unreadable(file, error) from error


def _unreadable(file: str, error: OSError) -> OptionError:
    return OptionError(f"the file cannot be read: {error.strerror}", file=file)


def _pace(messages: Iterable[OutgoingMessage], pace: Pace) -> Iterator[OutgoingMessage]:
    for message in messages:
        pace.wait()
        yield message


def _show(lines: Iterable[bytes], file: str) -> Iterator[bytes]:
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
            advance(1 if total is None else len(line) + 1)
