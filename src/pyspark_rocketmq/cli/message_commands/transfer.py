"""``pyspark-rocketmq export`` and ``import``: a topic's messages as a file, and back."""

from __future__ import annotations

import contextlib
import enum
import io
import os
import secrets
import stat
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pyspark_rocketmq.cli.connect import Namesrv, Settings, Topic, connect
from pyspark_rocketmq.cli.message_commands.bounds import (
    Queue,
    Start,
    Until,
    check_bounds,
    find_ranges,
    select_queues,
)
from pyspark_rocketmq.cli.message_commands.isolation import (
    AsIsolation,
    CommitTopic,
    Isolation,
    find_committed,
)
from pyspark_rocketmq.cli.message_commands.sent import tell_sent
from pyspark_rocketmq.cli.printing import AsJson, examples, name_queue, print_json, print_table
from pyspark_rocketmq.errors import OptionError

if TYPE_CHECKING:
    from pyspark_rocketmq.cli.progress import Advance
    from pyspark_rocketmq.model import Message
    from pyspark_rocketmq.tools.transfer.message_files import FileMessage

__all__ = ["EXPORT_EXAMPLES", "IMPORT_EXAMPLES", "export", "import_"]

EXPORT_EXAMPLES: Final = examples(
    "export orders > orders.jsonl",
    "export orders --from -1d --until -1h --file orders.parquet",
    "export orders --isolation read_committed --file orders.jsonl",
    "export orders --profile production | pyspark-rocketmq import orders --profile laptop --yes",
)
IMPORT_EXAMPLES: Final = examples(
    "import orders --file orders.parquet",
    "import orders-copy --file orders.jsonl --rate 500 --yes",
)


class _Format(enum.Enum):
    JSONL = "jsonl"
    PARQUET = "parquet"


File = Annotated[str, typer.Option("--file", help="The file; - is standard output or input.")]
AsFormat = Annotated[
    _Format | None,
    typer.Option("--format", help="[parquet for a file that ends with .parquet, else jsonl]"),
]


def export(
    topic: Topic,
    file: File = "-",
    as_format: AsFormat = None,
    start: Start = "earliest",
    until: Until = None,
    queue: Queue = None,
    tags: Annotated[str, typer.Option(help="Only messages with these tags: 'A || B'.")] = "*",
    isolation: AsIsolation = Isolation.READ_UNCOMMITTED,
    commit_topic: CommitTopic = None,
    namesrv: Namesrv = None,
    option: Settings = None,
    json: AsJson = False,
) -> None:
    """Write a topic's messages to a file as JSON lines or Parquet, queue by queue. Consumes nothing.

    A record has the message's position, times, keys, tag, flag, properties and body. In JSON, a body that is
    not UTF-8 is in base64. Messages that arrive meanwhile are not exported.
    """
    from pyspark_rocketmq.cli.progress import progress
    from pyspark_rocketmq.client.read.queue_reader import read_messages
    from pyspark_rocketmq.client.read.read_options import ReadOptions
    from pyspark_rocketmq.client.requests import TOOLS_GROUP
    from pyspark_rocketmq.model import MessageSelector

    kind = _format_of(file, as_format)
    if json and file == "-":
        raise OptionError("--json reports about a file: give --file")
    if file != "-" and Path(file).is_dir():  # also of no name
        raise OptionError("a directory cannot be written: give the name of a file", file=file)
    check_bounds(namesrv, option, topic, start=start, until=until)
    read = ReadOptions(consumer_group=TOOLS_GROUP, selector=MessageSelector.by_tag(tags))
    with connect(namesrv, option) as client:
        chosen = select_queues(client, topic, queue)
        committed = find_committed(client, topic, chosen, isolation, commit_topic)
        ranges = find_ranges(client, namesrv, option, topic, start=start, until=until, queues=queue)
        total = sum(each.until_offset - each.from_offset for each in ranges)
        with progress("exporting", total=total) as advance:
            # One queue after the other, so that each queue's order is the file's.
            messages = (
                message
                for each in ranges
                for message in read_messages(client, [each], read, decided=committed)
            )
            count = _write(_counted(messages, advance), file, kind)
    if json:
        print_json({"topic": topic, "exported": count, "file": file})
    else:
        print(f"{count:,} messages of {topic} exported", file=sys.stderr)


