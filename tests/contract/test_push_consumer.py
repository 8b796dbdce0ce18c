"""A member of a consumer group: alone, with others of its kind, and beside a Java consumer."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.support.group_member import Member
from tests.support.java_member import JavaMember
from tests.support.patient import patient_producer
from tests.support.topics import fill
from tests.support.wait import eventually

from pyspark_rocketmq.client import (
    Admin,
    Client,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageQueue,
    OutgoingMessage,
    PushConsumer,
    PushOptions,
)
from pyspark_rocketmq.client.groups.pulled_run import PulledRun
from pyspark_rocketmq.client.groups.push_worker import QueueWorker
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.errors import OptionError, TopicNotFoundError
from pyspark_rocketmq.planning.assign import AllocateStrategy, allocate
from pyspark_rocketmq.record.decode.objects import MessageDecoder
from pyspark_rocketmq.remoting.header import ResetOffsetRequest

FIRST = ConsumeFromWhere.FIRST_OFFSET
JAVA_S = 60
"""A Java client tells the broker of its new share by a heartbeat, unless another thread of it sends one just
then: its pulls are then refused (SUBSCRIPTION_NOT_LATEST) until the next heartbeat, 30 s later."""

SOON_S = 25
"""Java's members compare their queues every 20 s; where a broker tells of a change they do so at once."""


@pytest.fixture
def member(mq: DevCluster, group: str) -> Iterator[Callable[..., Member]]:
    """``member(options)``: a consumer of the test's group, closed at the end."""
    made: list[Member] = []

    def make(options: PushOptions | None = None, *, cluster: DevCluster = mq) -> Member:
        made.append(Member(cluster, group, options))
        return made[-1]

    yield make
    for one in made:
        one.consumer.close()
    names = {"push-", "consume-"}
    eventually(
        lambda: not [t for t in threading.enumerate() if t.name.startswith(tuple(names))],
        30,
        what="the consumers' threads to end",
    )


@pytest.fixture
def send(client: Client) -> Callable[..., list[str]]:
    """``send(topic, count)``: to the queues in turns; returns the bodies."""
    counts: Counter[str] = Counter()

    def send_some(topic: str, count: int, **parts: object) -> list[str]:
        bodies = [f"m{counts[topic] + n}" for n in range(count)]
        counts[topic] += count
        fill(client, topic, [OutgoingMessage(topic, body.encode(), **parts) for body in bodies])
        return bodies

    return send_some


@pytest.fixture(scope="module")
def classes(mq: DevCluster) -> Path:
    return mq.compile_java(Path(__file__).parent / "java" / "GroupMember.java")


def test_a_member_gets_everything_once_and_goes_on_where_it_was(member, send, topic, client, group):
    name = topic(queues=4)
    bodies = send(name, 40)
    first = member().start(name)
    eventually(lambda: sorted(first.bodies) == sorted(bodies), 30, what="forty messages")
    first.consumer.close()
    ends = client.max_offsets(client.read_queues(name))
    assert client.committed_offsets(group, ends) == ends, "closing commits"
    more = send(name, 10)
    second = member().start(name)
    eventually(lambda: len(second.bodies) >= 10, 30, what="ten more")
    assert sorted(second.bodies) == sorted(more)
    assert {message.topic for message in second.got} == {name}


def test_where_a_group_starts_that_has_no_offsets(mq, send, topic, client, group):
    name = topic(queues=2)
    send(name, 6)
    queues = client.read_queues(name)
    eventually(lambda: sum(client.max_offsets(queues).values()) == 6)
    moment = client.clock.now_ms() + 1
    eventually(lambda: client.clock.now_ms() > moment + 1)
    later = send(name, 4)
    eventually(lambda: sum(client.max_offsets(queues).values()) == 10)
    starts = {
        "first": (PushOptions(start=FIRST), 12),
        "last": (PushOptions(), 2),
        "time": (PushOptions(start=ConsumeFromWhere.TIMESTAMP, timestamp_ms=moment), len(later) + 2),
    }
    members = {
        kind: Member(mq, f"{group}-{kind}", options).start(name) for kind, (options, _) in starts.items()
    }
    try:
        for one in members.values():
            eventually(lambda one=one: one.queues(name) == set(queues), 30, what="the queues")
        send(name, 2)
        for kind, (_, count) in starts.items():
            eventually(lambda kind=kind, count=count: len(members[kind].got) >= count, 30, what=kind)
            assert len(members[kind].got) == count, kind
    finally:
        for one in members.values():
            one.consumer.close()


