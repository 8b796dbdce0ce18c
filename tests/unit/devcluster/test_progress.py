from __future__ import annotations

import io

import pytest

from pyspark_rocketmq.devcluster.progress import DownloadProgress

IVY = """\
:: resolving dependencies :: org.apache.spark#spark-submit-parent;1.0
\tfound org.example#one;1.0 in central
\tfound org.example#two;1.0 in central
downloading file:/repository/one-1.0.jar ...
\t[SUCCESSFUL ] org.example#one;1.0!one.jar (71ms)
""".splitlines()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _feed(stream: io.StringIO) -> DownloadProgress:
    with DownloadProgress(("org.example:one:1.0",), stream) as progress:
        for line in IVY:
            progress.line(line)
    return progress


def test_one_line_where_nobody_looks() -> None:
    stream = io.StringIO()
    _feed(stream)
    assert stream.getvalue() == "Fetching org.example:one:1.0 (once, into the cache folder)\n"


def test_a_bar_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    _feed(stream)
    assert "1/2" in stream.getvalue()


def test_the_tail_is_what_ivy_said_last() -> None:
    assert _feed(io.StringIO()).tail().endswith("one.jar (71ms)")
