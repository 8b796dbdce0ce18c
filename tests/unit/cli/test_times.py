"""Times that people type on the command line."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.cli.times import is_time


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1706688000000", True),
        ("1706688000", True),  # seconds: a wrong time, and the parser of times says so
        ("2024-01-31T08:00:00", True),
        ("-10m", True),
        ("now", True),
        ("earliest", False),
        ('{"orders": 5}', False),
    ],
)
def test_what_is_a_time_and_what_an_offset(text: str, expected: bool) -> None:
    assert is_time(text) is expected
