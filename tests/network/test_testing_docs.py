"""What ``docs/testing.md`` shows runs."""

from __future__ import annotations

import pytest
from tests.support.page_code import python_blocks


def test_the_mock_broker_of_the_documentation(capsys: pytest.CaptureFixture[str]) -> None:
    # Blocks that begin with a file name are run by tests/spark/test_testing_example.py.
    (block,) = (block for block in python_blocks("testing.md") if not block.startswith("# "))
    exec(block, {})
    messages, asked = capsys.readouterr().out.splitlines()
    assert "b'42'" in messages
    assert asked == "4"
