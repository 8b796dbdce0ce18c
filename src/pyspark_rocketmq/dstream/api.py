"""The entry points, named as in rocketmq-spark."""

from __future__ import annotations

import queue
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from pyspark import SparkContext, StorageLevel
from pyspark.streaming import DStream, StreamingContext

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.dstream.arguments import check_stream, with_kafka_reset
from pyspark_rocketmq.dstream.direct.batch_plan import DirectPlan
from pyspark_rocketmq.dstream.direct.committed_rows import first_positions, require_commit_queues
from pyspark_rocketmq.dstream.direct.stream import BatchMaker, RocketMQDStream
from pyspark_rocketmq.dstream.pace import pace_of
from pyspark_rocketmq.dstream.queue_stream import queue_stream
from pyspark_rocketmq.dstream.ranges import RangesLike
from pyspark_rocketmq.dstream.rdd import MessageHandler, RocketMQRDD, create_rdd, key_value
from pyspark_rocketmq.dstream.receiver.receivers import ReliableRocketMQReceiver, RocketMQReceiver
from pyspark_rocketmq.dstream.receiver.server import ReceiverInfo
from pyspark_rocketmq.dstream.receiver.stream import (
    RocketMQReceiverStream,
    receiver_infos,
    stop_receivers,
)
from pyspark_rocketmq.dstream.strategies import (
    ConsumerStrategy,
    LocationStrategies,
    LocationStrategy,
    SpecificOffsetStrategy,
    Strategy,
    start_policy,
)
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageQueue, StartPolicy
from pyspark_rocketmq.model.arguments import require
from pyspark_rocketmq.offsets.offset_lookup import (
    PlanningClient,
    check_filter,
    fetch_start_ends,
    resolve_offsets,
)
from pyspark_rocketmq.offsets.queue_lookup import queues_and_brokers
from pyspark_rocketmq.options import (
    CompatibilityWarning,
    Kind,
    ReceiverOptions,
    SourceOptions,
    parse_direct_options,
    parse_options,
)
from pyspark_rocketmq.options.text.kinds import GROUP, TOPICS
from pyspark_rocketmq.planning.offset_resolution import check_listed

__all__ = ["RocketMQUtils"]

T = TypeVar("T")

_SPEED: Final = "pull.max.speed.per.partition"
_SPEED_SPELLINGS: Final = frozenset({_SPEED, "maxrateperqueue"})
_TOPIC_SPELLINGS: Final = frozenset({"topic", "consumer.topic", "topics"})
_GROUP_SPELLINGS: Final = frozenset({"consumerGroup", "consumer.group", "groupId"})
_CONF_SPEED: Final = "spark.streaming.rocketmq.maxRatePerPartition"


