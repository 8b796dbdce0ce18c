"""Receivers: the part of a stream that runs as a long Spark task and is a member of a consumer group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Protocol, TypeAlias

from pyspark import StorageLevel

from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.options import MessageModel, ReceiverOptions, parse_options

__all__ = ["ReceiverSupport", "ReliableRocketMQReceiver", "RocketMQReceiver", "TopicsLike", "storage_level"]

TopicsLike: TypeAlias = str | Iterable[str] | Mapping[str, int]
"""A topic, several topics, or a mapping of topics to the number of deserializing threads per receiver."""

_LEVELS: dict[str, StorageLevel] = {
    name: level
    for name in dir(StorageLevel)
    if isinstance(level := getattr(StorageLevel, name), StorageLevel)
}


def storage_level(level: StorageLevel | str) -> StorageLevel:
    """Return a storage level, also by Spark's name. Python's levels are always serialized (``_SER``).

    Raises
    ------
    OptionError
        Spark has no level of this name.
    """
    if isinstance(level, StorageLevel):
        return level
    found = _LEVELS.get(level.replace("_SER", ""))
    if found is None:
        raise OptionError(f"unknown storage level: use one of {', '.join(sorted(_LEVELS))}", level=level)
    return found


class ReceiverSupport(Protocol):
    """The task that runs a receiver, as the receiver sees it."""

    @property
    def number(self) -> int:
        """The receiver's number in its stream, from 0."""

    @property
    def stopped(self) -> bool:
        """Whether it has stopped receiving."""

    def open_consumer(self) -> None:
        """Join the group and start to receive."""

    def close_consumer(self) -> None:
        """Leave the group."""

    def store(self, element: Any) -> None:
        """Add an element to the stream."""

    def ask_to_restart(self, message: str, error: BaseException | None) -> None:
        """Stop the receiver and start it again."""


class RocketMQReceiver:
    """A member of a consumer group whose messages become a stream; see ``RocketMQUtils.receiverStream``.

    Delivery promise: offsets are committed only after Spark has stored the messages' blocks at the storage
    level. Without a write-ahead log, blocks are lost if the driver dies; `ReliableRocketMQReceiver` does not
    lose them. Messages that were stored but not yet committed are delivered again.

    Override `deserialize` (or pass the argument of that name) to store objects instead of messages. Override
    `onStart` and `onStop` to run code when the consumer starts and stops, or to run another consumer that
    calls `store`. All of them are called in the receiver's task.

    Parameters
    ----------
    nameServer : str
        ``"host:port;host:port"``.
    topic : str, iterable of str, or Mapping
        See `TopicsLike`.
    group : str
    storageLevel : StorageLevel or str
        Where Spark keeps blocks until their batches are done.
    options : Mapping, optional
        See `ReceiverOptions`.
    deserialize : Callable, optional
        Converts a body to an object, or to an iterator of several objects; None skips the message.

    Raises
    ------
    OptionError
        An argument or option is invalid.
    """

    reliable: ClassVar[bool] = False
    """Whether blocks are written to a write-ahead log before they are acknowledged."""

    def __init__(
        self,
        nameServer: str | None,
        topic: TopicsLike,
        group: str,
        storageLevel: StorageLevel | str = StorageLevel.MEMORY_AND_DISK_2,
        *,
        options: Mapping[str, Any] | None = None,
        deserialize: Callable[[bytes], Any] | None = None,
    ) -> None:
        names = [topic] if isinstance(topic, str) else list(topic)
        self.threads = dict(topic) if isinstance(topic, Mapping) else {}
        self.given = {**(options or {}), "topic": ",".join(names), "consumerGroup": group}
        if nameServer is not None:
            self.given["nameServer"] = nameServer
        for name, count in self.threads.items():
            if count < 1:
                raise OptionError("a topic needs a thread", topic=name, threads=count)
        self.storageLevel = storage_level(storageLevel)
        if deserialize is not None and not callable(deserialize):  # each message would become a dead letter
            raise OptionError("deserialize is a function of a message's body", deserialize=deserialize)
        self._deserialize = deserialize
        self._task: ReceiverSupport | None = None
        if self.parsed().message_model is MessageModel.BROADCASTING and self.reliable:
            raise OptionError(
                "a reliable receiver cannot broadcast: no broker keeps the offsets of a member that "
                "gets every message, so what comes while it restarts is not received; give each reader a "
                "separate group, or use a direct stream",
                option="messageModel",
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_task": None}

    def parsed(self) -> ReceiverOptions:
        """Return the options, including those from this process's environment."""
        return parse_options(ReceiverOptions, self.given)

    @property
    def makes_objects(self) -> bool:
        """Whether the receiver has a ``deserialize``."""
        return self._deserialize is not None or type(self).deserialize is not RocketMQReceiver.deserialize

    def deserialize(self, body: bytes) -> Any:
        """Convert a message's body to an element of the stream, or to an iterator (a generator) of several.

        Called by several threads; the elements of a queue's messages keep the messages' order. Elements
        passed to `store` in this call are part of the message's elements, before those that it returns.

        None skips the message; skipped messages are counted. After an exception, none of the message's
        elements are kept: the message is redelivered through ``%RETRY%group``, and sent to ``%DLQ%group``
        after 16 times.
        """
        if self._deserialize is None:
            raise NotImplementedError("this receiver stores messages as they are")
        return self._deserialize(body)

    def onStart(self) -> None:
        """Join the group and start to receive. Must return."""
        self._list_running().open_consumer()

    def onStop(self) -> None:
        """Leave the group. Messages that are not stored yet are delivered again."""
        self._list_running().close_consumer()

    def store(self, element: Any) -> None:
        """Add an element, or all elements of an iterator, to the stream. Any thread of the task may call it.

        In `deserialize`, it returns immediately, and the message is acknowledged after its elements are
        stored. On other threads, such as those of a user-defined consumer, it returns after Spark has stored
        the element (with a log: after it is logged); acknowledge after that. Elements of several threads may
        share blocks.

        Raises
        ------
        RocketMQError
            The receiver stopped or restarted before the element was stored.
        """
        self._list_running().store(element)

    def restart(self, message: str, error: BaseException | None = None) -> None:
        """Stop the receiver and start it again after ``spark.streaming.receiverRestartDelay``.

        Returns immediately. May be called from any thread of the task. The driver logs the reason.
        """
        self._list_running().ask_to_restart(message, error)

    def isStopped(self) -> bool:
        """Whether the receiver has not started yet, or has stopped."""
        return self._task is None or self._task.stopped

    @property
    def receiverId(self) -> int:
        """The receiver's number in its stream, from 0."""
        return self._list_running().number

    def attach(self, task: ReceiverSupport) -> None:
        """Attach the receiver to a task. Called by the stream."""
        self._task = task

    def _list_running(self) -> ReceiverSupport:
        if self._task is None:
            raise RocketMQError("a receiver runs in a task only: attach it with RocketMQUtils.receiverStream")
        return self._task


class ReliableRocketMQReceiver(RocketMQReceiver):
    """A receiver whose blocks are written to a write-ahead log before they are acknowledged.

    Delivery promise: at least once. No message is lost if an executor, a worker, or the driver dies. Messages
    that are in the log but not processed are processed after a recovery from the checkpoint. Messages that
    are not in the log were not acknowledged and are delivered again.
    """

    reliable: ClassVar[bool] = True
