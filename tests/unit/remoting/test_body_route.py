"""Bodies of name servers."""

from __future__ import annotations

import json
import re

import pytest

from pyspark_rocketmq.errors import RemoteProtocolError
from pyspark_rocketmq.model import MAX_QUEUES, BrokerData, MessageQueue, Permission, QueueData, TopicRoute
from pyspark_rocketmq.remoting.body import (
    decode_cluster_info,
    decode_group_list,
    decode_route,
    decode_topic_list,
)

# As a 5.4.0 name server sent it, with and without acceptStandardJsonOnly.
STANDARD = (
    b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911","1":"127.0.0.1:10921"},"brokerName":"broker-a",'
    b'"cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},"queueDatas":['
    b'{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":2}]}'
)
NUMERIC = STANDARD.replace(b'"0":', b"0:").replace(b'"1":', b"1:")


@pytest.mark.parametrize("body", [STANDARD, NUMERIC, memoryview(NUMERIC)])
def test_route(body: bytes) -> None:
    route = decode_route("orders", body)
    assert route.topic == "orders"
    assert route.brokers == (
        BrokerData("broker-a", "DefaultCluster", {0: "127.0.0.1:10911", 1: "127.0.0.1:10921"}),
    )
    assert route.queues == (QueueData("broker-a", 4, 2, Permission.READ | Permission.WRITE),)
    assert route.static_queues == {}
    assert [queue.queue_id for queue in route.read_queues()] == [0, 1, 2, 3]
    assert [queue.queue_id for queue in route.write_queues()] == [0, 1]


def test_route_with_ipv6_addresses_keeps_them_as_sent() -> None:
    route = decode_route("t", STANDARD.replace(b"127.0.0.1:10911", b"::1:28911"))
    assert route.brokers[0].master == "::1:28911"


def test_route_without_a_master() -> None:
    route = decode_route("t", STANDARD.replace(b'"0":"127.0.0.1:10911",', b""))
    assert route.brokers[0].master is None
    assert len(route.read_queues()) == 4
    assert route.write_queues() == ()


def test_a_broker_without_queues_to_read() -> None:
    route = decode_route("t", STANDARD.replace(b'"readQueueNums":4', b'"readQueueNums":0'))
    assert (route.read_queues(), [queue.queue_id for queue in route.write_queues()]) == ((), [0, 1])


def test_route_without_anything() -> None:
    route = decode_route("t", b"{}")
    assert (route.brokers, route.queues, route.read_queues()) == ((), (), ())


def test_a_broker_without_a_cluster() -> None:
    route = decode_route("t", STANDARD.replace(b',"cluster":"DefaultCluster"', b""))
    assert route.brokers[0].cluster == ""
    assert route.static_epoch == 0


def test_unknown_permission_bits_are_dropped() -> None:
    route = decode_route("t", STANDARD.replace(b'"perm":6', b'"perm":1030'))
    assert route.queues[0].perm == Permission.READ | Permission.WRITE


LOGICAL = "__syslo__global__"


def mapping(name: str, epoch: int, ids: dict[int, int], scope: str = "__global__") -> dict[str, object]:
    named = {"topic": "t", "bname": name, "epoch": epoch, "totalQueues": 4, "scope": scope}
    return named | {"currIdMap": ids}


def static_route(**mappings: dict[str, object]) -> TopicRoute:
    document = {"brokerDatas": [], "queueDatas": [], "topicQueueMappingByBroker": mappings}
    return decode_route("t", json.dumps(document).encode())


def test_static_topic_belongs_to_the_highest_epoch() -> None:
    route = static_route(b=mapping("b", 200, {1: 0, 2: 1}), a=mapping("a", 100, {0: 0, 1: 1}))
    queues = [MessageQueue("t", LOGICAL, queue_id) for queue_id in range(4)]
    assert route.static_queues == dict(zip(queues, ("a", "b", "b", None), strict=True))
    assert route.static_epoch == 200
    assert list(route.read_queues()) == list(route.write_queues()) == queues