def import_(
    topic: Topic,
    file: File = "-",
    as_format: AsFormat = None,
    rate: Annotated[float, typer.Option(help="Maximum messages per second; 0 for no limit.", min=0)] = 0,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Send the messages. Without it the command only counts them.")
    ] = False,
    namesrv: Namesrv = None,
    option: Settings = None,
    json: AsJson = False,
) -> None:
    """Send the messages of an exported file to a topic. A dry run unless --yes is given.

    Messages of one queue go to one queue, in their order; a topic with the same number of queues gets them as
    they were. Bodies, tags, keys, flags and properties are kept; ids and times are new. After a failure, a
    second run sends the messages again.
    """
    from pyspark_rocketmq.cli.progress import progress
    from pyspark_rocketmq.tools.transfer.pace import Pace
    from pyspark_rocketmq.tools.transfer.sending import count_queues, map_queues, send_messages

    kind = _format_of(file, as_format)
    with contextlib.ExitStack() as resources:
        path = resources.enter_context(_kept(file))
        client = resources.enter_context(connect(namesrv, option))
        targets = client.write_queues(topic)
        if not targets:
            raise OptionError("no queue of the topic can be written", topic=topic)
        counts = count_queues(_read(path, kind, file))  # all of the file, before anything is sent
        queues = map_queues(counts, targets)
        total, sent = sum(counts.values()), 0
        if yes:
            with progress("sending", total=total) as advance, tell_sent() as done:
                # What was checked: a program may be appending to the file.
                messages, pace = islice(_read(path, kind, file), total), Pace(rate, client.clock)
                for stored in send_messages(client, messages, queues, pace):
                    done.messages += stored
                    advance(stored)
            sent = done.messages
            if sent != total:
                raise OptionError(
                    f"the file became shorter meanwhile: {sent:,} messages were sent", file=file
                )
    if json:
        print_json({"topic": topic, "found": total, "sent": sent})
        return
    print_table(
        ("From", "To", "Messages"),
        [
            (f"{broker}:{queue_id}", name_queue(queues[broker, queue_id]), count)
            for (broker, queue_id), count in counts.items()
        ],
    )
    said = (
        f"{sent:,} messages sent to {topic}" if yes else f"{total:,} messages to send: send them with --yes"
    )
    typer.echo(said)


def _format_of(file: str, given: _Format | None) -> _Format:
    found = given or (_Format.PARQUET if file.endswith(".parquet") else _Format.JSONL)
    if found is _Format.PARQUET and file == "-":
        raise OptionError("Parquet needs a file: give --file")
    return found


def _counted(messages: Iterable[Message], advance: Advance) -> Iterator[Message]:
    for message in messages:
        yield message
        advance(1)


def _write(messages: Iterable[Message], file: str, kind: _Format) -> int:
    """Write to a file beside the named one, which replaces that at the end: a file is whole or not there."""
    from pyspark_rocketmq.tools.transfer.message_files import write_jsonl, write_parquet

    try:
        if file == "-":
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(encoding="utf-8")  # whatever the terminal's is
            count = write_jsonl(messages, sys.stdout)
            sys.stdout.flush()
            return count
        with _replacing(Path(file)) as path:
            if kind is _Format.PARQUET:
                return write_parquet(messages, path)
            with path.open("w", encoding="utf-8") as out:
                return write_jsonl(messages, out)
    except BrokenPipeError:  # the reader has enough
        raise
    except OSError as error:
        raise OptionError(f"the file cannot be written: {error.strerror}", file=file) from error


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Return a new file, which replaces the named one at the end and has its permissions.

    A device or a pipe cannot be replaced: it is written itself.
    """
    old = path.stat() if path.exists() else None
    if old is not None and not stat.S_ISREG(old.st_mode):
        yield path
        return
    path = Path(os.path.realpath(path))  # a link stays a link
    part = path.with_name(f".{secrets.token_hex(8)}.part")
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if old is None else 0o600))
    try:
        yield part
        if old is not None:
            part.chmod(stat.S_IMODE(old.st_mode))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def _kept(file: str) -> Iterator[Path]:
    """Return the path of the file. It is read twice, so a pipe is copied to a temporary file."""
    import shutil
    import tempfile

    path = Path(file)
    if file != "-" and (path.is_file() or path.is_dir() or not path.exists()):
        yield path
        return
    with contextlib.ExitStack() as resources:
        try:
            copy = Path(resources.enter_context(tempfile.TemporaryDirectory())) / "messages"
            source = sys.stdin.buffer if file == "-" else resources.enter_context(path.open("rb"))
            with copy.open("xb") as out:  # closed when it is read: Windows opens no file twice
                shutil.copyfileobj(source, out)
        except OSError as error:
            raise OptionError(
                f"the input cannot be copied to {tempfile.gettempdir()} ($TMPDIR): {error.strerror}",
                file=file,
            ) from error
        yield copy


def _read(path: Path, kind: _Format, name: str) -> Iterator[FileMessage]:
    from pyspark_rocketmq.tools.transfer.message_files import read_jsonl, read_parquet

    if kind is _Format.PARQUET:
        yield from read_parquet(path)
        return
    try:
        with path.open("rb") as raw, io.TextIOWrapper(raw, "utf-8-sig") as lines:
            yield from read_jsonl(lines, name)
    except UnicodeDecodeError as error:
        raise OptionError(f"the lines are not UTF-8: {error.reason}", file=name) from error
    except OSError as error:
        raise OptionError(f"the file cannot be read: {error.strerror}", file=name) from error
