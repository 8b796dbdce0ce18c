"""The shell's prompt: when a statement ends, what is completed, what the history keeps."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor

import pytest
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from tests.support.cli import CommandLine
from tests.support.wait import eventually

from pyspark_rocketmq.cli.shell.completion import candidates
from pyspark_rocketmq.cli.shell.prompt import history_file, is_complete, make_prompt

TABLES = {"orders": ("order_id", "product"), "people": ("id", "name")}


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ("quit", True),
        ("HELP", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT ';", False),
        ("SELECT ';';", True),
        ("SELECT 1 /* ;", False),
        ("SELECT 1; -- last", True),
        ("EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1;", False),
        ("EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; END;", True),
    ],
)
def test_a_statement_ends_with_its_semicolon(text, complete):
    assert is_complete(text) is complete


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SELECT * FROM or", ["orders", "ORDER BY"]),
        ("SELECT pro FROM orders WHERE pro", ["product"]),
        ("SELECT orders.pr", ["product"]),
        ("SELECT * FROM people WHERE pro", []),
        ("INSERT INTO PEO", ["people"]),
        ("SET 'runt", ["runtimeMode"]),
        ("RESET outp", ["outputMode"]),
        ("SELECT ", []),
        ("des", ["DESCRIBE"]),
    ],
)
def test_tables_columns_settings_and_keywords_are_completed(text, found):
    assert [name for name, _ in candidates(text, TABLES)] == found


def test_a_statement_of_several_lines_is_entered_and_remembered(tmp_path):
    history = tmp_path / "history"
    with create_pipe_input() as keys:
        prompt = make_prompt(lambda: TABLES, history, input=keys, output=DummyOutput())
        keys.send_text("SELECT 1\r, 2;\r")
        assert prompt.prompt() == "SELECT 1\n, 2;"
        with ThreadPoolExecutor(1) as pool:
            typed = pool.submit(prompt.prompt)
            keys.send_text("SELECT product FROM peo\t")
            eventually(lambda: prompt.default_buffer.text.endswith("people"), what="the table's name")
            keys.send_text(";\r")
            assert typed.result(60) == "SELECT product FROM people;"
        keys.send_text("\x1b[A\r")  # the key up
        assert prompt.prompt() == "SELECT product FROM people;"
        keys.send_text("SELECT\x03")
        with pytest.raises(KeyboardInterrupt):
            prompt.prompt()
        keys.send_text("\x04")
        with pytest.raises(EOFError):
            prompt.prompt()
    assert "+SELECT product FROM people;" in history.read_text()


def test_only_its_owner_reads_the_history(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = history_file()
    assert file == tmp_path / "state" / "pyspark-rocketmq" / "sql-history"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_without_a_place_for_it_the_history_ends_with_the_shell(tmp_path, monkeypatch, capsys):
    (tmp_path / "state").write_text("no folder")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert history_file() is None
    assert "warning: no history is kept (XDG_STATE_HOME names its folder): " in capsys.readouterr().err
    with create_pipe_input() as keys:
        prompt = make_prompt(lambda: TABLES, None, input=keys, output=DummyOutput())
        for typed in ("SELECT 1;\r", "\x1b[A\r"):
            keys.send_text(typed)
            assert prompt.prompt() == "SELECT 1;"


def test_a_shell_needs_a_terminal(capsys, monkeypatch):
    cli = CommandLine(capsys, monkeypatch, None)
    found = cli("sql")
    assert (found.code, "a shell needs a terminal: name a file, or - for standard input" in found.err) == (
        2,
        True,
    )
    found = cli("sql", "--check")
    assert (found.code, "--check, --explain and --json need a file" in found.err) == (2, True)
