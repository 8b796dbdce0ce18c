"""Which queues a query reads, as topics, brokers and queues are added, removed, and return.

A stream's queues are those that have a position. A queue that leaves the route keeps its position and
continues there when it returns: leaving the route never counts as data loss, and never applies the start
policy again. A queue that first appears while the stream runs begins where it would have begun at the query's
start (`planning.offset_resolution.late_policy`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.model.names import GROUP_TOPIC_PREFIXES
from pyspark_rocketmq.options import SourceOptions
from pyspark_rocketmq.planning.topics.queue_names import named_as

__all__ = ["Discovery", "check_checkpoint", "discover", "match_topics", "plan_ranges", "targets"]

# Facts: TopicValidator.java (5.4.0) lists the system topics.
_SYSTEM_TOPICS: Final = frozenset(
    {
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    }
)
_SYSTEM_PREFIX: Final = "rmq_sys_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """The differences between the known queues and those of the route.

    Parameters
    ----------
    new : tuple of MessageQueue
        Queues without a position: each needs a position before it is read.
    grown : tuple of MessageQueue
        Those of ``new`` that extend a topic at a broker whose queues were known: certainly created later.
    created : tuple of MessageQueue
        Those of ``new`` of a topic that a broker did not have when the query started: created later, too.
    absent : tuple of MessageQueue
        Known queues that are not in the route (broker down, queue count reduced, topic deleted).
    """

    new: tuple[MessageQueue, ...]
    grown: tuple[MessageQueue, ...]
    absent: tuple[MessageQueue, ...]
    created: tuple[MessageQueue, ...] = ()


def discover(
    known: Collection[MessageQueue],
    seen: Iterable[MessageQueue],
    *,
    closed: bool = False,
    brokers: Collection[str] = (),
) -> Discovery:
    """Compare the queues that have a position with those in the route now.

    Parameters
    ----------
    known : collection of MessageQueue
        The queues of the last offset.
    seen : iterable of MessageQueue
        The readable queues of the route now, of all topics that the query reads.
    closed : bool
        With ``Trigger.AvailableNow``, new queues wait for the next run.
    brokers : collection of str
        The brokers whose topics were all known when the query started, and the name that the queues of
        static topics have in place of a broker's if these were all known.
    """
    there = set(seen)
    absent = tuple(sorted(queue for queue in known if queue not in there))
    if closed:
        return Discovery(new=(), grown=(), absent=absent)
    highest: dict[tuple[str, str], int] = {}
    for queue in known:
        place = (queue.topic, queue.broker_name)
        highest[place] = max(queue.queue_id, highest.get(place, -1))
    new = tuple(sorted(there.difference(known)))
    grown = tuple(
        queue
        for queue in new
        if queue.queue_id > highest.get((queue.topic, queue.broker_name), queue.queue_id)
        and (queue.broker_name in brokers or not queue.logical)
    )
    created = tuple(
        queue
        for queue in new
        if queue.broker_name in brokers
        and not queue.logical
        and (queue.topic, queue.broker_name) not in highest
    )
    return Discovery(new=new, grown=grown, absent=absent, created=created)


def targets(
    positions: Mapping[MessageQueue, int],
    max_offsets: Mapping[MessageQueue, int],
    *,
    frozen: Mapping[MessageQueue, int] | None = None,
) -> dict[MessageQueue, int]:
    """Return how far each queue could be read now; never before its position.

    Parameters
    ----------
    positions : Mapping
        The next offset of every known queue.
    max_offsets : Mapping
        The max offsets of the queues that are available now; an absent queue keeps its position.
    frozen : Mapping, optional
        The targets of an AvailableNow run, resolved at its start: no queue is read further, and the target
        of a removed queue is dropped with it.
    """
    reach: dict[MessageQueue, int] = {}
    for queue, position in positions.items():
        limit = max_offsets.get(queue, position)
        if frozen is not None:
            limit = min(limit, frozen.get(queue, position))
        reach[queue] = max(position, limit)
    return reach


def plan_ranges(
    start: Mapping[MessageQueue, int],
    end: Mapping[MessageQueue, int],
    begins: Mapping[MessageQueue, int] | None = None,
) -> tuple[OffsetRange, ...]:
    """Return the non-empty ranges between two offsets of a stream, in the queues' order.

    Parameters
    ----------
    start, end : Mapping
        Positions by queue.
    begins : Mapping, optional
        Where queues begin that are new in ``end``; overrides ``start``.

    Raises
    ------
    OptionError
        ``end`` has a queue whose begin is unknown: the offsets do not belong together.
    """
    ranges: list[OffsetRange] = []
    for queue in sorted(end):
        begin = (begins or {}).get(queue, start.get(queue))
        if begin is None:
            raise OptionError(
                "the end offset has a queue that the start offset does not know: the checkpoint is damaged, "
                "or was written by another query",
                queue=queue,
            )
        # An end before its start is a position that was moved back (a log that started again): nothing to
        # read.
        if begin < end[queue]:
            ranges.append(OffsetRange(queue, begin, end[queue]))
    return tuple(ranges)


def match_topics(pattern: re.Pattern[str], topics: Iterable[str]) -> tuple[str, ...]:
    """Return the topics whose full name matches, sorted.

    System topics never match; retry and dead-letter topics match only if the pattern begins with their
    prefix.
    """
    return tuple(sorted({topic for topic in topics if pattern.fullmatch(topic) and _is_for(pattern, topic)}))


def check_checkpoint(known: Iterable[MessageQueue], options: SourceOptions) -> None:
    """Check that the positions of a checkpoint belong to topics that the query reads.

    More topics than before are allowed: their queues are new. Fewer are not: their messages would silently
    be skipped.

    Raises
    ------
    OptionError
        The checkpoint has topics (or, with ``assign``, queues) that the query does not read.
    """
    known = list(known)
    pattern = options.topic_pattern
    if options.assign:
        name = named_as(options.assign)
        strangers = sorted({str(queue) for queue in known if name(queue) not in options.assign})
        reads = ", ".join(map(str, options.assign))
    elif pattern is not None:
        strangers = sorted({queue.topic for queue in known if not pattern.fullmatch(queue.topic)})
        reads = f"the topics that match {pattern.pattern}"
    else:
        strangers = sorted({queue.topic for queue in known} - set(options.topics))
        reads = ", ".join(options.topics)
    if strangers:
        raise OptionError(
            f"the checkpoint was written for {', '.join(strangers)}, but the query reads {reads}: "
            "give the query the same topics again, name what it shall no longer read in forgetQueues, or "
            "choose another checkpointLocation"
        )


def _is_for(pattern: re.Pattern[str], topic: str) -> bool:
    if topic in _SYSTEM_TOPICS or topic.lower().startswith(_SYSTEM_PREFIX):
        return False
    group_prefix = next((prefix for prefix in GROUP_TOPIC_PREFIXES if topic.startswith(prefix)), None)
    return group_prefix is None or pattern.pattern.startswith(group_prefix)
