"""Settings of topics, groups, brokers and accounts."""

from __future__ import annotations

import json

import pytest

from pyspark_rocketmq.errors import LocalProtocolError, RemoteProtocolError
from pyspark_rocketmq.inventory import GroupConfig, TopicConfig
from pyspark_rocketmq.model import Permission
from pyspark_rocketmq.remoting.body import (
    decode_broker_properties,
    decode_group_config,
    decode_group_configs,
    decode_runtime_info,
    decode_topic_config,
    decode_topic_configs,
    encode_acl,
    encode_broker_properties,
    encode_group_config,
    encode_topic_attributes,
    encode_user,
)

TOPIC = (
    b'{"attributes":{"message.type":"FIFO"},"order":false,"perm":6,"readQueueNums":4,"topicFilterType":'
    b'"SINGLE_TAG","topicName":"t","topicSysFlag":0,"writeQueueNums":8}'
)


def test_topic_config() -> None:
    expected = TopicConfig("t", 4, 8, Permission.READ | Permission.WRITE, attributes={"message.type": "FIFO"})
    assert decode_topic_config(TOPIC) == expected
    body = b'{"dataVersion":{"counter":3},"topicConfigTable":{"t":' + TOPIC + b"}}"
    assert decode_topic_configs(body) == {"t": expected}


def test_a_topic_that_another_tool_has_damaged_does_not_hide_the_others() -> None:
    odd = TOPIC.replace(b'"readQueueNums":', b'"readQueueNums":-')
    body = b'{"topicConfigTable":{"odd":' + odd + b',"t":' + TOPIC + b"}}"
    assert decode_topic_configs(body, only="t").keys() == {"t"}
    with pytest.raises(RemoteProtocolError, match=r"topicConfigTable\.odd\.readQueueNums"):
        decode_topic_configs(body, only="odd")


def test_topic_config_with_every_setting() -> None:
    body = (
        b'{"topicName":"t","readQueueNums":0,"writeQueueNums":0,"perm":15,"order":true,'
        b'"topicFilterType":"MULTI_TAG","topicSysFlag":3}'
    )
    expected = TopicConfig(
        "t", 0, 0, Permission(15), order=True, topic_filter_type="MULTI_TAG", topic_sys_flag=3
    )
    assert decode_topic_config(body) == expected


def test_what_a_topic_config_leaves_out_has_its_default() -> None:
    body = b'{"topicName":"t","readQueueNums":1,"writeQueueNums":1,"perm":6}'
    assert decode_topic_config(body) == TopicConfig("t", 1, 1, Permission.READ | Permission.WRITE)


