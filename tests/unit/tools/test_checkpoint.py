from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.offsets.stream_offset import SourceIdentity, SourceOffset
from pyspark_rocketmq.options.text.queue_patterns import QUEUE_PATTERNS
from pyspark_rocketmq.tools.checkpoint import (
    forget,
    offsets_from_json,
    offsets_to_json,
    read_finished_offsets,
    seek,
)

QUEUE = MessageQueue("orders", "broker-a", 0)
SOURCE = SourceIdentity(topics=("orders",), group="billing", name_server="127.0.0.1:9876")


def ours(offset: int | None) -> str:
    resolved = {"offsets": {QUEUE: offset}, "started_at_ms": 1} if offset is not None else {}
    return json.dumps(SourceOffset(source=SOURCE, **resolved).to_dict())


def write(checkpoint: Path, batch: int, *sources: str, done: bool = True) -> None:
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "commits").mkdir(exist_ok=True)
    (checkpoint / "offsets" / str(batch)).write_text("\n".join(["v1", "{}", *sources]))
    if done:
        (checkpoint / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_the_offsets_are_those_of_the_last_finished_batch(tmp_path):
    for batch, offset in ((8, 80), (9, 90), (10, 100)):
        write(tmp_path, batch, ours(offset), done=batch != 10)
    found = read_finished_offsets(tmp_path)
    assert (found.batch, dict(found.offsets), found.source) == (9, {QUEUE: 90}, SOURCE)


def test_other_sources_of_the_query_are_passed_over(tmp_path):
    write(tmp_path, 0, '{"logOffset":3}', "-", ours(7))
    assert read_finished_offsets(tmp_path).offsets == {QUEUE: 7}


def test_of_several_sources_one_is_named(tmp_path):
    write(tmp_path, 0, ours(7), "5", ours(8))
    with pytest.raises(OptionError, match=r"2 sources, name one.*sources=0, 2\]"):
        read_finished_offsets(tmp_path)
    assert read_finished_offsets(tmp_path, source=2).offsets == {QUEUE: 8}
    with pytest.raises(OptionError, match="no such RocketMQ source"):
        read_finished_offsets(tmp_path, source=1)


def test_what_has_no_position_is_an_error(tmp_path):
    with pytest.raises(OptionError, match="no finished batch"):
        read_finished_offsets(tmp_path)
    write(tmp_path, 0, ours(None))
    with pytest.raises(OptionError, match="no such RocketMQ source"):
        read_finished_offsets(tmp_path)


def test_a_query_is_moved_and_keeps_all_else(tmp_path):
    write(tmp_path, 4, '{"logOffset":3}', ours(40))
    write(tmp_path, 5, '{"logOffset":5}', ours(50))
    checksum = tmp_path / "offsets" / ".5.crc"
    checksum.touch()
    other = MessageQueue("orders", "broker-b", 1)
    seek(tmp_path, {QUEUE: 7, other: 9})
    found = read_finished_offsets(tmp_path)
    assert (found.batch, dict(found.offsets)) == (5, {QUEUE: 7, other: 9})
    seek(tmp_path, {other: 11})
    assert read_finished_offsets(tmp_path).offsets == {QUEUE: 7, other: 11}
    assert (tmp_path / "offsets" / "5").read_text().splitlines()[:3] == ["v1", "{}", '{"logOffset":5}']
    assert not checksum.exists()
    assert sorted(file.name for file in (tmp_path / "offsets").iterdir()) == ["4", "5"]


def test_a_query_forgets_queues_and_keeps_all_else(tmp_path):
    write(tmp_path, 5, '{"logOffset":5}', ours(50))
    others = {MessageQueue("orders", "broker-b", 1): 9, MessageQueue("payments", "broker-a", 0): 3}
    seek(tmp_path, others)
    forget(tmp_path, QUEUE_PATTERNS.parse("@broker-b"))
    assert read_finished_offsets(tmp_path).offsets == {QUEUE: 50, MessageQueue("payments", "broker-a", 0): 3}
    forget(tmp_path, QUEUE_PATTERNS.parse("payments; nothing@broker-a:7"))
    assert read_finished_offsets(tmp_path).offsets == {QUEUE: 50}
    assert (tmp_path / "offsets" / "5").read_text().splitlines()[:3] == ["v1", "{}", '{"logOffset":5}']


def test_a_query_with_a_batch_under_way_is_not_moved(tmp_path):
    write(tmp_path, 5, ours(50))
    write(tmp_path, 6, ours(60), done=False)
    for change in (
        lambda: seek(tmp_path, {QUEUE: 7}),
        lambda: forget(tmp_path, QUEUE_PATTERNS.parse("orders")),
    ):
        with pytest.raises(OptionError, match=r"begun and not finished.*forgetQueues.*batch=6"):
            change()
    assert read_finished_offsets(tmp_path).offsets == {QUEUE: 50}


def test_offsets_survive_the_way_through_json():
    offsets = {QUEUE: 5, MessageQueue("orders", "broker-b", 11): 0}
    assert offsets_from_json(offsets_to_json(offsets)) == offsets


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"a": {"b": {"c": 1}}}', '{"a": {"b": {"0": -1}}}'])
def test_what_is_no_offsets_document_is_refused(text):
    with pytest.raises(OptionError, match="offsets are JSON such as"):
        offsets_from_json(text)


