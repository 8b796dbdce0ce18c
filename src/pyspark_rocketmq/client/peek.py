"""Looking at single messages of many queues: when they were stored, and what they weigh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_rocketmq.client import broker
from pyspark_rocketmq.client.connection import Response
from pyspark_rocketmq.client.pipeline import Call
from pyspark_rocketmq.model import MessageQueue, MessageSelector, PullStatus
from pyspark_rocketmq.record.message import decode_messages

if TYPE_CHECKING:
    from pyspark_rocketmq.client.core import Client

__all__ = ["MessageTimes", "message_sizes", "message_times"]

_ALL: Final = MessageSelector()
_SAMPLE: Final = 32
"""Messages of a sample: what a broker hands out in one pull by default."""


@dataclass(frozen=True, slots=True)
class MessageTimes:
    """When a message was born and stored, in milliseconds since the epoch."""

    born_timestamp: int
    store_timestamp: int


def message_times(
    client: Client, offsets: Mapping[MessageQueue, int], *, group: str
) -> dict[MessageQueue, MessageTimes]:
    """Return the times of the messages at these offsets, all queues looked at side by side.

    Where the offset has expired, the queue's first message stands in; a queue without a message there is
    left out. Raises as `Client.min_offsets`.
    """
    todo = dict(offsets)
    times: dict[MessageQueue, MessageTimes] = {}
    for _ in range(2):  # the second round goes to where the expired ones begin now
        found = client.ask({queue: _look(queue, offset, group) for queue, offset in todo.items()})
        times |= {queue: seen for queue, seen in found.items() if isinstance(seen, MessageTimes)}
        todo = {q: seen for q, seen in found.items() if isinstance(seen, int) and seen > todo[q]}
    return times


def message_sizes(
    client: Client, offsets: Mapping[MessageQueue, int], *, group: str, selector: MessageSelector
) -> dict[MessageQueue, int]:
    """Return how many bytes an offset brings on average, by a sample at these offsets.

    Bytes as they travel: headers and properties count, bodies are as compressed as they are stored, and
    what the selector leaves out weighs nothing. A queue without an answer there is left out. Raises as
    `Client.min_offsets`.
    """
    calls = {queue: _weigh(queue, offset, group, selector) for queue, offset in offsets.items()}
    return {queue: size for queue, size in client.ask(calls).items() if size is not None}


def _look(queue: MessageQueue, offset: int, group: str) -> Call[MessageTimes | int]:
    """Return the call that answers the message's times, or where to look instead."""
    look = broker.pull(queue, offset, group=group, max_nums=1, selector=_ALL)

    def parse(response: Response) -> MessageTimes | int:
        answer = look.parse(response)
        messages = decode_messages(answer.records, broker_name=queue.broker_name)
        if answer.status is not PullStatus.FOUND or not messages:
            return answer.header.next_begin_offset
        # The messages of an inner batch share its times: whichever of them comes first will do.
        return MessageTimes(messages[0].born_timestamp, messages[0].store_timestamp)

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
