"""What waits for the watermark in Python workers.

# Facts (Spark 4.3, TransformWithState, each seen): a timer fires when its time is not after the watermark,
# also in a micro-batch without rows; rows of these times are late. A timer is deleted after its handler: one
# for the same time that the handler registers is deleted, too.
"""

from __future__ import annotations

import pickle
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from decimal import localcontext
from typing import Any, Final

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import StructType

from pyspark_rocketmq.sql.state.processors import DIGITS, STATE, plain, scaled, scales
from pyspark_rocketmq.sql.state.steps import ARGUMENT, OP, ORDER, POSITION, Over
from pyspark_rocketmq.sql.state.timed import Frames, History

__all__ = ["TIME", "JoinVersions", "OverRows"]

TIME: Final = f"{ORDER}0"
_MILLI: Final = 1_000


class _Waiting(StatefulProcessor):
    """Keeps rows until the watermark has passed their times.

    Parameters
    ----------
    output : StructType
    """

    def __init__(self, output: StructType) -> None:
        self._row = Row(*(field.name for field in output.fields))

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._handle = handle
        self._state = handle.getValueState("key", STATE)

    @abstractmethod
    def new(self) -> Frames | History:
        """Return an empty state."""

    def given(self, rows: Iterator[Row]) -> Iterable[Row]:
        """Return the rows of a micro-batch in the order in which they are taken."""
        return rows

    @abstractmethod
    def take(self, kept: Any, row: Row) -> None:
        """Add a row to the state."""

    @abstractmethod
    def emit(self, kept: Any, watermark: int) -> Iterator[Row]:
        """Yield the results before a time."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        """Keep the rows of a micro-batch."""
        del key
        kept, waits, ends = self._load()
        for row in self.given(rows):
            self.take(kept, row)
        watermark_ms = timerValues.getCurrentWatermarkInMs()
        if isinstance(kept, History):  # a key without rows that wait has no timer
            kept.forget(watermark_ms * _MILLI)
        self._save(kept, waits, ends, watermark_ms)
        return iter(())

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        """Emit what is complete, and forget what no later row needs."""
        del key, expiredTimerInfo
        watermark_ms = timerValues.getCurrentWatermarkInMs()
        kept, _, ends = self._load()
        yield from self.emit(kept, watermark_ms * _MILLI + 1)
        self._save(kept, None, ends, watermark_ms)

    def _load(self) -> tuple[Frames | History, int | None, int | None]:
        """Return the state, and the times of its timers: for its first row, and for its end."""
        kept, found = self.new(), self._state.get()
        if found is None:
            return kept, None, None
        packed, waits, *ends = pickle.loads(found[0])  # noqa: S301 - what we wrote ourselves
        kept.unpack(packed)
        return kept, waits, ends[0] if ends else None  # releases before had no timer for the end

    def _save(self, kept: Frames | History, waits: int | None, ends: int | None, watermark_ms: int) -> None:
        """Save the state, and wait for its first row or, without one, for its end."""
        first, until = kept.first, kept.needed_until
        if first is not None:
            due = -(-first // _MILLI)
            if waits is None or due < waits:
                self._handle.registerTimer(due)
                waits = due
        elif until is not None:
            due = -(-until // _MILLI)
            if due <= watermark_ms:  # rows that come from now on are later
                if self._state.exists():
                    self._state.clear()
                return
            if ends is None or ends <= watermark_ms:
                self._handle.registerTimer(due)
                ends = due
        self._state.update((pickle.dumps((kept.pack(), waits, ends)),))


def _time(row: Row) -> int:
    if row[TIME] is None:
        raise ValueError("a row of an OVER or a join FOR SYSTEM_TIME AS OF has no time: filter it out")
    return int(row[TIME])


class OverRows(_Waiting):
    """The aggregates of the rows before each row."""

    def __init__(self, over: Over, columns: Sequence[str], output: StructType) -> None:
        super().__init__(output)
        self._over = over
        self._columns = tuple(columns)
        self._scales = scales(output.fields[len(columns) :])
        self._arguments = [
            f"{ARGUMENT}{at}" if aggregate.argument else None for at, aggregate in enumerate(over.aggregates)
        ]

    def new(self) -> Frames:
        """Return an empty state."""
        return Frames(self._over)

    def take(self, kept: Frames, row: Row) -> None:
        """Add a row to the state."""
        arguments = tuple(None if name is None else plain(row[name]) for name in self._arguments)
        kept.add(_time(row), arguments, tuple(plain(row[name]) for name in self._columns))

    def emit(self, kept: Frames, watermark: int) -> Iterator[Row]:
        """Yield the results before a watermark."""
        with localcontext(prec=2 * DIGITS):
            found = [(row, scaled(results, self._scales)) for row, results in kept.advance(watermark)]
        for row, results in found:
            yield self._row(*row, *results)


class JoinVersions(_Waiting):
    """Each row with the version that was valid at its time."""

    def __init__(
        self, columns: Sequence[str], versions: Sequence[str], output: StructType, *, outer: bool
    ) -> None:
        super().__init__(output)
        self._columns = tuple(columns)
        self._versions = tuple(versions)
        self._outer = outer

    def new(self) -> History:
        """Return an empty state."""
        return History()

    def given(self, rows: Iterator[Row]) -> Iterable[Row]:
        """Return rows in the order of their positions, without the old rows of updates that keep the key."""
        found = sorted(rows, key=lambda row: row[POSITION] or [])
        updated = {tuple(row[POSITION]) for row in found if row[OP] == "+U"}
        for row in found:
            if row[OP] == "-U":
                offset, index = row[POSITION]
                if (offset, index + 1) in updated:
                    continue
            yield row

    def take(self, kept: History, row: Row) -> None:
        """Add a row, or a version, to the state. A deleted row may have its key only, and no time."""
        match row[OP]:
            case None:
                kept.add(_time(row), tuple(row[name] for name in self._columns))
            case "-U" | "-D" if row[TIME] is None:
                kept.remove_last()
            case "-U" | "-D":
                kept.replace(row[TIME], None)
            case "+I" | "+U":
                kept.replace(_time(row), tuple(row[name] for name in self._versions))

    def emit(self, kept: History, watermark: int) -> Iterator[Row]:
        """Yield the results before a watermark. The last column is whether a row has a version."""
        absent = (None,) * len(self._versions)
        for row, version in kept.advance(watermark):
            if version is not None or self._outer:
                yield self._row(*row, *(version or absent), version is not None)
