"""The client for asyncio: answers, faults, deadlines, cancellation, and the end."""

from __future__ import annotations

import asyncio
import contextlib
import runpy
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import Authority
from tests.support.deaf import deaf_address
from tests.support.fakes import Lowest
from tests.support.scripted_peer import Peer, ScriptedPeer, answer

from pyspark_rocketmq.client import (
    AsyncClient,
    AsyncProducer,
    AsyncPullConsumer,
    Client,
    ClientOptions,
    MessageQueue,
    OutgoingMessage,
    ProducerOptions,
    PullStatus,
)
from pyspark_rocketmq.client.aio.connection import AsyncConnection
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Deadline
from pyspark_rocketmq.client.net.endpoint import ConnectionOptions
from pyspark_rocketmq.client.requests import max_offset
from pyspark_rocketmq.errors import (
    AuthenticationError,
    BrokerNotFoundError,
    ConnectError,
    NameServerError,
    OptionError,
    PermissionDeniedError,
    RemoteProtocolError,
    RequestTimeoutError,
    RocketMQError,
    SendError,
    TopicNotFoundError,
)
from pyspark_rocketmq.options import parse_options
from pyspark_rocketmq.remoting.acl import Credentials
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.frame import Frame
from pyspark_rocketmq.remoting.header import GetConsumerListByGroupRequest, GetMaxOffsetRequest
from pyspark_rocketmq.testing import (
    Announce,
    Cut,
    Damage,
    Delay,
    Drip,
    HangUp,
    Injection,
    MockBroker,
    MockCluster,
    Refuse,
    Reorder,
    Silence,
    Stranger,
)

pytestmark = pytest.mark.timeout(120)

EXAMPLES = Path(__file__).parents[2] / "examples"
QUEUE = MessageQueue("orders", "broker-a", 0)
PATIENT = ProducerOptions(send_timeout_ms=60_000)


@pytest.fixture
def mq() -> Iterator[MockBroker]:
    with MockBroker({"orders": 2}) as broker:
        yield broker


def run(mq: MockCluster, use: Callable[[AsyncClient], Awaitable[object]], **options: int) -> None:
    """Use a client in an event loop of its own, and check that nothing is left in the loop."""
    given = {"connect_timeout_ms": 60_000, "request_timeout_ms": 60_000} | options

    async def main() -> None:
        async with AsyncClient(ClientOptions(name_servers=(mq.name_server,), **given)) as client:
            await use(client)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def message(body: bytes = b"x", **more: object) -> OutgoingMessage:
    return OutgoingMessage("orders", body, **more)  # type: ignore[arg-type]


# --- what it does ---


def test_what_is_sent_is_pulled(mq: MockBroker) -> None:
    async def use(client: AsyncClient) -> None:
        producer, consumer = AsyncProducer(client, options=PATIENT), AsyncPullConsumer("g", client=client)
        for at in range(3):
            result = await producer.send(message(b"%d" % at, tags="a" if at else "b"), QUEUE)
            assert (result.queue, result.queue_offset) == (QUEUE, at)
        assert await consumer.fetch_subscribe_message_queues("orders") == await client.write_queues("orders")
        found = await consumer.pull(QUEUE, "*", 0)
        assert [each.body for each in found.messages] == [b"0", b"1", b"2"]
        assert found.next_begin_offset == 3
        tagged = await consumer.pull(QUEUE, "a", 0)
        assert [each.body for each in tagged.messages] == [b"1", b"2"]
        assert (await consumer.pull(QUEUE, "*", 3)).status is PullStatus.NO_NEW_MSG
        times = [each.store_timestamp for each in found.messages]
        assert (await consumer.min_offset(QUEUE), await consumer.max_offset(QUEUE)) == (0, 3)
        assert await consumer.search_offset(QUEUE, times[0]) == 0
        assert await consumer.search_offset(QUEUE, times[-1] + 1) == 3

    run(mq, use)


def test_a_server_that_lacks_the_topic_is_asked_again_what_it_may_filter(mq: MockBroker) -> None:
    """It may get the topic with any settings."""
    missing = mq.inject(Refuse(ResponseCode.TOPIC_NOT_EXIST), on=RequestCode.GET_TOPIC_CONFIG, times=None)

    async def use(client: AsyncClient) -> None:
        consumer = AsyncPullConsumer("g", client=client)
        for asked in (1, 2):
            await consumer.pull(QUEUE, "a", 0)
            assert missing.hits == asked
        mq.heal()
        known = mq.inject(Delay(0), on=RequestCode.GET_TOPIC_CONFIG, times=None)
        for _ in range(2):
            await consumer.pull(QUEUE, "a", 0)
        assert known.hits == 1

    run(mq, use)


