"""Pulls messages by offset, as Java's ``DefaultMQPullConsumer``."""

# Facts (PullAPIWrapper, PullMessageProcessor, PullRequestHoldService; 4.9 and 5.4)
# - The tag filter of a broker compares hashes: messages with other tags may pass.
# - With a syntax error in an SQL92 expression the broker returns every message: check it first.
# - A suspended pull's timeout is checked only every 5 s: the response may be 5 s late.
# - suggestWhichBrokerId is a hint for the next pull of that queue; the response of a lagging slave has no
#   progress.

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from pyspark_rocketmq.client import requests as broker
from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.read.pull_answer import check_advance
from pyspark_rocketmq.client.read.pull_filter import agree_on_selector
from pyspark_rocketmq.client.requests import PullAnswer
from pyspark_rocketmq.client.retry import retry
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import (
    MASTER_ID,
    BrokerData,
    Message,
    MessageQueue,
    MessageSelector,
    PullResult,
    PullStatus,
)
from pyspark_rocketmq.model.arguments import require, require_milliseconds, require_queue, require_whole
from pyspark_rocketmq.options import ClientOptions
from pyspark_rocketmq.record.message import decode_messages

__all__ = ["SUSPEND_LAG_MS", "PullConsumer", "as_selector", "check_pull", "pull_result"]

_MAX_SUSPEND_MS: Final = 90_000
"""A server closes a connection that is idle for 120 s, and a suspended pull is idle."""

SUSPEND_LAG_MS: Final = 5_000


