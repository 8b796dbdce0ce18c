"""Texts that commands read."""

from __future__ import annotations

import gc
import io
import sys
from pathlib import Path

import pytest

from pyspark_rocketmq.cli.input import read_text
from pyspark_rocketmq.cli.message_commands.transfer import _kept
from pyspark_rocketmq.errors import OptionError


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "job.sql"
    file.write_text("\ufeffSELECT 1", encoding="utf-8")
    assert read_text(str(file)) == "SELECT 1"
    monkeypatch.setattr(sys, "stdin", io.StringIO("\ufeffSELECT 1"))
    assert read_text("-") == "SELECT 1"


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"the job cannot be read: No such file"):
        read_text(str(tmp_path / "absent"), "the job")
    with pytest.raises(OptionError, match=r"the file cannot be read: Is a directory"):
        read_text(str(tmp_path))
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    with pytest.raises(OptionError, match=r"the job is not UTF-8"):
        read_text(str(tmp_path / "latin"), "the job")


def test_a_copy_of_the_input_is_closed_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows opens no file twice."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{}\n")))
    with _kept("-") as path:
        assert path.read_bytes() == b"{}\n"
        files = [each for each in gc.get_objects() if isinstance(each, io.FileIO) and not each.closed]
        assert str(path) not in [str(each.name) for each in files]
    assert not path.exists()
