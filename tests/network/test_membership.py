"""One member of a group, asked and told over real sockets, on a mock cluster of two brokers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.scripted_cluster import ScriptedCluster
from tests.support.scripted_peer import Peer, answer
from tests.support.wait import eventually, within

from pyspark_rocketmq.client import Client, MessageQueue, MessageSelector
from pyspark_rocketmq.client.groups import membership
from pyspark_rocketmq.client.groups.membership import Membership, create_client_id
from pyspark_rocketmq.errors import (
    ConnectError,
    FlowControlError,
    PermissionDeniedError,
    RequestTimeoutError,
    RouteError,
    TransportError,
)
from pyspark_rocketmq.options import ClientOptions, parse_options
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.command import FLAG_ONE_WAY, Command
from pyspark_rocketmq.remoting.frame import Frame, encode_frame
from pyspark_rocketmq.testing import MockCluster
from pyspark_rocketmq.testing.faults import Refuse, Silence

pytestmark = pytest.mark.timeout(60)


def client_of(name_server: str, **options: str) -> Client:
    given = {"nameServer": name_server, "routeRefreshMs": "50", "requestTimeoutMs": "500", **options}
    return Client(parse_options(ClientOptions, given, environ={}), operation_timeout_ms=2_000)


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with MockCluster({"orders": 2}, brokers=("broker-a", "broker-b")) as cluster:
        yield cluster


@pytest.fixture
def client(mq: MockCluster) -> Iterator[Client]:
    with client_of(mq.name_server) as client:
        yield client


def join(
    client: Client, name: str, on_change: object = lambda: None, *, broadcasting: bool = False
) -> Membership:
    return Membership(
        client,
        "billing",
        name,
        {"orders": MessageSelector.by_tag("paid")},
        broadcasting=broadcasting,
        start="CONSUME_FROM_FIRST_OFFSET",
        on_change=on_change,
    )


def test_a_heartbeat_is_sent_once_a_connection_unless_it_is_time(mq, client):
    member, addr = join(client, "one"), mq.address("broker-a")
    assert member.send_heartbeat(addr, again=False)
    assert not member.send_heartbeat(addr, again=False)
    assert mq.asked[RequestCode.HEART_BEAT] == 1
    assert not member.send_heartbeat(addr, again=True)
    assert mq.asked[RequestCode.HEART_BEAT] == 2
    mq.disconnect("broker-a")
    eventually(lambda: member.send_heartbeat(addr, again=False), what="a heartbeat on the new connection")
    assert member.is_registered([addr])
    assert not member.is_registered([mq.address("broker-b")])


def test_a_broker_that_does_not_take_a_heartbeat_does_not_know_the_member(mq, client):
    member, addr = join(client, "one"), mq.address("broker-a")
    member.send_heartbeat(addr, again=False)
    mq.stop_broker("broker-a", unregister=False)
    with pytest.raises(TransportError):
        member.send_heartbeat(addr, again=True)
    assert not member.is_registered([addr])
    with pytest.raises(ConnectError):
        member.send_heartbeat(addr, again=False)


def test_a_broker_that_refuses_raises_its_error_and_its_queues_are_nobody_s(mq, client):
    member, addr = join(client, "one"), mq.address("broker-a")
    member.send_heartbeat(addr, again=False)
    mq.fail(RequestCode.HEART_BEAT, code=ResponseCode.NO_PERMISSION, broker="broker-a")
    with pytest.raises(PermissionDeniedError) as refused:
        member.send_heartbeat(addr, again=True)
    assert refused.value.facts["addr"] == addr
    assert not member.is_registered([addr])
    queues = list(mq.queues("orders"))
    mq.fail(RequestCode.LOCK_BATCH_MQ, code=ResponseCode.SYSTEM_BUSY, broker="broker-a")
    assert member.lock(queues) == {queue: True for queue in queues if queue.broker_name == "broker-b"}
    mq.fail(RequestCode.UNREGISTER_CLIENT, code=ResponseCode.SYSTEM_ERROR, broker="broker-a")
    member.send_heartbeat(addr, again=False)
    member.leave(addr)
    assert not member.is_registered([addr])


def test_locks_are_given_back_at_the_brokers_that_are_there(mq, client):
    queues = list(mq.queues("orders"))
    one = join(client, "one")
    assert one.lock(queues) == dict.fromkeys(queues, True)
    mq.stop_broker("broker-a", unregister=False)
    with pytest.raises(TransportError):
        one.unlock(queues)
    with client_of(mq.name_server) as other_client:
        two, there = join(other_client, "two"), [q for q in queues if q.broker_name == "broker-b"]
        eventually(
            lambda: two.lock(there) == dict.fromkeys(there, True), what="the locks of the other broker"
        )


def test_a_lock_that_is_not_given_back_is_told(mq, client):
    """Whoever asked for it again could lose it to what was sent before."""
    queues = list(mq.queues("orders"))
    one = join(client, "one")
    assert one.lock(queues) == dict.fromkeys(queues, True)
    mq.inject(Refuse(ResponseCode.SYSTEM_BUSY), on=RequestCode.UNLOCK_BATCH_MQ, times=1)
    with pytest.raises(FlowControlError):
        one.unlock(queues)
    one.unlock(queues)
    with client_of(mq.name_server) as other_client:
        assert join(other_client, "two").lock(queues) == dict.fromkeys(queues, True)


def test_members_are_asked_of_a_broker_that_knows_this_one(mq, client):
    member = join(client, "one")
    with pytest.raises(RouteError, match="no broker of the topic accepted a heartbeat yet") as unknown:
        member.members("orders")
    assert unknown.value.facts["topic"] == "orders"
    assert mq.asked[RequestCode.GET_CONSUMER_LIST_BY_GROUP] == 0
    member.send_heartbeat(mq.address("broker-b"), again=False)
    assert member.members("orders") == ("one",)
    member.send_heartbeat(mq.address("broker-a"), again=False)
    silent = mq.inject(Silence(), on=RequestCode.GET_CONSUMER_LIST_BY_GROUP, times=None, broker="broker-a")
    for _ in range(3):
        assert member.members("orders") == ("one",)
    assert silent.hits == 1, "a broker that hangs is not asked again before its next heartbeat"
    assert not member.is_registered([mq.address("broker-a")])


def test_the_error_of_a_list_of_members_is_the_broker_s(mq, client):
    member, addr = join(client, "one"), mq.address("broker-a")
    member.send_heartbeat(addr, again=False)
    mq.fail(RequestCode.GET_CONSUMER_LIST_BY_GROUP, code=ResponseCode.NO_PERMISSION)
    with pytest.raises(PermissionDeniedError) as refused:
        member.members("orders")
    assert (refused.value.facts["group"], refused.value.facts["addr"]) == ("billing", addr)
    assert not member.is_registered([addr])


def test_a_broker_that_hangs_delays_no_list_of_members_and_no_departure(mq, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(membership, "_MEMBERS_MS", 150)
    addr = mq.address("broker-a")
    hangs = (RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.UNREGISTER_CLIENT)
    silent = mq.inject(Silence(), on=hangs, times=None)
    with client_of(mq.name_server, requestTimeoutMs="30000") as client:
        member = join(client, "one")
        member.send_heartbeat(addr, again=False)
        with pytest.raises(RequestTimeoutError, match="no answer within 150 ms"):
            member.members("orders")
        member.send_heartbeat(addr, again=True)
        with within(3):
            member.leave(addr)
    assert silent.hits == 2


def test_a_queue_without_a_broker_keeps_no_other_from_its_lock(mq, client):
    queues, unknown = mq.queues("orders"), MessageQueue("orders", "broker-c", 0)
    assert join(client, "one").lock([unknown, *queues]) == dict.fromkeys(queues, True)


def test_a_broker_that_refuses_locks_is_told_of(mq, client, caplog):
    """An ordered consumer would stand still without a word: it pulls, and calls nothing."""
    queues = list(mq.queues("orders"))
    theirs = [queue for queue in queues if queue.broker_name == "broker-a"]
    member = join(client, "one")
    mq.inject(Refuse(ResponseCode.NO_PERMISSION), on=RequestCode.LOCK_BATCH_MQ, times=None, broker="broker-b")
    for _ in range(3):
        assert member.lock(queues) == dict.fromkeys(theirs, True)
    (told,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told.startswith(
        "group billing: no lock of a queue, without which no ordered call begins: the server"
    )
    assert mq.address("broker-b") in told
    mq.heal()
    assert member.lock(queues) == dict.fromkeys(queues, True)


def test_locks_are_held_by_one_member_and_those_of_a_broker_that_is_away_by_none(mq, client):
    queues = list(mq.queues("orders"))
    one = join(client, "one")
    assert one.lock(queues) == dict.fromkeys(queues, True)
    with client_of(mq.name_server) as other_client:
        two = join(other_client, "two")
        assert two.lock(queues) == dict.fromkeys(queues, False)
        one.unlock(queues[:1])
        theirs = {queue: queue == queues[0] for queue in queues}
        eventually(lambda: two.lock(queues) == theirs, what="the lock that was given back")
        mq.stop_broker("broker-b", unregister=False)
        assert two.lock(queues) == {q: theirs[q] for q in queues if q.broker_name == "broker-a"}
        assert one.lock(queues) == {q: not theirs[q] for q in queues if q.broker_name == "broker-a"}


def test_a_lock_is_kept_as_long_as_the_connection_that_it_was_asked_for_on(mq, client):
    (here, *_), (there, *_) = ([q for q in mq.queues("orders") if q.broker_name == b] for b in mq.brokers)
    one = join(client, "one")
    assert not one.keeps_lock(here)
    one.lock([here, there])
    assert one.keeps_lock(here)
    assert one.keeps_lock(there)
    mq.stop_broker("broker-b", unregister=False)
    mq.start_broker("broker-b")
    eventually(lambda: not one.keeps_lock(there), what="an end that no request has met yet")
    assert one.keeps_lock(here)
    one.lock([there])
    assert one.keeps_lock(there)


def test_who_leaves_is_no_member_any_more(mq, client):
    one, addr = join(client, "one"), mq.address("broker-a")
    with client_of(mq.name_server) as other_client:
        two = join(other_client, "two")
        one.send_heartbeat(addr, again=False)
        two.send_heartbeat(addr, again=False)
        assert two.members("orders") == ("one", "two")
        one.leave(addr)
        assert two.members("orders") == ("two",)
        one.leave(addr)
        assert mq.asked[RequestCode.UNREGISTER_CLIENT] == 1
        mq.stop_broker("broker-a", unregister=False)
        two.leave(addr)  # a connection that ends tells as much


def test_a_broker_tells_that_members_changed():
    """What a real broker does: it writes to the connection that brought the heartbeat."""

    def script(peer: Peer, frame: Frame, name: str) -> None:
        del name
        assert frame.command.code == RequestCode.HEART_BEAT
        peer.send(answer(frame, code=ResponseCode.SUCCESS))
        other = RequestCode.CHECK_TRANSACTION_STATE
        for code in (other, other, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED):
            fields = {"consumerGroup": "billing"}
            peer.send(encode_frame(Command(code, 7, FLAG_ONE_WAY, fields=fields)))

    told = threading.Semaphore(0)
    with ScriptedCluster(script) as cluster, client_of(cluster.name_server) as client:
        member = join(client, "one", told.release)
        addr = cluster.addresses["broker-a"]
        member.send_heartbeat(addr, again=False)

        def heard() -> bool:
            client.connection(addr)  # reads what came
            return told.acquire(blocking=False)

        eventually(heard, what="the news")
        assert not told.acquire(blocking=False), "other requests of a broker are none of its business"


@pytest.mark.parametrize(("broadcasting", "model"), [(False, "CLUSTERING"), (True, "BROADCASTING")])
def test_a_broker_is_told_names_with_their_namespace_and_the_member_without(broadcasting: bool, model: str):
    told: dict[int, Frame] = {}
    bodies: dict[int, dict[str, Any]] = {}

    def script(peer: Peer, frame: Frame, name: str) -> None:
        del name
        code = frame.command.code
        told[code], bodies[code] = frame, json.loads(bytes(frame.body) or b"{}")
        body = {
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: {"consumerIdList": ["two", "one"]},
            RequestCode.LOCK_BATCH_MQ: {"lockOKMQSet": bodies[code].get("mqSet", [])[:1]},
        }.get(code)
        if not frame.command.flag & FLAG_ONE_WAY:
            peer.send(answer(frame, b"" if body is None else json.dumps(body).encode()))

    def fields(code: int) -> dict[str, str]:
        return {key: told[code].command.fields[key] for key in ("consumerGroup", "clientID")}

    queues = [MessageQueue("orders", "broker-a", number) for number in range(2)]
    qualified = [{"topic": "shop%orders", "brokerName": "broker-a", "queueId": number} for number in range(2)]
    with ScriptedCluster(script) as cluster, client_of(cluster.name_server, namespace="shop") as client:
        cluster.routes = {"shop%orders": ("broker-a",)}
        member, addr = join(client, "one", broadcasting=broadcasting), cluster.addresses["broker-a"]
        member.send_heartbeat(addr, again=False)
        (consumer,) = bodies[RequestCode.HEART_BEAT]["consumerDataSet"]
        (subscribed,) = consumer["subscriptionDataSet"]
        assert consumer["groupName"] == "shop%billing"
        assert (consumer["consumeType"], consumer["messageModel"]) == ("CONSUME_PASSIVELY", model)
        assert consumer["consumeFromWhere"] == "CONSUME_FROM_FIRST_OFFSET"
        assert (subscribed["topic"], subscribed["subString"]) == ("shop%orders", "paid")
        assert abs(subscribed["subVersion"] - client.clock.now_ms()) < 600_000
        assert member.members("orders") == ("one", "two")
        assert told[RequestCode.GET_CONSUMER_LIST_BY_GROUP].command.fields["consumerGroup"] == "shop%billing"
        assert member.lock(queues) == {queues[0]: True, queues[1]: False}
        locks = {"consumerGroup": "shop%billing", "clientId": "one", "mqSet": qualified}
        assert locks.items() <= bodies[RequestCode.LOCK_BATCH_MQ].items()
        member.unlock(queues)
        member.leave(addr)
        assert locks.items() <= bodies[RequestCode.UNLOCK_BATCH_MQ].items()
        assert fields(RequestCode.UNREGISTER_CLIENT) == {"consumerGroup": "shop%billing", "clientID": "one"}


def test_ids_are_unique_in_a_process():
    first, second = create_client_id(1), create_client_id(2)
    assert first != second
    assert first.partition("#")[0] == second.partition("#")[0]
    assert "@" in first