def test_a_static_topics_queues_stay_while_nobody_has_them() -> None:
    before = static_route(b=mapping("b", 200, {1: 0, 2: 1}), a=mapping("a", 200, {0: 0, 3: 1}))
    during = static_route(a=mapping("a", 200, {0: 0, 3: 1}))
    assert during.read_queues() == before.read_queues()
    assert [during.owner(queue) for queue in during.read_queues()] == ["a", None, None, "a"]


def test_the_owner_of_a_queue_by_each_of_its_names() -> None:
    route = static_route(b=mapping("b", 200, {1: 0}), a=mapping("a", 100, {0: 0, 1: 1}))
    assert {route.owner(MessageQueue("t", name, 1)) for name in (LOGICAL, "a", "b")} == {"b"}
    assert route.owner(MessageQueue("t", "a", 9)) is None
    assert decode_route("t", STANDARD).owner(MessageQueue("t", "broker-a", 9)) == "broker-a"


def test_the_highest_epoch_wins_whatever_the_names_are() -> None:
    route = static_route(b=mapping("b", 100, {0: 0}), a=mapping("a", 200, {0: 0}))
    assert route.owner(MessageQueue("t", LOGICAL, 0)) == "a"


def test_of_claims_with_the_same_epoch_the_last_name_wins_wherever_it_stands() -> None:
    one, other = mapping("a", 100, {0: 0}), mapping("b", 100, {0: 0})
    queue = MessageQueue("t", LOGICAL, 0)
    assert static_route(a=one, b=other).owner(queue) == static_route(b=other, a=one).owner(queue) == "b"


def test_a_mapping_without_an_epoch_is_older_than_any_other() -> None:
    route = static_route(b={"currIdMap": {0: 0}}, a=mapping("a", 1, {0: 0}))
    assert route.owner(MessageQueue("t", LOGICAL, 0)) == "a"


@pytest.mark.parametrize("total", [-1, MAX_QUEUES + 1])
def test_a_total_of_a_static_topic_has_bounds(total: int) -> None:
    with pytest.raises(RemoteProtocolError, match=r"\.a\.totalQueues should be an integer from 0 to 65536"):
        static_route(a=mapping("a", 1, {}) | {"totalQueues": total})


def test_a_mapping_that_says_little() -> None:
    """A queue beyond the total that brokers report is still a queue; scope and epoch have defaults."""
    route = static_route(a={"currIdMap": {7: 0}}, b={})
    assert route.static_queues == {MessageQueue("t", LOGICAL, 7): "a"}
    assert route.static_epoch == 0


def test_the_largest_total_that_a_broker_reports_counts() -> None:
    """A broker that did not take part in the last change still reports the former total."""
    few, many = mapping("a", 100, {}) | {"totalQueues": 2}, mapping("b", 200, {}) | {"totalQueues": 3}
    for route in (static_route(a=few, b=many), static_route(b=many, a=few)):
        assert [queue.queue_id for queue in route.static_queues] == [0, 1, 2]


def test_another_scope_makes_another_name() -> None:
    route = static_route(a=mapping("a", 100, {0: 0}, scope="__zone__"))
    assert route.read_queues()[0].broker_name == "__syslo____zone__"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"perm":6', b'"perm":"6"'),
        (b'"perm":6', b'"perm":null'),
        (b'"readQueueNums":4', b'"readQueueNums":-1'),
        (b'"readQueueNums":4', b'"readQueueNums":2147483647'),
        (b'"writeQueueNums":2', b'"writeQueueNums":true'),
        (b'"writeQueueNums":2', b'"writeQueueNums":-1'),
        (b'"writeQueueNums":2', b'"writeQueueNums":65537'),
        (b'"0":', b'"1000000000000000000":'),
        (b'"cluster":"DefaultCluster"', b'"cluster":1'),
        (b'"0":', b'"zero":'),
        (b'"0":', b'"-1":'),
        (b'"0":', '"²":'.encode()),
        (b'"127.0.0.1:10911"', b"10911"),
        (b'"brokerName":"broker-a","cluster"', b'"cluster"'),
        (b'"queueDatas":[', b'"queueDatas":7,"x":['),
        (b'"brokerDatas":[', b'"brokerDatas":[3,'),
        (STANDARD, b"null"),
        (STANDARD, b"[]"),
        (STANDARD, b""),
    ],
)
def test_route_of_another_shape(old: bytes, new: bytes) -> None:
    assert old in STANDARD
    with pytest.raises(RemoteProtocolError):
        decode_route("t", STANDARD.replace(old, new))