def test_batches_and_one_way(mq: MockBroker) -> None:
    async def use(client: AsyncClient) -> None:
        producer = AsyncProducer(client, options=PATIENT)
        result = await producer.send_batch([message(b"a"), message(b"b" * 20_000)], QUEUE)
        assert result.msg_id.count(",") == 1
        await producer.send_one_way(message(b"c"), QUEUE)
        while (await client.max_offsets([QUEUE]))[QUEUE] < 3:
            await asyncio.sleep(0.01)
        found = await AsyncPullConsumer("g", client=client).pull(QUEUE, "*", 0)
        assert [each.body[:1] for each in found.messages] == [b"a", b"b", b"c"]

    run(mq, use)


def test_a_thousand_tasks_share_one_connection(mq: MockBroker) -> None:
    async def use(client: AsyncClient) -> None:
        producer = AsyncProducer(client, options=PATIENT)
        results = await asyncio.gather(*(producer.send(message(b"%d" % at)) for at in range(1_000)))
        assert len({(each.queue, each.queue_offset) for each in results}) == 1_000
        queues = await client.read_queues("orders")
        assert sum((await client.max_offsets(queues)).values()) == 1_000
        assert len(client._connecting) == 2  # the name server's, and the broker's

    run(mq, use)


def test_a_key_keeps_its_queue(mq: MockBroker) -> None:
    async def use(client: AsyncClient) -> None:
        producer = AsyncProducer(client, options=PATIENT)
        queues = {(await producer.send(message(sharding_key="k"))).queue for _ in range(4)}
        assert len(queues) == 1
        turns = {(await producer.send(message())).queue for _ in range(4)}
        assert len(turns) == 2

    run(mq, use)


def test_offsets_are_committed_for_a_new_group(mq: MockBroker) -> None:
    async def use(client: AsyncClient) -> None:
        consumer = AsyncPullConsumer("new-group", client=client)
        queues = await client.read_queues("orders")
        assert await consumer.fetch_consume_offset(QUEUE) is None
        await client.commit_offsets("new-group", dict.fromkeys(queues, 7))
        assert await client.committed_offsets("new-group", queues) == dict.fromkeys(queues, 7)
        await consumer.update_consume_offset(QUEUE, 8)
        assert await consumer.fetch_consume_offset(QUEUE) == 8

    run(mq, use)


def test_a_commit_reaches_the_brokers_that_are_up() -> None:
    with MockCluster({"orders": 2}, brokers=("broker-a", "broker-b")) as mq:

        async def use(client: AsyncClient) -> None:
            queues = await client.read_queues("orders")
            client.operation_timeout_ms = 1_000
            mq.stop_broker("broker-a", unregister=False)
            with pytest.raises(RocketMQError) as caught:
                await client.commit_offsets("billing", dict.fromkeys(queues, 7))
            assert caught.value.facts["broker_name"] == "broker-a"
            up = [queue for queue in queues if queue.broker_name == "broker-b"]
            assert await client.committed_offsets("billing", up) == dict.fromkeys(up, 7)

        run(mq, use)


def test_a_waiting_pull_does_not_hold_up_other_tasks(mq: MockBroker) -> None:
    async def use(client: AsyncClient) -> None:
        consumer = AsyncPullConsumer("g", client=client)
        waiting = asyncio.create_task(consumer.pull_block_if_not_found(QUEUE, "*", 0, suspend_ms=60_000))
        while not mq_has_pull(client):
            await asyncio.sleep(0.01)
        assert await consumer.max_offset(QUEUE) == 0
        await AsyncProducer(client, options=PATIENT).send(message(b"late"), QUEUE)
        assert [each.body for each in (await waiting).messages] == [b"late"]

    def mq_has_pull(client: AsyncClient) -> bool:
        tasks = client._connecting.values()
        return any(task.done() and task.result()._pending for task in tasks)

    run(mq, use)


