from __future__ import annotations

import pickle

import pytest
from tests.support.clocks import FakeClock
from tests.unit.spark.fake_rocketmq import FakeRocketMQ

from pyspark_rocketmq.dstream.direct.batch_plan import DirectPlan, Pace
from pyspark_rocketmq.dstream.ranges import to_ranges
from pyspark_rocketmq.errors import BrokerNotFoundError, DataLossError, NameServerError
from pyspark_rocketmq.model import Earliest, GroupOffsets, Latest, MessageQueue, OffsetRange
from pyspark_rocketmq.offsets.direct_log import decode_moved, encode_ranges
from pyspark_rocketmq.options import parse_direct_options
from pyspark_rocketmq.planning.rate import PidSettings

A0, A1, B0 = MessageQueue("t", "a", 0), MessageQueue("t", "a", 1), MessageQueue("t", "b", 0)
DELAYS = (0, 0, 0)
EARLIEST = GroupOffsets(Earliest())


class World:
    """A stream of topic ``t`` on brokers of lists, a batch a second."""

    def __init__(self, *queues, policy=EARLIEST, backpressure=None, **options):
        self.clock = FakeClock()
        self.mq = FakeRocketMQ(self.clock, queues)
        given = {"nameServer": "10.0.0.1:9876", **options}
        self.options = parse_direct_options(given).source(("t",), "g")
        pace = Pace(
            pid=PidSettings(batch_interval_ms=1000, min_rate=1.0),
            backpressure=backpressure is not None,
            initial_rate=backpressure,
        )
        start = dict.fromkeys(queues, 0)
        self.plan = DirectPlan(policy, start, self.clock.now_ms(), pace, clock=self.clock)
        self.time = 0

    def batch(self, time=None, *, remember_ms=0, **more):
        if time is None:
            self.time += 1000
            self.clock.now_s += 1
        ranges = self.plan.ranges(time or self.time, self.mq, self.options, remember_ms=remember_ms, **more)
        return {r.queue: (r.from_offset, r.until_offset) for r in ranges}

    def finish(self, time=None, delays=DELAYS):
        return self.plan.record_finished(time or self.time, delays)

    def recover(self):
        """What a driver that died here has: the plan as Spark pickled it."""
        self.plan = pickle.loads(pickle.dumps(self.plan))
        self.plan.clock = self.clock


def test_each_batch_goes_on_where_the_last_one_ended():
    world = World(A0, A1)
    world.mq.send(A0, A0, A1)
    assert world.batch() == {A0: (0, 2), A1: (0, 1)}
    assert world.batch() == {A0: (2, 2), A1: (1, 1)}
    world.mq.send(A1)
    assert world.batch() == {A0: (2, 2), A1: (1, 2)}


def test_the_same_batch_is_planned_once_also_after_a_recovery():
    world = World(A0)
    world.mq.send(A0, A0)
    first = world.batch()
    world.mq.send(A0)
    assert world.batch(1000) == first
    world.recover()
    world.mq.send(A0)
    assert world.batch(1000) == first
    world.time = 1000
    assert world.batch() == {A0: (2, 4)}


def test_a_batch_that_was_written_down_before_the_crash_comes_again():
    world = World(A0)
    world.mq.send(A0)
    world.batch()
    checkpoint = pickle.dumps(world.plan)
    world.mq.send(A0, A0)
    planned = world.plan.ranges(2000, world.mq, world.options, remember_ms=0)
    world.mq.send(A0)
    world.plan = pickle.loads(checkpoint)
    world.plan.adopt(2000, planned)
    assert world.plan.ranges(2000, world.mq, world.options, remember_ms=0) == planned
    assert world.batch(3000) == {A0: (3, 4)}
    world.plan.adopt(4000, planned)  # of another life: it does not follow on
    assert world.batch(4000) == {A0: (4, 4)}


def test_a_batch_of_the_log_that_passed_over_lost_messages_comes_again():
    """With failOnDataLoss=false: one of its queues does not begin where the batch before it ended."""
    world = World(A0, A1, failOnDataLoss="false")
    world.mq.send(A0, A0, A1)
    world.batch()
    world.mq.logs[A0] = world.mq.logs[A0][:1]
    world.batch()
    checkpoint = pickle.dumps(world.plan)
    world.clock.now_s += 12
    world.mq.send(A1)
    planned = world.batch()
    assert planned == {A0: (1, 1), A1: (1, 2)}
    ranges, moved = to_ranges(OffsetRange(q, *at) for q, at in planned.items()), world.plan.moved(3000)
    assert world.plan.moved(2000) == {}
    world.plan = pickle.loads(checkpoint)
    world.mq.send(A1)
    assert decode_moved(encode_ranges(ranges, moved)) == moved
    world.plan.adopt(3000, ranges, moved)
    assert world.batch(3000) == planned
    assert world.batch() == {A0: (1, 1), A1: (2, 3)}


