from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.offsets.direct_log import (
    decode_ends,
    decode_ranges,
    encode_ends,
    encode_ranges,
    is_direct_checkpoint,
    next_offsets,
)

Q0, Q1, Q2 = (MessageQueue("orders", "broker-a", number) for number in range(3))


def log(checkpoint: Path, stream: int = 0) -> Path:
    folder = checkpoint / f"rocketmq-{stream}"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.mark.parametrize(
    ("encode", "decode", "value"),
    [
        (encode_ranges, decode_ranges, (OffsetRange(Q0, 0, 5), OffsetRange(Q1, 3, 3))),
        (encode_ends, decode_ends, {Q0: 5, Q1: 3}),
    ],
)
def test_files_are_read_as_they_were_written_and_torn_ones_are_none(encode, decode, value):
    text = encode(value)
    assert decode(text) == value
    assert all(decode(text[:length]) is None for length in range(len(text)))
    assert decode(text.replace('"version": 1', '"version": 2')) is None
    assert decode("[]") is None


def test_a_new_job_starts_after_the_last_batch_that_is_finished_with_all_before_it(tmp_path):
    folder = log(tmp_path)
    for time, begin in ((1000, 0), (2000, 10), (3000, 20)):
        (folder / str(time)).write_text(encode_ranges([OffsetRange(Q0, begin, begin + 10)]))
    (folder / "ends-1000").write_text(encode_ends({Q0: 10}))
    (folder / "ends-2000").write_text(encode_ends({Q0: 20}))
    (folder / "ends-3000").write_text(encode_ends({Q0: 30})[:9])  # the driver died
    assert next_offsets(tmp_path) == {Q0: 20}


def test_queues_that_no_finished_batch_knows_start_where_they_did(tmp_path):
    folder = log(tmp_path)
    (folder / "2000").write_text(encode_ranges([OffsetRange(Q0, 10, 20), OffsetRange(Q1, 7, 9)]))
    (folder / "3000").write_text(encode_ranges([OffsetRange(Q0, 20, 30), OffsetRange(Q1, 9, 12)]))
    assert next_offsets(tmp_path) == {Q0: 10, Q1: 7}, "nothing is finished"
    (folder / "ends-1000").write_text(encode_ends({Q0: 10, Q2: 4}))
    assert next_offsets(tmp_path) == {Q0: 10, Q1: 7, Q2: 4}


def test_of_several_streams_one_is_named(tmp_path):
    for stream in (0, 3):
        (log(tmp_path, stream) / "ends-1000").write_text(encode_ends({Q0: stream}))
    with pytest.raises(OptionError, match=r"2 direct streams, name one.*\[0, 3\]"):
        next_offsets(tmp_path)
    assert next_offsets(tmp_path, stream=3) == {Q0: 3}
    with pytest.raises(OptionError, match="no such direct stream"):
        next_offsets(tmp_path, stream=1)


def test_other_folders_are_no_direct_streams_and_an_empty_one_has_no_offsets(tmp_path):
    (tmp_path / "rocketmq-receiver-1").mkdir()
    (tmp_path / "offsets").mkdir()
    assert not is_direct_checkpoint(tmp_path)
    log(tmp_path)
    assert is_direct_checkpoint(tmp_path)
    with pytest.raises(OptionError, match="has not planned a batch"):
        next_offsets(tmp_path)
