from __future__ import annotations

import json

import pytest

from pyspark_rocketmq.cli.printing import examples, print_json, print_table, table, timestamp
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
        "queue": {"topic": "orders", "brokerName": "broker-a", "queueId": 3},
        "stats": [{"minOffset": 0, "maxOffset": 5, "lastUpdateTimestamp": 7}],
        "perm": "READ",
        "status": "SEND_OK",
        "body": "\\xff!",
    }


def test_numbers_stand_right_and_are_grouped():
    made = table(("Name", "Count"), [("a", 1_234_567), ("b", 5)])
    assert [column.justify for column in made.columns] == ["left", "right"]
    assert list(made.columns[1].cells) == ["1,234,567", "5"]


def test_brackets_of_names_are_shown(capsys):
    print_table(("properties[id]", "replace(a, [/], -)"), [("[b]", "[/]")], title="all [of] it")
    title, head, _, row = filter(str.strip, capsys.readouterr().out.splitlines())
    assert title.strip() == "all [of] it"
    assert head.split("  ")[0].strip() == "properties[id]"
    assert head.strip().endswith("replace(a, [/], -)")
    assert row.split() == ["[b]", "[/]"]


def test_no_moment_is_no_text():
    assert timestamp(0) == ""
    assert ".123" in timestamp(1_767_225_600_123)


def test_a_time_carries_its_offset_and_a_number_that_is_none_is_shown_as_it_is(local_zone):
    local_zone("Asia/Kathmandu")
    assert timestamp(1_767_225_600_123) == "2026-01-01T05:45:00.123+05:45"
    assert timestamp(1 << 62) == str(1 << 62)


@pytest.mark.parametrize(("columns", "wide"), [("60", 60), ("", 200), ("0", 200), ("wide", 200), ("5", 20)])
def test_a_piped_table_is_as_wide_as_columns_says(columns, wide, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", columns)
    print_table(("Topic", "Brokers"), [("orders " * 10, "broker-a " * 40)])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) == wide


def test_examples_name_the_program():
    assert "\npyspark-rocketmq topics\n" in examples("topics")
