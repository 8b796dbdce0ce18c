"""When a window emits results: RocketMQ Streams' fire modes, and results before and after its end.

# Facts (rocketmq-streams 1.0.1: WindowInstance, WindowTrigger, AbstractWindow)
# fireMode 0: one result at end + waterMark, later rows are dropped. fireMode 1 and 2: a first result at end;
# rows that arrive later, within waterMark, give a separate result (1) or the accumulated one again (2).
# emitBeforeFire(t): partial results every t from the window's start. emitAfterFire(t): every t after the
# result, until 3,600 s later. Both in fireMode 0 only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams.plan.choices import FireMode, choices_of
from pyspark_rocketmq.streams.plan.times import SessionWindow, Time, Window

__all__ = ["ONCE", "Firing", "Schedule"]

_MAX_DELAY_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Firing:
    """The user's settings of when a window emits results.

    Parameters
    ----------
    mode : {0, 1, 2}
    before : Time, optional
        Interval of partial results before the result.
    after : Time, optional
        Interval of results after the result, while late rows change it.
    strict : bool
        ``before`` is measured in event time from the window's start, not in Spark's batches.
    incremental : bool
        A user's function runs for each record as it arrives, not over all records at the end.
    """

    mode: FireMode = 0
    before: Time | None = None
    after: Time | None = None
    strict: bool = False
    incremental: bool = False

    @property
    def stateful(self) -> bool:
        """Whether Spark's windows cannot do this, so that it needs our own state, in Python."""
        return self.mode != 0 or self.after is not None or self.strict or self.incremental

    @property
    def updates(self) -> bool:
        """Whether each batch emits changed results."""
        return self.before is not None and not self.stateful

    @property
    def repeats(self) -> bool:
        """Whether a window may have more than one result."""
        return self.mode != 0 or self.before is not None or self.after is not None

    def check(self, window: Window, step: str) -> None:
        """Raise a PlanError for settings that conflict."""
        if self.mode not in choices_of(FireMode):
            raise PlanError(f"fireMode is 0, 1 or 2, not {self.mode!r}", step=step)
        if self.mode != 0 and (self.before or self.after):
            raise PlanError(
                f"emitBeforeFire and emitAfterFire require fireMode 0, not {self.mode}: in other "
                "modes late rows give results anyway",
                step=step,
            )
        if self.stateful and isinstance(window, SessionWindow):
            raise PlanError(
                "session windows emit one result, at their end: fireMode 1 and 2, emitAfterFire, "
                "strict results before the end and incremental=True need tumbling or hopping windows",
                step=step,
            )

    def __str__(self) -> str:
        parts = []
        if self.mode:
            again = "on their own" if self.mode == 1 else "with all before"
            parts.append(f"fires at the end, late rows {again}")
        if self.before:
            parts.append(f"every {self.before} before the end")
        if self.after:
            parts.append(f"every {self.after} after it")
        return ", ".join(parts)


ONCE: Final = Firing()
"""One result a window: Spark's own."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When results of a window are due, by Spark's watermark: the newest event time minus ``delay_ms``.

    All times are in milliseconds. A window is identified by its end.

    Parameters
    ----------
    size_ms : int
        From a window's start to its end.
    delay_ms : int
        How late rows may be (``waterMark``).
    mode : {0, 1, 2}
    before_ms, after_ms : int, optional
    """

    size_ms: int
    delay_ms: int
    mode: FireMode = 0
    before_ms: int | None = None
    after_ms: int | None = None

    @property
    def keep_ms(self) -> int:
        """How long after its end, by the watermark, a window still accepts rows."""
        return 0 if self.after_ms is None else _MAX_DELAY_MS

    def first(self, end: int) -> int:
        """Return when the result is due: after the late rows, or (modes 1 and 2) at the window's end."""
        return end if self.mode == 0 else end - self.delay_ms

    def over(self, end: int) -> int:
        """Return when the window closes: rows are late from then on."""
        return end + self.keep_ms

    def next_partial(self, end: int, watermark: int) -> int | None:
        """Return when the next result due to a change is emitted, besides the first and the last result."""
        first = self.first(end)
        if watermark < first:
            begun, every, limit = end - self.size_ms - self.delay_ms, self.before_ms, first
        else:
            begun, every, limit = first, self.after_ms, self.over(end)
        if every is None:
            return None
        due = begun + max((watermark - begun) // every + 1, 1) * every
        return due if due < limit else None

    def fire_time(self, due: int) -> int:
        """Return the event time that triggers a result."""
        return due + self.delay_ms