def test_what_is_put_off_comes_again_and_at_last_to_the_dead_letters(member, send, topic, client, group):
    name = topic(queues=1)
    send(name, 3)
    one = member(PushOptions(start=FIRST, retry_delay_level=1, max_reconsume_times=1))

    def answer(messages: Sequence[Message]) -> ConsumeResult | None:
        body = messages[0].body
        if body == b"m0" or (body == b"m1" and messages[0].reconsume_times == 0):
            return ConsumeResult.LATER
        if body == b"m2" and messages[0].reconsume_times == 0:
            raise RuntimeError("the listener fails")
        return None

    one.answer = answer
    one.start(name)
    eventually(lambda: Counter(one.bodies) == {"m0": 2, "m1": 2, "m2": 2}, 60, what="each message again")
    again = [message for message in one.got if message.reconsume_times]
    assert {(message.topic, message.reconsume_times) for message in again} == {(name, 1)}
    dead = f"%DLQ%{group}"
    eventually(lambda: dead in Admin(client).topics(include_system=True), 30, what="the dead letters' topic")
    eventually(lambda: list(client.max_offsets([MessageQueue(dead, "broker-a", 0)]).values()) == [1], 30)


def test_queues_are_shared_and_taken_over(member, send, topic):
    name = topic(queues=8)
    one, two = member().start(name), member()
    eventually(lambda: len(one.queues(name)) == 8, 30, what="all queues")
    two.start(name)
    eventually(lambda: len(one.queues(name)) == len(two.queues(name)) == 4, SOON_S, what="half of them each")
    assert one.queues(name).isdisjoint(two.queues(name))
    bodies = send(name, 80)
    eventually(lambda: len(one.got) + len(two.got) >= 80, 30, what="eighty messages")
    assert sorted(one.bodies + two.bodies) == sorted(bodies), "each once"
    assert len(one.got) == len(two.got) == 40
    two.consumer.close()
    eventually(lambda: len(one.queues(name)) == 8, SOON_S, what="the queues of the one that left")
    more = send(name, 16)
    eventually(lambda: set(more) <= set(one.bodies), 30, what="all further messages")
    assert len(one.got) + len(two.got) == 96, "in normal running nothing comes twice"


def members_of(member: Member, topic: str) -> tuple[str, ...]:
    membership = member.consumer._membership
    assert membership is not None
    return membership.members(topic)


@pytest.mark.needs("java")
@pytest.mark.parametrize("strategy", [AllocateStrategy.AVERAGELY, AllocateStrategy.CONSISTENT_HASH])
def test_beside_a_java_consumer(mq, classes, member, send, topic, client, group, strategy):
    name = topic(queues=8)
    one = member(PushOptions(start=FIRST, allocate=strategy, commit_ms=200)).start(name)
    bodies = send(name, 40)
    ends = client.max_offsets(client.read_queues(name))
    eventually(lambda: client.committed_offsets(group, ends) == dict.fromkeys(ends, 5), 30, what="a commit")
    with JavaMember(mq, classes, group, name, strategy.value) as java:
        eventually(lambda: len(members_of(one, name)) == 2, 20, what="a second member")
        deal = allocate(strategy, ends, members_of(one, name), one.consumer.client_id)
        eventually(lambda: one.queues(name) == set(deal), SOON_S, what="its share")
        if strategy is AllocateStrategy.AVERAGELY:
            assert len(deal) == 4
        mine = {queue.queue_id for queue in deal}
        bodies += send(name, 80)
        eventually(lambda: len(one.got) + len(java.got) >= 120, JAVA_S, what="all messages, by both")
        assert sorted([*one.bodies, *(body for _, _, body in java.got)]) == sorted(bodies), "each once"
        assert {queue_id for queue_id, _, _ in java.got} == set(range(8)) - mine, "both deal alike"
        # Its last commit as it leaves is one way and may lose the race with the member that takes over.
        eventually(
            lambda: sum(client.committed_offsets(group, ends).values()) == 120, JAVA_S, what="its commit"
        )
        java.leave()
        eventually(lambda: len(one.queues(name)) == 8, SOON_S, what="the queues of the one that left")
        more = send(name, 40)
        eventually(lambda: set(more) <= set(one.bodies), 30, what="all further messages")
        assert len(one.got) + len(java.got) == 160


