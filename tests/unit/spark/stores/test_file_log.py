"""What Spark's file sink would not write, and its readers would not see."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.spark.stores.file_log import (
    check_new_batches,
    check_readable,
    files_folder,
    forget_unwritten_start,
)


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_batches_that_the_checkpoint_does_not_know_are_those_of_others(tmp_path):
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    check_new_batches("t", str(out), str(checkpoint))
    put(out, "part-0", "_spark_metadata/9.compact", "_spark_metadata/10", "_spark_metadata/.11.crc")
    put(checkpoint, "offsets/9")
    with pytest.raises(RocketMQError, match="results up to batch 10, which"):
        check_new_batches("t", str(out), f"file://{checkpoint}")
    put(checkpoint, "offsets/10")
    check_new_batches("t", f"file:{out}", str(checkpoint))
    check_new_batches("t", str(out), "hdfs://host/checkpoint")
    check_new_batches("t", "hdfs://host/out", str(checkpoint))
    with pytest.raises(RocketMQError, match="would not see those of a batch"):
        check_readable("t", str(out))


def test_files_of_others_would_be_hidden_but_those_of_a_killed_first_batch_are_not_of_others(tmp_path):
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    put(out, "_SUCCESS", ".part-0.crc", "_temporary/0/part-0")
    check_new_batches("t", str(out), str(checkpoint))
    put(out, "day=1/part-0")
    with pytest.raises(RocketMQError, match="that no stream has written"):
        check_new_batches("t", str(out), str(checkpoint))
    put(checkpoint, "offsets/0")
    check_new_batches("t", str(out), str(checkpoint))
    check_readable("t", str(out))


def test_only_tables_of_files_have_a_folder_with_such_a_log():
    assert files_folder({"provider": "parquet", "location": "file:/t"}) == "file:/t"
    assert files_folder({"provider": "delta", "location": "file:/t"}) is None
    assert files_folder({"type": "VIEW"}) is None


def test_what_is_left_of_a_start_that_was_killed_is_forgotten(tmp_path):
    """What was found in a checkpoint after kill -9 within the first batch; Spark would not start there."""
    offsets = tmp_path / "c" / "offsets"
    forget_unwritten_start(str(tmp_path / "c"))
    offsets.mkdir(parents=True)
    left = [offsets / ".0.be732471.tmp", offsets / "..0.be732471.tmp.crc"]
    for file in left:
        file.touch()
    forget_unwritten_start(f"file://{tmp_path}/c")
    assert not list(offsets.iterdir())
    for file in (*left, offsets / "0"):
        file.touch()
    forget_unwritten_start(str(tmp_path / "c"))
    assert len(list(offsets.iterdir())) == 3, "a log that has begun is Spark's"
    forget_unwritten_start("hdfs://somewhere/c")
