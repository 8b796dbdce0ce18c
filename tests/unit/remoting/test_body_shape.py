"""What the errors of bodies of another shape say: what stands where, and what should."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import pytest

from pyspark_rocketmq.errors import LocalProtocolError, RemoteProtocolError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.remoting.body import (
    decode_cluster_info,
    decode_consume_stats,
    decode_consumer_connection,
    decode_consumer_ids,
    decode_group_config,
    decode_group_configs,
    decode_group_list,
    decode_locked_queues,
    decode_producer_connection,
    decode_reset_offsets,
    decode_route,
    decode_runtime_info,
    decode_topic_config,
    decode_topic_configs,
    decode_topic_list,
    decode_topic_stats,
)
from pyspark_rocketmq.remoting.body.shape import Node, queue_key, read, write


@pytest.mark.parametrize(
    ("body", "look", "said", "found"),
    [
        ("[]", lambda node: node["a"], "stats should be an object", "list"),
        ("[]", lambda node: list(node.members()), "stats should be an object", "list"),
        ('{"a":{}}', lambda node: list(node["a"].elements()), "stats.a should be an array", "dict"),
        ('{"a":[1,{}]}', lambda node: [e.integer() for e in node["a"].elements()],
         f"stats.a[1] should be an integer from {-2**63} to {2**63 - 1}", "dict"),
        ('{"a":{"b":1}}', lambda node: [m.string() for _, m in node["a"].members()],
         "stats.a.b should be a string", "int"),
        ('{"a":1}', lambda node: node["a"].boolean(), "stats.a should be a boolean", "int"),
        ('{"a":true}', lambda node: node["a"].integer(), "stats.a should be an integer", "bool"),
        ("{}", lambda node: node["a"].integer(), "stats.a should be an integer", "NoneType"),
        ("{}", lambda node: node["a"].string(), "stats.a should be a string", "NoneType"),
        ("{}", lambda node: node["a"].boolean(), "stats.a should be a boolean", "NoneType"),
        ('{"a":["b",null]}', lambda node: node["a"].strings(), "stats.a[1] should be a string", "NoneType"),
        ('{{"a":1}:"b"}', lambda node: node.texts(), "stats should be an object with string keys", "dict"),
        ('{"a":1}', lambda node: [node.number(key) for key, _ in node.members()],
         "stats should be an object with numeric keys", "dict"),
        ('{"a":1}', lambda node: queue_key(node.value, "stats"),
         "stats.<key>.topic should be a string", "NoneType"),
        ('"a"', lambda node: queue_key(node.value, "stats"), "stats.<key> should be an object", "str"),
    ],
)  # fmt: skip
def test_an_error_names_the_place(body: str, look: Callable[[Node], object], said: str, found: str) -> None:
    with pytest.raises(RemoteProtocolError, match=re.escape(f": {said}")) as caught:
        look(read(body.encode(), "stats"))
    assert caught.value.facts["found"] == found


@pytest.mark.parametrize(
    ("decode", "place"),
    [
        (decode_topic_config, "topic config"),
        (decode_topic_configs, "topic configs"),
        (decode_group_config, "group config"),
        (decode_group_configs, "group configs"),
        (decode_runtime_info, "runtime info"),
        (decode_cluster_info, "cluster info"),
        (decode_topic_list, "topic list"),
        (decode_group_list, "group list"),
        (decode_locked_queues, "lock result"),
        (decode_consumer_ids, "consumer list"),
        (decode_consumer_connection, "consumer connection"),
        (decode_producer_connection, "producer connection"),
        (decode_topic_stats, "topic stats"),
        (decode_consume_stats, "consume stats"),
        (decode_reset_offsets, "reset offsets"),
        (partial(decode_route, "t"), "route"),
    ],
)
def test_an_error_names_the_body(decode: Callable[[bytes], object], place: str) -> None:
    with pytest.raises(RemoteProtocolError, match=f": {place} should be an object"):
        decode(b"7")


def test_a_long_path_is_cut() -> None:
    with pytest.raises(RemoteProtocolError, match=f": {'x' * 200} should be a string"):
        Node(1, "x" * 201).string()


def test_what_is_absent_has_its_default() -> None:
    node = read(b'{"a":null}', "stats")
    for name in ("a", "b"):
        assert (node[name].string("x"), node[name].integer(7), node[name].boolean(True)) == ("x", 7, True)
        assert (list(node[name].members()), list(node[name].elements())) == ([], [])
        assert (node[name].strings(), node[name].texts()) == ((), {})
    assert read(b'{"a":"b","c":""}', "stats").texts() == {"a": "b", "c": ""}
    assert (Node("", "").string("x"), Node(0, "").integer(7), Node(False, "").boolean(True)) == ("", 0, False)


@pytest.mark.parametrize(("value", "fits"), [(-1, False), (0, True), (9, True), (10, False)])
def test_a_range_has_both_ends(value: int, fits: bool) -> None:
    node = Node(value, "n")
    if fits:
        assert node.integer(low=0, high=9) == value
    else:
        with pytest.raises(RemoteProtocolError, match="from 0 to 9"):
            node.integer(low=0, high=9)


@pytest.mark.parametrize(
    ("key", "number"),
    [("0", 0), ("007", 7), ("9" * 18, 10**18 - 1), ("9" * 19, None), ("-1", None), ("", None), ("٣", None),
     ("1.0", None), (1, None)],
)  # fmt: skip
def test_a_key_is_a_number_of_at_most_18_digits(key: object, number: int | None) -> None:
    if number is not None:
        assert Node({}, "n").number(key) == number
    else:
        with pytest.raises(RemoteProtocolError, match="numeric keys"):
            Node({}, "n").number(key)


@pytest.mark.parametrize(("queue_id", "fits"), [(0, True), (2**31 - 1, True), (-1, False), (2**31, False)])
def test_a_queue_s_number_is_a_java_int(queue_id: int, fits: bool) -> None:
    key = frozenset({"topic": "t", "brokerName": "b", "queueId": queue_id}.items())
    if fits:
        assert queue_key(key, "stats") == MessageQueue("t", "b", queue_id)
    else:
        with pytest.raises(RemoteProtocolError, match=r"<key>\.queueId should be an integer from 0"):
            queue_key(key, "stats")


def test_bodies_are_written_without_spaces_and_escapes() -> None:
    assert write({"a": [1, "é"], "b": None}) == '{"a":[1,"é"],"b":null}'.encode()
    with pytest.raises(LocalProtocolError):
        write({"a": "\ud800"})
