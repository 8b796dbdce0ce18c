"""Where a write's rows go: topics, made on request, and the queue of each row."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from pyspark_rocketmq.client.admin import Admin
from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.client.core import Client
from pyspark_rocketmq.client.retry import RetryPolicy, retry
from pyspark_rocketmq.client.selection import queue_numbers
from pyspark_rocketmq.errors import (
    BrokerNotFoundError,
    PermissionDeniedError,
    TopicNotFoundError,
)
from pyspark_rocketmq.model import MessageQueue, Permission
from pyspark_rocketmq.options import SinkOptions
from pyspark_rocketmq.record.outgoing_rows import OutgoingRows
from pyspark_rocketmq.remoting.codes import ResponseCode

__all__ = ["ANY_QUEUE", "RESTART_MS", "SinkTopics"]

ANY_QUEUE: Final = -1
"""The number of rows that may go to any queue."""

RESTART_MS: Final = 15_000
"""How long a broker that was restarted may take to be registered again: brokers try every ten seconds."""

_LOOK_AGAIN: Final = RetryPolicy(max_ms=500)


class SinkTopics:
    """The topics of one task, or of the look at the topic before any task.

    A name server forgets the topics of a broker that is away: one that has no route may be missing, or its
    brokers may be restarting. A patient look waits: while no broker at all is there, or no master of the
    topic's, for ``outageTimeout``, as a send would; beside other brokers for `RESTART_MS`.

    Parameters
    ----------
    client : Client
    options : SinkOptions
    patient : bool
    """

    def __init__(self, client: Client, options: SinkOptions, *, patient: bool = False) -> None:
        self._client = client
        self._options = options
        self._outage_ms = options.outage_timeout_ms if patient else 0

    def queues(self, topic: str) -> tuple[MessageQueue, ...] | None:
        """Return the queues that rows of a topic may go to, sorted; None if its rows are dead letters.

        Raises
        ------
        TopicNotFoundError
            The topic does not exist and is not to be made.
        PermissionDeniedError
            It may not be written.
        BrokerNotFoundError
            No broker is there, or no master of the topic's.
        NameServerError
        """
        # Shorter than the outage, so that the last look tells which of the two it is.
        restart = self._client.deadline(min(self._outage_ms / 2, RESTART_MS))
        return retry(
            lambda: self._look_up(topic, restart),
            deadline=self._client.deadline(self._outage_ms),
            clock=self._client.clock,
            random=self._client.random,
            policy=_LOOK_AGAIN,
            on_stale_route=lambda: self._client.invalidate(topic),
        )

    def _look_up(self, topic: str, restart: Deadline) -> tuple[MessageQueue, ...] | None:
        try:
            route = self._client.route(topic)
        except TopicNotFoundError as error:
            admin = Admin(self._client)
            if not admin.cluster_info().brokers:
                raise BrokerNotFoundError(
                    "no broker is registered at the name servers", topic=topic
                ) from error
            if self._options.create_topic:
                admin.create_topic(topic, queues=self._options.topic_queues)
                return self._client.write_queues(topic)
            if self._options.topic is None and self._options.takes_dead_letters:
                return None
            if topic == self._options.topic and not restart.expired:
                raise BrokerNotFoundError("the topic is not there any more", topic=topic) from error
            raise TopicNotFoundError(
                "the topic does not exist: create it, or let the write do it with createTopic=true",
                topic=topic,
            ) from error
        queues = route.write_queues()
        if queues:
            return queues
        if any(Permission.WRITE in data.perm for data in route.queues):
            raise BrokerNotFoundError("no master of the topic's brokers is there", topic=topic)
        raise PermissionDeniedError(
            "no queue of the topic may be written: its permission forbids it",
            code=ResponseCode.NO_PERMISSION,
            topic=topic,
        )

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
            # A static topic's queues are those of the topic: the name of a former owner is as good.
            name = broker.decode() if broker is not None and not queues[0].logical else only
            place = places.get((name or "", rows.queue_id[row].as_py()))
            if place is None:
                unknown.append(int(row))
            else:
                numbers[row] = place
        return numbers, unknown
