from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from tests.support.clocks import FakeClock
from tests.support.examples import examples
from tests.unit.spark.fake_rocketmq import FakeRocketMQ

from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.spark.read.filtering_batch import FilteringBatchReader
from pyspark_rocketmq.spark.read.pushdown import Bounds, demand_of
from pyspark_rocketmq.spark.read.schema import read_schema

pytestmark = pytest.mark.since_spark("4.1")

A0, A1, B0 = (MessageQueue("orders", *where) for where in (("a", 0), ("a", 1), ("b", 0)))
T, B, Q, AT, S, G = (
    (name,) for name in ("topic", "brokerName", "queueId", "queueOffset", "storeTimestamp", "tags")
)


class World:
    """Ten messages a queue, five minutes apart, and a reader on them."""

    def __init__(self, **options: str) -> None:
        self.clock = FakeClock()
        self.begin_ms = self.clock.now_ms()
        self.mq = FakeRocketMQ(self.clock, [A0, A1, B0])
        for _ in range(10):
            self.mq.send()
            self.clock.now_s += 300
        given = {"nameServer": "127.0.0.1:9876", "topic": "orders", "pushDownFilters": "true"} | options
        parsed = parse_options(SourceOptions, given, where="read", environ={})
        self.reader = FilteringBatchReader(
            parsed, read_schema(None), connect=lambda _: self.mq, clock=self.clock
        )

    def planned(self, *filters: Filter) -> list[OffsetRange]:
        assert list(self.reader.pushFilters(list(filters))) == list(filters), "Spark evaluates them all again"
        return [offsets for partition in self.reader.partitions() for offsets in partition.value]

    def moment(self, minutes: float) -> dt.datetime:
        return dt.datetime.fromtimestamp(self.begin_ms / 1000 + minutes * 60, dt.UTC)


def of(*queues: MessageQueue, begin: int = 0, end: int = 10) -> list[OffsetRange]:
    return [OffsetRange(queue, begin, end) for queue in queues]


EVERYTHING = of(A0, A1, B0)


@pytest.mark.parametrize(
    ("filters", "ranges"),
    [
        ([], EVERYTHING),
        ([EqualTo(Q, 1)], of(A1)),
        ([EqualNullSafe(B, "b")], of(B0)),
        ([In(Q, (1, 2))], of(A1)),
        ([Not(EqualTo(B, "a"))], of(B0)),
        ([Not(In(B, ("a", "c")))], of(B0)),
        ([GreaterThan(Q, 0)], of(A1)),
        ([StringStartsWith(B, "b")], of(B0)),
        ([StringEndsWith(T, "x")], []),
        ([Not(StringContains(T, "rder"))], []),
        ([EqualTo(T, "orders"), IsNotNull(T)], EVERYTHING),
        ([EqualTo(Q, 0), EqualTo(B, "a"), EqualTo(AT, 7)], of(A0, begin=7, end=8)),
        ([GreaterThanOrEqual(AT, 3), LessThan(AT, 5)], of(A0, A1, B0, begin=3, end=6)),
        ([In(AT, (4, None, 6))], of(A0, A1, B0, begin=4, end=7)),
        ([EqualTo(AT, 10)], []),
        ([EqualTo(AT, -1)], []),
    ],
)
def test_only_what_can_pass_is_read(filters: list[Filter], ranges: list[OffsetRange]):
    assert World().planned(*filters) == ranges


@pytest.mark.parametrize(
    "condition",
    [
        EqualTo(Q, None),
        EqualTo(Q, "1"),
        EqualTo(Q, 1.0),
        In(Q, (1, None)),
        Not(IsNull(Q)),
        IsNull(("keys",)),
        EqualTo(("body",), b"x"),
        EqualTo(("queueId", "field"), 1),
        EqualTo(("unknown",), 1),
        Not(EqualTo(AT, 3)),
        Not(EqualTo(G, "a")),
        GreaterThan(AT, "3"),
        GreaterThan(S, 5),
        GreaterThan(S, dt.datetime(2999, 1, 1)),  # noqa: DTZ001 - of which zone nobody says
        EqualTo(G, " a"),
        EqualTo(G, "a || b"),
        EqualTo(G, "*"),
        EqualTo(G, ""),
        StringStartsWith(G, "a"),
        In(G, tuple(f"t{n}" for n in range(100))),
        In(G, (None,)),
    ],
    ids=repr,
)
def test_what_is_not_understood_is_read(condition: Filter):
    world = World()
    assert world.planned(condition) == EVERYTHING
    assert world.reader._options.tags == ()


def test_store_times_with_slack_for_clocks_that_were_set_back():
    world = World()
    # Messages lie at 0, 5, 10, … minutes; a minute of slack makes the bounds 11.5 and 21.5.
    wanted = [GreaterThan(S, world.moment(12.5)), LessThanOrEqual(S, world.moment(20.5))]
    assert world.planned(*wanted) == of(A0, A1, B0, begin=3, end=5)
    assert world.planned(EqualTo(S, world.moment(10)), EqualTo(Q, 1)) == of(A1, begin=2, end=3)
    assert world.planned(LessThan(S, dt.datetime(1960, 1, 1, tzinfo=dt.UTC))) == []
    assert world.planned(GreaterThan(S, dt.datetime(9998, 1, 1, tzinfo=dt.UTC))) == []
    assert world.planned(GreaterThan(S, dt.datetime(1, 1, 1, tzinfo=dt.UTC))) == EVERYTHING


def test_tags_are_asked_of_the_broker():
    world = World()
    assert world.planned(In(G, ("b", "a", None)), EqualTo(G, "b")) == EVERYTHING
    assert world.reader._options.tags == ("b",)
    assert World().planned(EqualTo(G, "a"), EqualTo(G, "b")) == []


@pytest.mark.parametrize("options", [{"tags": "x || y"}, {"sqlFilter": "a > 1"}])
def test_the_users_own_filter_stays(options: dict[str, str]):
    world = World(**options)
    selector = world.reader._options.selector
    assert world.planned(EqualTo(G, "x")) == EVERYTHING
    assert world.reader._options.selector == selector


def test_names_of_the_other_format_mean_the_same():
    demand = demand_of([EqualTo(("offset",), 3)], {"offset": "queueOffset"})
    assert demand.offsets == Bounds(3, 3)


_COMPARE: dict[type[Filter], Callable[[object, object], bool]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}
_leaves = st.tuples(
    st.sampled_from(list(_COMPARE)),
    st.sampled_from(["queueId", "queueOffset"]),
    st.integers(-2, 12),
    st.booleans(),
)


@examples(150)
@given(st.lists(_leaves, max_size=4))
def test_nothing_that_passes_is_left_out(leaves: list[tuple[type[Filter], str, int, bool]]):
    filters = [
        Not(kind((column,), value)) if negated else kind((column,), value)
        for kind, column, value, negated in leaves
    ]
    read = {(r.queue, at) for r in World().planned(*filters) for at in range(r.from_offset, r.until_offset)}
    for queue in (A0, A1, B0):
        for at in range(10):
            fact = {"queueId": queue.queue_id, "queueOffset": at}
            passes = all(_COMPARE[k](fact[c], v) is not negated for k, c, v, negated in leaves)
            assert not passes or (queue, at) in read
