"""Pulls messages by offset from an event loop."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from pyspark_rocketmq.client import requests as broker
from pyspark_rocketmq.client.aio.client import AsyncClient, broker_of
from pyspark_rocketmq.client.aio.connection import AsyncConnection
from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.client.queue_requests import queue_address
from pyspark_rocketmq.client.read.pull_consumer import SUSPEND_LAG_MS, as_selector, check_pull, pull_result
from pyspark_rocketmq.client.read.pull_filter import settle_selector
from pyspark_rocketmq.client.retry import retry_async
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MASTER_ID, MessageQueue, MessageSelector, PullResult
from pyspark_rocketmq.model.arguments import require, require_milliseconds
from pyspark_rocketmq.options import ClientOptions
from pyspark_rocketmq.remoting.header import GetTopicConfigRequest

__all__ = ["AsyncPullConsumer"]


class AsyncPullConsumer:
    """`PullConsumer` for asyncio: reads queues at offsets that the caller manages.

    Delivery promise: none; the caller chooses and keeps the offsets. Only `update_consume_offset` commits
    offsets for the group. A canceled pull changes nothing.

    Parameters
    ----------
    group : str
        The consumer group. Brokers that allow it create the group with the first pull.
    name_server : str or ClientOptions, optional
        ``"host:port;host:port"``.
    client : AsyncClient, optional
        Instead of ``name_server``; it is not closed with the consumer.

    Examples
    --------
    >>> async with AsyncPullConsumer("report", name_server="127.0.0.1:9876") as consumer:  # doctest: +SKIP
    ...     for queue in await consumer.fetch_subscribe_message_queues("orders"):
    ...         result = await consumer.pull(queue, "*", await consumer.min_offset(queue), 32)
    """

    def __init__(
        self, group: str, name_server: str | ClientOptions | None = None, *, client: AsyncClient | None = None
    ) -> None:
        if not require(group, str, "the consumer group", must="a text"):
            raise OptionError("a pull consumer needs a group")
        if (client is None) == (name_server is None):
            raise OptionError("a pull consumer needs either name_server or client")
        self.group = group
        self._own = AsyncClient(name_server) if name_server is not None else None
        self._client = require(client or self._own, AsyncClient, "client")
        self._suggested: dict[MessageQueue, int] = {}
        self._selectors: dict[tuple[str, str, MessageSelector], MessageSelector] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections, except those of a given client."""
        if self._own is not None:
            await self._own.close()

    async def fetch_subscribe_message_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the readable queues of a topic, sorted. Raises as `AsyncClient.route`."""
        return await self._client.read_queues(topic)

    async def pull(
        self, queue: MessageQueue, expression: str | MessageSelector, offset: int, max_nums: int = 32
    ) -> PullResult:
        """Pull available messages from ``offset`` on. See `PullConsumer.pull`."""
        return await self._pull(queue, as_selector(expression), offset, max_nums, None)

    async def pull_block_if_not_found(
        self,
        queue: MessageQueue,
        expression: str | MessageSelector,
        offset: int,
        max_nums: int = 32,
        *,
        suspend_ms: int = 20_000,
    ) -> PullResult:
        """Pull. At the end of the queue, wait for a message: see `PullConsumer.pull_block_if_not_found`."""
        return await self._pull(queue, as_selector(expression), offset, max_nums, suspend_ms)

    async def fetch_consume_offset(self, queue: MessageQueue) -> int | None:
        """Return the group's committed offset of a queue, or None."""
        return (await self._client.committed_offsets(self.group, (queue,)))[queue]

    async def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        """Commit the group's next offset of a queue immediately. Raises as `AsyncClient.commit_offsets`."""
        await self._client.commit_offsets(self.group, {queue: offset})

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the first stored offset."""
        return (await self._client.min_offsets((queue,)))[queue]

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the max offset (the next to be written)."""
        return (await self._client.max_offsets((queue,)))[queue]

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after a time, as `PullConsumer` does."""
        moment = require_milliseconds(timestamp_ms, "timestamp_ms")
        return (await self._client.offsets_at({queue: moment}, group=self.group))[queue]

    async def _pull(
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

        async def attempt() -> PullResult:
            route = await client.served_route(queue.topic)
            data = broker_of(route, queue)
            suggested = None if data is None else data.addresses.get(self._suggested.get(queue, MASTER_ID))
            addr = suggested or queue_address(route, queue, master_only=False)
            until = deadline.sooner(client.options.request_timeout_ms + waits_ms)
            apart = data is not None and data.behind_proxy
            connection = await (client.fresh_connection(addr) if apart else client.connection(addr))
            try:
                agreed = await self._agree_on_selector(connection, queue.topic, selector, until)
                call = broker.pull(
                    queue, offset, group=self.group, max_nums=max_nums, selector=agreed, suspend_ms=suspend_ms
                )
                answer = call.parse(await connection.call(call.request, call.body, deadline=until))
            finally:
                if apart:
                    await connection.close()
            result, self._suggested[queue] = pull_result(queue, selector, offset, answer)
            return result

        return await retry_async(
            attempt, deadline=deadline, random=client.random, on_stale_route=lambda: self._look_again(queue)
        )

    async def _agree_on_selector(
        self, connection: AsyncConnection, topic: str, selector: MessageSelector, deadline: Deadline
    ) -> MessageSelector:
        """Return what a server may be asked to filter, see `agree_on_selector`."""
        if selector.takes_all:
            return selector
        key = (connection.addr, topic, selector)
        if (known := self._selectors.get(key)) is not None:
            return known
        if selector.expression_type != "TAG":
            qualify = self._client.namespace.qualify
            check = broker.check_selector(selector, qualify(topic), qualify(self.group))
            check.parse(await connection.call(check.request, check.body, deadline=deadline))
        answer = await connection.call(GetTopicConfigRequest(topic=topic), deadline=deadline)
        settled = settle_selector(selector, answer, topic)
        if settled is None:
            return selector
        self._selectors[key] = settled
        return settled

    def _look_again(self, queue: MessageQueue) -> None:
        self._suggested.pop(queue, None)
        self._client.routes.invalidate(queue.topic)
