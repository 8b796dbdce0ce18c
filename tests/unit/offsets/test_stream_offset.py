from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import AtTimestamp, MessageQueue
from pyspark_rocketmq.offsets.stream_offset import SourceIdentity, SourceOffset, Witness, offset_of_rocketmq

CHECKPOINTS = Path(__file__).parents[2] / "golden" / "checkpoints"

A0, A1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
A10 = MessageQueue("orders", "broker-a", 10)
P0 = MessageQueue("payments", "broker-b", 0)
SOURCE = SourceIdentity(topics=("orders", "payments"), group="billing", name_server="10.0.0.1:9876")


def at(offsets: dict[MessageQueue, int], begin: dict[MessageQueue, int] | None = None) -> SourceOffset:
    return SourceOffset(source=SOURCE, offsets=offsets, begin=begin or {}, started_at_ms=1_767_225_600_000)


GOLDEN = {
    "initial.json": SourceOffset(source=SOURCE),
    "first_batch.json": at({A0: 120, A1: 98, A10: 5, P0: 0}, {A0: 100, A1: 98, A10: 0, P0: 0}),
    "later_batch.json": at({A0: 150, A1: 98, A10: 5, P0: 7}),
    "new_queue.json": at({A0: 150, A1: 98, A10: 5, P0: 7}, {P0: 3}),
    "witness.json": replace(
        at({A0: 150, P0: 7}),
        witnesses={A0: Witness(149, 1_767_225_600_123), P0: Witness(6, 1_767_225_599_000)},
    ),
    "start.json": replace(at({A0: 120}, {A0: 100}), start=AtTimestamp(1_767_225_000_000)),
}


@pytest.mark.parametrize("release", sorted(path.name for path in CHECKPOINTS.iterdir()))
@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_checkpoints_of_every_release_stay_readable(release: str, name: str):
    text = (CHECKPOINTS / release / name).read_text()
    assert SourceOffset.from_dict(json.loads(text)) == GOLDEN[name]


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_this_release_writes_what_it_always_wrote(name: str):
    text = (CHECKPOINTS / "0.1.0" / name).read_text()
    assert json.dumps(GOLDEN[name].to_dict()) == text.strip()


def test_text_form_does_not_depend_on_the_order_of_the_queues():
    one, other = at({A0: 1, A1: 2, A10: 3}), at({A10: 3, A1: 2, A0: 1})
    assert json.dumps(one.to_dict()) == json.dumps(other.to_dict())


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"version": 2, "source": {"topics": "orders"}}, "version 2 and this release reads version 1"),
        ({"orders": {"broker-a": {"0": 1}}}, "version None"),
        ({**GOLDEN["initial.json"].to_dict(), "heartbeat": 5}, r"does not know \(heartbeat\)"),
        ({"version": 1, "source": {"topics": "orders"}, "offsets": {}}, "malformed"),
        (
            {"version": 1, "source": {"topics": "orders"}, "startedAt": 1, "offsets": {"orders": 5}},
            "malformed",
        ),
        ({"version": 1, "source": "orders", "startedAt": 1}, "malformed"),
    ],
)
def test_foreign_offsets_are_refused(document: dict[str, object], text: str):
    with pytest.raises(OptionError, match=text):
        SourceOffset.from_dict(document)


def test_an_offset_is_read_as_spark_reports_it():
    """``lastProgress`` of PySpark before 4.2 has Python's form of the document."""
    offset = at({MessageQueue("orders", "broker-a", 0): 7})
    text = json.dumps(offset.to_dict())
    assert offset_of_rocketmq(text) == offset_of_rocketmq(str(json.loads(text))) == offset
    for foreign in (
        None,
        "null",
        "None",
        "5",
        "{'logOffset': 3}",
        "{'a': ",
        "{'source': run()}",
        "{" * 9_999,
    ):
        assert offset_of_rocketmq(foreign) is None
