from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import (
    Ago,
    AtOffsets,
    AtTimestamp,
    Earliest,
    GroupOffsets,
    LastMessages,
    Latest,
    MessageQueue,
    OffsetRange,
    StartPolicy,
)
from pyspark_rocketmq.options import TimestampStrategy
from pyspark_rocketmq.planning.offset_resolution import (
    Answers,
    batch_ranges,
    check_listed,
    late_policy,
    lookups,
    resolve,
)

A0, A1 = (MessageQueue("orders", "broker-a", index) for index in range(2))
P0 = MessageQueue("payments", "broker-b", 0)
NOW = 1_000_000
ANSWERS = Answers(
    min_offsets={A0: 10, A1: 0, P0: 7},
    max_offsets={A0: 90, A1: 0, P0: 9},
    committed={A0: 50, A1: None, P0: None},
    timestamps={A0: 60, A1: 0, P0: 9},
)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Earliest(), {A0: 10, A1: 0, P0: 7}),
        (Latest(), {A0: 90, A1: 0, P0: 9}),
        (GroupOffsets(Earliest()), {A0: 50, A1: 0, P0: 7}),
        (GroupOffsets(Latest()), {A0: 50, A1: 0, P0: 9}),
        (GroupOffsets(AtTimestamp(5)), {A0: 50, A1: 0, P0: 9}),
        (AtTimestamp(5), {A0: 60, A1: 0, P0: 9}),
        (Ago(5), {A0: 60, A1: 0, P0: 9}),
        (LastMessages(30), {A0: 60, A1: 0, P0: 7}),
        (LastMessages(0), {A0: 90, A1: 0, P0: 9}),
        (AtOffsets({A0: 33}, Earliest()), {A0: 33, A1: 0, P0: 7}),
        (AtOffsets({A0: Latest()}, None, {"orders": Earliest(), "payments": 8}), {A0: 90, A1: 0, P0: 8}),
        (AtOffsets({P0: LastMessages(1)}, GroupOffsets(Latest())), {A0: 50, A1: 0, P0: 8}),
        # Explicit offsets outside of the queue are not bent: that is for gaps to decide.
        (AtOffsets({A0: 1, A1: 999}, Earliest()), {A0: 1, A1: 999, P0: 7}),
    ],
)
def test_a_policy_becomes_one_offset_a_queue(policy: StartPolicy, expected: dict[MessageQueue, int]) -> None:
    assert resolve(policy, (A0, A1, P0), ANSWERS) == expected


def test_only_what_is_needed_is_asked() -> None:
    policy = AtOffsets({A0: 5, A1: Ago(400)}, GroupOffsets(Latest()))
    asked = lookups(policy, (A0, A1, P0), start_time_ms=NOW)
    assert asked.min_offsets == frozenset()
    assert asked.max_offsets == {P0}
    assert asked.committed == {P0}
    assert asked.timestamps == {A1: NOW - 400}


def test_a_time_ago_counts_from_the_start_but_not_beyond_1970() -> None:
    assert lookups(Ago(0), (A0,), start_time_ms=NOW).timestamps == {A0: NOW}
    assert lookups(Ago(NOW + 1), (A0,), start_time_ms=NOW).timestamps == {A0: 0}


def test_a_group_without_offsets_and_without_reset_fails() -> None:
    with pytest.raises(OptionError, match=r"orders@broker-a:1, payments@broker-b:0 and groupOffsetReset"):
        resolve(GroupOffsets(None), (A0, A1, P0), ANSWERS)
    assert resolve(GroupOffsets(None), (A0,), ANSWERS) == {A0: 50}