def test_topic_config_of_4_9_has_no_attributes() -> None:
    assert decode_topic_config(TOPIC.replace(b'"attributes":{"message.type":"FIFO"},', b"")).attributes == {}


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        TOPIC.replace(b'"t"', b"1"),
        TOPIC.replace(b"8}", b"65537}"),
        TOPIC.replace(b"8}", b"-1}"),
        TOPIC.replace(b'"readQueueNums":4', b'"readQueueNums":65537'),
        TOPIC.replace(b'"readQueueNums":4', b'"readQueueNums":-1'),
        TOPIC.replace(b'"SINGLE_TAG"', b"1"),
        TOPIC.replace(b'"topicSysFlag":0', b'"topicSysFlag":"0"'),
        TOPIC.replace(b'"FIFO"', b"{}"),
        TOPIC.replace(b"false", b'"no"'),
    ],
)
def test_topic_config_of_another_shape(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_topic_config(body)


def test_topic_attributes() -> None:
    attributes = {"message.type": "FIFO", "cleanup.policy": "COMPACTION", "reserve.time": None}
    assert (
        encode_topic_attributes(attributes) == "+message.type=FIFO,+cleanup.policy=COMPACTION,-reserve.time"
    )
    assert encode_topic_attributes({}) == ""


@pytest.mark.parametrize("bad", [{"a,b": "x"}, {"a": "x,+b=y"}, {"a=b": "x"}, {"": "x"}, {"+a": "x"}])
def test_topic_attributes_cannot_be_smuggled(bad: dict[str, str | None]) -> None:
    with pytest.raises(LocalProtocolError):
        encode_topic_attributes(bad)


def test_every_setting_of_a_group_is_written_and_read() -> None:
    names = {
        "groupName": "g",
        "consumeEnable": False,
        "consumeFromMinEnable": False,
        "consumeBroadcastEnable": False,
        "consumeMessageOrderly": True,
        "retryQueueNums": 2,
        "retryMaxTimes": 3,
        "brokerId": 4,
        "whichBrokerWhenConsumeSlowly": 5,
        "notifyConsumerIdsChangedEnable": False,
        "groupSysFlag": 6,
        "consumeTimeoutMinute": 7,
        "attributes": {"a": "b"},
    }
    config = GroupConfig(
        "g",
        consume_enable=False,
        consume_from_min_enable=False,
        consume_broadcast_enable=False,
        consume_message_orderly=True,
        retry_queue_nums=2,
        retry_max_times=3,
        broker_id=4,
        which_broker_when_consume_slowly=5,
        notify_consumer_ids_changed_enable=False,
        group_sys_flag=6,
        consume_timeout_minute=7,
        attributes={"a": "b"},
    )
    assert json.loads(encode_group_config(config)) == names
    assert decode_group_config(json.dumps(names).encode()) == config


def test_group_config_names_are_javas() -> None:
    assert json.loads(encode_group_config(GroupConfig("g"))) == {
        "groupName": "g",
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeBroadcastEnable": True,
        "consumeMessageOrderly": False,
        "retryQueueNums": 1,
        "retryMaxTimes": 16,
        "brokerId": 0,
        "whichBrokerWhenConsumeSlowly": 1,
        "notifyConsumerIdsChangedEnable": True,
        "groupSysFlag": 0,
        "consumeTimeoutMinute": 15,
        "attributes": {},
    }


def test_group_configs() -> None:
    body = b'{"dataVersion":{},"forbiddenTable":{},"subscriptionGroupTable":{"g":{"groupName":"g"}}}'
    assert decode_group_configs(body) == {"g": GroupConfig("g")}


def test_runtime_info() -> None:
    body = b'{"table":{"brokerVersionDesc":"V5_4_0","putTps":"0.0 0.0 0.0"}}'
    assert decode_runtime_info(body) == {"brokerVersionDesc": "V5_4_0", "putTps": "0.0 0.0 0.0"}
    with pytest.raises(RemoteProtocolError):
        decode_runtime_info(b'{"table":{"a":1}}')


def test_broker_properties_read() -> None:
    text = b"brokerName=broker-a\nbrokerIP1=\nstorePath=C:\\x y=z\r\n\nnoise\n"
    assert decode_broker_properties(text) == {
        "brokerName": "broker-a",
        "brokerIP1": "",
        "storePath": "C:\\x y=z",
    }
    with pytest.raises(RemoteProtocolError):
        decode_broker_properties(b"a=\xff")


def test_broker_properties_write_what_java_properties_read() -> None:
    assert encode_broker_properties({"a.b": "1", "path": "C:\\x y", "name": "é😀\n"}) == (
        b"a.b=1\npath=C:\\u005cx\\u0020y\nname=\\u00e9\\ud83d\\ude00\\u000a\n"
    )
    assert encode_broker_properties({"name": "\ud800"}) == b"name=\\ud800\n", (
        "half a character is one to Java"
    )


@pytest.mark.parametrize("name", ["", "a b", "a=b", "a\nb", "#a"])
def test_broker_property_names_cannot_be_smuggled(name: str) -> None:
    with pytest.raises(LocalProtocolError):
        encode_broker_properties({name: "x"})


def test_user() -> None:
    assert json.loads(encode_user("u", "p")) == {
        "username": "u",
        "password": "p",
        "userType": "Normal",
        "userStatus": "enable",
    }
    other = json.loads(encode_user("u", "p", user_type="Super", user_status="disable"))
    assert (other["userType"], other["userStatus"]) == ("Super", "disable")


def test_acl() -> None:
    body = encode_acl("User:u", ["Topic:t*", "Group:g"], ["Sub", "Get"])
    entry = {"actions": ["Sub", "Get"], "sourceIps": [], "decision": "Allow"}
    assert json.loads(body) == {
        "subject": "User:u",
        "policies": [
            {
                "policyType": "Custom",
                "entries": [{"resource": "Topic:t*", **entry}, {"resource": "Group:g", **entry}],
            }
        ],
    }
    denied = json.loads(encode_acl("User:u", ["Topic:t"], ["Pub"], decision="Deny"))
    assert denied["policies"][0]["entries"][0]["decision"] == "Deny"
