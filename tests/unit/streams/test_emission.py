"""When windows give results, with watermark and timers played by hand: no Spark."""

from __future__ import annotations

import json
import statistics
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StringType, StructField
from tests.support.examples import examples

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams import HoppingWindow, SessionWindow, StreamBuilder, Time, TumblingWindow
from pyspark_rocketmq.streams.compile.aggregator_columns import Folded
from pyspark_rocketmq.streams.compile.aggregators import Count, Fold, Sum
from pyspark_rocketmq.streams.compile.window_state import FIRE, KEY, NUMBER, UNTIL, FiredWindows
from pyspark_rocketmq.streams.frame import extras
from pyspark_rocketmq.streams.plan.emission import Schedule

SIZE, DELAY, START = 10_000, 5_000, 1_000_000
KEY_TEXT = '{"user":"a"}'


class Game:
    """Runs a processor as Spark does: rows by key, late ones left out, then the timers that are due."""

    def __init__(self, schedule, results=None):
        self.schedule = schedule
        outputs = [StructField(name, LongType()) for name in ("c", "n")]
        results = results or Folded(
            2, outputs=outputs, folds=[Count(None), Sum(2)], aliases=["c", "größe"], user=[False] * 2
        )
        self.processor = FiredWindows(schedule, results)
        self.values, self.timers, self.key = {}, set(), None
        self.watermarks, self.newest, self.accepted, self.late = [0, 0], 0, {}, 0
        self.ends, self.rows = [], []
        self.processor.init(self)

    # what the processor asks of Spark

    def getValueState(self, name, schema):  # noqa: ARG002
        return SimpleNamespace(
            get=lambda: self.values.get(self.key),
            update=lambda value: self.values.__setitem__(self.key, value),
            clear=lambda: self.values.pop(self.key, None),
        )

    def registerTimer(self, expiryTimestampMs):  # noqa: N803
        self.timers.add((expiryTimestampMs, self.key))

    # what Spark does

    def batch(self, *rows):
        """Run a batch of ``(second, n)``; returns its results as ``(count, sum, fire second)``."""
        before, now = self.watermarks[-2:]
        given = SimpleNamespace(getCurrentWatermarkInMs=lambda: now)
        found, groups = [], {}
        for second, n in rows:
            end = _ms(second) // SIZE * SIZE + SIZE
            until = (end + self.schedule.keep_ms) * 1000
            if until <= before * 1000:
                self.late += 1
                continue
            self.accepted[end] = self.accepted.get(end, 0) + n
            groups.setdefault((until, KEY_TEXT), []).append((until, KEY_TEXT, n))
        for self.key, its in groups.items():
            found += self.processor.handleInputRows(self.key, iter(its), given)
        due_now = sorted(timer for timer in self.timers if timer[0] <= now)
        for due, self.key in due_now:
            info = SimpleNamespace(getExpiryTimeInMs=lambda due=due: due)
            found += self.processor.handleExpiredTimer(self.key, timerValues=given, expiredTimerInfo=info)
            self.timers.discard((due, self.key))
        self.rows += found
        self.ends += [row[0] // 1000 - self.schedule.keep_ms for row in found]
        self.newest = max([self.newest, *(_ms(second) for second, _ in rows)])
        self.watermarks.append(max(now, self.newest - DELAY))
        return [(row[4], row[5], row[2] // 1000 - START) for row in found]

    def run(self, *batches):
        """Run batches and, as Spark does, one without rows behind the last."""
        return [self.batch(*rows) for rows in (*batches, [])]


def _ms(second):
    return START * 1000 + int(second * 1000)


BATCHES = [
    [(1, 1), (4, 2)],
    [(11, 4)],  # the end of the first window has come, and 5 s are left for late rows
    [(5, 8)],
    [(6, 16)],
    [(16, 32)],  # now it is over
    [(16, 0)],
    [(7, 64)],
]


def test_one_result_a_window():
    game = Game(Schedule(SIZE, DELAY))
    assert game.run(*BATCHES) == [[], [], [], [], [], [(4, 27, 15)], [], []]
    assert game.late == 1


def test_late_rows_make_results_of_their_own():
    game = Game(Schedule(SIZE, DELAY, mode=1))
    batches = [*BATCHES[:2], [], *BATCHES[2:]]
    assert game.run(*batches)[:5] == [[], [], [(2, 3, 10)], [(1, 8, 11)], [(1, 16, 11)]]
    assert game.late == 1


def test_late_rows_make_the_result_anew():
    game = Game(Schedule(SIZE, DELAY, mode=2))
    results = game.run(*BATCHES[:2], [], *BATCHES[2:])
    assert [row for rows in results for row in rows if row[2] < 16] == [(2, 3, 10), (3, 11, 11), (4, 27, 11)]
    assert game.late == 1
    assert len(game.values) == 1, "what is over is forgotten"


def test_rows_that_come_with_the_first_result_are_in_it():
    game = Game(Schedule(SIZE, DELAY, mode=1))
    assert game.run(*BATCHES[:3]) == [[], [], [(3, 11, 10)], []]


def test_results_before_the_end_count_from_the_windows_start():
    game = Game(Schedule(SIZE, DELAY, before_ms=3_000))
    batches = [[(1, 1)], [(2, 2)], [(4, 4)], [(4, 8)], [(5, 16)], [(13, 0)], [(15, 0)], [(25, 0)]]
    results = [row for rows in game.run(*batches) for row in rows if row[1]]
    assert results == [(4, 15, 3), (5, 31, 6), (5, 31, 15)]


def test_results_after_the_end_come_while_late_rows_change_them():
    game = Game(Schedule(SIZE, DELAY, after_ms=4_000))
    batches = [[(1, 1)], [(15, 0)], [], [(2, 2)], [(3, 4)], [(19, 0)], [(25, 0)], [], [(30, 0)]]
    assert [row for rows in game.run(*batches) for row in rows if row[1]] == [(1, 1, 15), (3, 7, 19)]
    hour = 3_600
    late = [row for rows in game.run([(hour + 14, 0)], [(1, 8)], [(hour + 15, 0)], []) for row in rows]
    assert (4, 15, hour + 15) in late, "a last change goes out when the window is over"
    game.run([(2, 16)])
    assert game.late == 1


@examples(150)
@given(
    seconds=st.lists(st.lists(st.floats(0, 60), max_size=5), min_size=1, max_size=10),
    kind=st.sampled_from([{}, {"mode": 1}, {"mode": 2}, {"before_ms": 3_000}, {"after_ms": 4_000}]),
)
def test_every_row_that_is_not_late_counts_once(seconds, kind):
    game = Game(Schedule(SIZE, DELAY, **kind))
    batches = [[(second, 1) for second in batch] for batch in seconds]
    results = [row for rows in game.run(*batches, [(100_000, 0)], []) for row in rows]
    if kind in ({}, {"mode": 1}):
        assert sum(total for _, total, _ in results) == sum(game.accepted.values())
    else:
        newest = dict.fromkeys(game.accepted, 0)
        for end, total in zip(game.ends, (total for _, total, _ in results), strict=True):
            newest[end] = total
        assert newest == game.accepted
    assert sum(map(len, seconds)) == game.late + sum(game.accepted.values())
    assert len(game.values) <= 1, "what is over is forgotten"


def test_results_of_a_window_are_numbered_for_their_write_ids():
    game = Game(Schedule(SIZE, DELAY, mode=1))
    game.run(*BATCHES[:2], [], *BATCHES[2:])
    of_first = [row for row, end in zip(game.rows, game.ends, strict=True) if end == game.ends[0]]
    assert [(row[NUMBER], row["c"], row["n"]) for row in of_first] == [(1, 2, 3), (2, 1, 8), (3, 1, 16)]
    assert list(of_first[0].__fields__) == [UNTIL, KEY, FIRE, NUMBER, "c", "n"]
    assert {(row[UNTIL], row[KEY]) for row in of_first} == {(of_first[0][UNTIL], KEY_TEXT)}


def test_state_says_in_words_what_is_in_it():
    game = Game(Schedule(SIZE, DELAY))
    game.run([(1, 1), (2, 3)])
    ((fires, final, changed, _, shown),) = game.values.values()
    assert (fires, final, changed, shown) == (0, False, True, '{"c": 2, "größe": 4}')


class Deviation(Fold):
    """A user's function that has no result of fewer than two records."""

    def empty(self):
        return []

    def add(self, state, row):
        return [*state, row[2]]

    def result(self, state):
        return str(statistics.pstdev(state)) if len(state) > 1 else 1 // 0


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_a_users_result_is_needed_when_it_is_due_only(mode):
    """Neither after the first record, nor of the records after a result, of which there are none yet."""
    outputs = [StructField(name, StringType()) for name in ("c", "n")]
    folds = [Count(None), Deviation()]
    results = Folded(2, outputs=outputs, folds=folds, aliases=["c", "d"], user=[False] * 2)
    game = Game(Schedule(SIZE, DELAY, mode=mode), results)
    batches = [[(1, 1)], [(4, 3)], [(11, 4), (11, 5)], [], [(5, 8), (5, 10)], [(16, 0), (16, 1)]]
    found = [row for rows in game.run(*batches) for row in rows]
    assert [count for count, _, _ in found] == {0: [4], 1: [2, 2], 2: [2, 4]}[mode]
    shown = [json.loads(value[4])["d"] for value in game.values.values()]
    assert shown, "the state of a later window"


def test_a_row_that_comes_when_the_watermark_is_just_there_is_a_result():
    """The first result is due where the watermark stands, 5 s before the window's end."""
    game = Game(Schedule(SIZE, DELAY, mode=1))
    assert game.run([(1, 1)], [(10, 0)], [], [(5, 8)])[:4] == [[], [], [(1, 1, 10)], [(1, 8, 10)]]


def test_a_window_is_over_when_the_watermark_is_at_its_end():
    for mode in (0, 1, 2):
        game = Game(Schedule(SIZE, DELAY, mode=mode))
        game.run([(1, 1)], [(15, 0)])
        assert [row["n"] for row in game.rows] == [1]
        assert len(game.values) == 1, "that of the second window"
        game.run([(2, 4)], [(3, 8)])
        assert game.late == 2


def test_one_batch_of_rows_is_enough_for_a_result_before_the_end():
    game = Game(Schedule(SIZE, DELAY, before_ms=3_000))
    assert game.run([(1, 1)], [(12, 0)]) == [[], [], [(1, 1, 3)]]


@pytest.mark.parametrize(
    ("every_ms", "watermark", "due"),
    [(5_000, -5_000, 0), (5_000, -1, 0), (5_000, 0, None), (3_000, 0, 1_000), (3_000, 4_000, None)],
)
def test_no_result_before_the_end_is_due_at_the_end_or_after_it(every_ms, watermark, due):
    assert Schedule(SIZE, DELAY, mode=2, before_ms=every_ms).next_partial(SIZE, watermark) == due


def windows():
    source = StreamBuilder.dataStream("tests", "t").fromRocketmq("topic", "group", True, "h:1")
    return source.window(TumblingWindow.of(Time.seconds(10))).count()


def test_the_plan_says_what_was_asked_for(capsys):
    stream = windows().fireMode(2).waterMark(5).toDataStream()
    assert "python  tumbling windows" in stream.explain()
    assert "fires at the end, late rows with all before" in capsys.readouterr().out
    windows().fireMode(1).toDataStream().explain()
    assert "fires at the end, late rows on their own" in capsys.readouterr().out
    native = windows().emitBeforeFire(Time.seconds(1)).toDataStream().explain()
    assert "native" in native.splitlines()[2]
    assert "every 1000 milliseconds before the end" in native
    assert "python" in windows().emit_after_fire(Time.seconds(1)).to_data_stream().explain()
    assert "python" in windows().emit_before_fire(Time.seconds(1), strict=True).to_data_stream().explain()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda w: w.fireMode(3), "fireMode is 0, 1 or 2, not 3"),
        (lambda w: w.emitAfterFire(5), "takes a Time, such as Time.seconds"),
        (lambda w: w.fireMode(1).emitAfterFire(Time.seconds(1)).toDataStream(), "require fireMode 0, not 1"),
        (lambda w: w.emitBeforeFire(Time.seconds(1)).fireMode(2).toDataStream(), "require fireMode 0, not 2"),
    ],
)
def test_what_does_not_go_together_says_so(wrong, message):
    with pytest.raises(PlanError, match=message):
        wrong(windows())


