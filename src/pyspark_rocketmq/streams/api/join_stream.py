"""Joins of the fluent API: the join condition and the time window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams.api.arguments import check_seconds, check_window
from pyspark_rocketmq.streams.api.compat import ResultNames
from pyspark_rocketmq.streams.api.job import Job
from pyspark_rocketmq.streams.connectors.dimension import DimensionTable
from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.plan.expressions import comparisons
from pyspark_rocketmq.streams.plan.times import SessionWindow, Time, TumblingWindow, Window

__all__ = ["JoinStream"]

S = TypeVar("S")
"""The resulting stream."""

_AN_HOUR: Final = (3_600_000, 3_600_000)
"""RocketMQ Streams' default window of a join."""


class JoinStream(ResultNames[S]):
    """A join of two streams, or of a stream and a table, under construction."""

    def __init__(
        self,
        job: Job,
        left: p.Node,
        right: p.Node | DimensionTable,
        stream: Callable[[Job, p.Node], S],
        *,
        outer: bool,
    ) -> None:
        self._job = job
        self._stream = stream
        self._left = left
        self._right = right
        self._outer = outer
        self._condition: str | None = None
        self._window: Window | None = None
        self._interval: tuple[int, int] | None = None
        self._watermark_s = 0.0

    def on(self, condition: str) -> JoinStream[S]:
        """Set the join condition: ``(left field,==,right field)``, several combined by ``&``."""
        comparisons(condition, step="on")
        self._condition = condition
        return self

    setCondition = on

    def setJoinType(self, joinType: str) -> JoinStream[S]:
        """Set the join type: ``"inner"`` or ``"left"``."""
        if joinType.lower() not in {"inner", "left"}:
            raise PlanError(f"a join is inner or left, not {joinType!r}", step="join")
        self._outer = joinType.lower() == "left"
        return self

    def window(self, window: Time | Window) -> JoinStream[S]:
        """Join records of the same window."""
        self._window = TumblingWindow.of(window) if isinstance(window, Time) else window
        check_window(self._window, "join")
        return self

    def interval(self, before: Time, after: Time) -> JoinStream[S]:
        """Join records whose right side is at most this much older or newer than the left."""
        self._interval = (before.length_ms, after.length_ms)
        return self

    def waterMark(self, seconds: float) -> JoinStream[S]:
        """Set how many seconds records may be late."""
        check_seconds(seconds, "waterMark", "join")
        self._watermark_s = seconds
        return self

    def toDataStream(self) -> S:
        """Return the pairs as a stream.

        Without a window or an interval, records at most an hour apart are joined. A left join emits a record
        without a match when that hour is over. A side that ends is a table without a window; in a left join
        it is the right side.

        Raises
        ------
        PlanError
            The condition is missing, or more than one window or interval is given.
        """
        name = self._job.step("join")
        if self._condition is None:
            raise PlanError("a join needs on('(left,==,right)')", step=name)
        if isinstance(self._right, DimensionTable):
            if self._window or self._interval:
                raise PlanError("a join with a table takes no window", step=name)
            return self._stream(
                self._job,
                p.DimensionJoin(
                    name=name,
                    input=self._left,
                    table=self._right,
                    outer=self._outer,
                    condition=self._condition,
                ),
            )
        ends = p.ends(self._left), p.ends(self._right)
        if ends[0] != ends[1]:
            return self._stream(self._job, self._table_join(name, self._right, self._condition))
        if self._window is not None and self._interval is not None:
            raise PlanError("a join of streams takes window(...) or interval(...), not both", step=name)
        if isinstance(self._window, SessionWindow):
            raise PlanError("streams are joined in tumbling or hopping windows", step=name)
        return self._stream(
            self._job,
            p.StreamJoin(
                name=name,
                left=self._left,
                right=self._right,
                outer=self._outer,
                condition=self._condition,
                window=self._window,
                interval=self._interval if self._window or self._interval else _AN_HOUR,
                watermark_s=self._watermark_s,
            ),
        )

    def _table_join(self, name: str, right: p.Node, condition: str) -> p.TableJoin:
        """Return the join of a stream and a side that ends."""
        if self._window or self._interval:
            raise PlanError(
                "one side is bounded and is joined as a table, without a window: remove window(...) "
                "and interval(...), or follow the file with tail=True",
                step=name,
            )
        if self._outer and p.ends(self._left):
            raise PlanError(
                "the left side of a left join must be a stream, and this one is bounded: put the "
                "stream on the left, or follow the file with tail=True",
                step=name,
            )
        return p.TableJoin(name=name, left=self._left, right=right, outer=self._outer, condition=condition)

    set_condition = setCondition
    set_join_type = setJoinType
    water_mark = waterMark
    to_data_stream = toDataStream