@pytest.mark.needs("java")
def test_a_java_consumer_that_is_killed_loses_nothing(mq, classes, member, send, topic, group):
    name = topic(queues=4)
    one = member().start(name)
    eventually(lambda: len(one.queues(name)) == 4, 30, what="all queues")
    with JavaMember(mq, classes, group, name) as java:
        eventually(lambda: len(one.queues(name)) == 2, SOON_S, what="the Java consumer's share")
        bodies = send(name, 40)
        eventually(lambda: java.got, JAVA_S, what="messages of the Java consumer")
        java.kill()
        eventually(lambda: len(one.queues(name)) == 4, SOON_S, what="its queues")
        eventually(
            lambda: {*one.bodies, *(body for _, _, body in java.got)} == set(bodies), 30, what="everything"
        )
        more = send(name, 8)
        eventually(lambda: set(more) <= set(one.bodies), 30, what="all further messages")


FROZEN = """
import sys, time
from pyspark_rocketmq.client import ConsumeFromWhere, PushConsumer, PushOptions
name_server, group, topic = sys.argv[1:]
options = PushOptions(start=ConsumeFromWhere.FIRST_OFFSET, commit_ms=600_000, rebalance_ms=1_000)
with PushConsumer(group, name_server, options) as consumer:
    consumer.subscribe(topic)
    consumer.start(lambda messages: print(messages[0].body.decode(), flush=True))
    sys.stdin.read()
    while sum(queue.topic == topic for queue in consumer.queues) > 2:
        time.sleep(0.05)
"""


