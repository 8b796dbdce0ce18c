from __future__ import annotations

import io
import sys

import pytest

from pyspark_rocketmq.cli.progress import progress


class Terminal(io.StringIO):
    """Says that somebody looks."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("total", [None, 10])
def test_on_a_terminal_there_is_a_rate_and_with_a_total_the_time_left(monkeypatch, total):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress("sending", total=total) as advance:
        for _ in range(4):
            advance(2)
    shown = sys.stderr.getvalue()
    assert "sending" in shown
    assert "8 messages" in shown
    assert ("━" in shown) is (total is not None)


def test_without_a_terminal_it_is_silent(capsys):
    with progress("sending", total=10) as advance:
        advance(5)
    assert capsys.readouterr() == ("", "")