class RocketMQUtils:
    """RDDs and DStreams of RocketMQ. ``RocketMqUtils`` is an alias."""

    keyValue = staticmethod(key_value)
    """A message handler: (keys, body) pairs."""

    @staticmethod
    def createRDD(
        sc: SparkContext,
        groupId: str,
        offsetRanges: RangesLike,
        options: Mapping[str, Any] | None = None,
        locationStrategy: LocationStrategy = LocationStrategies.PreferConsistent,
        *,
        messageHandler: MessageHandler | None = None,
    ) -> RocketMQRDD:
        """Return the messages of offset ranges as an RDD.

        Nothing is committed; the pull requests only name the group.

        Parameters
        ----------
        sc : SparkContext
            A SparkContext of classic Spark.
        groupId : str
        offsetRanges : iterable of OffsetRange, or Mapping
            A mapping by `TopicQueueId` is also accepted, as in rocketmq-spark.
        options : Mapping, optional
            See `DirectOptions`. The name servers may also be set in ``$NAMESRV_ADDR``.
        locationStrategy : LocationStrategy
        messageHandler : Callable, optional
            Called with each `Message` in the task; its results are the RDD's elements.

        Returns
        -------
        RocketMQRDD
            An RDD of `Message`, or of the handler's results; ``.offsetRanges`` returns the ranges.

        Raises
        ------
        OptionError
            A range, the group or an option is invalid.
        RocketMQError
            With ``isolation=read_committed``, which leaves out what is not committed now.
        """
        group = _parse(GROUP, "groupId", groupId)
        return create_rdd(sc, group, offsetRanges, options or {}, locationStrategy, messageHandler)

    @staticmethod
    def createMQPullStream(  # noqa: PLR0917 - rocketmq-spark's signature
        ssc: StreamingContext,
        groupId: str,
        topics: str | Iterable[str],
        consumerStrategy: Strategy = ConsumerStrategy.earliest,
        autoCommit: bool = True,
        forceSpecial: bool = False,
        failOnDataLoss: bool = True,
        locationStrategy: LocationStrategy = LocationStrategies.PreferConsistent,
        options: Mapping[str, Any] | None = None,
        *,
        messageHandler: MessageHandler | None = None,
    ) -> RocketMQDStream:
        """Return a direct stream of topics: no receivers, one partition per queue.

        The start is resolved now. A stream that is recovered from a checkpoint continues from there and does
        not use the arguments.

        Parameters
        ----------
        ssc : StreamingContext
        groupId : str
        topics : str or iterable of str
        consumerStrategy : EarliestStrategy, LatestStrategy or SpecificOffsetStrategy
            See `ConsumerStrategy`.
        autoCommit : bool
            Commit the end of each batch for the group after the batch and all earlier batches are finished.
        forceSpecial : bool
            Whether specific offsets override the group's; other strategies ignore it.
        failOnDataLoss : bool
            Fail the batch if messages of its ranges are lost. False skips them with a warning.
        locationStrategy : LocationStrategy
        options : Mapping, optional
            See `DirectOptions`. The name servers may also be set in ``$NAMESRV_ADDR``. Kafka's
            ``auto.offset.reset`` is translated to a ``consumerStrategy``.
        messageHandler : Callable, optional
            Called with each `Message` in the task; its results are the stream's elements.

        Raises
        ------
        OptionError
            An argument or option is invalid; or, with ``failOnDataLoss``, the strategy has an offset for a
            queue that does not exist.
        TopicNotFoundError
            A topic does not exist.
        RocketMQError
            A name server or broker does not answer, or a commit topic does not exist.
        """
        flags = {"autoCommit": autoCommit, "forceSpecial": forceSpecial, "failOnDataLoss": failOnDataLoss}
        check_stream(consumerStrategy, locationStrategy, messageHandler, **flags)
        names = _parse(TOPICS, "topics", _joined(topics))
        group = _parse(GROUP, "groupId", groupId)
        strategy, asked = with_kafka_reset(consumerStrategy, options or {})
        given = _with_conf(ssc.sparkContext, asked)
        asked_for = parse_direct_options(given)
        source, by = asked_for.source_of_stream(names, group), asked_for.commit_topics(names)
        started_at_ms = SYSTEM_CLOCK.now_ms()
        client = PlanningClient(source.client)
        try:
            require_commit_queues(client, by)
            wanted, brokers = queues_and_brokers(client, source, clock=SYSTEM_CLOCK)
            queues = fetch_start_ends(client, wanted)
            check_filter(client, queues, source)
            policy = _policy(client, strategy, source, force_special=forceSpecial)
            if failOnDataLoss:
                check_listed(policy, wanted)
            positions = resolve_offsets(
                client, policy, queues, source, start_time_ms=started_at_ms, ends=queues
            )
            positions, floor = first_positions(client, policy, positions, by, group)
        finally:
            client.close()
        plan = DirectPlan(
            policy,
            positions,
            started_at_ms,
            pace_of(ssc.sparkContext.getConf().get, _interval_ms(ssc)),
            brokers=brokers - {queue.broker_name for queue in wanted if queue not in queues},
            floor=floor,
        )
        return RocketMQDStream(
            ssc,
            BatchMaker(
                plan,
                given,
                topics=names,
                group=group,
                fail_on_data_loss=failOnDataLoss,
                auto_commit=autoCommit,
                location=locationStrategy,
                handler=messageHandler,
            ),
        )

    # --- push mode ---

    @staticmethod
    def createInputDStream(
        ssc: StreamingContext,
        properties: Mapping[str, Any],
        storageLevel: StorageLevel | str = StorageLevel.MEMORY_AND_DISK_2,
        *,
        receivers: int = 1,
        deserialize: Callable[[bytes], Any] | None = None,
    ) -> RocketMQReceiverStream:
        """Return a stream of topics that receivers read; see `RocketMQReceiver`.

        Parameters
        ----------
        ssc : StreamingContext
        properties : Mapping
            Keys of `RocketMQConfig`, or of `ReceiverOptions`.
        storageLevel : StorageLevel or str
            Where Spark keeps blocks until their batches are done.
        receivers : int
            Number of receiver tasks. Each is a member of the group and occupies a core.
        deserialize : Callable, optional
            Converts a body to an object; None skips the message.

        Raises
        ------
        OptionError
            A property is invalid, or no core would be left for batches.
        """
        receiver = _receiver(RocketMQReceiver, properties, storageLevel, deserialize)
        return RocketMQReceiverStream(ssc, receiver, receivers)

    @staticmethod
    def createReliableInputDStream(
        ssc: StreamingContext,
        properties: Mapping[str, Any],
        storageLevel: StorageLevel | str = StorageLevel.MEMORY_AND_DISK,
        *,
        receivers: int = 1,
        deserialize: Callable[[bytes], Any] | None = None,
    ) -> RocketMQReceiverStream:
        """Return a stream of topics from receivers with a write-ahead log; see `ReliableRocketMQReceiver`.

        Call ``ssc.checkpoint(directory)`` first. For the parameters see `createInputDStream`.

        Raises
        ------
        OptionError
            No checkpoint directory is set, a property is invalid, or no core would be left for batches.
        """
        receiver = _receiver(ReliableRocketMQReceiver, properties, storageLevel, deserialize)
        return RocketMQReceiverStream(ssc, receiver, receivers)

    @staticmethod
    def receiverStream(
        ssc: StreamingContext, receiver: RocketMQReceiver, receivers: int = 1
    ) -> RocketMQReceiverStream:
        """Attach a receiver, as ``ssc.receiverStream`` does in Scala and Java.

        Raises
        ------
        OptionError
            No core would be left for batches.
        """
        return RocketMQReceiverStream(ssc, receiver, receivers)

    @staticmethod
    def queueStream(
        ssc: StreamingContext,
        queue: queue.Queue[Any] | queue.SimpleQueue[Any],
        *,
        maxPerBatch: int | None = None,
    ) -> DStream[Any]:
        """Return a stream of the elements that a user-defined consumer puts into a queue in the driver.

        Each batch takes the elements that are in the queue when it begins. Delivery promise: an element is in
        exactly one batch, and is lost if the batch fails or the driver dies: commit offsets in the stream's
        output.

        Parameters
        ----------
        ssc : StreamingContext
            A context without a checkpoint directory.
        queue : queue.Queue or queue.SimpleQueue
            With a ``maxsize``, the consumer waits for slow batches.
        maxPerBatch : int, optional
            Maximum elements per batch.

        Raises
        ------
        OptionError
            An argument is invalid.
        """
        return queue_stream(ssc, queue, maxPerBatch)

    @staticmethod
    def receiverInfos() -> list[ReceiverInfo]:
        """Return the status of the running receivers of this driver; none before the first batch."""
        return receiver_infos()

    @staticmethod
    def stopReceivers(timeout: float = 30.0) -> None:
        """Stop all receivers of this driver, and wait until batches contain everything that they stored.

        Call it before ``ssc.stop(stopGraceFully=True)``, so that all acknowledged messages are processed.

        Parameters
        ----------
        timeout : float
            In seconds.

        Raises
        ------
        RocketMQError
            The timeout passed first.
        """
        stop_receivers(timeout)


