"""The local time zone of a test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest


@pytest.fixture
def local_zone(monkeypatch) -> Iterator[Callable[[str], None]]:
    """Set the process's time zone until the test ends."""

    def use(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield use
    monkeypatch.undo()
    time.tzset()
