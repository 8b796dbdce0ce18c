"""Which queue of a topic gets the messages of which queue of a file."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.tools.transfer.message_files import FileMessage
from pyspark_rocketmq.tools.transfer.sending import _batches, count_queues, map_queues


def message(queue: int, offset: int, body: bytes = b"x", **properties: str) -> FileMessage:
    return FileMessage(("broker-a", queue), offset, body, None, None, 0, properties)


def queues(number: int) -> list[MessageQueue]:
    return [MessageQueue("copy", "b", at) for at in range(number)]


def test_messages_are_counted_by_queue() -> None:
    found = count_queues([message(1, 7), message(0, 3), message(1, 9)])
    assert list(found.items()) == [(("broker-a", 0), 1), (("broker-a", 1), 2)]


@pytest.mark.parametrize("offset", [7, 6])
def test_a_file_whose_order_is_lost_is_refused(offset: int) -> None:
    with pytest.raises(OptionError, match="offsets of a queue do not increase"):
        count_queues([message(1, 7), message(1, offset)])


def test_as_many_queues_get_one_each_and_fewer_take_turns() -> None:
    sources = [("a", 0), ("a", 1), ("b", 0)]
    assert [map_queues(sources, queues(3))[each].queue_id for each in sources] == [0, 1, 2]
    assert [map_queues(sources, queues(2))[each].queue_id for each in sources] == [0, 1, 0]
    assert [map_queues(sources, queues(5))[each].queue_id for each in sources] == [0, 1, 2]


def sizes(messages: list[FileMessage], rate: float = 0) -> list[tuple[int, int]]:
    targets = map_queues([("broker-a", 0), ("broker-a", 1)], queues(2))
    return [(queue.queue_id, len(batch)) for queue, batch in _batches(messages, targets, rate)]


def test_batches_are_of_one_queue_and_limited() -> None:
    assert sizes([message(at % 2, at) for at in range(10)]) == [(0, 5), (1, 5)]
    assert sizes([message(0, at) for at in range(600)]) == [(0, 256), (0, 256), (0, 88)]
    assert sizes([message(0, at, b"x" * 100_000) for at in range(5)]) == [(0, 2), (0, 2), (0, 1)]
    assert sizes([message(0, at, own="x" * 30_000) for at in range(20)]) == [(0, 8), (0, 8), (0, 4)]
    assert sizes([message(0, at) for at in range(5)], rate=20) == [(0, 2), (0, 2), (0, 1)]
    assert sizes([message(0, at) for at in range(2)], rate=0.1) == [(0, 1), (0, 1)]


def test_a_message_of_a_lite_topic_is_sent_alone_and_in_its_place() -> None:
    targets = map_queues([("broker-a", 0)], queues(1))
    given = [message(0, 0, b"a"), message(0, 1, b"b", __LITE_TOPIC="l"), message(0, 2, b"c")]
    assert [[each.body for each in batch] for _, batch in _batches(given, targets, 0)] == [
        [b"a"],
        [b"b"],
        [b"c"],
    ]