def _receiver(
    kind: type[RocketMQReceiver],
    properties: Mapping[str, Any],
    level: StorageLevel | str,
    deserialize: Callable[[bytes], Any] | None,
) -> RocketMQReceiver:
    parsed = parse_options(ReceiverOptions, properties)
    spellings = {spelling.lower() for spelling in _TOPIC_SPELLINGS | _GROUP_SPELLINGS}
    rest = {key: value for key, value in properties.items() if key.lower() not in spellings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CompatibilityWarning)  # the warning was issued already
        return kind(None, parsed.topics, parsed.consumer_group, level, options=rest, deserialize=deserialize)


def _policy(
    client: PlanningClient, strategy: Strategy, source: SourceOptions, *, force_special: bool
) -> StartPolicy:
    committed: Mapping[MessageQueue, int | None] = {}
    if isinstance(strategy, SpecificOffsetStrategy):
        strangers = sorted({queue.topic for queue in strategy.offsets} - set(source.topics))
        if strangers:
            raise OptionError(f"offsets are given for topics that are not read: {', '.join(strangers)}")
        if not force_special:
            committed = client.committed_offsets(source.group, strategy.offsets)
    return start_policy(strategy, committed, force_special=force_special)


def _with_conf(sc: SparkContext, options: Mapping[str, Any]) -> dict[str, Any]:
    """Add the settings of the SparkConf."""
    given = dict(options)
    speed = sc.getConf().get(_CONF_SPEED)
    if speed is not None and not {key.lower() for key in given} & _SPEED_SPELLINGS:
        given[_SPEED] = speed
    return given


def _interval_ms(ssc: StreamingContext) -> int:
    return int(ssc._jssc.ssc().graph().batchDuration().milliseconds())  # noqa: SLF001


def _joined(topics: str | Iterable[str]) -> str:
    if isinstance(topics, str) or not isinstance(topics, Iterable):
        return topics
    return ",".join(require(topic, str, "each topic", must="a text") for topic in topics)


def _parse(kind: Kind[T], name: str, text: str) -> T:
    require(text, str, name, must="a text")
    try:
        return kind.parse(text)
    except ValueError as error:
        raise OptionError(f"{name} is malformed: {error}", value=text) from None
