"""Rows that Python cannot hold are an error of one line, in the command and in the shell."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkValueError
from rich.console import Console

from pyspark_rocketmq.cli.job_commands.rows import first_rows
from pyspark_rocketmq.cli.shell.shell import Shell
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.sql.job import SqlJob
from pyspark_rocketmq.sql.statements import Position


class Rows:
    """A result whose rows cannot be converted."""

    isStreaming = False  # noqa: N815 - PySpark's name
    columns = ("time",)

    def __init__(self, error: Exception) -> None:
        self._error = error

    def limit(self, _count: int) -> Rows:
        return self

    def collect(self) -> None:
        raise self._error


def too_late() -> Exception:
    with pytest.raises((ValueError, OverflowError)) as raised:
        datetime.fromtimestamp((1 << 63) // 1_000_000, UTC)  # the last time of Spark
    return raised.value


@pytest.mark.parametrize("error", [ValueError("year 10000 is out of range"), too_late()])
def test_a_time_that_python_has_not_is_told(error: Exception) -> None:
    rows: Any = Rows(error)
    with pytest.raises(RocketMQError, match=r"the rows cannot be shown: .*CAST\(… AS STRING\)"):
        first_rows(rows, 1)
    theirs: Any = Rows(PySparkValueError("of PySpark"))
    with pytest.raises(PySparkValueError, match="of PySpark"):
        first_rows(theirs, 1)


def test_the_shell_survives_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def nothing(*_: object) -> None:
        """Do nothing."""

    spark: Any = SimpleNamespace(createDataFrame=nothing, addTag=nothing, removeTag=nothing)
    job, lines = SqlJob(spark, "", {}), ["SELECT time FROM t;", "help"]
    shown = Console(file=io.StringIO())

    def run_text(_text: str, show: Any) -> None:
        show(Rows(too_late()), None, Position(1, 1))

    def ask() -> str:
        if not lines:
            raise EOFError
        return lines.pop(0)

    monkeypatch.setattr(job, "run_text", run_text)
    Shell(spark, job, ask, shown).run()
    assert "line 1, column 1: the rows cannot be shown" in capsys.readouterr().err
    assert "SHOW JOBS" in shown.file.getvalue()  # type: ignore[attr-defined]
