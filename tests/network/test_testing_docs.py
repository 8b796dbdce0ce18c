"""What ``docs/testing.md`` shows runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_TEXT = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
_BLOCKS = [
    block for block in re.findall(r"```python\n(.*?)```", _TEXT, re.DOTALL) if not block.startswith("# ")
]
# Blocks that begin with a file name are run by tests/spark/test_testing_example.py.


def test_the_mock_broker_of_the_documentation(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = _BLOCKS
    exec(block, {})
    messages, asked = capsys.readouterr().out.splitlines()
    assert "b'42'" in messages
    assert asked == "4"
