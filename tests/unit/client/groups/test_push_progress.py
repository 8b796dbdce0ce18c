from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.clocks import FakeClock

from pyspark_rocketmq.client.groups.push_options import ConsumeFromWhere, PushOptions
from pyspark_rocketmq.client.groups.push_progress import FileProgress, starting_offsets
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageQueue

ONE, TWO = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
AGAIN = MessageQueue("%RETRY%g", "broker-a", 0)


def test_offsets_come_back_from_the_file(tmp_path):
    path = tmp_path / "offsets.json"
    progress = FileProgress(path)
    assert progress.read([ONE]) == {ONE: None}
    progress.write({ONE: 5})
    progress.write({TWO: 7})
    assert FileProgress(path).read([ONE, TWO]) == {ONE: 5, TWO: 7}
    assert [file.name for file in tmp_path.iterdir()] == ["offsets.json"]


def test_a_write_that_is_cut_off_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path, write_text = tmp_path / "offsets.json", Path.write_text
    progress = FileProgress(path)
    progress.write({ONE: 5})

    def cut_off(file: Path, text: str, **how: str) -> None:
        write_text(file, text[:10], **how)
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_text", cut_off)
    with pytest.raises(OSError, match="no space"):
        progress.write({ONE: 6})
    assert FileProgress(path).read([ONE]) == {ONE: 5}


def test_without_a_file_they_are_in_memory_only():
    progress = FileProgress(None)
    progress.write({ONE: 5})
    assert progress.read([ONE, TWO]) == {ONE: 5, TWO: None}


@pytest.mark.parametrize("text", ["", "[]", '{"offsets": [[1]]}', '{"other": 1}'])
def test_another_file_is_refused(tmp_path, text: str):
    path = tmp_path / "offsets.json"
    path.write_text(text)
    with pytest.raises(OptionError, match="does not hold a member's offsets"):
        FileProgress(path)


class Brokers:
    """Queues from 10 to 90; what is behind moment m begins at m."""

    clock = FakeClock(0.04 + 30 * 60)

    def min_offsets(self, queues):
        return dict.fromkeys(queues, 10)

    def max_offsets(self, queues):
        return dict.fromkeys(queues, 90)

    def offsets_at(self, timestamps, **_):
        return dict(timestamps)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (PushOptions(), 90),
        (PushOptions(start=ConsumeFromWhere.FIRST_OFFSET), 10),
        (PushOptions(start=ConsumeFromWhere.TIMESTAMP, timestamp_ms=33), 33),
        (PushOptions(start=ConsumeFromWhere.TIMESTAMP), 40),
    ],
)
def test_where_a_queue_begins(options, expected: int):
    progress = FileProgress(None)
    progress.write({ONE: 55})
    begins = starting_offsets(Brokers(), progress, [ONE, TWO, AGAIN], options, "g")
    assert begins == {ONE: 55, TWO: expected, AGAIN: 10}, "what comes again is read from its begin"
