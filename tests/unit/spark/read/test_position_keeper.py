"""The replay contract with Spark 4.0 and 4.1, which do not pass positions: each step killed once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.spark.fake_rocketmq import FakeRocketMQ
from tests.unit.spark.test_replay import (
    STARTS,
    Checkpoint,
    KilledError,
    Query,
    as_spark_keeps_it,
    check_every_batch_replans_alike,
    check_nothing_lost_nothing_twice,
    first_offsets,
    reader,
    sizes,
    world,
)

from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.offsets.stream_offset import SourceOffset
from pyspark_rocketmq.spark.features import SparkFeatures
from pyspark_rocketmq.spark.read.position_keeper import PositionKeeper, reader_for


class OlderQuery(Query):
    """A query as Spark 4.0 and 4.1 run it: with ``AvailableNow``, one batch."""

    def __init__(
        self, mq: FakeRocketMQ, kept: Checkpoint, options: dict[str, str], on_step: Callable[[str], None]
    ) -> None:
        super().__init__(mq, kept, options, on_step)
        self.keeper = PositionKeeper(self.reader)
        self.reader = self.keeper  # type: ignore[assignment]

    def _run(self, triggers: int, *, available_now: bool) -> None:
        if self.kept.ends:
            newest = self.kept.ends[-1]
            assert self._call("told", lambda: self.keeper.partitions(newest, newest)) == []
        if len(self.kept.ends) > self.kept.finished:
            self._run_batch()
            triggers -= available_now
        for _ in range(triggers):
            self.on_step("latest")
            if self.begin is None:
                self.begin = first_offsets(self.mq, self.options, sizes(self.mq))
            end = as_spark_keeps_it(self.keeper.latestOffset())
            if self.kept.ends and json.dumps(end) == json.dumps(self.kept.ends[-1]):
                continue
            if self.kept.ends:
                self._call("commit", lambda: self.keeper.commit(self.kept.ends[-1]))
            else:
                self.kept.begin = self.begin
            self.kept.ends.append(end)
            self.on_step("logged")
            self._run_batch()


def killed_at_every_step(options: dict[str, str]) -> list[tuple[FakeRocketMQ, Checkpoint, list[object]]]:
    """Run a query that is killed at one of its steps, and run it again to its end."""
    ended = []
    seen: list[str] = []
    OlderQuery(world(), Checkpoint(), options, seen.append).run(3)
    assert {"latest", "logged", "initial again", "partitions", "read", "finished"} <= set(seen)
    for fatal in range(len(seen)):
        mq, kept = world(), Checkpoint()
        count = 0

        def kill_once(_: str, mq: FakeRocketMQ = mq, fatal: int = fatal) -> None:
            nonlocal count
            mq.send()
            count += 1
            if count == fatal + 1:
                raise KilledError

        first = OlderQuery(mq, kept, options, kill_once)
        with pytest.raises(KilledError):
            first.run(4)
        for _ in range(2):  # the first run may only repeat a batch
            last = OlderQuery(mq, kept, options, lambda _: None)
            last.run(1, available_now=True)
        ended.append((mq, kept, [*first.commits_ahead, *last.commits_ahead]))
    return ended


@pytest.mark.parametrize("start", STARTS)
def test_killed_at_every_step_nothing_is_lost_and_nothing_comes_twice(start: str) -> None:
    for mq, kept, _ in killed_at_every_step(STARTS[start]):
        check_nothing_lost_nothing_twice(mq, kept)
        check_every_batch_replans_alike(mq, kept, STARTS[start])


def test_the_group_is_never_ahead_of_finished_batches() -> None:
    options = {"startingOffsets": "earliest", "consumerGroup": "g", "commitIntervalMs": "0"}
    for _, _, ahead in killed_at_every_step(options):
        assert ahead == []


def test_the_last_batch_of_a_run_is_committed_by_the_next_run() -> None:
    options = {"startingOffsets": "earliest", "consumerGroup": "g", "commitIntervalMs": "0"}
    mq, kept = world(), Checkpoint()
    mq.committed = {}
    for _ in range(2):
        query = OlderQuery(mq, kept, options, lambda _: None)
        query.run(1, available_now=True)
    assert len(kept.ends) == 1
    assert mq.committed == SourceOffset.from_dict(kept.ends[-1]).offsets


def test_an_idle_query_has_no_new_offsets() -> None:
    mq, kept = world(), Checkpoint()
    OlderQuery(mq, kept, STARTS["latest"], lambda _: None).run(5)
    assert len(kept.ends) == 1, "the start, resolved once"
    mq.send()
    OlderQuery(mq, kept, STARTS["latest"], lambda _: None).run(5)
    assert [sum(map(len, rows.values())) for rows in kept.sink.values()] == [0, 3]


def test_a_batch_that_spark_does_not_plan_is_not_read_by_the_next_one() -> None:
    """Such as that of a query whose filter is always false."""
    mq = world()
    keeper = PositionKeeper(reader(mq, STARTS["earliest"]))
    unplanned = keeper.latestOffset()
    mq.send()
    (partition,) = keeper.partitions(unplanned, keeper.latestOffset())
    assert sum(len(offsets) for offsets in partition.value) == 3


def test_an_earlier_batch_can_be_evaluated_again() -> None:
    mq = world()
    keeper = PositionKeeper(reader(mq, STARTS["earliest"]))
    start, first = keeper.initialOffset(), as_spark_keeps_it(keeper.latestOffset())
    planned = keeper.partitions(start, first)
    mq.send()
    second = as_spark_keeps_it(keeper.latestOffset())
    assert keeper.partitions(start, first) == planned
    assert keeper.latestOffset() == second


def test_an_end_asked_before_the_position_is_refused() -> None:
    """As with the wrapper of AvailableNow: such an end would begin where a new query does."""
    mq, kept = world(), Checkpoint()
    OlderQuery(mq, kept, STARTS["latest"], lambda _: None).run(2)
    mq.send()
    keeper = PositionKeeper(reader(mq, STARTS["latest"]))
    keeper.latestOffset()
    with pytest.raises(RocketMQError, match="triggerAvailableNowWrapper"):
        keeper.partitions(kept.ends[-1], kept.ends[-1])


@pytest.mark.parametrize(("level", "kept"), [((4, 0), True), ((4, 1), True), ((4, 2), False)])
def test_readers_get_a_memory_where_spark_passes_no_position(level: tuple[int, int], kept: bool) -> None:
    plain: Any = reader(world(), {})
    made = reader_for(plain, SparkFeatures("any", level))
    assert isinstance(made, PositionKeeper) is kept
    assert kept or made is plain
