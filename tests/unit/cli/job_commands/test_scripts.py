"""Errors of a user's script: its line, and no frame of ours."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from pyspark.errors import AnalysisException

from pyspark_rocketmq.cli.job_commands.scripts import place_errors, run_script
from pyspark_rocketmq.errors import OptionError, RocketMQError


def run(tmp_path: Path, text: str) -> None:
    script = tmp_path / "job.py"
    script.write_text(text)
    with place_errors(script):
        run_script(script, ["one", "two"])


def test_our_error_has_the_scripts_line_and_keeps_its_class(tmp_path: Path) -> None:
    text = (
        "from pyspark_rocketmq.options import SourceOptions, parse_options\n"
        "def deep():\n    return parse_options(SourceOptions, {'topik': 'x'})\n\ndeep()\n"
    )
    with pytest.raises(OptionError) as caught:
        run(tmp_path, text)
    assert str(caught.value).startswith("job.py, line 3: unknown option topik: did you mean topic")
    assert caught.value.facts == {"option": "topik"}


def test_sparks_error_is_one_line(tmp_path: Path) -> None:
    text = "import pyspark.errors as e\n\nraise e.AnalysisException('[X] no column\\nline 2\\nline 3')"
    with pytest.raises(RocketMQError) as caught:
        run(tmp_path, text)
    assert str(caught.value) == "job.py, line 3: [X] no column"
    assert isinstance(caught.value.__cause__, AnalysisException)


def test_another_error_shows_the_scripts_frames_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as caught:
        run(tmp_path, "def price(row):\n    return row['cents']\n\nprice({})\n")
    assert caught.value.exit_code == 1
    shown = capsys.readouterr().err
    assert shown.count('File "') == 2
    assert shown.rstrip().endswith("KeyError: 'cents'")


def test_a_syntax_error_shows_its_line_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        run(tmp_path, "a = 1\nb = (\n")
    shown = capsys.readouterr().err
    assert shown.count('File "') == 1
    assert "line 2" in shown
    assert "SyntaxError: '(' was never closed" in shown


def test_arguments_and_exits_are_the_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, "import sys\nprint(sys.argv[1:])\n")
    assert capsys.readouterr().out == "['one', 'two']\n"
    with pytest.raises(SystemExit) as caught:
        run(tmp_path, "raise SystemExit(3)")
    assert caught.value.code == 3
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "raise KeyboardInterrupt")


def test_no_script(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no such script"):
        run_script(tmp_path / "none.py", [])
