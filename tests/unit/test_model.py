from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import Message, MessageQueue, OffsetRange, OutgoingMessage

VALUES = {
    name: name if "str" in str(kind) else number
    for number, (name, kind) in enumerate(Message.__annotations__.items())
}


def test_messages_are_frozen():
    message = Message(**VALUES)
    for name in VALUES:
        with pytest.raises(AttributeError):
            setattr(message, name, None)
    with pytest.raises((AttributeError, TypeError)):
        message.anything = 1


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_messages_come_back_from_a_pickle(protocol: int):
    message = Message(**VALUES)
    back = pickle.loads(pickle.dumps(message, protocol))
    assert type(back) is Message
    assert back == message
    assert copy.deepcopy(message) == copy.copy(message) == message
    assert back._replace(queue_offset=9).queue_offset == 9


@pytest.mark.parametrize(
    ("getter", "attribute"),
    [
        ("getBody", "body"),
        ("getKeys", "keys"),
        ("getBodyCRC", "body_crc"),
        ("getMsgId", "msg_id"),
        ("queueOffset", "queue_offset"),
        ("getBornHostString", "born_host"),
        ("getUserProperty", "properties.get"),
    ],
)
def test_java_s_getters_say_what_they_are_called_in_python(getter: str, attribute: str):
    message = Message(**VALUES)
    with pytest.raises(AttributeError, match=rf"no {getter}: .*message\.{attribute}"):
        getattr(message, getter)


def test_other_names_are_no_attributes():
    message = Message(**VALUES)
    assert not hasattr(message, "getaway")
    with pytest.raises(AttributeError, match=r"a Message has no getaway$"):
        _ = message.getaway


def test_a_range_is_pickled_as_its_parts():
    offsets = OffsetRange(MessageQueue("orders", "broker-a", 1), 2, 3)
    assert pickle.loads(pickle.dumps(offsets)) == offsets
    assert offsets.__reduce__() == (OffsetRange, (offsets.queue, 2, 3))
    assert offsets.queue.__reduce__() == (MessageQueue, ("orders", "broker-a", 1))


def test_a_range_is_read_from_a_checkpoint_that_an_earlier_release_wrote():
    written = (
        b"\x80\x04\x8c\x1dpyspark_rocketmq.model.queues\x94\x8c\x0bOffsetRange\x94\x93\x94)\x81\x94]\x94(h\x00\x8c\x0c"
        b"MessageQueue\x94\x93\x94)\x81\x94]\x94(\x8c\x06orders\x94\x8c\x08broker-a\x94K\x01ebK\x02K\x03eb."
    )
    assert pickle.loads(written) == OffsetRange(MessageQueue("orders", "broker-a", 1), 2, 3)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": b"orders"}, "topic must be a text, not b'orders'"),
        ({"tags": 5}, "tags must be a text, not 5"),
        ({"keys": 42}, "keys must be texts, or one text, not 42"),
        ({"keys": None}, "keys must be texts, or one text, not None"),
        ({"keys": ["a", 1]}, r"keys must be texts, or one text, not \['a', 1\]"),
        ({"sharding_key": 7}, "sharding_key must be a text, not 7"),
        ({"properties": None}, "properties must be a mapping of texts to texts, not None"),
        ({"properties": {"region": 3}}, "properties must be a mapping of texts to texts, not {'region': 3}"),
        ({"properties": {3: "region"}}, "properties must be a mapping of texts to texts, not {3: 'region'}"),
        ({"flag": "1"}, "flag must be a whole number, not '1'"),
        ({"delay_level": None}, "delay_level must be a whole number, not None"),
        ({"delay_level": "3"}, "delay_level must be a whole number, not '3'"),
        ({"delay_ms": 1.5}, "delay_ms must be a whole number, not 1.5"),
        ({"deliver_at_ms": "now"}, "deliver_at_ms must be a whole number, not 'now'"),
    ],
)
def test_a_message_with_a_value_of_another_type_is_refused_by_its_name(given, said):
    with pytest.raises(OptionError, match=said):
        OutgoingMessage(**{"topic": "orders", "body": b"x"} | given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"delay_ms": -1}, "delay_ms is negative"),
        ({"delay_ms": 2**63 - 1}, "too large for brokers: they would deliver the message immediately"),
        ({"deliver_at_ms": -1}, "deliver_at_ms is negative"),
        ({"deliver_at_ms": 1_767_225_600}, "1767225600 is a time in seconds: write 1767225600000"),
        ({"delay_level": 19}, "delay_level goes from 1 to 18"),
    ],
)
def test_a_delay_that_brokers_would_ignore_is_refused(given, said):
    with pytest.raises(OptionError, match=said):
        OutgoingMessage("orders", b"x", **given)


def test_a_message_takes_numbers_of_numpy_and_any_sequence_of_keys():
    message = OutgoingMessage("orders", b"x", keys=("a", "b"), flag=np.int32(1), delay_ms=np.int64(5))
    assert (message.keys, message.flag, message.delay_ms) == (("a", "b"), 1, 5)
