"""Windows with state that we keep, played by hand: no Spark."""

from __future__ import annotations

from types import SimpleNamespace

from pyspark.sql.types import LongType, StructField

from pyspark_rocketmq.streams.compile.aggregator_columns import Folded
from pyspark_rocketmq.streams.compile.aggregators import Count
from pyspark_rocketmq.streams.compile.window_state import FiredWindows
from pyspark_rocketmq.streams.plan.emission import Schedule

END = 10_000


class Played:
    """A window's state and timers, which later runs of the job get."""

    def __init__(self):
        self.value, self.timers = None, set()

    def _clear(self):
        self.value = None

    def run(self, schedule):
        """Return a function of a watermark and a number of rows that returns ``(fire time, rows)``."""
        results = Folded(2, folds=[Count(None)], aliases=["n"], user=[False])
        results.outputs.append(StructField("n", LongType()))
        processor = FiredWindows(schedule, results)
        state = SimpleNamespace(
            get=lambda: self.value, update=lambda value: setattr(self, "value", value), clear=self._clear
        )
        processor.init(
            SimpleNamespace(getValueState=lambda name, schema: state, registerTimer=self.timers.add)
        )
        key = ((END + schedule.keep_ms) * 1000, "{}")

        def batch(watermark, rows=0):
            times = SimpleNamespace(getCurrentWatermarkInMs=lambda: watermark)
            found = [*processor.handleInputRows(key, iter([(0, "{}")] * rows), times)] if rows else []
            for due in sorted(each for each in self.timers if each <= watermark):
                self.timers.discard(due)
                expired = SimpleNamespace(getExpiryTimeInMs=lambda due=due: due)
                found += processor.handleExpiredTimer(key, times, expired)
            return [(row["__fire"], row["n"]) for row in found]

        return batch


def test_a_window_has_its_result_at_its_end_after_its_watermark_was_made_shorter():
    played = Played()
    before = played.run(Schedule(size_ms=END, delay_ms=5_000, mode=2))
    assert before(0, rows=2) == []
    after = played.run(Schedule(size_ms=END, delay_ms=1_000, mode=2))
    assert after(6_000) == []
    assert after(7_000, rows=1) == []
    assert after(9_000) == [(END, 3)]
    assert after(9_500, rows=1) == [(10_500, 4)]
    assert after(END) == []
    assert (played.value, played.timers) == (None, set())


def test_a_window_has_one_result_at_its_end_after_its_partial_results_were_turned_off():
    played = Played()
    before = played.run(Schedule(size_ms=END, delay_ms=0, before_ms=4_000, after_ms=5_000))
    assert before(1_000, rows=1) == []
    after = played.run(Schedule(size_ms=END, delay_ms=0, after_ms=5_000))
    assert after(5_000) == []
    assert after(END) == [(END, 1)]