def test_a_time_after_the_log_fails_if_asked_to() -> None:
    strict = TimestampStrategy.ERROR
    asked = lookups(AtTimestamp(5), (A0, P0), start_time_ms=NOW, strategy=strict)
    assert asked.max_offsets == {A0, P0}
    with pytest.raises(
        OptionError, match=r"payments@broker-b:0: .*startingOffsetsByTimestampStrategy=latest"
    ):
        resolve(AtTimestamp(5), (A0, P0), ANSWERS, strategy=strict)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (AtOffsets({A1: 5}, Earliest()), r"orders@broker-a:1, which the query does not read"),
        (AtOffsets({}, Earliest(), {"refunds": 5}), r"for refunds, which"),
        (AtOffsets({A0: 5}), r"no offset is given for payments@broker-b:0: .*startingOffsetsDefault"),
    ],
)
def test_listed_queues_must_exist_and_the_others_need_a_default(policy: StartPolicy, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        check_listed(policy, (A0, P0))


@pytest.mark.parametrize(
    "policy", [Latest(), AtOffsets({A0: 5}, Latest()), AtOffsets({A0: 5}, None, {"payments": 4})]
)
def test_what_lists_everything_is_fine(policy: StartPolicy) -> None:
    check_listed(policy, (A0, P0))


def test_errors_name_a_few_queues_only() -> None:
    many = [MessageQueue("orders", "broker-a", index) for index in range(1_000)]
    with pytest.raises(OptionError, match=r"orders@broker-a:4 and 995 more") as caught:
        check_listed(AtOffsets({}), many)
    assert len(str(caught.value)) < 500


START = AtTimestamp(NOW)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Earliest(), AtOffsets({}, Earliest())),
        (Latest(), AtOffsets({}, START)),
        (LastMessages(5), AtOffsets({}, START)),
        (AtTimestamp(7), AtOffsets({}, AtTimestamp(7))),
        (AtTimestamp(NOW + 9), AtOffsets({}, START)),
        (Ago(100), AtOffsets({}, AtTimestamp(NOW - 100))),
        (GroupOffsets(Earliest()), AtOffsets({}, GroupOffsets(Earliest()))),
        (GroupOffsets(Latest()), AtOffsets({}, GroupOffsets(START))),
        (GroupOffsets(None), AtOffsets({}, GroupOffsets(START))),
        (
            AtOffsets({A0: AtTimestamp(NOW + 9), A1: AtTimestamp(7)}, AtTimestamp(NOW + 9)),
            AtOffsets({A0: START, A1: AtTimestamp(7)}, START),
        ),
        (
            AtOffsets({A0: 5, A1: Latest()}, None, {"payments": Ago(1)}),
            AtOffsets({A0: 5, A1: START}, START, {"payments": AtTimestamp(NOW - 1)}),
        ),
    ],
)
def test_a_late_queue_begins_where_the_start_would_have_put_it(
    policy: StartPolicy, expected: AtOffsets
) -> None:
    assert late_policy(policy, start_time_ms=NOW) == expected


def test_a_queue_that_is_certainly_new_begins_at_its_min() -> None:
    policy = late_policy(Latest(), start_time_ms=NOW, grown=(A1,))
    assert lookups(policy, (A1,), start_time_ms=NOW).min_offsets == {A1}
    assert lookups(policy, (P0,), start_time_ms=NOW).timestamps == {P0: NOW}


def test_a_batch_reads_from_start_to_end() -> None:
    assert batch_ranges({A1: 3, A0: 5, P0: 1}, {A0: 9, A1: 3, P0: 2}) == (
        OffsetRange(A0, 5, 9),
        OffsetRange(P0, 1, 2),
    )


def test_a_batch_that_starts_after_its_end_is_refused() -> None:
    with pytest.raises(OptionError, match="orders@broker-a:0 from 5 to 4"):
        batch_ranges({A0: 5, P0: 1}, {A0: 4, P0: 2})


L0 = MessageQueue("orders", "__syslo__global__", 0)


@pytest.mark.parametrize("names", [("broker-a",), ("broker-a", "broker-b"), ("__syslo__global__",)])
def test_a_static_topics_queue_may_be_called_by_any_broker(names: tuple[str, ...]) -> None:
    policy = AtOffsets({MessageQueue("orders", name, 0): 33 for name in names}, None)
    check_listed(policy, (L0,))
    assert lookups(policy, (L0,), start_time_ms=NOW).min_offsets == frozenset()
    assert resolve(policy, (L0,), ANSWERS) == {L0: 33}


def test_two_offsets_of_one_queue_are_refused() -> None:
    policy = AtOffsets({A0: 33, MessageQueue("orders", "broker-b", 0): 34}, None)
    with pytest.raises(OptionError, match=r"two offsets are given for one queue.*\(33, 34\)"):
        check_listed(policy, (L0,))
