from __future__ import annotations

from typing import Any

import pytest

from pyspark_rocketmq.errors import OptionError, TopicExistsError
from pyspark_rocketmq.inventory import TopicConfig
from pyspark_rocketmq.model import MessageQueue, Permission, QueueStats
from pyspark_rocketmq.planning.topics.topic_settings import (
    TopicChange,
    TopicSettings,
    changes_of,
    hidden_messages,
    permission_text,
    require_unchanged,
)

CONFIG = TopicConfig("orders", 4, 4, Permission.READ | Permission.WRITE, attributes={"message.type": "FIFO"})
OTHER = TopicConfig("orders", 8, 2, Permission.READ)


def test_what_is_not_given_stays() -> None:
    assert TopicSettings().applied_to(CONFIG) == CONFIG
    assert changes_of({"broker-a": CONFIG, "broker-b": OTHER}, TopicSettings()) == ()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"write_queues": 6}, (6, 6)),  # what is written can be read
        ({"write_queues": 2}, (4, 2)),
        ({"read_queues": 2}, (2, 4)),
        ({"read_queues": 5, "write_queues": 6}, (5, 6)),  # said explicitly
        ({"read_queues": 0, "write_queues": 0}, (0, 0)),
    ],
)
def test_queues(given: dict[str, int], expected: tuple[int, int]) -> None:
    found = TopicSettings(**given).applied_to(CONFIG)
    assert (found.read_queues, found.write_queues) == expected


def test_attributes_are_added_replaced_and_removed() -> None:
    settings = TopicSettings(attributes={"message.type": None, "queue.type": "BatchCQ"})
    assert settings.applied_to(CONFIG).attributes == {"queue.type": "BatchCQ"}
    assert TopicSettings(order=True, perm=Permission.READ).applied_to(CONFIG).perm == Permission.READ
    assert TopicSettings(order=True).applied_to(CONFIG).order


def test_changes_are_named_broker_by_broker() -> None:
    settings = TopicSettings(read_queues=8, perm=Permission.READ, attributes={"message.type": None})
    assert changes_of({"broker-b": OTHER, "broker-a": CONFIG}, settings) == tuple(
        TopicChange(broker_name="broker-a", setting=setting, before=before, after=after)
        for setting, before, after in [
            ("attribute message.type", "FIFO", ""),
            ("permission", "read, write", "read"),
            ("read queues", "4", "8"),
        ]
    )


def test_a_topic_that_exists_otherwise_is_not_changed_by_creating_it() -> None:
    require_unchanged("orders", {}, TopicSettings(read_queues=1), remedy="topic alter")
    require_unchanged("orders", {"broker-a": CONFIG}, TopicSettings(write_queues=4), remedy="topic alter")
    with pytest.raises(
        TopicExistsError, match=r"order: false, not true\); `topic alter` changes it"
    ) as raised:
        require_unchanged(
            "orders",
            {"broker-b": CONFIG, "broker-a": CONFIG},
            TopicSettings(order=True),
            remedy="topic alter",
        )
    assert raised.value.facts["broker_name"] == "broker-a"
    with pytest.raises(TopicExistsError, match=r"queue\.type: not set, not BatchCQ"):
        require_unchanged(
            "orders", {"broker-a": CONFIG}, TopicSettings(attributes={"queue.type": "BatchCQ"}), remedy="x"
        )


def test_messages_of_queues_that_are_no_longer_read_are_hidden() -> None:
    stats = {
        MessageQueue("orders", broker, index): QueueStats(10, 10 + 10**index, 0)
        for broker in ("broker-a", "broker-c")
        for index in range(4)
    }
    assert hidden_messages({"broker-a": CONFIG}, TopicSettings(), stats) == 0
    assert hidden_messages({"broker-a": CONFIG}, TopicSettings(read_queues=2), stats) == 100 + 1_000
    assert hidden_messages({"broker-b": CONFIG}, TopicSettings(read_queues=0), stats) == 0


@pytest.mark.parametrize(
    ("perm", "text"),
    [
        (Permission.READ | Permission.WRITE, "read, write"),
        (Permission.WRITE, "write"),
        (Permission(0), "none"),
    ],
)
def test_a_permission_is_shown_as_words(perm: Permission, text: str) -> None:
    assert permission_text(perm) == text


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"write_queues": -1},
            r"\(write_queues\) must be a whole number from 0 to 65536, not -1",
        ),
        ({"read_queues": 65_537}, r"number of queues \(read_queues\) must be .*, not 65537"),
        ({"write_queues": "4"}, "must be a whole number .*, not a str"),
        ({"perm": "rw"}, "perm must be a Permission, .*, not a str"),
        ({"attributes": ["message.type"]}, "attributes must be a mapping"),
        ({"attributes": {"message.type": 1}}, "attributes must be a mapping of texts"),
    ],
)
def test_what_no_client_could_read_is_not_put(given: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        TopicSettings(**given)
