"""Decodes the messages of a push consumer's pulls, applies its filter, and handles corrupt messages."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark_rocketmq.client.groups.push_options import PushOptions
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.client.read.reread import read_again
from pyspark_rocketmq.client.requests import PullAnswer
from pyspark_rocketmq.errors import CorruptMessageError
from pyspark_rocketmq.model import Message, MessageQueue, MessageSelector, PullStatus
from pyspark_rocketmq.record.decode.objects import MessageDecoder
from pyspark_rocketmq.record.decode.rows import Chunk

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client

__all__ = ["PushDecoder"]

_LOG: Final = logging.getLogger(__name__)

_AGAIN_MS: Final = 5_000
"""How long messages are pulled again one by one without an answer, before the whole pull is repeated."""


class PushDecoder:
    """Decodes the answers to one queue's pulls.

    Parameters
    ----------
    client : Client
    group : str
    queue : MessageQueue
    selector : MessageSelector
    options : PushOptions
    """

    def __init__(
        self, client: Client, group: str, queue: MessageQueue, selector: MessageSelector, options: PushOptions
    ) -> None:
        self._client = client
        self._group = group
        self._queue = queue
        self._selector = selector
        self._skips = options.on_corrupt == "skip"
        self._decoder = MessageDecoder(queue, on_corrupt=options.on_corrupt, check_crc=options.check_crc)

    def messages(self, answer: PullAnswer, begin: int) -> list[Message]:
        """Return the messages of a pull at ``begin``. Brokers compare hashes of tags; here tags are compared.

        Raises
        ------
        CorruptMessageError
            A message cannot be decoded, and ``on_corrupt`` is "fail".
        RocketMQError
            Messages must be pulled again one by one, and the broker does not answer for some seconds.
        """
        if answer.status is not PullStatus.FOUND:
            return []
        end, header = len(answer.records), answer.header
        chunks = [Chunk(answer.records, 0, end, begin, header.next_begin_offset, header.offset_delta)]
        try:
            found = self._decode(chunks)
        except CorruptMessageError as error:
            if not self._skips or not error.breaks_layout:
                raise
            options = ReadOptions(
                consumer_group=self._group, selector=self._selector, stall_timeout_ms=_AGAIN_MS
            )
            found = self._decode(read_again(self._client, self._queue, chunks, options))
        tags = self._selector.tags
        return [message for message in found if tags is None or message.tags in tags]

    def _decode(self, chunks: Sequence[Chunk]) -> list[Message]:
        found = list(self._decoder.messages(chunks))
        for corrupt in self._decoder.corrupt.first:
            _LOG.warning("skipped a message that cannot be decoded: %s", corrupt)
        return found
