"""Options of a push consumer that cannot be meant are errors that name them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyspark_rocketmq.client.groups.push_options import ConsumeFromWhere, PushOptions
from pyspark_rocketmq.errors import OptionError


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"threads": 0}, "threads must be 1 or more"),
        ({"retry_delay_level": 19}, "retry_delay_level goes from -1 to 18"),
        ({"max_reconsume_times": -2}, "max_reconsume_times is -1 or more"),
        ({"on_corrupt": "ignore"}, "on_corrupt is fail or skip"),
        ({"progress_file": Path("offsets.json")}, "progress_file is for broadcasting"),
        ({"timestamp_ms": 33}, "timestamp_ms needs start=ConsumeFromWhere.TIMESTAMP"),
        ({"timestamp_ms": 33, "start": ConsumeFromWhere.FIRST_OFFSET}, "timestamp_ms needs start"),
    ],
)
def test_an_option_that_cannot_be_meant_is_an_error(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        PushOptions(**given)


def test_a_time_is_taken_with_the_start_that_needs_it() -> None:
    assert PushOptions(start=ConsumeFromWhere.TIMESTAMP, timestamp_ms=33).timestamp_ms == 33
