"""``pyspark-rocketmq consume``: print messages as they arrive."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pyspark_rocketmq.cli.connect import Namesrv, Settings, Topic, connect
from pyspark_rocketmq.cli.message_commands.bounds import (
    Queue,
    Start,
    Until,
    UntilBound,
    check_bounds,
    resolve_start,
    select_queues,
)
from pyspark_rocketmq.cli.message_commands.exact_json import write_json
from pyspark_rocketmq.cli.message_commands.isolation import (
    AsIsolation,
    CommitTopic,
    Isolation,
    find_committed,
)
from pyspark_rocketmq.cli.message_commands.messages import message_json, message_text
from pyspark_rocketmq.cli.printing import AsJson, examples, timestamp
from pyspark_rocketmq.errors import OptionError

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client
    from pyspark_rocketmq.client.commits.commit_log import Committed
    from pyspark_rocketmq.client.read.read_options import ReadOptions
    from pyspark_rocketmq.model import Message, MessageQueue

__all__ = ["EXAMPLES", "consume"]

EXAMPLES: Final = examples(
    "consume orders",
    "consume orders --from latest --follow",
    "consume orders --from -10m --tags 'DE || FR' --count 20 --json",
    "consume orders --from group --group billing --commit",
    "consume orders --from 2030-01-31T08:00 --until 2030-01-31T09:00 --grep 'order-0*42'",
    "consume orders --queue broker-a:0 --from offset:1000 --until offset:1010",
)

_POLL_S: Final = 0.2
_SCANNED: Final = 100_000


def consume(
    topic: Topic,
    start: Start = "earliest",
    until: Until = None,
    queue: Queue = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more until Ctrl-C.")] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-c", help="Stop after this number of messages.", min=1)
    ] = None,
    grep: Annotated[
        str | None, typer.Option(help="Only messages whose body matches this regular expression.")
    ] = None,
    scan: Annotated[
        int | None,
        typer.Option(
            help="With --grep: maximum number of messages to search. [100,000; no limit with --follow]",
            min=1,
        ),
    ] = None,
    tags: Annotated[str, typer.Option(help="Only messages with these tags: 'A || B'.")] = "*",
    group: Annotated[
        str | None, typer.Option(help="The consumer group for --from group and --commit.")
    ] = None,
    commit: Annotated[
        bool, typer.Option("--commit", help="At the end, commit the printed messages for the group.")
    ] = False,
    isolation: AsIsolation = Isolation.READ_UNCOMMITTED,
    commit_topic: CommitTopic = None,
    namesrv: Namesrv = None,
    option: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Print a topic's messages, one per line. Stops at the end unless --follow is given.

    Existing messages are printed queue by queue. If the output is not a terminal, a line is the body only;
    with --json it is the whole message. --grep says where to continue if it stops early; if nothing
    matches, the exit code is 1.
    """
    from pyspark_rocketmq.client.read.read_options import ReadOptions
    from pyspark_rocketmq.client.requests import TOOLS_GROUP
    from pyspark_rocketmq.model import MessageSelector

    if group is None and (commit or start.strip().lower() == "group"):
        raise OptionError(f"{'--commit' if commit else '--from group'} needs --group")
    check_bounds(namesrv, option, topic, start=start, until=until, group=group)
    search = _search(grep, scan, follow=follow)
    if search is not None and commit:
        raise OptionError("--commit would commit messages that --grep does not print: give one of them")
    if isolation is Isolation.READ_COMMITTED and (follow or commit):
        raise OptionError(
            f"{'--follow' if follow else '--commit'} goes by offsets, and rows of transactional writes are "
            "read with their commit: leave it out, or use CommittedConsumer"
        )
    printed = 0
    with connect(namesrv, option) as client:
        queues = select_queues(client, topic, queue)
        committed = find_committed(client, topic, queues, isolation, commit_topic)
        positions = resolve_start(client, namesrv, option, queues, start, group=group)
        bound = UntilBound.parse(client, namesrv, option, queues, until)
        read = ReadOptions(consumer_group=group or TOOLS_GROUP, selector=MessageSelector.by_tag(tags))
        grows = topic if follow and queue is None and bound.allows_new_queues else None
        messages = _messages(client, positions, read, bound, follow=follow, grows=grows, decided=committed)
        try:
            for message in islice(messages if search is None else search.matches(messages, positions), count):
                try:
                    _print(message, as_json=as_json)
                except BaseException:
                    positions[message.queue] = message.queue_offset  # its line may not be whole
                    raise
                printed += 1
        finally:
            if commit and group is not None:
                client.commit_offsets(group, positions)
    if search is not None and not printed:
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class _Search:
    """What `--grep` looks for, and in how many messages."""

    pattern: re.Pattern[bytes]
    limit: int | None

    def matches(
        self, messages: Iterable[Message], positions: Mapping[MessageQueue, int]
    ) -> Iterator[Message]:
        """Yield the messages that match; at the limit, say where to continue."""
        from pyspark_rocketmq.tools.checkpoint import offsets_to_json

        for searched, message in enumerate(messages, 1):
            if self.pattern.search(message.body):
                yield message
            if searched == self.limit:
                rest = offsets_to_json(positions)
                said = f"searched {searched:,} messages; to search more, continue with --from '{rest}'"
                print(said, file=sys.stderr)
                return


