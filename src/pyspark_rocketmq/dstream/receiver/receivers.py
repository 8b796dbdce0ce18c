"""Receivers: what of a stream runs as a long Spark task, as a member of a consumer group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Protocol, TypeAlias

from pyspark import StorageLevel

from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.options import MessageModel, ReceiverOptions, parse_options

__all__ = ["ReceiverSupport", "ReliableRocketMQReceiver", "RocketMQReceiver", "TopicsLike", "storage_level"]

TopicsLike: TypeAlias = str | Iterable[str] | Mapping[str, int]
"""A topic, several, or how many threads of a receiver deserialize for each."""

_LEVELS: dict[str, StorageLevel] = {
    name: level
    for name in dir(StorageLevel)
    if isinstance(level := getattr(StorageLevel, name), StorageLevel)
}


def storage_level(level: StorageLevel | str) -> StorageLevel:
    """Return a storage level, also by Spark's name; ``_SER`` is what Python's are anyway.

    Raises
    ------
    OptionError
        Spark has no such level.
    """
    if isinstance(level, StorageLevel):
        return level
    found = _LEVELS.get(level.replace("_SER", ""))
    if found is None:
        raise OptionError(
            f"there is no such storage level: take one of {', '.join(sorted(_LEVELS))}", level=level
        )
    return found


class ReceiverSupport(Protocol):
    """What a receiver can ask of the task that runs it."""

    @property
    def number(self) -> int:
        """Which of its stream's receivers it is, from 0 on."""

    @property
    def stopped(self) -> bool:
        """Whether it does not receive any more."""

    def open_consumer(self) -> None:
        """Join the group and begin to receive."""

    def close_consumer(self) -> None:
        """Leave the group."""

    def store(self, element: Any) -> None:
        """Add an element to the stream."""

    def ask_to_restart(self, message: str, error: BaseException | None) -> None:
        """Have the receiver stopped and started again."""


class RocketMQReceiver:
    """A member of a consumer group whose messages become a stream; see ``RocketMQUtils.receiverStream``.

    Delivery promise: offsets advance behind blocks that Spark has stored at the storage level. Without a log
    these are lost with the driver; `ReliableRocketMQReceiver` does not lose them. What was stored and not yet
    committed comes again.

    Overwrite `deserialize` (or give the argument of that name) to store objects instead of messages, and
    `onStart` and `onStop` to do something of one's own around the consumer's life, or to run another consumer
    that calls `store`. All of them are called in the receiver's task.

    Parameters
    ----------
    nameServer : str
        ``"host:port;host:port"``.
    topic : str, iterable of str, or Mapping
        See `TopicsLike`.
    group : str
    storageLevel : StorageLevel or str
        Where blocks are kept until their batches are done.
    options : Mapping, optional
        See `ReceiverOptions`.
    deserialize : Callable, optional
        Makes an object of a body, or an iterator of several; None skips the message.

    Raises
    ------
    OptionError
        An argument or option is wrong.
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
        self._deserialize = deserialize
        self._task: ReceiverSupport | None = None
        if self.parsed().message_model is MessageModel.BROADCASTING and self.reliable:
            raise OptionError(
                "a reliable receiver cannot be a broadcasting one: nobody keeps the offsets of a member that "
                "gets every message, so what comes while it restarts is not received; give each reader a "
                "group of its own, or take a direct stream",
                option="messageModel",
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_task": None}

    def parsed(self) -> ReceiverOptions:
        """Return the options, with what this process's environment adds."""
        return parse_options(ReceiverOptions, self.given)

    @property
    def makes_objects(self) -> bool:
        """Whether there is a ``deserialize``."""
        return self._deserialize is not None or type(self).deserialize is not RocketMQReceiver.deserialize

    def deserialize(self, body: bytes) -> Any:
        """Make an element of the stream of a message's body, or an iterator (a generator) of several.

        Called by several threads; what they make of a queue's messages stays in the messages' order. What
        this calls `store` with becomes part of the message's elements, before those that it returns.

        None skips the message, which is counted. After an exception none of its elements are kept: the
        message comes again through ``%RETRY%group``, and goes to ``%DLQ%group`` after 16 times.
        """
        if self._deserialize is None:
            raise NotImplementedError("this receiver stores messages as they are")
        return self._deserialize(body)

    def onStart(self) -> None:
        """Join the group and begin to receive; must return."""
        self._running().open_consumer()

    def onStop(self) -> None:
        """Leave the group: what is not stored yet comes again."""
        self._running().close_consumer()

    def store(self, element: Any) -> None:
        """Add an element to the stream, or all elements of an iterator; from any thread of the task.

        Within `deserialize` it returns at once, and the message is acknowledged after its elements are
        stored. On other threads, such as those of a consumer of one's own, it returns when Spark has stored
        the element (with a log: when it is logged); acknowledge after that. Elements of several threads share
        blocks.

        Raises
        ------
        RocketMQError
            The receiver was stopped, or restarts, before the element was stored.
        """
        self._running().store(element)

    def restart(self, message: str, error: BaseException | None = None) -> None:
        """Have the receiver stopped and, after ``spark.streaming.receiverRestartDelay``, started again.

        Returns at once; may be called from any thread of the task. The driver logs why.
        """
        self._running().ask_to_restart(message, error)

    def isStopped(self) -> bool:
        """Whether the receiver is not, or not any more, receiving."""
        return self._task is None or self._task.stopped

    @property
    def receiverId(self) -> int:
        """Which of its stream's receivers this is, from 0 on."""
        return self._running().number

    def attach(self, task: ReceiverSupport) -> None:
        """Make it the receiver of a task: what the stream does."""
        self._task = task

    def _running(self) -> ReceiverSupport:
        if self._task is None:
            raise RocketMQError("a receiver runs in a task only: attach it with RocketMQUtils.receiverStream")
        return self._task


class ReliableRocketMQReceiver(RocketMQReceiver):
    """A receiver whose blocks are in a write-ahead log before they are acknowledged.

    Delivery promise: at least once. Nothing that a broker has handed out gets lost when an executor, a
    worker, or the driver dies: what is in the log and not processed is processed after a recovery from the
    checkpoint; what is not in the log has not been acknowledged and comes again.
    """

    reliable: ClassVar[bool] = True
