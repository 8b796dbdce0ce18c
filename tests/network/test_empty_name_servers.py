"""Name servers that restarted and know no broker yet: an outage to wait for, never a missing topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.support.clocks import FakeClock

from pyspark_rocketmq.client import (
    Client,
    MessageQueue,
    OutgoingMessage,
    Producer,
    ProducerOptions,
    PullConsumer,
    SendPipeline,
    encode_one,
)
from pyspark_rocketmq.client.admin import Admin
from pyspark_rocketmq.client.read.message_search import messages_by_key
from pyspark_rocketmq.client.read.pull_answer import has_natural_holes
from pyspark_rocketmq.errors import BrokerNotFoundError, TopicNotFoundError
from pyspark_rocketmq.options import ClientOptions
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.testing import MockCluster, Refuse

pytestmark = pytest.mark.timeout(60)

BROKERS = ("broker-a", "broker-b")
QUEUE = MessageQueue("orders", "broker-a", 0)
ROUTES = RequestCode.GET_ROUTEINFO_BY_TOPIC
CLUSTER = RequestCode.GET_BROKER_CLUSTER_INFO


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with MockCluster({"orders": 1}, brokers=BROKERS) as cluster:
        yield cluster


def client_of(mq: MockCluster, *, refresh_ms: int = 0, clock: FakeClock | None = None) -> Client:
    """Time passes only when it pauses before another attempt: servers may take their time to answer."""
    options = ClientOptions(name_servers=(mq.name_server,), route_refresh_ms=refresh_ms)
    return Client(options, clock=clock or FakeClock(), operation_timeout_ms=300)


def forget_brokers(mq: MockCluster) -> None:
    for name in BROKERS:
        mq.unregister(name)


def pipeline_of(client: Client) -> SendPipeline:
    producer = Producer(client, options=ProducerOptions(retries=0))
    return SendPipeline(producer, outage_timeout_ms=20_000)


@pytest.mark.parametrize("known_for", [1, 2, 3, 4])
def test_a_send_waits_when_the_route_goes_between_its_look_ups(known_for: int, mq: MockCluster) -> None:
    """Choosing a queue and finding its address look the route up one after the other."""
    with client_of(mq) as client, pipeline_of(client) as pipeline:
        gone = Refuse(ResponseCode.TOPIC_NOT_EXIST)
        injection = mq.inject(gone, on=ROUTES, after=known_for, times=3)
        ids = Producer(client).ids
        outcomes = []
        for n in range(3):
            outcomes += pipeline.submit(encode_one(OutgoingMessage("orders", b"%d" % n), ids))
        outcomes += pipeline.flush()
        assert injection.hits == 3
    assert [outcome.error for outcome in outcomes] == [None] * 3
    assert sorted(message.body for message in mq.messages("orders")) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("known", [True, False], ids=["a known topic", "a new process"])
def test_sends_wait_through_a_restart_of_the_cluster(known: bool, mq: MockCluster) -> None:
    """The name servers return before any broker has registered."""
    clock = FakeClock()
    with client_of(mq, refresh_ms=30_000, clock=clock) as client, pipeline_of(client) as pipeline:
        if known:
            client.read_queues("orders")
        mq.stop_name_server()
        forget_brokers(mq)
        client.invalidate("orders")
        mq.start_name_server()
        asked = mq.asked[CLUSTER]

        back_at = clock.now_s + 1

        def come_back() -> None:
            if clock.now_s >= back_at:
                mq.register("broker-a")

        clock.on_sleep = come_back
        pipeline.submit(encode_one(OutgoingMessage("orders", b"x"), Producer(client).ids))
        (outcome,) = pipeline.flush()
        assert outcome.error is None
        assert mq.asked[CLUSTER] > asked


USES: dict[str, Callable[[Client], object]] = {
    "route": lambda client: client.route("orders"),
    "queue address": lambda client: client.queue_address(QUEUE),
    "broker address": lambda client: client.broker_address("broker-a", topic="orders"),
    "owners": lambda client: client.owners([QUEUE]),
    "max offsets": lambda client: client.max_offsets([QUEUE]),
    "commit": lambda client: client.commit_offsets("group", {QUEUE: 0}),
    "choose": lambda client: Producer(client).choose("orders"),
    "connect": lambda client: Producer(client).connect(QUEUE),
    "pull": lambda client: PullConsumer("group", client=client).pull(QUEUE, "*", 0, 1),
    "holes": lambda client: has_natural_holes(client, QUEUE, client.deadline()),
    "search": lambda client: messages_by_key(client, "orders", "key"),
    "stats": lambda client: Admin(client).topic_stats("orders"),
}


@pytest.mark.parametrize("known", [True, False], ids=["a known topic", "a new process"])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_no_use_of_a_topic_calls_it_missing(
    use: Callable[[Client], object], known: bool, mq: MockCluster
) -> None:
    with client_of(mq) as client:
        if known:
            client.read_queues("orders")
        forget_brokers(mq)
        with pytest.raises(BrokerNotFoundError, match="no broker is registered") as caught:
            use(client)
    assert ("last seen: broker-" in caught.value.message) == known


def test_a_broker_that_had_the_topic_is_named(mq: MockCluster) -> None:
    mq.create_topic("only-a", 1, brokers=("broker-a",))
    with client_of(mq) as client:
        client.read_queues("only-a")
        mq.unregister("broker-a")
        with pytest.raises(BrokerNotFoundError, match=rf"seen: broker-a \({mq.address('broker-a')}\) at"):
            client.read_queues("only-a")
        assert mq.asked[RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER] == 0
        with client_of(mq) as fresh, pytest.raises(TopicNotFoundError):
            fresh.read_queues("only-a")


def test_near_names_are_told_and_cost_nothing_while_the_topic_exists(mq: MockCluster) -> None:
    lists = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    with client_of(mq) as client:
        client.read_queues("orders")
        assert (mq.asked[CLUSTER], mq.asked[lists]) == (0, 0)
        with pytest.raises(TopicNotFoundError, match="did you mean orders"):
            client.read_queues("order")
        assert (mq.asked[CLUSTER], mq.asked[lists]) == (1, 1)


def test_a_proxy_that_does_not_tell_its_brokers(mq: MockCluster) -> None:
    mq.inject(Refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED), on=CLUSTER, times=None)
    with client_of(mq) as client, pytest.raises(TopicNotFoundError):
        client.read_queues("nowhere")
