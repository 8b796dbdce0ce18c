"""The rows of one key in the order of their times, when the watermark has passed them. No I/O, and no Spark.

Times are microseconds, and so is a watermark: rows with earlier times are complete.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeAlias

from pyspark_rocketmq.sql.state.groups import Group
from pyspark_rocketmq.sql.state.steps import Grouping, Over

__all__ = ["Frames", "History"]

Values: TypeAlias = tuple[Any, ...]
_time = itemgetter(0)


class Frames:
    """Rows with the aggregates of the rows before them.

    Parameters
    ----------
    over : Over
    """

    def __init__(self, over: Over) -> None:
        self._over = over
        self._grouping = Grouping(over.keys, over.aggregates)
        self._pending: list[tuple[int, Values, Values]] = []
        self._frame: list[tuple[int, Values]] = []
        self._group = Group(self._grouping, changes=over.preceding is not None)
        self._done: int | None = None

    def add(self, time: int, arguments: Values, row: Values) -> bool:
        """Add a row; return False for one that comes too late: a later row has been emitted."""
        if self._done is not None and time <= self._done:
            return False
        self._pending.append((time, arguments, row))
        return True

    @property
    def first(self) -> int | None:
        """The time of the first row that waits."""
        return min(map(_time, self._pending), default=None)

    @property
    def needed_until(self) -> int | None:
        """The time of the last row whose result needs what is kept, if no other row comes; None: any row's.

        A frame of a range of times is over some time after its last row.
        """
        if self._over.preceding is None or self._over.rows:
            return None
        return self._frame[-1][0] + self._over.preceding if self._frame else 0

    def advance(self, watermark: int) -> Iterator[tuple[Values, Values]]:
        """Yield the rows before the watermark, and their aggregates."""
        ready = sorted((each for each in self._pending if each[0] < watermark), key=_time)
        self._pending = [each for each in self._pending if each[0] >= watermark]
        for time, peers in groupby(ready, key=_time):
            self._done = time
            rows = list(peers)
            for at, (_, arguments, row) in enumerate(rows):
                self._enter(time, arguments)
                if self._over.rows:
                    yield row, self._group.results()
                elif at == len(rows) - 1:  # rows of one time have the same frame
                    results = self._group.results()
                    yield from ((each, results) for _, _, each in rows)

    def _enter(self, time: int, arguments: Values) -> None:
        """Move the frame to a row."""
        self._group.add(1, arguments)
        preceding = self._over.preceding
        if preceding is None:
            return
        self._frame.append((time, arguments))
        left = (
            len(self._frame) - preceding - 1
            if self._over.rows
            else bisect_left(self._frame, time - preceding, key=_time)
        )
        for _, gone in self._frame[: max(left, 0)]:
            self._group.add(-1, gone)
        del self._frame[: max(left, 0)]

    def pack(self) -> Values:
        """Return the state as plain values."""
        return self._pending, self._frame, self._group.pack(), self._done

    def unpack(self, packed: Values) -> None:
        """Restore a state."""
        self._pending, self._frame, group, self._done = packed
        self._group.unpack(group)


class History:
    """Rows with the version that was valid at their time: the last one that is not later."""

    def __init__(self) -> None:
        self._pending: list[tuple[int, Values]] = []
        self._versions: list[tuple[int, Values | None]] = []

    def add(self, time: int, row: Values) -> None:
        """Add a row."""
        self._pending.append((time, row))

    def replace(self, time: int, version: Values | None) -> None:
        """Add a version, valid from a time. None: there is none. Of two, the later one is valid."""
        insort(self._versions, (time, version), key=_time)

    def remove_last(self) -> None:
        """Remove the last version, from its own time on."""
        if self._versions:
            self.replace(self._versions[-1][0], None)

    @property
    def first(self) -> int | None:
        """The time of the first row that waits."""
        return min(map(_time, self._pending), default=None)

    @property
    def needed_until(self) -> int | None:
        """0 if there is no version, not even that there is none; None: each later row needs the last one."""
        return None if self._versions else 0

    def advance(self, watermark: int) -> Iterator[tuple[Values, Values | None]]:
        """Yield the rows before the watermark, and their versions; forget versions that are over."""
        ready = sorted((each for each in self._pending if each[0] < watermark), key=_time)
        self._pending = [each for each in self._pending if each[0] >= watermark]
        for time, row in ready:
            at = bisect_right(self._versions, time, key=_time)
            yield row, self._versions[at - 1][1] if at else None
        self.forget(watermark)

    def forget(self, time: int) -> None:
        """Forget versions that are over at a time, and at the times of the rows that wait."""
        first = self.first
        over = bisect_right(self._versions, time if first is None else min(time, first), key=_time) - 1
        del self._versions[: max(over, 0)]

    def pack(self) -> Values:
        """Return the state as plain values."""
        return self._pending, self._versions

    def unpack(self, packed: Values) -> None:
        """Restore a state."""
        self._pending, self._versions = packed
