from __future__ import annotations

import pytest

from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.options.text.queue_patterns import QUEUE_PATTERNS, QueuePattern, covers

A0, A1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
B0, P0 = MessageQueue("orders", "broker-b", 0), MessageQueue("payments", "broker-b", 0)


@pytest.mark.parametrize(
    ("text", "covered"),
    [
        ("orders", {A0, A1, B0}),
        ("orders@broker-a", {A0, A1}),
        ("orders@broker-a:1", {A1}),
        ("@broker-b", {B0, P0}),
        ("orders@broker-a:0; payments,", {A0, P0}),
        (str(B0), {B0}),
    ],
)
def test_queues_are_named_by_their_parts(text: str, covered: set[MessageQueue]):
    patterns = QUEUE_PATTERNS.parse(text)
    assert {queue for queue in (A0, A1, B0, P0) if covers(patterns, queue)} == covered


@pytest.mark.parametrize("text", ["", ";", "@", "orders@", "orders@broker-a:x y", "or ders", "a@b@c"])
def test_what_names_no_queue_is_refused(text: str):
    with pytest.raises(ValueError, match=r"names nothing|is not topic"):
        QUEUE_PATTERNS.parse(text)


def test_a_whole_topic_is_known_as_one():
    assert QueuePattern("orders").whole_topic == "orders"
    assert QueuePattern("orders", "broker-a").whole_topic is None
