"""Files with credentials: which lines are values, and how a line that is none is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options.stored.credentials import read_values

NAMES = ("accessKey", "secretKey")


def read(path: Path, text: str) -> dict[str, str]:
    path.write_text(text, encoding="utf-8")
    return read_values(str(path), NAMES, option="credentialsFile")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        ("  # secretKey=a\n \n#b\nsecretKey=c", {"secretKey": "c"}),
        ("accessKey=a:b\nsecretKey: c=d", {"accessKey": "a:b", "secretKey": "c=d"}),
        ("ACCESSKEY = 'a b' \n", {"accessKey": "a b"}),
        ('accessKey="a"\nsecretKey="b\'', {"accessKey": "a", "secretKey": "\"b'"}),
        ("accessKey='\nsecretKey=XbX", {"accessKey": "'", "secretKey": "XbX"}),
        ("\ufeffaccessKey=a", {"accessKey": "a"}),
    ],
)
def test_lines_that_are_values(tmp_path: Path, text: str, values: dict[str, str]) -> None:
    assert read(tmp_path / "file", text) == values


@pytest.mark.parametrize("line", ["accessKey", "accessKey=", "accessKey=''", "=a", ":accessKey=a", "token=a"])
def test_lines_that_are_none(tmp_path: Path, line: str) -> None:
    said = "line 2 of the file is not one of accessKey, secretKey with a value, as name=value"
    with pytest.raises(OptionError, match=said) as caught:
        read(tmp_path / "file", f"#\n{line}")
    assert caught.value.facts == {"option": "credentialsFile", "path": str(tmp_path / "file")}


@pytest.mark.parametrize(("path", "problem"), [("a\0b", "embedded null"), ("/nowhere", "No such file")])
def test_a_file_that_cannot_be_read(path: str, problem: str) -> None:
    with pytest.raises(OptionError, match=f"the file cannot be read: {problem}"):
        read_values(path, NAMES, option="credentialsFile")
