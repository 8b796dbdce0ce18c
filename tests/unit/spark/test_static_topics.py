"""A checkpoint that calls a static topic's queues by their owners goes on under the names of the topic."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.clocks import FakeClock
from tests.unit.spark.fake_rocketmq import FakeRocketMQ
from tests.unit.spark.test_replay import Checkpoint, KilledError, Query, reader, written

from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.offsets.stream_offset import SourceOffset

A0, A1, B0 = (MessageQueue("orders", name, n) for name, n in (("a", 0), ("a", 1), ("b", 0)))
L0, L1 = (MessageQueue("orders", "__syslo__global__", queue_id) for queue_id in range(2))
OPTIONS = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "3"}


def world() -> FakeRocketMQ:
    mq = FakeRocketMQ(FakeClock(), [A0, A1])
    for _ in range(5):
        mq.send()
    return mq


def learn_the_names(mq: FakeRocketMQ) -> None:
    """Have the next run of the query see the queues by their names; who asks for the owner's is served."""
    mq.logs |= {L0: mq.logs[A0], L1: mq.logs[A1]}
    mq.unreadable |= {A0, A1, B0}


def messages(kept: Checkpoint) -> list[str]:
    return [body for bodies in written(kept).values() for body in bodies]


def everything(mq: FakeRocketMQ) -> list[str]:
    return [body for queue in (L0, L1) for _, body in mq.logs[queue]]


def killed_at(step: str) -> Callable[[str], None]:
    def kill(now: str) -> None:
        if now == step:
            raise KilledError

    return kill


@pytest.mark.parametrize("fatal", [None, "logged", "partitions", "written"])
def test_each_message_is_read_once(fatal: str | None) -> None:
    mq, kept = world(), Checkpoint()
    Query(mq, kept, OPTIONS, lambda _: None).run(2)
    if fatal:  # a batch that was planned with the old names and is not finished
        with pytest.raises(KilledError):
            Query(mq, kept, OPTIONS, killed_at(fatal)).run(1)
    learn_the_names(mq)
    mq.send(L0, L1)
    Query(mq, kept, OPTIONS, lambda _: None).run(0, available_now=True)
    mq.send(L0)
    Query(mq, kept, OPTIONS, lambda _: None).run(0, available_now=True)
    assert sorted(messages(kept)) == sorted(everything(mq))
    assert set(SourceOffset.from_dict(kept.ends[-1]).offsets) == {L0, L1}


def test_of_two_names_of_a_queue_the_greater_offset_counts() -> None:
    """A query that ran over a remap had begun the queue of the new owner from its start, and repeated it."""
    mq, kept = world(), Checkpoint()
    Query(mq, kept, OPTIONS, lambda _: None).run(4)
    read = messages(kept)
    old = SourceOffset.from_dict(kept.ends[-1])
    repeated = {"orders": {"a": {"0": 3, "1": old.offsets[A1]}, "b": {"0": old.offsets[A0]}}}
    kept.ends[-1]["offsets"] = repeated
    mq.logs[B0] = mq.logs[A0]
    learn_the_names(mq)
    mq.send(L0, L1)
    Query(mq, kept, OPTIONS, lambda _: None).run(0, available_now=True)
    assert sorted(messages(kept)) == sorted(everything(mq))
    assert len(read) == 10


def test_an_idle_query_does_not_write_a_batch_for_the_names_alone() -> None:
    mq, kept = world(), Checkpoint()
    Query(mq, kept, OPTIONS, lambda _: None).run(0, available_now=True)
    before = list(kept.ends)
    learn_the_names(mq)
    Query(mq, kept, OPTIONS, lambda _: None).run(2)
    assert kept.ends == before


def test_a_queue_whose_owner_is_away_keeps_its_position_and_is_named_when_it_is_back() -> None:
    mq, kept = world(), Checkpoint()
    Query(mq, kept, OPTIONS, lambda _: None).run(0, available_now=True)
    learn_the_names(mq)
    mq.unreadable.add(L1)
    mq.send(L0, L1)
    Query(mq, kept, OPTIONS, lambda _: None).run(2)
    assert set(SourceOffset.from_dict(kept.ends[-1]).offsets) == {L0, A1}
    mq.unreadable.discard(L1)
    Query(mq, kept, OPTIONS, lambda _: None).run(0, available_now=True)
    assert set(SourceOffset.from_dict(kept.ends[-1]).offsets) == {L0, L1}
    assert sorted(messages(kept)) == sorted(everything(mq))


@pytest.mark.parametrize("name", ["a", "b", "__syslo__global__"])
def test_a_start_may_name_any_broker(name: str) -> None:
    mq, kept = world(), Checkpoint()
    learn_the_names(mq)
    starts = {"startingOffsets": f'{{"orders": {{"{name}": {{"0": 2, "1": 4}}}}}}'}
    Query(mq, kept, starts, lambda _: None).run(0, available_now=True)
    assert {queue: len(bodies) for queue, bodies in written(kept).items()} == {L0: 3, L1: 1}


def test_an_assignment_may_take_up_the_new_names() -> None:
    mq, kept = world(), Checkpoint()
    Query(mq, kept, {"assign": '{"orders": {"a": [0, 1]}}'} | OPTIONS, lambda _: None).run(1)
    learn_the_names(mq)
    options = {"assign": '{"orders": {"__syslo__global__": [0, 1]}}'} | OPTIONS
    Query(mq, kept, options, lambda _: None).run(0, available_now=True)
    assert sorted(messages(kept)) == sorted(everything(mq))


def test_witnesses_go_with_their_queue() -> None:
    mq, kept = world(), Checkpoint()
    Query(mq, kept, OPTIONS, lambda _: None).run(0, available_now=True)
    before = SourceOffset.from_dict(kept.ends[-1])
    assert before.named_as([L0, L1]).witnesses.keys() <= {L0, L1}
    assert before.named_as([A0]) == before
    learn_the_names(mq)
    mq.send(L0, L1)
    one = reader(mq, OPTIONS)
    end = SourceOffset.from_dict(one.latestOffset(kept.ends[-1], one.getDefaultReadLimit()))
    assert end.witnesses
    assert end.witnesses.keys() <= {L0, L1}