def test_a_queue_that_came_with_a_batch_of_the_log_has_its_floor():
    """What is stored before its start is no element, as in the run that planned the batch."""
    world = World(A0)
    world.plan.floor = {A0: 0}
    late = to_ranges([OffsetRange(A0, 0, 0), OffsetRange(B0, 5, 7)])
    world.plan.adopt(1000, late)
    world.plan.adopt(2000, to_ranges([OffsetRange(A0, 0, 0), OffsetRange(B0, 7, 9)]))
    assert world.plan.floor == {A0: 0, B0: 5}
    other = World(A0)
    other.plan.adopt(1000, late)
    assert other.plan.floor == {}, "without isolation no topic has one"


def test_finished_batches_are_forgotten_when_no_window_needs_them():
    world = World(A0)
    for _ in range(5):
        world.batch(remember_ms=2000)
        world.finish()
    assert sorted(world.plan.remembered()) == [3000, 4000, 5000]
    world.batch(remember_ms=0)
    assert 6000 in world.plan.remembered(), "an unfinished batch is never forgotten"


def test_ends_are_told_only_up_to_the_first_batch_that_is_not_finished():
    world = World(A0)
    for _ in range(3):
        world.mq.send(A0)
        world.batch()
    assert world.finish(2000) is None
    assert world.finish(1000) == {A0: 2}
    assert world.finish(3000) == {A0: 3}, "the next offset, not the last one"
    assert world.finish(9000) is None, "not of this stream"


def test_what_the_windows_of_batches_that_wait_need_is_kept_for_a_recovery():
    """Batches take longer than their interval, so that many wait when the driver dies."""
    world = World(A0)
    planned, waiting = {}, []
    for number in range(1, 9):
        world.mq.send(A0)
        planned[number * 1000] = world.batch(remember_ms=2000, unfinished=waiting)
        waiting.append(world.time)
        if number <= 3:
            world.finish(waiting.pop())
    world.recover()
    world.plan.recover(waiting)
    world.mq.send(A0)
    for time in (2000, 3000, *waiting):  # the window of 4000, and so on
        assert world.batch(time) == planned[time]
    for time in waiting:
        world.finish(time)
    assert world.batch(remember_ms=2000) == {A0: (8, 9)}
    assert sorted(world.plan.remembered()) == [7000, 8000, 9000]


def test_a_batch_that_was_forgotten_comes_again_from_the_log():
    """With several jobs at a time, Spark runs again what ended after the oldest batch of its checkpoint."""
    world = World(A0)
    logged = {}
    for _ in range(4):
        world.mq.send(A0)
        world.batch()
        logged[world.time] = to_ranges([OffsetRange(A0, *world.batch(world.time)[A0])])
        world.finish()
    assert 2000 not in world.plan.remembered()
    world.recover()
    world.mq.send(A0)
    world.plan.adopt(2000, logged[2000])
    assert world.batch(2000) == {A0: (1, 2)}
    assert world.batch() == {A0: (4, 5)}
    assert world.finish() == {A0: 5}


def test_a_batch_that_was_never_run_is_part_of_the_next_one():
    """Spark goes on with the next batch when it could not generate the jobs of one."""
    world = World(A0, A1)
    world.mq.send(A0, A1)
    world.batch()
    world.finish()
    assert world.plan.find_unrun(2000, ()) is None, "it is finished"
    world.mq.send(A0)
    world.batch()
    assert world.plan.find_unrun(3000, (2000,)) is None, "it runs"
    assert world.plan.find_unrun(2000, ()) is None, "it is asked for again"
    assert world.plan.find_unrun(3000, ()) == 2000
    checkpoint = pickle.dumps(world.plan)
    world.plan.take_back(2000)
    world.mq.send(A0)
    assert world.batch() == {A0: (1, 3), A1: (1, 1)}
    assert world.finish() == {A0: 3, A1: 1}, "it holds up no commit"
    again = to_ranges([OffsetRange(A0, 1, 3), OffsetRange(A1, 1, 1)])
    moved = world.plan.moved(3000)
    world.batch()
    world.plan.record_failed(4000)
    assert world.plan.find_unrun(5000, ()) is None, "it failed"
    assert world.plan.moved(4000) == {}
    world.plan = pickle.loads(checkpoint)  # Spark runs both batches again
    world.plan.adopt(3000, again, moved)
    assert world.batch(2000) == {A0: (1, 2), A1: (1, 1)}
    assert world.batch(3000) == {A0: (1, 3), A1: (1, 1)}


