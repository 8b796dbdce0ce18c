"""How `take_rows` waits."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.clocks import FakeClock

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.spark import first_rows


class EndlessQuery:
    """A query without progress, on a clock that passes as it is awaited; Spark takes whole milliseconds."""

    lastProgress = None  # noqa: N815

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def awaitTermination(self, timeout: float) -> bool:
        assert int(timeout * 1000) > 0, "Timeout has to be positive"
        self._clock.sleep(timeout - 0.0005)
        return False


class NoRows:
    """A table without rows."""

    def limit(self, _: int) -> NoRows:
        return self

    def collect(self) -> list[object]:
        return []


def test_less_than_a_millisecond_is_left_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(first_rows, "SYSTEM_CLOCK", clock)
    assert first_rows._when_there(EndlessQuery(clock), NoRows(), 10, 1.0) == []


def test_a_number_is_no_timeout() -> None:
    frame: Any = None
    wrong: Any = 8
    with pytest.raises(OptionError, match='timeout must be a text with its unit, such as "30 s", not 8'):
        first_rows.take_rows(frame, timeout=wrong)
