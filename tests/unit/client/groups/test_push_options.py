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
        ({"threads": 0}, "threads must be a whole number from 1 on, not 0"),
        ({"batch_size": "8"}, "batch_size must be a whole number from 1 on, not a str"),
        ({"suspend_ms": -1}, "suspend_ms must be a whole number from 0 on, not -1"),
        ({"broadcasting": True, "progress_file": "x.json"}, "progress_file must be a Path, not a str"),
        ({"retry_delay_level": 19}, "retry_delay_level must be a whole number from -1 to 18"),
        ({"max_reconsume_times": -2}, "max_reconsume_times must be a whole number from -1 on"),
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
