from __future__ import annotations

import copy
import pickle

import pytest

from pyspark_rocketmq.model import Message, MessageQueue, OffsetRange

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