def test_sessions_have_one_result():
    source = StreamBuilder.dataStream("tests", "t").fromRocketmq("topic", "group", True, "h:1")
    sessions = source.window(SessionWindow.of(Time.seconds(10))).count().fireMode(2)
    with pytest.raises(PlanError, match="session windows emit one result"):
        sessions.toDataStream()


def test_results_that_change_and_another_window_are_two_jobs():
    again = (
        windows().fireMode(2).toDataStream().window(TumblingWindow.of(Time.minutes(1))).count().toDataStream()
    )
    with pytest.raises(PlanError, match="read it with a second job"):
        again.explain()


def test_a_step_with_state_needs_its_release_and_library(monkeypatch):
    asked = []
    monkeypatch.setattr(extras, "FEATURES", SimpleNamespace(require=lambda *given: asked.append(given)))
    monkeypatch.setattr(extras, "_is_installed", lambda module: module == "google.protobuf")
    extras.require_state("window#2")
    assert asked == [("4.1", "window#2 keeps state in Python workers, which", "use that release")]
    monkeypatch.setattr(extras, "_is_installed", lambda module: False)
    with pytest.raises(PlanError, match=r"pip install \"pyspark-rocketmq\[state\]\".*window#2"):
        extras.require_state("window#2")


@pytest.mark.parametrize("module", ["no_such_library", "no_such_package.library"])
def test_a_missing_library_is_named_with_its_extra(module):
    extras.require("json.decoder", "mqtt", "fromMqtt#1")
    with pytest.raises(PlanError, match=r"pip install \"pyspark-rocketmq\[mqtt\]\".*fromMqtt#1"):
        extras.require(module, "mqtt", "fromMqtt#1")


@pytest.mark.parametrize(
    ("window", "text"),
    [
        (TumblingWindow.of(Time.seconds(10)), "tumbling windows of 10 s, watermark 0 s"),
        (
            HoppingWindow.of(Time.minutes(1), Time.seconds(0.5), "t"),
            "windows of 60 s every 0.5 s of the field t,",
        ),
        (SessionWindow.of(Time.seconds(3)), "sessions that end after 3 s, watermark"),
    ],
)
def test_explain_describes_windows_in_words(window, text):
    stream = StreamBuilder.dataStream("n", "p").fromRocketmq("t", "g", True, "h:1").window(window).count()
    assert text in stream.toDataStream().explain()