def test_the_queues_of_all_brokers_are_counted_together() -> None:
    """Each entry alone is in bounds; planning would make an object for each of 65 million queues."""
    entry = {"readQueueNums": MAX_QUEUES, "writeQueueNums": 0, "perm": 6}
    document = {"brokerDatas": [], "queueDatas": [entry | {"brokerName": f"b{n}"} for n in range(1_000)]}
    with pytest.raises(RemoteProtocolError, match="65536000 queues") as caught:
        decode_route("t", json.dumps(document).encode())
    assert caught.value.facts["topic"] == "t"
    document["queueDatas"] = document["queueDatas"][:1]
    assert len(decode_route("t", json.dumps(document).encode()).read_queues()) == MAX_QUEUES


def test_the_queues_of_all_scopes_of_a_static_topic_are_counted_together() -> None:
    mappings = {
        f"b{n}": mapping("b", 1, {}, scope=f"s{n}") | {"totalQueues": MAX_QUEUES} for n in range(1_000)
    }
    with pytest.raises(RemoteProtocolError, match="65536000 queues") as caught:
        static_route(**mappings)
    assert caught.value.facts["topic"] == "t"


def test_queues_that_brokers_map_beyond_the_total_are_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_rocketmq.remoting.body.route.MAX_QUEUES", 7)
    assert len(static_route(a=mapping("a", 1, dict.fromkeys(range(7), 0))).static_queues) == 7
    with pytest.raises(RemoteProtocolError, match="8 queues"):
        static_route(a=mapping("a", 1, dict.fromkeys(range(8), 0)))


@pytest.mark.parametrize("name", [b"readQueueNums", b"writeQueueNums"])
def test_the_queues_of_one_broker_have_bounds(name: bytes) -> None:
    body = re.sub(b'"%b":.' % name, b'"%b":65537' % name, STANDARD)
    with pytest.raises(
        RemoteProtocolError, match=rf"\[0\]\.{name.decode()} should be an integer from 0 to 65536"
    ):
        decode_route("t", body)


def test_complaint_names_the_place() -> None:
    with pytest.raises(RemoteProtocolError, match=r"route\.queueDatas\[0\]\.perm should be an integer"):
        decode_route("t", STANDARD.replace(b'"perm":6', b'"perm":"6"'))


def test_cluster_info_has_numeric_keys() -> None:
    info = decode_cluster_info(
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"127.0.0.1:10911"},"brokerName":"broker-a",'
        b'"cluster":"c","enableActingMaster":false},"broker-b":{"brokerAddrs":{1:"127.0.0.1:10921"},'
        b'"brokerName":"broker-b","cluster":"c","enableActingMaster":false}},'
        b'"clusterAddrTable":{"c":["broker-b","broker-a"]}}'
    )
    assert info.brokers == {
        "broker-a": BrokerData("broker-a", "c", {0: "127.0.0.1:10911"}),
        "broker-b": BrokerData("broker-b", "c", {1: "127.0.0.1:10921"}),
    }
    assert info.clusters == {"c": ("broker-a", "broker-b")}


def test_topic_list_is_sorted() -> None:
    assert decode_topic_list(b'{"topicList":["b","%RETRY%g","a"]}') == ("%RETRY%g", "a", "b")
    assert decode_topic_list(b"{}") == ()


def test_group_list_is_sorted() -> None:
    assert decode_group_list(b'{"groupList":["h","g"]}') == ("g", "h")


@pytest.mark.parametrize("body", [b'{"topicList":"a"}', b'{"topicList":[1]}', b'{"topicList":{"a":1}}'])
def test_topic_list_of_another_shape(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_topic_list(body)
