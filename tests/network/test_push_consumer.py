"""Members of a group on a mock cluster: queues that come later, brokers that are away, messages put off."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pytest
from tests.support.threads import NO_THREAD, HostWithoutThreads
from tests.support.topics import put
from tests.support.wait import eventually, within

from pyspark_rocketmq.client import (
    Admin,
    Client,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageQueue,
    MessageSelector,
    OutgoingMessage,
    PullConsumer,
    PushConsumer,
    PushOptions,
)
from pyspark_rocketmq.client.groups import push_worker, threads
from pyspark_rocketmq.client.groups.membership import Membership
from pyspark_rocketmq.client.net.host import SYSTEM_HOST, Host
from pyspark_rocketmq.options import ClientOptions, parse_options
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.testing import MockCluster
from pyspark_rocketmq.testing.faults import Delay, Refuse, Silence

pytestmark = pytest.mark.timeout(90)

FIRST, LAST = ConsumeFromWhere.FIRST_OFFSET, ConsumeFromWhere.LAST_OFFSET
GROUP = "billing"
QUICK = {"suspend_ms": 200, "rebalance_ms": 100, "commit_ms": 100, "heartbeat_ms": 1_000}


class Member:
    """A consumer and what it got."""

    def __init__(self, mq: MockCluster, *, host: Host = SYSTEM_HOST, **options: object) -> None:
        given = {"nameServer": mq.name_server, "routeRefreshMs": "50", "connectTimeoutMs": "500"}
        client = parse_options(ClientOptions, {**given, "requestTimeoutMs": "600"}, environ={})
        self.consumer = PushConsumer(GROUP, client, PushOptions(**{**QUICK, **options}), host=host)
        self.got: list[Message] = []
        self.answer: Callable[[Sequence[Message]], ConsumeResult | None] = lambda _: None

    def start(self, *topics: str) -> Member:
        for topic in topics:
            self.consumer.subscribe(topic)
        self.consumer.start(self._take)
        return self

    def _take(self, messages: Sequence[Message]) -> ConsumeResult | None:
        self.got += messages
        return self.answer(messages)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.got]

    def queues(self, topic: str) -> set[MessageQueue]:
        return {queue for queue in self.consumer.queues if queue.topic == topic}


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with MockCluster({"orders": 2, "payments": 1}, brokers=("broker-a", "broker-b")) as cluster:
        yield cluster


@pytest.fixture
def member(mq: MockCluster) -> Iterator[Callable[..., Member]]:
    """``member(**options)``: closed at the end, with no thread left."""
    made: list[Member] = []

    def make(**options: object) -> Member:
        made.append(Member(mq, **options))
        return made[-1]

    yield make
    for one in made:
        one.consumer.close(1.0)
    eventually(
        lambda: not [t for t in threading.enumerate() if t.name.startswith(("push-", "consume-"))],
        30,
        what="the consumers' threads to end",
    )
    for one in made:
        one.consumer._client.close()  # a thread that outlived the consumer may have connected once more


def queues_read(*members: Member) -> set[tuple[str, int]]:
    """Return of which queues the members got messages.

    On a busy machine, a member that is not heard for a moment loses its queues, and messages come twice.
    """
    return {(message.broker_name, message.queue_id) for one in members for message in one.got}


def numbered(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix}{number}".encode() for number in range(count)]


# --- queues that a topic gains --------------------------------------------------------------


@pytest.mark.parametrize("ordered", [False, True])
def test_a_queue_that_a_topic_gains_is_read_from_its_first_message(mq, member, ordered: bool):
    put(mq, mq.queue("orders"), b"old")
    one = member(start=LAST, ordered=ordered).start("orders")
    eventually(lambda: len(one.queues("orders")) == 4, 30, what="the queues")
    mq.create_topic("orders", 3)
    bodies = put(mq, mq.queue("orders", 2, "broker-a"), *numbered("a", 10))
    bodies += put(mq, mq.queue("orders", 2, "broker-b"), *numbered("b", 10))
    eventually(lambda: len(one.got) >= 20, 30, what="what the new queues have")
    assert sorted(one.bodies) == sorted(bodies)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_member_starts_without_a_pause_and_without_a_warning(
    mq, member, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ordered: bool
):
    monkeypatch.setattr(threads, "_TICK_S", 600.0)
    mq.inject(Delay(0.2), on=RequestCode.HEART_BEAT, times=None)
    sent = put(mq, mq.queue("orders"), b"a") + put(mq, mq.queue("orders", 0, "broker-b"), b"b")
    options = {"rebalance_ms": 600_000, "commit_ms": 600_000}
    one = member(start=FIRST, ordered=ordered, **options).start("orders")
    eventually(lambda: sorted(one.bodies) == sent, 10, what="the first messages")
    assert [record.getMessage() for record in caplog.records] == []


def test_start_offsets_are_committed_at_once(mq, member):
    put(mq, mq.queue("orders"), b"old")
    one = member(start=LAST, commit_ms=600_000).start("orders")
    eventually(lambda: len(one.queues("orders")) == 4, 30, what="the queues")
    starts = {queue: mq.max_offset(queue) for queue in mq.queues("orders")}
    assert sum(starts.values()) == 1
    eventually(
        lambda: {queue: mq.committed(GROUP, queue) for queue in starts} == starts,
        30,
        what="the first commits",
    )


def test_what_a_broker_loses_of_the_offsets_in_a_crash_is_committed_again(mq, member):
    """It writes them to its disk every 5 s, and a queue may have no news for a long time after that."""
    queue = mq.queue("orders")
    put(mq, queue, b"old")
    one = member(start=LAST).start("orders")
    eventually(lambda: mq.committed(GROUP, queue) == 1, 30, what="where it begins")
    mq.stop_broker("broker-a")
    mq._stores["broker-a"].committed.clear()
    mq.start_broker("broker-a")
    eventually(lambda: mq.committed(GROUP, queue) == 1, 15, what="the offset again")
    assert one.bodies == []


def test_a_queue_that_came_while_no_member_was_looking_is_read_from_its_first_message(mq, member):
    first = member(start=LAST).start("orders")
    eventually(lambda: mq.committed(GROUP, mq.queue("orders")) == 0, 30, what="the first commit")
    first.consumer.close()
    mq.create_topic("orders", 3)
    bodies = put(mq, mq.queue("orders", 2, "broker-b"), *numbered("b", 10))
    second = member(start=LAST).start("orders")
    eventually(lambda: len(second.got) >= 10, 30, what="what came meanwhile")
    assert sorted(second.bodies) == bodies  # several threads call the listener


def test_members_that_start_together_begin_where_they_are_told(mq, member):
    for queue in mq.queues("orders"):
        put(mq, queue, b"old")
    mq.fail(RequestCode.HEART_BEAT, code=ResponseCode.SYSTEM_BUSY, times=None)
    one, two = member(start=LAST), member(start=LAST)
    one.start("orders")
    two.start("orders")  # looks before the first one has joined
    mq.heal()
    eventually(
        lambda: len(one.queues("orders")) == len(two.queues("orders")) == 2, 30, what="half of them each"
    )
    for queue in mq.queues("orders"):
        put(mq, queue, b"new")
    eventually(lambda: len(queues_read(one, two)) == 4, 30, what="the new ones")
    assert {*one.bodies, *two.bodies} == {b"new"}


@pytest.mark.parametrize("ordered", [False, True])
def test_a_static_topic_s_queues_are_read_wherever_they_are(mq, member, ordered: bool):
    mq.create_static_topic("moving", 2, broker="broker-a")
    first, second = mq.queues("moving")
    bodies = [*put(mq, first, b"0"), *put(mq, second, b"1")]
    one = member(start=FIRST, ordered=ordered).start("moving")
    eventually(lambda: sorted(one.bodies) == bodies, 30, what="both queues")
    mq.remap("moving", "broker-b")
    bodies += put(mq, first, b"2", b"3")
    eventually(lambda: sorted(one.bodies) == bodies, 30, what="the queue that moved")
    with Client(mq.name_server) as client:
        end = client.max_offsets([first])
        eventually(lambda: client.committed_offsets(GROUP, [first]) == end, 30, what="its commit")


# --- a broker that is away ------------------------------------------------------------------


def away(mq: MockCluster, how: str) -> None:
    if how == "down":
        mq.stop_broker("broker-b", unregister=False)
    else:
        mq.inject(Silence(), times=None, broker="broker-b")


@pytest.mark.parametrize("how", ["down", "silent"])
@pytest.mark.parametrize("ordered", [False, True])
def test_a_broker_that_is_away_holds_up_no_other(mq, member, how: str, ordered: bool):
    one = member(start=FIRST, ordered=ordered).start("orders")
    eventually(lambda: len(one.queues("orders")) == 4, 30, what="the queues")
    away(mq, how)
    here = mq.queue("orders", 0, "broker-a")
    for number in range(3):
        put(mq, here, b"%d" % number)
        eventually(
            lambda n=number: mq.committed(GROUP, here) == n + 1, 10, what="a commit at the healthy broker"
        )
    two = member(start=FIRST, ordered=ordered).start("orders")
    eventually(
        lambda: (
            len([q for q in two.queues("orders") if q.broker_name == "broker-a"])
            + len([q for q in one.queues("orders") if q.broker_name == "broker-a"])
            == 2
            and two.queues("orders") | one.queues("orders") >= {here}
        ),
        20,
        what="the healthy broker's queues to have one owner each",
    )
    assert one.queues("orders").isdisjoint(two.queues("orders"))
    put(mq, here, b"3")
    eventually(lambda: mq.committed(GROUP, here) == 4, 10, what="a commit by the new owner")
    there = mq.queue("orders", 1, "broker-b")
    if how == "down":
        mq.start_broker("broker-b")
    mq.heal()
    put(mq, there, b"back")
    eventually(lambda: b"back" in one.bodies + two.bodies, 40, what="the broker that came back")
    eventually(lambda: mq.committed(GROUP, there) == 1, 20, what="its commit")


def test_in_order_nothing_is_called_under_a_lock_that_a_restarted_broker_has_forgotten(mq, member):
    queue = mq.queue("payments", 0, "broker-b")
    put(mq, queue, *numbered("m", 3))
    called, go = threading.Event(), threading.Event()
    one = member(start=FIRST, ordered=True)

    def answer(messages: Sequence[Message]) -> None:
        called.set()
        assert go.wait(30)

    one.answer = answer
    one.start("payments")
    assert called.wait(30)
    mq.stop_broker("broker-b", unregister=False)
    unheard = mq.inject(Silence(), on=RequestCode.HEART_BEAT, times=None, broker="broker-b")
    mq.start_broker("broker-b")
    with Client(mq.name_server) as client:
        other = Membership(
            client, GROUP, "other", {}, broadcasting=False, start=FIRST.value, on_change=lambda: None
        )
        assert other.lock([queue]) == {queue: True}, "brokers keep locks in memory"
        go.set()
        eventually(lambda: unheard.hits > 1, 30, what="a member that the broker does not know yet")
        mq.heal()
        eventually(lambda: queue not in one.queues("payments"), 30, what="a queue that another member has")
        assert one.bodies == [b"m0"]
        other.unlock([queue])
    eventually(lambda: one.bodies[-1] == b"m2", 30, what="the rest when the lock is free")


def test_in_order_calls_continue_at_once_after_a_connection_has_ended(mq, member):
    queue = mq.queue("payments", 0, "broker-b")
    one = member(start=FIRST, ordered=True).start("payments")
    eventually(lambda: queue in one.queues("payments"), 30, what="the queue")
    mq.stop_broker("broker-b", unregister=False)
    mq.start_broker("broker-b")
    locked = mq.asked[RequestCode.LOCK_BATCH_MQ]
    put(mq, queue, b"m0")
    eventually(lambda: one.bodies == [b"m0"], 15, what="a message under a new lock")  # not after 20 s
    assert mq.asked[RequestCode.LOCK_BATCH_MQ] > locked


def test_a_group_starts_while_a_broker_is_away(mq, member):
    mq.stop_broker("broker-b", unregister=False)
    one = member(start=FIRST).start("orders")
    bodies = put(mq, mq.queue("orders", 0, "broker-a"), b"here")
    eventually(lambda: one.bodies == bodies, 20, what="the healthy broker's message")
    mq.start_broker("broker-b")
    bodies += put(mq, mq.queue("orders", 0, "broker-b"), b"there")
    eventually(lambda: one.bodies == bodies, 40, what="the other one's")


def test_a_deleted_topic_does_not_stop_the_others(mq, member):
    one = member(start=FIRST).start("orders", "payments")
    eventually(lambda: len(one.queues("orders")) == 4 and len(one.queues("payments")) == 2, 30, what="queues")
    mq.delete_topic("payments")
    two = member(start=FIRST)
    two.start("orders")
    eventually(lambda: len(one.queues("orders")) == len(two.queues("orders")) == 2, 20, what="half each")
    for queue in mq.queues("orders"):
        put(mq, queue, b"x")
    eventually(lambda: len(queues_read(one, two)) == 4, 20, what="the messages")


def test_closing_waits_for_no_broker_that_is_away(mq, member):
    one = member(start=FIRST).start("orders")
    eventually(lambda: len(one.queues("orders")) == 4, 30, what="the queues")
    here = mq.queue("orders", 0, "broker-a")
    mq.stop_broker("broker-b", unregister=False)
    put(mq, here, b"0")
    eventually(lambda: one.got, 20, what="the message")
    one.consumer.close()
    assert mq.committed(GROUP, here) == 1


# --- messages that are put off --------------------------------------------------------------


@pytest.mark.parametrize("ordered", [False, True])
def test_a_consumer_that_is_closed_in_its_listener_waits_for_no_call_but_commits_it(mq, member, ordered):
    queue = mq.queue("payments", 0, "broker-a")
    put(mq, queue, *numbered("m", 5))
    one = member(start=FIRST, ordered=ordered, threads=1)
    closed = threading.Event()

    def answer(messages: Sequence[Message]) -> None:
        if messages[0].body == b"m2":
            with within(3):
                one.consumer.close()
            closed.set()

    one.answer = answer
    one.start("payments")
    assert closed.wait(30)
    eventually(lambda: mq.committed(GROUP, queue) == 3, 15, what="a commit of the call that closed")
    one.consumer.close()
    assert one.bodies == numbered("m", 3)


def test_a_message_that_cannot_be_sent_back_holds_no_thread_of_the_listener(mq, member, monkeypatch):
    monkeypatch.setattr(push_worker, "_SEND_BACK_RETRY_S", 0.5)
    there, here = mq.queue("orders", 0, "broker-b"), mq.queue("orders", 0, "broker-a")
    failed = mq.fail(
        RequestCode.CONSUMER_SEND_MSG_BACK, code=ResponseCode.SYSTEM_BUSY, times=None, broker="broker-b"
    )
    one = member(start=FIRST, threads=1)
    one.answer = lambda messages: (
        ConsumeResult.LATER
        if messages[0].broker_name == "broker-b" and not messages[0].reconsume_times
        else None
    )
    one.start("orders")
    put(mq, there, *numbered("b", 3))
    eventually(lambda: failed.hits >= 3, 30, what="what the broker refuses to take back")
    bodies = put(mq, here, *numbered("a", 50))
    eventually(
        lambda: [b for b in one.bodies if b in bodies] == bodies, 10, what="the healthy broker's messages"
    )
    assert mq.committed(GROUP, there) == 0, "what was not taken back is not committed"
    mq.heal()
    eventually(lambda: Counter(one.bodies)[b"b2"] == 2, 30, what="the messages to come again")
    eventually(lambda: mq.committed(GROUP, there) == 3, 10, what="their commit")


def test_a_message_that_the_broker_does_not_know_any_more_goes_to_the_listener_again(mq, member):
    mq.fail(RequestCode.CONSUMER_SEND_MSG_BACK, code=ResponseCode.SYSTEM_ERROR, times=1)
    one = member(start=FIRST)
    one.answer = lambda messages: None if messages[0].reconsume_times else ConsumeResult.LATER
    one.start("orders")
    queue = mq.queue("orders")
    put(mq, queue, b"x")
    eventually(lambda: mq.committed(GROUP, queue) == 1, 30, what="the commit")
    assert [(message.body, message.reconsume_times) for message in one.got] == [(b"x", 0), (b"x", 1)]
    assert mq.max_offset(MessageQueue(f"%RETRY%{GROUP}", "broker-a", 0)) == 0


@pytest.mark.parametrize("most", [0, 2])
def test_in_order_a_message_is_tried_as_often_as_it_says(mq, member, most: int):
    one = member(start=FIRST, ordered=True, max_reconsume_times=most, order_pause_ms=1)
    one.answer = lambda messages: ConsumeResult.LATER if messages[0].body == b"bad" else None
    one.start("orders")
    queue = mq.queue("orders")
    put(mq, queue, b"bad", b"good")
    eventually(lambda: mq.committed(GROUP, queue) == 2, 30, what="the commit")
    assert one.bodies == [b"bad"] * (most + 1) + [b"good"]
    assert [message.reconsume_times for message in one.got[:-1]] == list(range(most + 1))
    (dead,) = mq.messages(f"%DLQ%{GROUP}")
    assert dead.body == b"bad"
    assert mq.max_offset(MessageQueue(f"%RETRY%{GROUP}", "broker-a", 0)) == 0


def test_in_order_a_message_waits_for_the_dead_letters(mq, member):
    refused = mq.fail(RequestCode.CONSUMER_SEND_MSG_BACK, code=ResponseCode.SYSTEM_BUSY, times=3)
    one = member(start=FIRST, ordered=True, max_reconsume_times=1, order_pause_ms=1, batch_size=2)
    one.answer = lambda messages: ConsumeResult.LATER if messages[0].body.startswith(b"bad") else None
    queue = mq.queue("orders")
    put(mq, queue, b"bad0", b"bad1", b"good")
    one.start("orders")
    eventually(lambda: mq.committed(GROUP, queue) == 3, 30, what="the commit")
    assert refused.hits == 3
    assert sorted(message.body for message in mq.messages(f"%DLQ%{GROUP}")) == [b"bad0", b"bad1"], "each once"
    assert one.bodies[-1] == b"good"


def test_tags_are_compared_by_the_member_where_messages_are_stored_as_inner_batches(mq, member):
    """A broker compares the tag of the outer record, which has none."""
    one = member(start=FIRST)
    Admin(one.consumer._client).create_topic("batches", queues=1, attributes={"queue.type": "BatchCQ"})
    queue = mq.queue("batches")
    for number in range(4):
        mq.send(OutgoingMessage("batches", b"%d" % number, tags="AB"[number % 2]), queue)
    one.consumer.subscribe("batches", "B")
    one.start()
    eventually(lambda: mq.committed(GROUP, queue) == 4, 30, what="the commit")
    assert sorted(one.bodies) == [b"1", b"3"]
    assert set(one.consumer._client.pull_selectors.values()) == {MessageSelector()}, "the broker filters none"
    with Client(mq.name_server) as client:
        found = PullConsumer("other", client=client).pull(queue, "B", 0)
        assert [message.body for message in found.messages] == [b"1", b"3"]
        assert set(client.pull_selectors.values()) == {MessageSelector()}


def test_a_filter_is_checked_at_a_broker_that_comes_later(mq, member):
    """A broker that cannot parse the filter would hand out everything."""
    mq.inject(Refuse(ResponseCode.SUCCESS), on=RequestCode.CHECK_CLIENT_CONFIG, times=2)
    refused = Refuse(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse error")
    refusals = mq.inject(refused, on=RequestCode.CHECK_CLIENT_CONFIG, times=None)
    one = member(start=FIRST)
    put(mq, mq.queue("orders"), b"x")
    one.consumer.subscribe("orders", MessageSelector.by_sql("amount >"))
    one.start()
    eventually(lambda: refusals.hits >= 2, 30, what="the checks")
    assert not one.got


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "body": lambda record: record.replace(b"bad", b"\x00\x01\x02"),
    "compression": lambda record: record[:38] + bytes([record[38] | 7, record[39] | 1]) + record[40:],
    "layout": lambda record: record[:4] + b"\0\0\0\0" + record[8:],
}


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_message_that_does_not_decode_can_be_skipped(mq, member, damage: str, ordered: bool, caplog):
    queue = mq.queue("orders")
    put(mq, queue, b"1", b"bad", b"2", b"3")
    mq.corrupt(queue, 1, DAMAGE[damage])
    one = member(start=FIRST, ordered=ordered, on_corrupt="skip", check_crc=True).start("orders")
    eventually(lambda: mq.committed(GROUP, queue) == 4, 30, what="the commit")
    assert sorted(one.bodies) == [b"1", b"2", b"3"]
    (warning,) = [record.message for record in caplog.records if "cannot be decoded" in record.message]
    assert "orders@broker-a:0 at 1" in warning


def test_a_message_that_does_not_decode_holds_its_queue_up_and_no_other(mq, member, caplog):
    queue, other = mq.queue("orders", 0), mq.queue("orders", 1)
    put(mq, queue, b"1", b"bad")
    mq.corrupt(queue, 1, DAMAGE["compression"])
    one = member(start=FIRST).start("orders")
    eventually(lambda: "a pull of orders@broker-a:0 failed" in caplog.text, 30, what="the warning")
    put(mq, other, b"2")
    eventually(lambda: mq.committed(GROUP, other) == 1, 30, what="the commit")
    assert one.bodies == [b"2"]
    assert not mq.committed(GROUP, queue)


# --- a machine without threads --------------------------------------------------------------


class _RefusingHost(HostWithoutThreads):
    """Cannot start a thread of a name when it is first asked for one, but the consumer's own."""

    def __init__(self) -> None:
        super().__init__(0)
        self.names = {f"push-{GROUP}"}

    def start(self, work: Callable[[], None], *, name: str) -> None:
        self.refusals = int(name not in self.names)
        self.names.add(name)
        super().start(work, name=name)


