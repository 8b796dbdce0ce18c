"""Single messages of many queues: their times, and the size of a sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from pyspark_rocketmq.client import requests as broker
from pyspark_rocketmq.client.net.connection import Response
from pyspark_rocketmq.client.net.pipelining import Call
from pyspark_rocketmq.client.read.pull_answer import queue_is_gone
from pyspark_rocketmq.errors import CorruptMessageError
from pyspark_rocketmq.model import MessageQueue, MessageSelector, PullStatus
from pyspark_rocketmq.record.decode.times import RecordTimes, first_times

__all__ = ["Asks", "MessageTimes", "message_sizes", "message_times", "served", "stored_at"]

T = TypeVar("T")

_ALL: Final = MessageSelector()
_SAMPLE: Final = 32
"""Messages in a sample: as many as a broker returns in one pull by default."""


class Asks(Protocol):
    """Makes the calls, as `Client` does."""

    def ask(self, calls: Mapping[MessageQueue, Call[T]], /) -> dict[MessageQueue, T]:
        """Make one call per queue and return every answer, or raise an error."""
        ...


@dataclass(frozen=True, slots=True)
class MessageTimes:
    """When a message was born and stored, in milliseconds since the epoch."""

    born_timestamp: int
    store_timestamp: int


def message_times(
    client: Asks, offsets: Mapping[MessageQueue, int], *, group: str
) -> dict[MessageQueue, MessageTimes]:
    """Return the times of the messages at these offsets, requested from all queues in parallel.

    Of an offset that has expired, has no message, or has one that breaks the layout of records, the times are
    those of the next message. A queue without one is omitted. Raises as the client does.
    """
    todo = dict(offsets)
    times: dict[MessageQueue, MessageTimes] = {}
    while todo:  # an answer passes some hundred offsets without a message, and there may be thousands
        found = client.ask({queue: _look(queue, offset, group) for queue, offset in todo.items()})
        times |= {
            queue: MessageTimes(seen.born_timestamp, seen.store_timestamp)
            for queue, seen in found.items()
            if isinstance(seen, RecordTimes)
        }
        todo = {q: seen for q, seen in found.items() if isinstance(seen, int) and seen > todo[q]}
    return times


def stored_at(client: Asks, offsets: Mapping[MessageQueue, int], *, group: str) -> dict[MessageQueue, int]:
    """Return when the messages at exactly these offsets were stored, in milliseconds since the epoch.

    A queue without a message there (any more) is left out. Raises as the client does.
    """
    found = client.ask({queue: _look(queue, offset, group) for queue, offset in offsets.items()})
    return {
        queue: seen.store_timestamp
        for queue, seen in found.items()
        if isinstance(seen, RecordTimes) and seen.queue_offset <= offsets[queue]
    }


def message_sizes(
    client: Asks, offsets: Mapping[MessageQueue, int], *, group: str, selector: MessageSelector
) -> dict[MessageQueue, int]:
    """Return the average number of bytes per offset, in a sample at these offsets.

    Counts the bytes of answers: headers, properties, and bodies as they are stored, possibly compressed.
    Messages that the selector rejects count as 0. A queue without an answer is omitted. Raises as the client
    does.
    """
    calls = {queue: _weigh(queue, offset, group, selector) for queue, offset in offsets.items()}
    return {queue: size for queue, size in client.ask(calls).items() if size is not None}


def served(client: Asks, offsets: Mapping[MessageQueue, int], *, group: str) -> frozenset[MessageQueue]:
    """Return the queues of which brokers return messages from these offsets on.

    The others are beyond the number of read queues, or do not exist. Raises as the client does.
    """
    found = client.ask({queue: _probe(queue, offset, group) for queue, offset in offsets.items()})
    return frozenset(queue for queue, is_served in found.items() if is_served)


def _probe(queue: MessageQueue, offset: int, group: str) -> Call[bool]:
    look = broker.pull(queue, offset, group=group, max_nums=1, selector=_ALL)

    def parse(response: Response) -> bool:
        if queue_is_gone(response):
            return False
        look.parse(response)
        return True

    return Call(look.request, parse)


def _look(queue: MessageQueue, offset: int, group: str) -> Call[RecordTimes | int]:
    """Return the call that answers the times of the first record there, or where to look instead."""
    look = broker.pull(queue, offset, group=group, max_nums=1, selector=_ALL)

    def parse(response: Response) -> RecordTimes | int:
        answer = look.parse(response)
        if answer.status is not PullStatus.FOUND:
            return answer.header.next_begin_offset
        # The messages of an inner batch share its times: whichever of them comes first will do.
        try:
            times = first_times(answer.records)
        except CorruptMessageError:  # a task that reads it decides what becomes of it
            return answer.header.next_begin_offset
        return times._replace(queue_offset=times.queue_offset + (answer.header.offset_delta or 0))

    return Call(look.request, parse)


def _weigh(queue: MessageQueue, offset: int, group: str, selector: MessageSelector) -> Call[int | None]:
    look = broker.pull(queue, offset, group=group, max_nums=_SAMPLE, selector=selector)

    def parse(response: Response) -> int | None:
        answer = look.parse(response)
        passed = answer.header.next_begin_offset - offset
        if answer.status not in (PullStatus.FOUND, PullStatus.NO_MATCHED_MSG) or passed <= 0:
            return None
        return -(-len(answer.records) // passed)

    return Call(look.request, parse)
