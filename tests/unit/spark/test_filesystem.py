"""Files that survive a crash."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from pyspark_rocketmq.spark.filesystem import file_system, local_folder, write_durably


def files(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.rglob("*") if file.is_file())


def test_a_write_that_fails_leaves_no_file(tmp_path: Path) -> None:
    """Each try to start a query on a full disk would leave another part of a file there."""

    def write(stream: Any) -> None:
        stream.write(b"a part")
        raise OSError(errno.ENOSPC, "No space left on device")

    for _ in range(3):
        with pytest.raises(OSError, match="No space left"):
            write_durably(fs.LocalFileSystem(), str(tmp_path / "log" / "1.decision"), write)
    assert files(tmp_path) == []


def test_a_file_that_cannot_be_moved_to_its_place_is_removed(tmp_path: Path) -> None:
    (tmp_path / "1.done" / "a folder").mkdir(parents=True)
    with pytest.raises(OSError, match=r"1\.done"):
        write_durably(fs.LocalFileSystem(), str(tmp_path / "1.done"))
    assert files(tmp_path) == []


def test_a_file_system_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    """The error of the write is told, not that of the cleaning."""
    (tmp_path / "log").write_text("a file", encoding="utf-8")
    with pytest.raises(OSError, match="log"):
        write_durably(fs.LocalFileSystem(), str(tmp_path / "log" / "1.done"))
    assert files(tmp_path) == ["log"]


@pytest.mark.parametrize("name", ["a b", "a%20b", "a%zz", "job#1", "job?1", "größe"])
@pytest.mark.parametrize("scheme", ["file:", "file://", ""])
def test_a_local_uri_is_taken_literally_as_in_spark(tmp_path: Path, scheme: str, name: str) -> None:
    """Two queries, with checkpoints at job#1 and job#2, would note their transactions in one folder."""
    where = f"{scheme}{tmp_path.as_posix()}/{name}"
    filesystem, inner = file_system(where)
    write_durably(filesystem, f"{inner}/1.done")
    assert files(tmp_path / name) == ["1.done"]
    assert local_folder(where) == tmp_path / name
