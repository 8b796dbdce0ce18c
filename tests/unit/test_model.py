from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle

import pytest

from pyspark_rocketmq.model import Message, new_message

VALUES = {
    part.name: f"{part.name}" if "str" in str(part.type) else number
    for number, part in enumerate(dataclasses.fields(Message))
}


def test_a_message_made_of_values_is_the_one_made_by_keywords():
    by_keywords, by_values = Message(**VALUES), new_message(*VALUES.values())
    assert type(by_values) is Message
    assert by_values == by_keywords
    assert repr(by_values) == repr(by_keywords)
    assert list(inspect.signature(new_message).parameters) == list(VALUES)


def test_messages_stay_frozen_however_they_are_made():
    message = new_message(*VALUES.values())
    for name in VALUES:
        with pytest.raises(dataclasses.FrozenInstanceError):
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
    assert dataclasses.replace(back, queue_offset=9).queue_offset == 9