def slide(world):
    """A window of three batches that slides by three: Spark asks for all of them at the third."""
    for has_job in (False, False, True):
        world.mq.send(A0)
        world.batch(remember_ms=6000, has_job=has_job)


def test_a_batch_without_a_job_is_finished_with_the_next_one_that_has_a_job():
    world = World(A0)
    slide(world)
    slide(world)
    assert world.finish(3000) == {A0: 3}, "what is read of the second window has not been output"
    world.recover()
    world.plan.recover({6000})
    assert world.finish(3000) == {A0: 3}
    assert world.finish(6000) == {A0: 6}
    for _ in range(5):
        slide(world)
        world.finish()
    assert len(world.plan.remembered()) <= 9
    assert world.plan._jobless <= world.plan.remembered()


def test_a_checkpoint_from_before_the_listener_s_event_does_not_hold_up_the_ends():
    world = World(A0)
    for _ in range(3):
        world.mq.send(A0)
        world.batch()
    world.finish(1000)
    world.recover()
    world.plan.recover({3000})  # Spark ran 2000 to its end: it does not run it again
    assert world.finish(3000) == {A0: 3}
    world.mq.send(A0)
    world.batch()
    assert world.finish() == {A0: 4}


def test_a_batch_that_runs_again_since_the_checkpoint_is_not_finished_before_that():
    """Its jobs could not be generated, so that it is not pending. After the recovery, an output fails."""
    world = World(A0)
    for _ in range(2):
        world.mq.send(A0)
        world.batch()
    world.recover()
    world.plan.recover((), since_ms=2000)
    assert world.batch(2000) == {A0: (1, 2)}
    world.mq.send(A0)
    world.batch()
    world.plan.record_failed(2000)
    assert world.finish(3000) is None, "what failed is passed over"
    assert world.finish(2000) == {A0: 3}


def test_speed_holds_for_each_queue():
    world = World(A0, A1, **{"pull.max.speed.per.partition": 3})
    world.mq.send(*[A0] * 8, A1)
    assert world.batch() == {A0: (0, 3), A1: (0, 1)}
    assert world.batch() == {A0: (3, 6), A1: (1, 1)}


def test_backpressure_begins_with_the_initial_rate_and_is_kept_through_a_recovery():
    world = World(A0, backpressure=10)
    world.mq.send(*[A0] * 200)
    assert world.batch() == {A0: (0, 10)}
    world.finish(delays=(1000, 500, 0))  # 20 messages a second
    assert world.batch() == {A0: (10, 20)}
    world.finish(delays=(2000, 2000, 0))  # 5 a second
    world.recover()
    assert world.batch() == {A0: (20, 25)}, "the first batch after the recovery forgot the rate"


def test_a_new_queue_begins_at_its_min_and_is_no_data_loss():
    world = World(A0, policy=GroupOffsets(Latest()))
    world.batch()
    world.mq.logs[A1] = []
    world.mq.send(A1, A1)
    assert world.batch() == {A0: (0, 0), A1: (0, 2)}


def test_a_broker_that_is_away_keeps_its_queues_and_goes_on_where_it_was():
    world = World(A0, B0)
    world.mq.send(A0, B0)
    world.batch()
    world.mq.hidden.add("b")
    world.mq.send(A0, B0)
    assert world.batch() == {A0: (1, 2), B0: (1, 1)}
    world.mq.hidden.clear()
    assert world.batch() == {A0: (2, 2), B0: (1, 2)}


def test_batches_are_empty_while_nobody_answers_and_fail_after_a_minute():
    world = World(A0)
    world.mq.send(A0)
    world.mq.dead.add("a")
    for _ in range(59):
        assert world.batch() == {A0: (0, 0)}
    world.clock.now_s += 5
    with pytest.raises(BrokerNotFoundError):
        world.batch()
    world.mq.dead.clear()
    assert world.batch() == {A0: (0, 1)}


def test_name_servers_that_are_away_are_an_outage_too(monkeypatch):
    world = World(A0)
    world.mq.send(A0)

    def away(topic):
        raise NameServerError("no name server answers")

    with monkeypatch.context() as patch:
        patch.setattr(world.mq, "read_queues", away)
        assert world.batch() == {A0: (0, 0)}
    assert world.batch() == {A0: (0, 1)}


