"""Whatever the brokers and the options say, planning never drops, repeats or overruns an offset."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

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
from pyspark_rocketmq.planning.limit import Limits, admit, share
from pyspark_rocketmq.planning.offset_resolution import Answers, late_policy, lookups, resolve
from pyspark_rocketmq.planning.split import split
from pyspark_rocketmq.planning.topics.discovery import discover, plan_ranges, targets

QUEUES = tuple(MessageQueue(topic, broker, index) for topic in "tu" for broker in "ab" for index in range(3))
BIG = 1 << 62

queues = st.sampled_from(QUEUES)
offsets = st.integers(0, 200) | st.integers(0, BIG)
bounded = examples(150)


@st.composite
def ranges(draw: st.DrawFn) -> list[OffsetRange]:
    chosen = draw(st.lists(queues, unique=True, max_size=12))
    small = st.integers(0, 50) | st.integers(0, 3_000)
    return [OffsetRange(queue, start := draw(offsets), start + draw(small)) for queue in chosen]


@st.composite
def backlogs(draw: st.DrawFn) -> tuple[dict[MessageQueue, int], dict[MessageQueue, int]]:
    positions = draw(st.dictionaries(queues, offsets, min_size=1))
    return positions, {queue: position + draw(offsets) for queue, position in positions.items()}


counts = st.none() | st.integers(1, 40)


@bounded
@given(ranges(), counts, counts, st.integers(1, 200))
def test_split_covers_each_offset_once(
    planned: list[OffsetRange], min_partitions: int | None, most: int | None, small: int
) -> None:
    partitions = split(
        planned, min_partitions=min_partitions, max_records_per_partition=most, small_range=small
    )
    assert all(partitions), "an empty partition costs a task"
    found = sorted(part for partition in partitions for part in partition)
    for whole in planned:
        parts = [part for part in found if part.queue == whole.queue]
        reach = whole.from_offset
        for part in parts:
            assert part.from_offset == reach
            assert len(part) > 0
            reach = part.until_offset
        assert reach == whole.until_offset
    assert {part.queue for part in found} == {whole.queue for whole in planned if len(whole)}
    total = sum(map(len, planned))
    assert len(partitions) >= min(min_partitions or 0, total)
    if most is not None:
        assert all(sum(map(len, partition)) <= most for partition in partitions)
    assert all(list(partition) == sorted(partition) for partition in partitions)
    assert list(partitions) == sorted(partitions)


@bounded
@given(ranges(), st.randoms())
def test_split_does_not_depend_on_the_order_of_its_input(planned: list[OffsetRange], random: object) -> None:
    shuffled = list(planned)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert split(shuffled, min_partitions=7) == split(planned, min_partitions=7)
    assert [len(p) for p in split(shuffled, partition_per_queue=True)] == [1] * sum(bool(r) for r in planned)


@bounded
@given(st.dictionaries(queues, offsets), st.integers(1, 1_000) | st.integers(1, BIG), st.integers(0, BIG))
def test_share_spends_the_whole_budget_and_no_more(
    backlog: dict[MessageQueue, int], budget: int, turn: int
) -> None:
    shares = share(backlog, budget, turn=turn)
    assert sum(shares.values()) == min(budget, sum(backlog.values()))
    assert all(0 < shares[queue] <= backlog[queue] for queue in shares)
    waiting = [queue for queue, size in backlog.items() if size]
    if budget >= len(waiting):
        assert set(shares) == set(waiting), "a queue starves"


@bounded
@given(
    st.dictionaries(queues, offsets, min_size=1),
    st.fixed_dictionaries({queue: st.integers(1, 5_000) for queue in QUEUES}),
    st.integers(1, 100_000),
    st.integers(0, 1_000),
)
def test_share_by_bytes_stays_below_the_budget(
    backlog: dict[MessageQueue, int], costs: dict[MessageQueue, int], budget: int, turn: int
) -> None:
    shares = share(backlog, budget, turn=turn, costs=costs)
    spent = sum(costs[queue] * count for queue, count in shares.items())
    assert spent <= budget or list(shares.values()) == [1]
    assert all(0 < shares[queue] <= backlog[queue] for queue in shares)
    assert bool(shares) == any(backlog.values())


limits = st.builds(
    Limits,
    max_offsets=st.none() | st.integers(1, 500),
    max_bytes=st.none() | st.integers(1, 500_000),
    max_rate_per_queue=st.none() | st.integers(1, 500),
)


@bounded
@given(backlogs(), limits, st.none() | st.integers(0, 100_000))
def test_admit_moves_forward_within_every_limit(
    world: tuple[dict[MessageQueue, int], dict[MessageQueue, int]], given_limits: Limits, elapsed: int | None
) -> None:
    positions, reach = world
    ends = admit(positions, reach, given_limits, elapsed_ms=elapsed)
    assert ends.keys() == positions.keys()
    assert all(positions[queue] <= ends[queue] <= reach[queue] for queue in positions)
    taken = sum(ends.values()) - sum(positions.values())
    assert (taken > 0) == (positions != reach)
    assert taken <= (given_limits.max_offsets or taken)
    assert taken * 1024 <= max(given_limits.max_bytes or taken * 1024, 1024)
    if given_limits.max_rate_per_queue:
        most = max(1, given_limits.max_rate_per_queue * (1_000 if elapsed is None else elapsed) // 1000)
        assert all(ends[queue] - positions[queue] <= most for queue in positions)


@bounded
@given(st.integers(1, 12), st.integers(2, 12), st.integers(0, 1_000))
def test_no_queue_starves_below_one_message_a_queue(limit: int, count: int, start: int) -> None:
    waiting = QUEUES[:count]
    positions = dict.fromkeys(waiting, start)
    reach = dict.fromkeys(waiting, start + 10_000)
    for _ in range(-(-count // limit)):
        positions = admit(positions, reach, Limits(max_offsets=limit))
    assert min(positions.values()) > start


@bounded
@given(
    st.lists(
        st.tuples(
            st.dictionaries(queues, st.integers(0, 30)),
            st.sets(queues),
            st.integers(1, 40),
        ),
        max_size=8,
    )
)
def test_a_stream_reads_every_offset_once_however_the_route_flaps(
    steps: list[tuple[dict[MessageQueue, int], set[MessageQueue], int]],
) -> None:
    """Play a query: messages arrive, queues come and go; what was planned is a prefix of each log, once."""
    logs = dict.fromkeys(QUEUES, 0)
    positions: dict[MessageQueue, int] = {}
    read: dict[MessageQueue, int] = dict.fromkeys(QUEUES, 0)
    final = ({}, set(QUEUES), 10_000)
    for arrived, seen, limit in [*steps, final]:
        for queue, count in arrived.items():
            logs[queue] += count
        found = discover(positions, seen)
        begins = resolve(Earliest(), found.new, Answers(min_offsets=dict.fromkeys(found.new, 0)))
        known = {**positions, **begins}
        reach = targets(known, {queue: logs[queue] for queue in seen})
        end = admit(known, reach, Limits(max_offsets=limit))
        for part in plan_ranges(positions, end, begins):
            assert part.queue in seen
            assert part.from_offset == read[part.queue]
            read[part.queue] = part.until_offset
        positions = end
    assert read == logs


positions_strategy = (
    st.integers(0, 100)
    | st.builds(Earliest)
    | st.builds(Latest)
    | st.builds(AtTimestamp, st.integers(0, 10_000))
    | st.builds(Ago, st.integers(0, 10_000))
    | st.builds(LastMessages, st.integers(0, 50))
)
groups = st.builds(GroupOffsets, st.builds(Earliest) | st.builds(Latest))
policies: st.SearchStrategy[StartPolicy] = (
    positions_strategy.filter(lambda position: not isinstance(position, int))  # type: ignore[assignment]
    | groups
    | st.builds(
        AtOffsets,
        st.dictionaries(queues, positions_strategy),
        st.builds(Earliest) | st.builds(Latest) | groups,
        st.dictionaries(st.sampled_from("tu"), positions_strategy),
    )
)


@bounded
@given(policies, st.sets(queues), st.booleans(), st.integers(0, 10_000))
def test_the_lookups_are_exactly_what_resolving_needs(
    policy: StartPolicy, wanted: set[MessageQueue], late: bool, now: int
) -> None:
    if late:
        policy = late_policy(policy, start_time_ms=now, grown=list(wanted)[:2])
    asked = lookups(policy, wanted, start_time_ms=now)
    assert all(timestamp >= 0 for timestamp in asked.timestamps.values())
    answers = Answers(
        min_offsets=dict.fromkeys(asked.min_offsets, 10),
        max_offsets=dict.fromkeys(asked.max_offsets, 90),
        committed=dict.fromkeys(asked.committed, 50),
        timestamps=dict.fromkeys(asked.timestamps, 60),
    )
    found = resolve(policy, wanted, answers)
    assert found.keys() == wanted
    if late:
        assert not asked.max_offsets, "what moves with time must be taken at the query's start"