class PullConsumer:
    """Reads queues at offsets that the caller manages.

    Delivery promise: none; the caller chooses and keeps the offsets. Only `update_consume_offset` commits
    offsets for the group.

    Thread-safe. Opens a client, or uses the given client and leaves it open.

    Parameters
    ----------
    group : str
        The consumer group. Brokers that allow it create the group with the first pull.
    name_server : str or ClientOptions, optional
        ``"host:port;host:port"``.
    client : Client, optional
        Instead of ``name_server``.

    Examples
    --------
    >>> with PullConsumer("report", name_server="127.0.0.1:9876") as consumer:  # doctest: +SKIP
    ...     for queue in consumer.fetch_subscribe_message_queues("orders"):
    ...         result = consumer.pull(queue, "TagA || TagB", consumer.min_offset(queue), 32)
    ...         print(result.status, [message.body for message in result.messages], result.next_begin_offset)
    """

    def __init__(
        self, group: str, name_server: str | ClientOptions | None = None, *, client: Client | None = None
    ) -> None:
        if not require(group, str, "the consumer group", must="a text"):
            raise OptionError("a pull consumer needs a group")
        if (client is None) == (name_server is None):
            raise OptionError("a pull consumer needs either name_server or client")
        self.group = group
        self._own = Client(name_server) if name_server is not None else None
        self._client = require(client or self._own, Client, "client")
        self._suggested: dict[MessageQueue, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, except those of a given client."""
        if self._own is not None:
            self._own.close()

    def fetch_subscribe_message_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the readable queues of a topic, sorted.

        Raises
        ------
        TopicNotFoundError, NameServerError
        """
        return self._client.read_queues(topic)

    def pull(
        self, queue: MessageQueue, expression: str | MessageSelector, offset: int, max_nums: int = 32
    ) -> PullResult:
        """Pull available messages from ``offset`` on.

        Parameters
        ----------
        expression : str or MessageSelector
            A string is a tag expression: ``"*"``, ``"TagA"``, ``"TagA || TagB"``.
        offset : int
        max_nums : int
            Maximum number of messages. By default, brokers return up to 32, or 8 if they read from disk.

        Returns
        -------
        PullResult
            ``FOUND`` with messages; ``NO_NEW_MSG`` at the end; ``NO_MATCHED_MSG`` if no scanned message
            matches the filter; ``OFFSET_ILLEGAL`` outside of [min, max] or after an operator's reset of the
            group. In all cases, continue at ``next_begin_offset``.

        Raises
        ------
        OptionError
            Arguments are out of range, or an SQL expression cannot be parsed.
        TopicNotFoundError, NameServerError, BrokerNotFoundError, TransportError, BrokerError,
        RemoteProtocolError
        """
        return self._pull(queue, as_selector(expression), offset, max_nums, None)

    def pull_block_if_not_found(
        self,
        queue: MessageQueue,
        expression: str | MessageSelector,
        offset: int,
        max_nums: int = 32,
        *,
        suspend_ms: int = 20_000,
    ) -> PullResult:
        """Pull. At the end of the queue, wait for a message.

        Parameters
        ----------
        suspend_ms : int
            How long the broker waits, at most 90,000; its response may be 5 s late. Otherwise as `pull`.
        """
        return self._pull(queue, as_selector(expression), offset, max_nums, suspend_ms)

    def fetch_consume_offset(self, queue: MessageQueue) -> int | None:
        """Return the group's committed offset of a queue, or None. See `Client.committed_offsets`."""
        return self._client.committed_offsets(self.group, (queue,))[queue]

    def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        """Commit the group's next offset of a queue immediately. See `Client.commit_offsets`."""
        self._client.commit_offsets(self.group, {queue: offset})

    def min_offset(self, queue: MessageQueue) -> int:
        """Return the first stored offset. See `Client.min_offsets`."""
        return self._client.min_offsets((queue,))[queue]

    def max_offset(self, queue: MessageQueue) -> int:
        """Return the max offset (the next to be written). See `Client.max_offsets`."""
        return self._client.max_offsets((queue,))[queue]

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after a time. See `Client.offsets_at`.

        Raises
        ------
        OptionError
            The time is one in seconds, or in another unit than milliseconds.
        """
        moment = require_milliseconds(timestamp_ms, "timestamp_ms")
        return self._client.offsets_at({queue: moment}, group=self.group)[queue]

    def _pull(
        self,
        queue: MessageQueue,
        selector: MessageSelector,
        offset: int,
        max_nums: int,
        suspend_ms: int | None,
    ) -> PullResult:
        check_pull(queue, offset, max_nums, suspend_ms)
        client = self._client
        waits_ms = 0 if suspend_ms is None else suspend_ms + SUSPEND_LAG_MS
        deadline = client.deadline(client.operation_timeout_ms + waits_ms)

        def attempt() -> PullResult:
            route = client.routes.get_served((queue.topic,), deadline=deadline)[queue.topic]
            broker_data = route.broker(route.asked_broker(queue))
            addr = self._address(queue, broker_data)
            channel = client.pull_channel(addr, broker_data, suspended=suspend_ms is not None)
            agreed = agree_on_selector(client, channel, queue.topic, selector, self.group)
            call = broker.pull(
                queue, offset, group=self.group, max_nums=max_nums, selector=agreed, suspend_ms=suspend_ms
            )
            answer = call.on(channel, deadline=deadline.sooner(client.request_timeout_ms + waits_ms))
            result, self._suggested[queue] = pull_result(queue, selector, offset, answer)
            return result

        return retry(
            attempt,
            deadline=deadline,
            clock=client.clock,
            random=client.random,
            on_stale_route=lambda: self._look_again(queue),
        )

    def _look_again(self, queue: MessageQueue) -> None:
        self._suggested.pop(queue, None)
        self._client.invalidate(queue.topic)

    def _address(self, queue: MessageQueue, data: BrokerData | None) -> str:
        """Return the replica that the last response suggested, else the master, else a slave."""
        suggested = data.addresses.get(self._suggested.get(queue, MASTER_ID)) if data is not None else None
        return suggested or self._client.queue_address(queue, master_only=False)


def as_selector(expression: str | MessageSelector) -> MessageSelector:
    """Return the selector of a pull; a text is a tag expression."""
    if isinstance(expression, str):
        return MessageSelector.by_tag(expression)
    must = 'tags, such as "*" or "TagA || TagB", or a MessageSelector'
    return require(expression, MessageSelector, "the expression", must=must)


def pull_result(
    queue: MessageQueue, selector: MessageSelector, offset: int, answer: PullAnswer
) -> tuple[PullResult, int]:
    """Return what a pull from an offset found, and the id of the broker to pull from next.

    Raises
    ------
    RemoteProtocolError
        Messages were returned, and a next offset that does not follow them; or as `decode_messages`.
    """
    check_advance(answer, queue, offset)
    header = answer.header
    messages: Sequence[Message] = ()
    status = answer.status
    if status is PullStatus.FOUND:
        messages = decode_messages(
            answer.records,
            topic=queue.topic,
            broker_name=queue.broker_name,
            queue_id=queue.queue_id,
            offset_delta=header.offset_delta,
            from_offset=offset,
        )
        tags = selector.tags
        if tags is not None:
            messages = [message for message in messages if message.tags in tags]
        if not messages:
            status = PullStatus.NO_MATCHED_MSG
    stuck = status is PullStatus.NO_MATCHED_MSG and header.next_begin_offset == offset
    result = PullResult(
        status=status,
        messages=tuple(messages),
        next_begin_offset=header.next_begin_offset,
        min_offset=header.min_offset,
        max_offset=header.max_offset,
    )
    return result, MASTER_ID if stuck else header.suggest_which_broker_id


def check_pull(queue: MessageQueue, offset: int, max_nums: int, suspend_ms: int | None) -> None:
    """Check the arguments of a pull.

    Raises
    ------
    OptionError
    """
    require_queue(queue)
    require_whole(offset, "the offset of a pull", 0)
    require_whole(max_nums, "max_nums", 1, 2**31 - 1)
    if suspend_ms is not None:
        require_whole(suspend_ms, "suspend_ms", 0, _MAX_SUSPEND_MS)