def test_a_queue_that_went_back_waits_and_is_then_data_loss():
    world = World(A0, A1)
    world.mq.send(A0, A0, A1)
    world.batch()
    world.mq.logs[A0] = world.mq.logs[A0][:1]
    world.mq.send(A1)
    assert world.batch() == {A0: (2, 2), A1: (1, 2)}, "the other queues go on"
    world.clock.now_s += 12
    with pytest.raises(DataLossError, match="OFFSET_WENT_BACK"):
        world.batch()


def test_a_driver_that_was_frozen_within_a_look_asks_again_before_messages_count_as_lost():
    """The broker was rebuilding its index when it answered."""
    world = World(A0, A1)
    world.mq.send(A0, A0, A1)
    world.batch()
    whole = world.mq.logs[A0]
    world.mq.logs[A0] = whole[:1]
    world.batch()

    def freeze() -> None:
        world.clock.now_s += 600
        world.mq.after_ends = lambda: None

    world.mq.after_ends = freeze
    assert world.batch() == {A0: (2, 2), A1: (1, 1)}
    world.mq.logs[A0] = whole
    world.mq.send(A0)
    assert world.batch() == {A0: (2, 3), A1: (1, 1)}


def test_a_driver_that_was_frozen_within_an_outage_looks_again_before_it_fails(monkeypatch):
    world = World(A0)
    world.mq.send(A0)
    read_queues = world.mq.read_queues

    def away(topic):
        raise NameServerError("no name server answers")

    def freeze(topic):
        world.clock.now_s += 600
        return away(topic)

    for looked_up in (away, freeze):
        monkeypatch.setattr(world.mq, "read_queues", looked_up)
        assert world.batch() == {A0: (0, 0)}
    monkeypatch.setattr(world.mq, "read_queues", read_queues)
    assert world.batch() == {A0: (0, 1)}


def test_a_queue_has_the_whole_patience_although_others_ended_before_their_positions_earlier():
    world = World(A0, A1, B0)
    world.mq.send(A0, A0, A1, B0, B0)
    world.batch()
    whole = {queue: list(log) for queue, log in world.mq.logs.items()}
    for queue, before in ((A0, B0), (B0, A0), (A0, B0)):  # brokers rebuild their indexes, one after the other
        world.mq.logs[queue], world.mq.logs[before] = whole[queue][:1], whole[before]
        for _ in range(2):
            assert world.batch()[A1] == (1, 1)
            world.clock.now_s += 4
    world.mq.logs |= whole
    world.mq.send(A0, B0)
    assert world.batch() == {A0: (2, 3), A1: (1, 1), B0: (2, 3)}


def test_with_fail_on_data_loss_off_it_goes_on_at_the_end():
    world = World(A0, failOnDataLoss="false")
    world.mq.send(A0, A0)
    world.batch()
    world.mq.logs[A0] = world.mq.logs[A0][:1]
    for _ in range(12):
        last = world.batch()
    assert last == {A0: (1, 1)}
    world.mq.send(A0)
    assert world.batch() == {A0: (1, 2)}


def test_unread_messages_of_a_queue_that_its_topic_lost_are_data_loss_until_it_is_back():
    world = World(A0, A1)
    world.mq.send(A0, A1)
    world.batch()
    world.mq.unreadable.add(A1)
    assert world.batch() == {A0: (1, 1), A1: (1, 1)}, "it was read to its end"
    world.mq.unreadable.clear()
    world.batch()
    world.mq.send(A1)
    world.mq.unreadable.add(A1)
    for _ in range(2):
        with pytest.raises(DataLossError, match="1 unread messages are in a queue that cannot be read"):
            world.batch()
    world.recover()
    with pytest.raises(DataLossError, match="QUEUE_LOST"):
        world.batch()
    world.mq.unreadable.clear()
    assert world.batch() == {A0: (1, 1), A1: (1, 2)}


def test_with_fail_on_data_loss_off_a_queue_that_its_topic_lost_waits(caplog):
    world = World(A0, A1, failOnDataLoss="false")
    world.batch()
    world.mq.send(A0, A1)
    world.mq.unreadable.add(A1)
    assert world.batch() == {A0: (0, 1), A1: (0, 0)}
    assert world.batch() == {A0: (1, 1), A1: (0, 0)}
    assert caplog.text.count("1 messages of t@a:1 wait") == 1
    world.mq.unreadable.clear()
    assert world.batch() == {A0: (1, 1), A1: (0, 1)}


