"""The entry points, by rocketmq-spark's names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from pyspark import SparkContext
from pyspark.streaming import StreamingContext

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.dstream.direct import BatchMaker, RocketMQDStream
from pyspark_rocketmq.dstream.plan import DirectPlan, Pace
from pyspark_rocketmq.dstream.ranges import RangesLike, to_ranges
from pyspark_rocketmq.dstream.rdd import MessageHandler, RocketMQRDD, key_value
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
from pyspark_rocketmq.options import Kind, SourceOptions, parse_direct_options
from pyspark_rocketmq.options.kinds import GROUP, TOPICS
from pyspark_rocketmq.planning.rate import PidSettings
from pyspark_rocketmq.spark.positions import (
    PlanningClient,
    available_ends,
    planning_client,
    queues_to_read,
    resolve_offsets,
)

__all__ = ["RocketMQUtils"]

T = TypeVar("T")

_SPEED: Final = "pull.max.speed.per.partition"
_SPEED_SPELLINGS: Final = frozenset({_SPEED, "maxrateperqueue"})
_CONF_SPEED: Final = "spark.streaming.rocketmq.maxRatePerPartition"


class RocketMQUtils:
    """RDDs and DStreams of RocketMQ; ``RocketMqUtils`` is the same class."""

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

        Nothing is committed; the group is only named to the brokers.

        Parameters
        ----------
        sc : SparkContext
            Of classic Spark.
        groupId : str
        offsetRanges : iterable of OffsetRange, or Mapping
            Also by `TopicQueueId`, as rocketmq-spark has them.
        options : Mapping, optional
            See `DirectOptions`; the name servers may also come from ``$NAMESRV_ADDR``.
        locationStrategy : LocationStrategy
        messageHandler : Callable, optional
            Applied to each `Message` in the reader; its answers are the RDD's elements.

        Returns
        -------
        RocketMQRDD
            Of `Message`, or of what the handler returns; ``.offsetRanges`` has the ranges.

        Raises
        ------
        OptionError
            A range, the group or an option is wrong.
        """
        ranges = to_ranges(offsetRanges)
        topics = tuple(sorted({found.topic for found in ranges}))
        if not topics:
            raise OptionError("an RDD needs at least one offset range, an empty one perhaps")
        given = dict(options or {})
        source = parse_direct_options(given).source(topics, _parsed(GROUP, "groupId", groupId))
        return RocketMQRDD(sc, ranges, source, given, locationStrategy, handler=messageHandler)

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
        """Return topics as a stream that pulls without receivers, one partition a queue.

        The start is resolved now. A stream that is recovered from a checkpoint goes on where it was and asks
        for nothing of this.

        Parameters
        ----------
        ssc : StreamingContext
        groupId : str
        topics : str or iterable of str
        consumerStrategy : EarliestStrategy, LatestStrategy or SpecificOffsetStrategy
            See `ConsumerStrategy`.
        autoCommit : bool
            Commit the end of every batch for the group when the batch, and all before it, are finished.
        forceSpecial : bool
            Whether specific offsets go before the group's; no other strategy looks at it.
        failOnDataLoss : bool
            Fail the batch when messages are gone that it should have; false skips them with a warning.
        locationStrategy : LocationStrategy
        options : Mapping, optional
            See `DirectOptions`; the name servers may also come from ``$NAMESRV_ADDR``.
        messageHandler : Callable, optional
            Applied to each `Message` in the reader; its answers are the stream's elements.

        Raises
        ------
        OptionError
            An argument or option is wrong.
        TopicNotFoundError
            A topic does not exist.
        RocketMQError
            A name server or broker does not answer.
        """
        names = _parsed(TOPICS, "topics", topics if isinstance(topics, str) else ",".join(topics))
        group = _parsed(GROUP, "groupId", groupId)
        given = _with_conf(ssc.sparkContext, options or {})
        source = parse_direct_options(given).source(names, group)
        started_at_ms = SYSTEM_CLOCK.now_ms()
        client = planning_client(source.client)
        try:
            queues = available_ends(client, queues_to_read(client, source))
            policy = _policy(client, consumerStrategy, source, force_special=forceSpecial)
            positions = resolve_offsets(
                client, policy, queues, source, start_time_ms=started_at_ms, ends=queues
            )
        finally:
            client.close()
        plan = DirectPlan(policy, positions, started_at_ms, _pace(ssc))
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
    """Add what only the SparkConf says."""
    given = dict(options)
    speed = sc.getConf().get(_CONF_SPEED)
    if speed is not None and not {key.lower() for key in given} & _SPEED_SPELLINGS:
        given[_SPEED] = speed
    return given


def _pace(ssc: StreamingContext) -> Pace:
    conf = ssc.sparkContext.getConf()
    prefix = "spark.streaming.backpressure"
    initial = conf.get(f"{prefix}.initialRate")
    interval = ssc._jssc.ssc().graph().batchDuration().milliseconds()  # noqa: SLF001
    return Pace(
        pid=PidSettings(
            batch_interval_ms=int(interval),
            proportional=float(conf.get(f"{prefix}.pid.proportional", "1.0")),
            integral=float(conf.get(f"{prefix}.pid.integral", "0.2")),
            derivative=float(conf.get(f"{prefix}.pid.derived", "0.0")),
            min_rate=float(conf.get(f"{prefix}.pid.minRate", "100")),
        ),
        backpressure=conf.get(f"{prefix}.enabled", "false").lower() == "true",
        initial_rate=int(initial) if initial else None,
    )


def _parsed(kind: Kind[T], name: str, text: str) -> T:
    try:
        return kind.parse(text)
    except ValueError as error:
        raise OptionError(f"{name} is malformed: {error}", value=text) from None