def test_a_member_that_was_frozen_for_seconds_sets_no_offset_back(mq, member, send, topic, client, group):
    name = topic(queues=4)
    send(name, 40)
    frozen = subprocess.Popen(
        [sys.executable, "-c", FROZEN, mq.name_server, group, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert frozen.stdout is not None
        assert len([frozen.stdout.readline() for _ in range(40)]) == 40
        frozen.send_signal(signal.SIGSTOP)
        one = member(PushOptions(start=FIRST, commit_ms=200)).start(name)
        eventually(lambda: len(one.queues(name)) == 2, SOON_S, what="half of the queues")
        send(name, 40)
        ends = dict.fromkeys(one.queues(name), 20)
        eventually(lambda: client.committed_offsets(group, ends) == ends, 30, what="the commits")
        threading.Event().wait(6)  # longer than a member takes to notice that it was frozen
        frozen.send_signal(signal.SIGCONT)
        eventually(lambda: len(frozen.stdout.readline()) > 0, what="a message after that")
        frozen.communicate("", timeout=60)
        assert client.committed_offsets(group, ends) == ends
    finally:
        frozen.kill()
        frozen.communicate()


def test_in_order_one_at_a_time_also_when_queues_change_hands(member, send, topic):
    name = topic(queues=4)
    options = PushOptions(start=FIRST, ordered=True, order_pause_ms=20, commit_ms=200, rebalance_ms=500)
    log: list[tuple[int, int]] = []
    busy: Counter[int] = Counter()
    overlaps: list[int] = []
    failing = {5, 12}
    lock = threading.Lock()

    def answer(messages: Sequence[Message]) -> ConsumeResult | None:
        (message,) = messages
        queue_id = message.queue_id
        with lock:
            busy[queue_id] += 1
            if busy[queue_id] > 1:
                overlaps.append(queue_id)
        try:
            threading.Event().wait(0.002)  # the work
            with lock:
                number = int(message.body[1:])
                if number in failing:
                    failing.remove(number)
                    return ConsumeResult.LATER
                log.append((queue_id, message.queue_offset))
        finally:
            with lock:
                busy[queue_id] -= 1
        return None

    one, two = member(options), member(options)
    one.answer = two.answer = answer
    send(name, 200)
    one.start(name)
    eventually(lambda: len(log) > 20, 30, what="some messages")
    two.start(name)
    eventually(lambda: len(two.queues(name)) == 2, SOON_S, what="its share")
    send(name, 200)
    eventually(lambda: len(log) >= 400, 60, what="four hundred messages")
    assert not overlaps, "two members worked on one queue"
    assert not failing
    for queue_id in range(4):
        offsets = [offset for found, offset in log if found == queue_id]
        assert offsets == list(range(100)), "each once, in order"


def test_broadcasting_members_get_everything_each(member, send, topic, tmp_path):
    name = topic(queues=3)
    kept = PushOptions(start=FIRST, broadcasting=True, progress_file=tmp_path / "offsets.json")
    one = member(kept).start(name)
    two = member(PushOptions(start=FIRST, broadcasting=True)).start(name)
    bodies = send(name, 30)
    for each in (one, two):
        eventually(lambda each=each: len(each.got) >= 30, 30, what="thirty messages")
        assert sorted(each.bodies) == sorted(bodies)
    one.consumer.close()
    more = send(name, 6)
    again = member(kept).start(name)
    eventually(lambda: len(again.got) >= 6, 30, what="what came meanwhile")
    assert sorted(again.bodies) == sorted(more)


def test_tags_are_looked_at_again(member, send, topic):
    """Aa and BB have one hash, by which brokers filter."""
    name = topic(queues=1)
    for tag in ("Aa", "BB", "C"):
        send(name, 2, tags=tag)
    one = member().start(name, "BB || C")
    eventually(lambda: len(one.got) >= 4, 30, what="four messages")
    assert [message.tags for message in sorted(one.got, key=lambda m: m.queue_offset)] == [
        *["BB"] * 2,
        *["C"] * 2,
    ]


@pytest.mark.needs("cluster")
def test_a_broker_that_restarts_is_gone_on_with(topic, group):
    with DevCluster() as own, Client(own.name_server) as client:
        name = topic(queues=2, cluster=own)
        one = Member(own, group).start(name)
        try:
            producer, queues = patient_producer(client), client.write_queues(name)
            for number in range(10):
                producer.send(OutgoingMessage(name, b"m%d" % number), queues[number % 2])
            eventually(lambda: len(one.got) == 10, 30, what="ten messages")
            own.broker().kill()
            own.broker().start()
            for number in range(10, 20):
                producer.send(OutgoingMessage(name, b"m%d" % number), queues[number % 2])
            eventually(
                lambda: {f"m{number}" for number in range(20)} <= set(one.bodies),
                60,
                what="ten messages more",
            )
        finally:
            one.consumer.close()


def test_with_a_broker_of_4_9(mq49, topic, group):
    name = topic(queues=2, cluster=mq49)
    one = Member(mq49, group, PushOptions(start=FIRST, retry_delay_level=1))

    def answer(messages: Sequence[Message]) -> ConsumeResult:
        (message,) = messages
        again = message.body == b"m3" and message.reconsume_times == 0
        return ConsumeResult.LATER if again else ConsumeResult.SUCCESS

    one.answer = answer
    try:
        one.start(name)
        with Client(mq49.name_server) as client:
            for number in range(8):
                patient_producer(client).send(OutgoingMessage(name, b"m%d" % number))
            eventually(lambda: len(one.got) == 9, 60, what="eight messages, one of them again")
            assert Counter(one.bodies) == {f"m{number}": 1 + (number == 3) for number in range(8)}
            one.consumer.close()
            queues = client.read_queues(name)
            assert client.committed_offsets(group, queues) == client.max_offsets(queues)
    finally:
        one.consumer.close()


def test_wrong_use_is_told(mq, topic, group):
    with PushConsumer(group, mq.name_server) as consumer:
        with pytest.raises(OptionError, match=r"once, after subscribe\(\)"):
            consumer.start(lambda _: None)
        consumer.subscribe("no-such-topic")
        with pytest.raises(TopicNotFoundError):
            consumer.start(lambda _: None)
    with pytest.raises(OptionError, match="threads must be a whole number from 1 on"):
        PushOptions(threads=0)
    with pytest.raises(OptionError, match="for broadcasting"):
        PushOptions(progress_file=Path("x"))


@pytest.mark.parametrize("ordered", [False, True])
def test_whole_pulls_are_committed_when_they_are_finished(mq, send, topic, client, group, ordered):
    name = topic(queues=2)
    bodies = [body for _ in range(10) for body in send(name, 200)]
    queues = client.read_queues(name)
    eventually(lambda: sum(client.max_offsets(queues).values()) == len(bodies), what="all to be readable")
    ends = client.max_offsets(queues)
    taken: list[tuple] = []
    options = PushOptions(start=FIRST, commit_ms=100, ordered=ordered)
    consumer = PushConsumer(group, mq.name_server, options)
    consumer.subscribe(name)
    consumer.start_runs(lambda worker, run: taken.append((worker, run)))
    try:

        def found() -> list[str]:
            runs = [run for _, run in list(taken)]
            return [
                m.body.decode() for run in runs for m in MessageDecoder(run.queue).messages([run.chunk()])
            ]

        eventually(lambda: sorted(found()) == sorted(bodies), 30, what="twenty messages")
        eventually(lambda: client.committed_offsets(group, ends) == dict.fromkeys(ends, 0), 10, what="zeros")
        (first, run), *rest = taken
        assert not first.idle, "a queue is not free while a pull of it is not finished"
        first.finish_run(run)
        eventually(lambda: client.committed_offsets(group, ends)[run.queue] > 0, 10, what="the first commit")
        consumer.stop_pulling()
        for worker, other in rest:
            worker.finish_run(other)
        assert first.idle
    finally:
        consumer.close()
    assert client.committed_offsets(group, ends) == ends


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("behind", [False, True], ids=["idle", "catching up"])
def test_a_member_that_runs_follows_an_operators_reset(mq, send, topic, client, group, behind, ordered):
    name, sent = topic(queues=1), 4_000 if behind else 40
    (queue,) = client.read_queues(name)
    send(name, sent)
    eventually(lambda: client.max_offsets([queue])[queue] == sent, what="all to be readable")
    got: list[int] = []
    was_reset = threading.Event()

    def take(worker: QueueWorker, run: PulledRun) -> None:
        got.extend(m.queue_offset for m in MessageDecoder(run.queue).messages([run.chunk()]))
        if len(got) > 300:  # several pulls are in flight
            was_reset.wait(30)
        worker.finish_run(run)

    consumer = PushConsumer(group, mq.name_server, PushOptions(start=FIRST, commit_ms=100, ordered=ordered))
    consumer.subscribe(name)
    consumer.start_runs(take)
    try:
        eventually(lambda: len(got) > 300 if behind else len(got) == sent, 30, what="the first messages")
        to = sent if behind else 30
        request = ResetOffsetRequest(group=group, topic=name, timestamp=-1, queue_id=0, offset=to)
        connection = client.connection(mq.brokers[0].address)
        connection.call(request, deadline=client.deadline()).require()
        was_reset.set()
        send(name, 5)
        eventually(lambda: got[-1] == sent + 4, 30, what="the newest message")
        if behind:
            assert len(got) < sent / 2, "the messages that the operator skipped"
        else:
            assert got == [*range(sent), *range(to, sent + 5)]
        ends = client.max_offsets([queue])
        eventually(lambda: client.committed_offsets(group, [queue]) == ends, 10, what="the commit")
    finally:
        was_reset.set()
        consumer.close()
