"""Where a write's rows go: topics, made on request, and the queue of each row."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from pyspark_rocketmq.client.admin import Admin
from pyspark_rocketmq.client.core import Client
from pyspark_rocketmq.client.selection import queue_numbers
from pyspark_rocketmq.errors import PermissionDeniedError, TopicNotFoundError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.options import SinkOptions
from pyspark_rocketmq.record.outgoing_rows import OutgoingRows
from pyspark_rocketmq.remoting.codes import ResponseCode

__all__ = ["ANY_QUEUE", "SinkTopics"]

ANY_QUEUE: Final = -1
"""The number of rows that may go to any queue."""


class SinkTopics:
    """The topics of one task.

    Parameters
    ----------
    client : Client
    options : SinkOptions
    """

    def __init__(self, client: Client, options: SinkOptions) -> None:
        self._client = client
        self._options = options

    def queues(self, topic: str) -> tuple[MessageQueue, ...] | None:
        """Return the queues that rows of a topic may go to, sorted; None if its rows are dead letters.

        Raises
        ------
        TopicNotFoundError
            The topic does not exist and is not to be made.
        PermissionDeniedError
            It may not be written.
        NameServerError
        """
        try:
            queues = self._client.write_queues(topic)
        except TopicNotFoundError as error:
            if self._options.create_topic:
                Admin(self._client).create_topic(topic, queues=self._options.topic_queues)
                queues = self._client.write_queues(topic)
            elif self._options.topic is None and self._options.takes_dead_letters:
                return None
            else:
                raise TopicNotFoundError(
                    "the topic does not exist: create it, or let the write do it with createTopic=true",
                    topic=topic,
                ) from error
        if not queues:
            raise PermissionDeniedError(
                "no queue of the topic may be written now: its permission forbids it, or no master is there",
                code=ResponseCode.NO_PERMISSION,
                topic=topic,
            )
        return queues

    def assign(
        self, rows: OutgoingRows, queues: tuple[MessageQueue, ...]
    ) -> tuple[npt.NDArray[np.int32], list[int]]:
        """Return for each row the number of its queue in ``queues``, and the rows whose queue is not there.

        A queue id decides, else a sharding key as in the Java client, else it is ``ANY_QUEUE``.
        """
        numbers = np.full(len(rows), ANY_QUEUE, np.int32)
        if rows.sharding_key is not None:
            keyed = np.flatnonzero(pc.fill_null(pc.greater(pc.binary_length(rows.sharding_key), 0), False))
            numbers[keyed] = queue_numbers(rows.sharding_key.take(keyed), len(queues))
        if rows.queue_id is None:
            return numbers, []
        given = np.flatnonzero(rows.queue_id.is_valid())
        places = {(queue.broker_name, queue.queue_id): place for place, queue in enumerate(queues)}
        brokers = {queue.broker_name for queue in queues}
        only = next(iter(brokers)) if len(brokers) == 1 else None
        unknown: list[int] = []
        for row in given:
            broker = rows.broker_name[row].as_py() if rows.broker_name is not None else None
            name = broker.decode() if broker is not None else only
            place = places.get((name or "", rows.queue_id[row].as_py()))
            if place is None:
                unknown.append(int(row))
            else:
                numbers[row] = place
        return numbers, unknown