def test_a_static_topics_queue_is_moved_by_each_of_its_names(tmp_path):
    logical = MessageQueue("orders", "__syslo__global__", 0)
    write(tmp_path, 0, ours(70))
    seek(tmp_path, {logical: 10})
    assert read_finished_offsets(tmp_path).offsets == {logical: 10}
    seek(tmp_path, {QUEUE: 5})
    assert read_finished_offsets(tmp_path).offsets == {logical: 5}


def named(checkpoint: Path, batch: int, **sources: str) -> None:
    """Write a finished batch as a query with named sources does."""
    write(checkpoint, batch)
    lines = ["v2", "{}", *(f"{name}:{offset}" for name, offset in sources.items())]
    (checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))


def test_a_named_source_is_read_and_moved_whatever_its_place(tmp_path):
    named(tmp_path, 0, one=ours(7), clock='{"logOffset":3}', two=ours(8))
    named(tmp_path, 1, two=ours(9), gone="-", clock='{"logOffset":4}', one=ours(8))
    with pytest.raises(OptionError, match=r"2 sources, name one.*sources=two, one\]"):
        read_finished_offsets(tmp_path)
    with pytest.raises(OptionError, match=r"no such RocketMQ source.*sources=two, one\]"):
        read_finished_offsets(tmp_path, source="clock")
    assert read_finished_offsets(tmp_path, source="one").offsets == {QUEUE: 8}
    seek(tmp_path, {QUEUE: 2}, source="one")
    assert read_finished_offsets(tmp_path, source="one").offsets == {QUEUE: 2}
    assert read_finished_offsets(tmp_path, source="two").offsets == {QUEUE: 9}
    lines = (tmp_path / "offsets" / "1").read_text().splitlines()
    assert [line.partition(":")[0] for line in lines] == ["v2", "{}", "two", "gone", "clock", "one"]
    assert lines[3:5] == ["gone:-", 'clock:{"logOffset":4}']
    forget(tmp_path, [QUEUE_PATTERNS.parse("orders")[0]], source="two")
    assert read_finished_offsets(tmp_path, source="two").offsets == {}


@pytest.mark.parametrize("text", ["", "v3\n{}\n0:1", "v2\n{}\nno name", "v1"])
def test_an_unknown_offset_log_is_an_error(tmp_path, text):
    write(tmp_path, 0, ours(7))
    (tmp_path / "offsets" / "0").write_text(text)
    with pytest.raises(OptionError, match=r"offset log"):
        read_finished_offsets(tmp_path)
