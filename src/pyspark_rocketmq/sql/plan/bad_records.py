"""Which bad records the batches of a job have sent, and so which ones the next INSERT sends."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from pyspark.sql import SparkSession

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.model import Latest, MessageQueue, OffsetRange
from pyspark_rocketmq.model.nested_offsets import nest
from pyspark_rocketmq.offsets.offset_lookup import PlanningClient
from pyspark_rocketmq.options import SourceOptions, list_spellings, option_reference
from pyspark_rocketmq.options.bounds import OffsetBounds
from pyspark_rocketmq.planning.commits.records import Ranges
from pyspark_rocketmq.planning.commits.visible import join, subtract
from pyspark_rocketmq.spark.read.batch import resolve_ranges
from pyspark_rocketmq.sql.tables import Table

__all__ = ["Part", "SentBadRecords"]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a table's messages whose bad records are sent together.

    Parameters
    ----------
    read : mapping of str to str
        The options that read it.
    ranges : Ranges, optional
        One range a queue. None: everything, of a table whose messages are not told by their offsets.
    """

    read: Mapping[str, str] = field(repr=False)
    ranges: Ranges | None


class SentBadRecords:
    """What the batches of a job have read of its tables for their bad records.

    Each bad record is sent once: every INSERT that reads a table sends those that came since the last one. It
    asks after its own rows are written, so what it has read is part of it.
    """

    def __init__(self) -> None:
        self._sent: dict[Table, Ranges] = {}

    def unsent(self, spark: SparkSession, table: Table) -> list[Part]:
        """Return the parts of a table that its batches read now and that are not sent, as a rule one.

        With ``isolation=read_committed``, a table is sent once a text: an old offset becomes visible later.

        Raises
        ------
        SqlError
            An option is invalid.
        RocketMQError
            A name server or broker does not answer.
        """
        given = table.read_options(spark)
        options = table.given.parse(SourceOptions, given, table.whole)
        if options.isolation.committed_only:
            return [] if table in self._sent else [Part(given, None)]
        with closing(PlanningClient(options.client)) as client:
            ranges = resolve_ranges(client, options, clock=SYSTEM_CLOCK)
        sent = self._sent.get(table, {})
        if isinstance(options.end_policy(), Latest):
            sent = self._sent[table] = _without_shorter(sent, ranges)
        return [Part(_pin(given, part), _by_queue(part)) for part in _parts(subtract(ranges, sent))]

    def add(self, table: Table, part: Part) -> None:
        """Remember that the bad records of a part are sent."""
        self._sent[table] = join([self._sent.get(table, {}), part.ranges or {}])

    def begin_text(self) -> None:
        """Forget tables that are sent as a whole: another text of a shell sends them again."""
        self._sent = {table: ranges for table, ranges in self._sent.items() if ranges}


def _without_shorter(sent: Ranges, ranges: Iterable[OffsetRange]) -> Ranges:
    """Leave out queues that end before what is sent of them: their topic was created again."""
    ends = {each.queue: each.until_offset for each in ranges}
    return {queue: parts for queue, parts in sent.items() if parts[-1][1] <= ends.get(queue, parts[-1][1])}


def _parts(ranges: Iterable[OffsetRange]) -> list[list[OffsetRange]]:
    """Divide ranges into parts that have one range a queue."""
    parts: list[list[OffsetRange]] = []
    for _, of_queue in groupby(sorted(ranges), key=lambda each: each.queue):
        for at, each in enumerate(of_queue):
            if at == len(parts):
                parts.append([])
            parts[at].append(each)
    return parts


def _by_queue(ranges: Iterable[OffsetRange]) -> dict[MessageQueue, list[tuple[int, int]]]:
    return {each.queue: [(each.from_offset, each.until_offset)] for each in ranges}


def _pin(given: Mapping[str, str], ranges: Iterable[OffsetRange]) -> dict[str, str]:
    """Return the options of a read with these ranges in place of its queues, start and end."""
    starts = nest({each.queue: each.from_offset for each in ranges})
    ends = nest({each.queue: each.until_offset for each in ranges})
    queues = {topic: {name: [*map(int, ids)] for name, ids in homes.items()} for topic, homes in ends.items()}
    pinned = {"assign": queues, "startingOffsets": starts, "endingOffsets": ends}
    rest = {name: value for name, value in given.items() if name.lower() not in _PLACES}
    return rest | {name: json.dumps(value) for name, value in pinned.items()}


_QUEUES: Final = frozenset({"topic", "subscribePattern", "assign"})
_BOUNDS: Final = frozenset(row.name for row in option_reference(OffsetBounds))
_PLACES: Final = list_spellings(SourceOptions, _QUEUES | _BOUNDS)
"""The options that say which messages are read, in lower case."""