def test_tls_and_signatures(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    bodies = [b"%d" % number * 30_000 for number in range(40)]
    given = {
        "tls": "true",
        "tlsCaFile": str(authority.root.cert),
        "accessKey": "me",
        "secretKey": "secret",
        "requestTimeoutMs": "60000",
        "connectTimeoutMs": "60000",
    }
    tls = authority.issue("server").server_context()
    with MockBroker({"orders": 1}, tls=tls, credentials=Credentials("me", "secret")) as mq:

        async def main(**more: str) -> list[bytes]:
            options = parse_options(
                ClientOptions, {"nameServer": mq.name_server, **given, **more}, environ={}
            )
            async with AsyncClient(options) as client:
                producer = AsyncProducer(client, options=PATIENT)
                consumer = AsyncPullConsumer("g", client=client)
                for body in bodies:
                    await producer.send(message(body))
                found: list[bytes] = []
                while len(found) < len(bodies):
                    found += [each.body for each in (await consumer.pull(QUEUE, "*", len(found))).messages]
                return found

        assert asyncio.run(main()) == bodies
        with pytest.raises(AuthenticationError):
            asyncio.run(main(secretKey="wrong"))
        with pytest.raises(NameServerError, match="certificate verify failed"):
            asyncio.run(main(tlsServerName="elsewhere", connectTimeoutMs="3000"))


# --- what goes wrong ---


@pytest.mark.parametrize(
    "fault",
    [
        HangUp(),
        HangUp(executed=True),
        Cut(5),
        Stranger(),
        Drip(),
        Refuse(ResponseCode.SYSTEM_BUSY, "busy"),
        Refuse(ResponseCode.TOPIC_NOT_EXIST, "not yet"),
        Delay(0.2),
    ],
    ids=repr,
)
def test_a_send_survives_a_fault(mq: MockBroker, fault: object) -> None:
    async def use(client: AsyncClient) -> None:
        producer = AsyncProducer(client, options=PATIENT)
        await producer.send(message(b"first"), QUEUE)
        injection = mq.inject(fault, on=RequestCode.SEND_MESSAGE_V2)  # type: ignore[arg-type]
        await producer.send(message(b"second"), QUEUE)
        assert injection.hits == 1
        found = await AsyncPullConsumer("g", client=client).pull(QUEUE, "*", 0)
        assert {each.body for each in found.messages} == {b"first", b"second"}

    run(mq, use)


def test_what_is_no_answer_is_an_error_and_the_next_call_connects_again(mq: MockBroker) -> None:
    async def use(client: AsyncClient) -> None:
        assert await client.max_offsets([QUEUE]) == {QUEUE: 0}
        mq.inject(Damage(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n"), on=RequestCode.GET_MAX_OFFSET)
        with pytest.raises(RemoteProtocolError, match="the peer sent no remoting frame"):
            await client.max_offsets([QUEUE])
        assert await client.max_offsets([QUEUE]) == {QUEUE: 0}

    run(mq, use)


def test_answers_may_overtake_each_other(mq: MockBroker) -> None:
    async def use(client: AsyncClient) -> None:
        reordered = mq.inject(Reorder(2), on=RequestCode.GET_MAX_OFFSET, times=2)
        queues = await client.read_queues("orders")
        assert await client.max_offsets(queues) == dict.fromkeys(queues, 0)
        assert reordered.hits == 2

    run(mq, use)


def test_a_silent_broker_ends_at_the_deadline(mq: MockBroker) -> None:
    async def use(client: AsyncClient) -> None:
        await client.max_offsets([QUEUE])
        mq.inject(Silence(), on=RequestCode.GET_MAX_OFFSET, times=None)
        connection = await client.connection(mq.address("broker-a"))
        while connection.alive:  # until it was silent for a whole deadline
            with pytest.raises(RequestTimeoutError, match="no answer within"):
                await client.ask({QUEUE: max_offset(QUEUE)}, deadline=client.deadline(400))
        mq.heal()
        assert await client.max_offsets([QUEUE]) == {QUEUE: 0}

    run(mq, use)


@pytest.mark.parametrize("body_bytes", [1, 500_000])
def test_calls_wait_their_turn_at_a_slow_peer(body_bytes: int) -> None:
    """All take twice as long as the time-out: in answers, or in bytes that the peer has not taken yet."""
    calls, timeout_ms = 40, 1_000

    def answer_slowly(peer: Peer, frame: Frame) -> None:
        time.sleep(2 * timeout_ms / 1_000 / calls)
        peer.send(answer(frame))

    async def main(addr: str) -> None:
        connection = await AsyncConnection.open(addr, ConnectionOptions(), SYSTEM_CLOCK)
        request = GetMaxOffsetRequest(topic="orders", queue_id=0, broker_name="broker-a")

        async def call() -> None:
            deadline = Deadline(SYSTEM_CLOCK, timeout_ms, renewable=True)
            await connection.call(request, bytes(body_bytes), deadline=deadline)

        try:
            await asyncio.gather(*(call() for _ in range(calls)))
        finally:
            await connection.close()

    with ScriptedPeer(answer_slowly) as peer:
        asyncio.run(main(peer.addr))


def test_a_frame_that_never_ends_is_given_up(mq: MockBroker) -> None:
    async def use(client: AsyncClient) -> None:
        producer = AsyncProducer(client, options=ProducerOptions(send_timeout_ms=300, retries=0))
        await client.route("orders")
        mq.inject(Announce(1_000), on=RequestCode.SEND_MESSAGE_V2, times=None)
        with pytest.raises(SendError, match="no answer within") as caught:
            await producer.send(message(), QUEUE)
        assert isinstance(caught.value.__cause__, RequestTimeoutError)

    run(mq, use)


def test_a_connection_that_broke_is_replaced(mq: MockBroker) -> None:
    async def use(client: AsyncClient) -> None:
        for _ in range(3):
            assert await client.max_offsets([QUEUE]) == {QUEUE: 0}
            before = await client.connection(mq.address("broker-a"))
            mq.disconnect()
            while before.alive:
                await asyncio.sleep(0.01)

    run(mq, use)


def test_errors_are_those_of_the_other_client(mq: MockBroker) -> None:
    async def use(client: AsyncClient) -> None:
        producer, consumer = AsyncProducer(client), AsyncPullConsumer("g", client=client)
        with pytest.raises(TopicNotFoundError):
            await client.route("no-such-topic")
        with pytest.raises(TopicNotFoundError):
            await producer.send(OutgoingMessage("no-such-topic", b"x"))
        with pytest.raises(PermissionDeniedError, match="the queue does not exist"):
            await producer.send(message(), MessageQueue("orders", "broker-a", 77))
        with pytest.raises(OptionError, match="the offset of a pull must be"):
            await consumer.pull(QUEUE, "*", -1)
        with pytest.raises(OptionError, match="suspend_ms must be a whole number from 0"):
            await consumer.pull_block_if_not_found(QUEUE, "*", 0, suspend_ms=90_001)

    run(mq, use)
    with pytest.raises(OptionError, match="writes no message trace"):
        AsyncProducer(AsyncClient(mq.name_server), options=ProducerOptions(trace_topic="t"))
    with pytest.raises(OptionError, match="needs a group"):
        AsyncPullConsumer("", name_server="h:1")
    with pytest.raises(OptionError, match="either name_server or client"):
        AsyncPullConsumer("g")


def test_a_topic_without_a_route_is_what_the_other_client_takes_it_for(mq: MockBroker) -> None:
    def told_by(client: Client) -> RocketMQError:
        with pytest.raises(RocketMQError) as caught:
            client.route("ordres")
        return caught.value

    async def use(client: AsyncClient) -> None:
        with Client(mq.name_server) as other:
            for _ in range(2):  # with a broker, and without one
                with pytest.raises(RocketMQError) as caught:
                    await client.route("ordres")
                assert repr(caught.value) == repr(told_by(other))
                mq.stop_broker("broker-a")
        assert isinstance(caught.value, BrokerNotFoundError), "nothing tells whether the topic exists"

    run(mq, use)


def test_a_first_call_waits_for_brokers_that_start(mq: MockBroker) -> None:
    mq.stop_broker("broker-a")

    async def use(client: AsyncClient) -> None:
        asking = asyncio.create_task(client.max_offsets([QUEUE]))
        while not mq.asked[RequestCode.GET_BROKER_CLUSTER_INFO] and not asking.done():
            await asyncio.sleep(0.01)
        mq.start_broker("broker-a")
        assert await asking == {QUEUE: 0}

    run(mq, use)


def test_tasks_that_wait_for_one_connection_tell_their_own_topics(mq: MockBroker) -> None:
    mq.create_topic("billing", 1)
    queues = [QUEUE, MessageQueue("billing", "broker-a", 0)]

    mq.stop_broker("broker-a", unregister=False)

    async def main() -> None:
        async with AsyncClient(mq.name_server, operation_timeout_ms=1_000, random=Lowest()) as client:
            calls = (client.max_offsets([queue]) for queue in queues)
            errors = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(error, ConnectError) for error in errors), errors
            assert [error.facts["topic"] for error in errors] == ["orders", "billing"]

    asyncio.run(main())


def test_tasks_that_wait_for_one_route_tell_their_own_queues(closed_port: str) -> None:
    queues = [QUEUE, MessageQueue("orders", "broker-b", 0)]

    async def main() -> None:
        async with AsyncClient(closed_port) as client:
            calls = (client.max_offsets([queue]) for queue in queues)
            errors = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(error, NameServerError) for error in errors), errors
            assert [error.facts["broker_name"] for error in errors] == ["broker-a", "broker-b"]

    asyncio.run(main())


def test_a_topic_that_was_there_is_an_outage(mq: MockBroker) -> None:
    async def use(client: AsyncClient) -> None:
        await client.route("orders")
        client.routes.invalidate("orders")
        mq.stop_broker("broker-a")
        with pytest.raises(BrokerNotFoundError, match=r"no broker is registered.*last seen: broker-a"):
            await client.served_route("orders")
        mq.start_broker("broker-a")
        assert await client.max_offsets([QUEUE]) == {QUEUE: 0}
        mq.delete_topic("orders")
        client.routes.invalidate("orders")
        with pytest.raises(BrokerNotFoundError, match=r"its brokers are down, or it was deleted \(the topic"):
            await client.served_route("orders")

    run(mq, use)


def test_an_address_that_nobody_listens_at(closed_port: str) -> None:
    async def main() -> None:
        options = ClientOptions(name_servers=(closed_port,), connect_timeout_ms=300)
        async with AsyncClient(options) as client:
            with pytest.raises(NameServerError, match=f"no name server answers: {closed_port}: cannot conn"):
                await client.route("orders")

    asyncio.run(main())


def test_what_cannot_be_a_hosts_name_is_a_name_server_that_is_away(mq: MockBroker) -> None:
    async def main() -> None:
        options = ClientOptions(name_servers=("ns..example.com:9876", mq.name_server))
        async with AsyncClient(options) as client:
            assert len(await client.read_queues("orders")) == 2

    asyncio.run(main())


def test_a_name_of_several_machines_is_that_of_those_that_answer(
    mq: MockBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(mq.name_server.rpartition(":")[2])
    look_up = socket.getaddrinfo

    def resolve(host: str, *args: Any, **named: Any) -> list[Any]:
        places = ("127.0.0.2", "127.0.0.1") if host == "servers.example" else (host,)
        return [found for place in places for found in look_up(place, *args, **named)]

    async def main() -> None:
        options = ClientOptions(name_servers=(f"servers.example:{port}",), connect_timeout_ms=2_000)
        async with AsyncClient(options) as client:
            assert len(await client.read_queues("orders")) == 2

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with deaf_address("127.0.0.2", port):
        asyncio.run(main())


def test_routes_are_kept_while_no_name_server_answers(mq: MockBroker, closed_port: str) -> None:
    async def main() -> None:
        options = ClientOptions(name_servers=(mq.name_server,), connect_timeout_ms=500, route_refresh_ms=300)
        async with AsyncClient(options) as client:
            assert len(await client.read_queues("orders")) == 2
            client.routes._addresses = (closed_port,)
            client.routes.invalidate("orders")
            began = time.monotonic()
            for _ in range(20):
                assert len(await client.read_queues("orders")) == 2
            assert time.monotonic() - began < 20 * 0.5 / 2, "each call waited for the name server"

    asyncio.run(main())


def test_one_name_server_is_enough(mq: MockBroker, closed_port: str) -> None:
    async def main() -> None:
        options = ClientOptions(name_servers=(closed_port, mq.name_server), connect_timeout_ms=60_000)
        async with AsyncClient(options) as client:
            assert len(await client.read_queues("orders")) == 2

    asyncio.run(main())


# --- deadlines, cancellation, the end ---


def test_a_canceled_call_leaves_the_client_as_it_was(mq: MockBroker) -> None:
    async def use(client: AsyncClient) -> None:
        await client.max_offsets([QUEUE])
        connection = await client.connection(mq.address("broker-a"))
        mq.inject(Silence(), on=RequestCode.GET_MAX_OFFSET, times=3)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await client.max_offsets([QUEUE])
        assert connection._pending == {}
        assert await client.max_offsets([QUEUE]) == {QUEUE: 0}
        assert await client.connection(mq.address("broker-a")) is connection

    run(mq, use)


async def cancel_commit(client: AsyncClient, heartbeat: Injection) -> None:
    """Cancel the first commit of a group while its heartbeat has no answer."""
    commit = asyncio.create_task(client.commit_offsets("g", {QUEUE: 0}))
    while not heartbeat.hits:
        await asyncio.sleep(0.01)
    commit.cancel()
    with pytest.raises(asyncio.CancelledError):
        await commit


def test_a_canceled_commit_leaves_no_member_of_the_group(mq: MockBroker) -> None:
    """It would get its share of the queues from the consumers of the group, and not read them."""
    slow = mq.inject(Delay(0.2), on=RequestCode.HEART_BEAT)

    async def use(client: AsyncClient) -> None:
        await cancel_commit(client, slow)
        connection = await client.connection(mq.address("broker-a"))
        async with asyncio.timeout(30):
            while True:
                request = GetConsumerListByGroupRequest(consumer_group="g")
                answer = await connection.call(request, deadline=client.deadline())
                if "no consumer for this group" in (answer.remark or ""):
                    break
                await asyncio.sleep(0.05)
        await client.commit_offsets("g", {QUEUE: 1})
        assert await client.committed_offsets("g", [QUEUE]) == {QUEUE: 1}

    run(mq, use)


def test_the_end_waits_for_the_heartbeat_of_a_canceled_commit(mq: MockBroker) -> None:
    silent = mq.inject(Silence(executed=True), on=RequestCode.HEART_BEAT)

    async def use(client: AsyncClient) -> None:
        await cancel_commit(client, silent)

    run(mq, use)


@pytest.mark.parametrize("lost", [RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT])
def test_a_registration_whose_answer_is_late_leaves_no_member(mq: MockBroker, lost: RequestCode) -> None:
    """A broker removes a member when its connection ends."""
    mq.inject(Silence(executed=True), on=lost)

    async def use(client: AsyncClient) -> None:
        connection = await client.connection(mq.address("broker-a"))
        commit = asyncio.create_task(client.commit_offsets("g", {QUEUE: 1}))
        while not commit.done():  # other answers arrive meanwhile: the broker is not taken for dead
            await client.max_offsets([QUEUE])
        await commit
        assert not connection.alive

    run(mq, use, request_timeout_ms=1_000)


def test_a_canceled_look_up_is_not_that_of_others(mq: MockBroker) -> None:
    async def use(client: AsyncClient) -> None:
        mq.inject(Delay(0.5), on=RequestCode.GET_ROUTEINFO_BY_TOPIC, times=1)
        first, second = (asyncio.create_task(client.route("orders")) for _ in range(2))
        await asyncio.sleep(0.05)
        first.cancel()
        assert len((await second).read_queues()) == 2
        with pytest.raises(asyncio.CancelledError):
            await first

    run(mq, use)


def test_a_canceled_connection_attempt_is_not_that_of_others(mq: MockBroker) -> None:
    async def use(client: AsyncClient) -> None:
        first, second = (asyncio.create_task(client.connection(mq.address("broker-a"))) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).alive
        with pytest.raises(asyncio.CancelledError):
            await first

    run(mq, use)


def test_closing_ends_what_waits(mq: MockBroker) -> None:
    async def main() -> None:
        client = AsyncClient(mq.name_server)
        consumer = AsyncPullConsumer("g", client=client)
        await client.route("orders")
        mq.inject(Silence(), on=RequestCode.GET_MAX_OFFSET, times=None)
        waiting = [
            asyncio.create_task(consumer.max_offset(QUEUE)),
            asyncio.create_task(consumer.pull_block_if_not_found(QUEUE, "*", 0, suspend_ms=60_000)),
        ]
        connection = await client.connection(mq.address("broker-a"))
        while len(connection._pending) < 2:
            await asyncio.sleep(0.01)
        await client.close()
        for task in waiting:
            with pytest.raises(RocketMQError, match="closed"):
                await asyncio.wait_for(task, 60)
        with pytest.raises(RocketMQError, match="the client is closed"):
            await client.connection(mq.address("broker-a"))
        await client.close()  # again

    asyncio.run(main(), debug=True)


def test_closing_ends_a_send_that_waits_for_a_route(mq: MockBroker) -> None:
    async def main() -> None:
        client = AsyncClient(mq.name_server)
        mq.inject(Silence(), on=RequestCode.GET_ROUTEINFO_BY_TOPIC, times=None)
        send = asyncio.create_task(AsyncProducer(client).send(message()))
        await asyncio.sleep(0.1)
        await client.close()
        with pytest.raises(RocketMQError, match="the client is closed"):  # and no CancelledError
            await asyncio.wait_for(send, 60)

    asyncio.run(main(), debug=True)


def test_an_end_that_is_canceled_leaves_no_connection(mq: MockBroker) -> None:
    async def main() -> None:
        client = AsyncClient(mq.name_server)
        await client.max_offsets([QUEUE])
        connections = [await client.connection(addr) for addr in (mq.name_server, mq.address("broker-a"))]
        mq.inject(Silence(), on=RequestCode.GET_ROUTEINFO_BY_TOPIC, times=None)
        lookup = asyncio.create_task(client.route("billing"))
        apart = await client.fresh_connection(mq.address("broker-a"))
        end = asyncio.create_task(client.close())
        await asyncio.sleep(0)
        end.cancel()
        with pytest.raises(asyncio.CancelledError):
            await end
        assert not any(each.alive for each in (*connections, apart))
        with pytest.raises(RocketMQError, match="closed"):
            await asyncio.wait_for(lookup, 60)

    asyncio.run(main(), debug=True)


def test_requests_that_a_broker_does_not_answer_leave_room_for_those_to_others() -> None:
    queues = [MessageQueue("orders", "broker-a", number) for number in range(300)]
    living = MessageQueue("orders", "broker-b", 0)

    async def use(client: AsyncClient) -> None:
        await client.max_offsets([living])
        waiting = asyncio.create_task(client.max_offsets(queues))
        await asyncio.sleep(0.5)
        async with asyncio.timeout(10):
            assert await client.max_offsets([living]) == {living: 0}
        assert not waiting.done()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    with MockCluster({"orders": 300}, brokers=("broker-a", "broker-b")) as mq:
        mq.inject(Silence(), broker="broker-a", times=None)
        run(mq, use)
        with deaf_address() as addr:
            mq.advertise("broker-a", addr)
            run(mq, use)


def test_another_event_loop_needs_another_client(mq: MockBroker) -> None:
    client = AsyncClient(mq.name_server)
    with asyncio.Runner() as own:
        own.run(client.max_offsets([QUEUE]))
        for use in (client.max_offsets([QUEUE]), AsyncProducer(client).send(message()), client.close()):
            with (
                asyncio.Runner() as other,
                pytest.raises(RocketMQError, match="belongs to another event loop"),
            ):
                other.run(use)
        assert own.run(client.max_offsets([QUEUE])) == {QUEUE: 0}
        own.run(client.close())


def test_a_consumer_closes_its_own_client(mq: MockBroker) -> None:
    async def main() -> None:
        async with AsyncPullConsumer("g", name_server=mq.name_server) as consumer:
            assert await consumer.max_offset(QUEUE) == 0
        with pytest.raises(RocketMQError, match="the client is closed"):
            await consumer.max_offset(QUEUE)

    asyncio.run(main())


def test_the_service_of_the_documentation(capsys: pytest.CaptureFixture[str]) -> None:
    with MockBroker({"ExampleOrders": 4}) as mq, pytest.MonkeyPatch.context() as patch:
        patch.setenv("NAMESRV_ADDR", mq.name_server)
        runpy.run_path(str(EXAMPLES / "asyncio_service.py"), run_name="__main__")
    assert capsys.readouterr().out.startswith("100 orders are stored\nsome of the last: ['order ")


def test_cancelling_everything_leaves_nothing(mq: MockBroker) -> None:
    async def use(client: AsyncClient) -> None:
        producer = AsyncProducer(client, options=PATIENT)
        for pause_s in (0, 0, 0.001, 0.005, 0.02):
            tasks = [asyncio.create_task(producer.send(message())) for _ in range(20)]
            await asyncio.sleep(pause_s)
            for task in tasks:
                task.cancel()
            for task in tasks:
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        assert (await producer.send(message())).queue.topic == "orders"

    run(mq, use)