def test_a_recovered_stream_goes_on_under_the_names_of_a_static_topic():
    logical = MessageQueue("t", "__syslo__global__", 0)
    world = World(A0)
    world.mq.send(A0, A0)
    assert world.batch() == {A0: (0, 2)}
    world.mq.logs[logical] = world.mq.logs.pop(A0)
    world.recover()
    assert world.batch(1000) == {A0: (0, 2)}
    world.mq.send(logical)
    assert world.batch() == {logical: (2, 3)}


def recreated(world, messages):
    for log in world.mq.logs.values():
        log.clear()
    world.clock.now_s += 1
    world.mq.send(*[A0] * messages)


@pytest.mark.parametrize("recovered", [False, True])
def test_a_topic_recreated_and_regrown_is_data_loss(recovered):
    world = World(A0)
    world.mq.send(*[A0] * 5)
    assert world.batch() == {A0: (0, 5)}
    if recovered:
        world.recover()
    recreated(world, 8)
    with pytest.raises(DataLossError, match="OFFSET_WENT_BACK"):
        world.batch()


def test_with_fail_on_data_loss_off_a_recreated_topic_is_read_on(caplog):
    world = World(A0, failOnDataLoss="false")
    world.mq.send(*[A0] * 5)
    world.batch()
    recreated(world, 8)
    assert world.batch() == {A0: (5, 8)}
    assert "another message is at offset 4" in caplog.text
    caplog.clear()
    world.mq.send(A0)
    assert world.batch() == {A0: (8, 9)}
    assert caplog.text == ""


def test_an_idle_batch_looks_at_no_message():
    world = World(A0)
    world.mq.send(A0)
    world.batch()
    world.mq.calls.clear()
    world.batch()
    assert "stored_at" not in world.mq.calls


def test_a_topic_created_later_is_read_whole_though_the_drivers_clock_is_ahead():
    world = World(A0, policy=GroupOffsets(Latest()))
    world.plan.brokers = frozenset({"a"})
    world.plan.started_at_ms += 60_000
    world.options = parse_direct_options({"nameServer": "10.0.0.1:9876"}).source(("t", "u"), "g")
    world.batch()
    new = MessageQueue("u", "a", 0)
    world.mq.logs[new] = []
    world.mq.send(new, new)
    assert world.batch() == {A0: (0, 0), new: (0, 2)}


def test_what_a_slave_has_is_read_while_its_master_is_away():
    world = World(A0, B0)
    world.mq.send(A0, B0, B0)
    world.batch()
    world.mq.send(B0, B0)
    world.mq.dead.add("b")
    world.mq.slaves = {B0: 3}
    assert world.batch() == {A0: (1, 1), B0: (2, 3)}
    world.mq.slaves = {B0: 1}
    world.clock.now_s += 100
    assert world.batch() == {A0: (1, 1), B0: (3, 3)}


def test_a_limited_batch_begins_after_the_expired_messages(caplog):
    """Else each batch passed over as many as the limit allows, and retention stayed ahead of it."""
    world = World(A0, A1, failOnDataLoss="false", maxRatePerQueue="10")
    world.mq.send(*[A0] * 1_000, A1)
    world.mq.first[A0] = 900
    assert world.batch() == {A0: (900, 910), A1: (0, 1)}
    assert world.plan.moved(1000) == {A0: 0}
    assert "900 messages" in caplog.text
    world.mq.first[A0] = 930
    assert world.batch() == {A0: (930, 940), A1: (1, 1)}
    world.mq.dead.add("a")
    assert world.batch() == {A0: (940, 940), A1: (1, 1)}


def test_the_tasks_of_a_limited_batch_report_expired_messages():
    world = World(A0, maxRatePerQueue="10")
    world.mq.send(*[A0] * 1_000)
    world.mq.first[A0] = 900
    assert world.batch() == {A0: (0, 10)}
    assert "min_offsets" not in world.mq.calls


def test_what_no_limit_divides_or_has_no_news_is_not_looked_up():
    limited = World(A0, failOnDataLoss="false", maxRatePerQueue="10")
    assert limited.batch() == {A0: (0, 0)}
    whole = World(A0, failOnDataLoss="false")
    whole.mq.send(A0)
    assert whole.batch() == {A0: (0, 1)}
    assert "min_offsets" not in limited.mq.calls + whole.mq.calls
