from __future__ import annotations

import json

from pyspark_rocketmq.cli.printing import examples, print_json, table, timestamp
from pyspark_rocketmq.model import MessageQueue, Permission, QueueStats, SendStatus


def test_json_of_values_is_plain(capsys):
    print_json(
        {
            "queue": MessageQueue("orders", "broker-a", 3),
            "stats": (QueueStats(0, 5, 7),),
            "perm": Permission.READ,
            "status": SendStatus.SEND_OK,
            "body": b"\xff!",
        }
    )
    assert json.loads(capsys.readouterr().out) == {
        "queue": {"topic": "orders", "broker_name": "broker-a", "queue_id": 3},
        "stats": [{"min_offset": 0, "max_offset": 5, "last_update_timestamp": 7}],
        "perm": "READ",
        "status": "SEND_OK",
        "body": "\\xff!",
    }


def test_numbers_stand_right_and_are_grouped():
    made = table(("Name", "Count"), [("a", 1_234_567), ("b", 5)])
    assert [column.justify for column in made.columns] == ["left", "right"]
    assert list(made.columns[1].cells) == ["1,234,567", "5"]


def test_no_moment_is_no_text():
    assert timestamp(0) == ""
    assert timestamp(1_767_225_600_123).endswith(".123")


def test_examples_name_the_program():
    assert "\npyspark-rocketmq topics\n" in examples("topics")