def _search(grep: str | None, scan: int | None, *, follow: bool) -> _Search | None:
    if grep is None:
        if scan is not None:
            raise OptionError("--scan limits --grep: give both")
        return None
    try:
        pattern = re.compile(grep.encode())
    except re.error as error:
        raise OptionError(f"--grep takes a regular expression: {error}", given=grep) from None
    return _Search(pattern, scan or (None if follow else _SCANNED))


def _messages(
    client: Client,
    positions: dict[MessageQueue, int],
    options: ReadOptions,
    bound: UntilBound,
    *,
    follow: bool,
    grows: str | None,
    decided: Committed | None,
) -> Iterator[Message]:
    """Yield messages and keep ``positions`` at the next offset after the last yielded message.

    Parameters
    ----------
    follow : bool
    grows : str, optional
        The topic whose new queues are read, too, from their first message. The route is asked for again
        every `routeRefreshMs`.

    Raises
    ------
    DataLossError
        A queue ends before the messages that were read.
    """
    from pyspark_rocketmq.client.read.queue_reader import read_messages
    from pyspark_rocketmq.model import OffsetRange

    before: Mapping[MessageQueue, int] = {}
    while True:
        now_ms = client.clock.now_ms()
        if grows is not None:
            new = [queue for queue in client.read_queues(grows) if queue not in positions]
            positions |= client.min_offsets(new)
        newest = client.max_offsets(list(positions))
        _check_ends(positions, before, newest)
        before = newest
        for queue, end in bound.limit(client, newest).items():
            if positions[queue] >= end:
                continue
            left = [OffsetRange(queue, positions[queue], end)]
            for message in read_messages(client, left, options, decided=decided):
                positions[queue] = message.queue_offset + 1  # printed counts as consumed, even if last
                yield message
            positions[queue] = end
        if not follow or bound.reached(positions, now_ms=now_ms):
            return
        client.clock.sleep(_POLL_S)


def _check_ends(
    positions: Mapping[MessageQueue, int],
    before: Mapping[MessageQueue, int],
    newest: Mapping[MessageQueue, int],
) -> None:
    """Raise a DataLossError if a queue ends before what was read: new messages would be left out silently.

    A start beyond the end that the queue had ``before`` is waited for.
    """
    from pyspark_rocketmq.errors import DataLossError

    for queue, position in positions.items():
        if newest[queue] < position <= before.get(queue, 0):
            raise DataLossError(
                f"the queue ends at {newest[queue]}, but was read up to {position}: the topic was created "
                "again, or its broker has lost messages. Run the command again to read it from --from",
                condition="OFFSET_WENT_BACK",
                queue=str(queue),
            )


def _print(message: Message, *, as_json: bool) -> None:
    if as_json:
        line = write_json(message_json(message))
    elif sys.stdout.isatty():
        where = f"{message.broker_name}:{message.queue_id}@{message.queue_offset}"
        body = message_text(message.body, shortened=True)
        line = f"{timestamp(message.store_timestamp)} {where} {message.tags or ''} {body}"
    else:
        line = message_text(message.body)
    print(line, flush=True)
