"""Which messages of a topic a command reads: where it starts, where it ends, and in which queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pyspark_rocketmq.cli.connect import find_start, source_options
from pyspark_rocketmq.cli.printing import name_queue
from pyspark_rocketmq.cli.times import is_time, moment
from pyspark_rocketmq.errors import OptionError

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client
    from pyspark_rocketmq.model import MessageQueue, OffsetRange

__all__ = [
    "Queue",
    "Start",
    "Until",
    "UntilBound",
    "check_bounds",
    "find_ranges",
    "resolve_start",
    "select_queues",
]

Start = Annotated[
    str,
    typer.Option(
        "--from",
        help="earliest, latest, last:100, offset:100, group, a time, a time ago (-10m), or JSON.",
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        help="Only messages before this: latest, offset:200 (not included), a time, a time ago, or JSON."
    ),
]
Queue = Annotated[list[str] | None, typer.Option("--queue", help="Only this queue, broker-a:0; repeatable.")]

_OFFSET: Final = "offset:"


def select_queues(client: Client, topic: str, names: Sequence[str] | None) -> tuple[MessageQueue, ...]:
    """Return the topic's queues, or those of them that are named.

    Raises
    ------
    OptionError
        The topic has no such queue.
    RocketMQError
    """
    from pyspark_rocketmq.model import MessageQueue
    from pyspark_rocketmq.planning.topics.queue_names import named_as

    queues = client.read_queues(topic)
    chosen: list[MessageQueue] = []
    for name in names or ():
        broker, _, queue_id = name.rpartition(":")
        asked = MessageQueue(topic, broker, int(queue_id)) if queue_id.isdecimal() else None
        named = [] if asked is None else [each for each in queues if each == named_as(queues)(asked)]
        if not named:
            there = ", ".join(map(name_queue, queues))
            raise OptionError(f"the topic has no such queue; it has {there}", topic=topic, queue=name)
        chosen += named
    return tuple(sorted(set(chosen))) if names else queues


def check_bounds(
    namesrv: str | None,
    settings: Sequence[str] | None,
    topic: str,
    *,
    start: str,
    until: str | None,
    group: str | None = None,
) -> None:
    """Check ``--from`` and ``--until`` before anything is asked of a server.

    Raises
    ------
    OptionError
        A text is malformed.
    """
    for name, text in (("--from", start), ("--until", until)):
        if text is None:
            continue
        if text.strip().lower().startswith(_OFFSET):
            _parse_offset(text, name)
        else:
            also = f"{_OFFSET}100, "
            source_options(namesrv, settings, topic=topic, group=group, start=text, name=name, also=also)


def _parse_offset(text: str, name: str) -> int:
    number = text.strip()[len(_OFFSET) :]
    if not number.isdecimal():
        raise OptionError(f"{name} takes an offset as {_OFFSET}100", given=text)
    return int(number)


def resolve_start(
    client: Client,
    namesrv: str | None,
    settings: Sequence[str] | None,
    queues: Sequence[MessageQueue],
    text: str,
    *,
    name: str = "--from",
    group: str | None = None,
) -> dict[MessageQueue, int]:
    """Return the offset in each queue that a text means.

    An offset outside of a queue is moved to the queue's nearest end.

    Raises
    ------
    OptionError
        The text is malformed.
    RocketMQError
    """
    if not queues:
        return {}
    topic = queues[0].topic
    if text.strip().lower().startswith(_OFFSET):
        wanted = _parse_offset(text, name)
        lows, highs = client.min_offsets(queues), client.max_offsets(queues)
        return {queue: min(max(wanted, lows[queue]), highs[queue]) for queue in queues}
    options = source_options(namesrv, settings, topic=topic, group=group, start=text, name=name)
    found = find_start(client, options, only=queues)
    return {queue: found[queue] for queue in queues if queue in found}


class UntilBound:
    """Where reading ends: at offsets, or at a time, which may be in the future.

    Parameters
    ----------
    offsets : Mapping, optional
        The ends. None for the queues' ends, or a time.
    time_ms : int, optional
        The ends are the first messages stored at or after this time.
    """

    def __init__(self, offsets: Mapping[MessageQueue, int] | None, time_ms: int | None) -> None:
        self._offsets = offsets
        self._time_ms = time_ms

    @classmethod
    def parse(
        cls,
        client: Client,
        namesrv: str | None,
        settings: Sequence[str] | None,
        queues: Sequence[MessageQueue],
        text: str | None,
    ) -> UntilBound:
        """Return the bound that ``--until`` gives. Raises as `resolve_start`."""
        if text is None:
            return cls(None, None)
        if is_time(text):
            return cls(None, moment("--until", text, client.clock.now_ms()))
        if text.strip().lower().startswith(_OFFSET):  # may be in the future, as a time
            return cls(dict.fromkeys(queues, _parse_offset(text, "--until")), None)
        return cls(resolve_start(client, namesrv, settings, queues, text, name="--until"), None)

    def ends(self, client: Client, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the offset before which each queue may be read now.

        Raises
        ------
        RocketMQError
        """
        return self.limit(client, client.max_offsets(queues))

    def limit(self, client: Client, newest: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Return `ends` of queues whose max offsets are known. Raises as `ends`."""
        if self._time_ms is not None:
            limits: Mapping[MessageQueue, int] = client.offsets_at(dict.fromkeys(newest, self._time_ms))
        elif self._offsets is not None:
            limits = self._offsets
        else:
            return dict(newest)
        return {queue: min(end, limits[queue]) for queue, end in newest.items()}

    @property
    def allows_new_queues(self) -> bool:
        """Whether queues that are added to the topic are also before the bound."""
        return self._offsets is None

    def reached(self, positions: Mapping[MessageQueue, int], *, now_ms: int) -> bool:
        """Return whether no message that is still to come is before the bound.

        Parameters
        ----------
        positions : Mapping
            The next offset of each queue.
        now_ms : int
            The time before `ends` was last called.
        """
        if self._time_ms is not None:
            return now_ms >= self._time_ms
        return self._offsets is not None and all(
            position >= self._offsets[queue] for queue, position in positions.items()
        )


def find_ranges(
    client: Client,
    namesrv: str | None,
    settings: Sequence[str] | None,
    topic: str,
    *,
    start: str,
    until: str | None,
    queues: Sequence[str] | None,
    group: str | None = None,
) -> list[OffsetRange]:
    """Return the ranges of a topic's queues, without empty ones. Raises as `resolve_start`."""
    from pyspark_rocketmq.model import OffsetRange

    chosen = select_queues(client, topic, queues)
    starts = resolve_start(client, namesrv, settings, chosen, start, group=group)
    ends = UntilBound.parse(client, namesrv, settings, chosen, until).ends(client, chosen)
    return [OffsetRange(queue, begin, ends[queue]) for queue, begin in starts.items() if begin < ends[queue]]