def test_a_broker_for_which_no_thread_is_left_holds_up_no_other(mq, member, caplog: pytest.LogCaptureFixture):
    refused = f"push-{GROUP}-broker-a"

    class Refusing(HostWithoutThreads):
        def start(self, work: Callable[[], None], *, name: str) -> None:
            self.refusals = int(name == refused)
            super().start(work, name=name)

    bodies = put(mq, mq.queue("orders", 0, "broker-b"), b"there")
    one = member(start=FIRST, host=Refusing(0)).start("orders")
    eventually(lambda: one.bodies == bodies, 30, what="the other broker's message")
    eventually(lambda: mq.committed(GROUP, mq.queue("orders", 0, "broker-b")) == 1, 30, what="its commit")
    assert [NO_THREAD in record.getMessage() for record in caplog.records] == [True], "once in five minutes"
    refused = ""
    bodies += put(mq, mq.queue("orders", 0, "broker-a"), b"here")
    eventually(lambda: one.bodies == bodies, 30, what="the message of the broker that has a thread now")


def test_a_consumer_whose_threads_do_not_start_at_first_gets_every_message(mq, member):
    bodies = put(mq, mq.queue("payments"), *numbered("m", 10))
    host = _RefusingHost()
    one = member(start=FIRST, host=host).start("payments")
    eventually(lambda: {*bodies} == {*one.bodies}, 60, what="every message")
    eventually(lambda: mq.committed(GROUP, mq.queue("payments")) == 10, 60, what="the commit")
    assert any(name.startswith("consume-") for name in host.names)
