"""The prompt: several lines up to a semicolon, a history, completion."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from prompt_toolkit import PromptSession
from prompt_toolkit.application.current import get_app
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from sqlglot import TokenType
from sqlglot.errors import TokenError

from pyspark_rocketmq.cli.shell.completion import StatementCompleter
from pyspark_rocketmq.sql.dialect import JobDialect

__all__ = ["COMMANDS", "history_file", "is_complete", "make_prompt"]

COMMANDS: Final = frozenset({"quit", "exit", "help"})
"""Words that need no semicolon."""

_PROMPT: Final = "sql> "


def is_complete(text: str) -> bool:
    """Return whether a text can run: a command, or statements up to a semicolon."""
    if not text.strip() or text.strip().lower() in COMMANDS:
        return True
    try:
        tokens = JobDialect().tokenize(text)
    except TokenError:  # a quote or a comment is open
        return False
    words = [token.text.upper() for token in tokens]
    if not tokens or tokens[-1].token_type != TokenType.SEMICOLON:
        return False
    in_set = words[:4] == ["EXECUTE", "STATEMENT", "SET", "BEGIN"] or words[:3] == [
        "BEGIN",
        "STATEMENT",
        "SET",
    ]
    return not in_set or words[-2] == "END"


def history_file() -> Path | None:
    """Return the file of the history, which only its owner can read: statements may have secrets.

    None if there is no place for it, such as in a container whose user has no home directory, which a warning
    says.
    """
    try:
        state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
        file = Path(state) / "pyspark-rocketmq" / "sql-history"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
    except (OSError, RuntimeError) as error:
        print(f"warning: no history is kept (XDG_STATE_HOME names its folder): {error}", file=sys.stderr)
        return None
    return file


def make_prompt(
    tables: Callable[[], Mapping[str, Iterable[str]]], history: Path | None, **terminal: Any
) -> PromptSession[str]:
    """Return the prompt.

    Parameters
    ----------
    tables : callable
        Returns the columns of the tables and views, by their names.
    history : Path, optional
        None keeps it until the end of the shell.
    **terminal
        ``input`` and ``output`` of prompt_toolkit; by default the process's.
    """
    bindings = KeyBindings()

    @bindings.add("enter", filter=Condition(lambda: is_complete(get_app().current_buffer.text)))
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    return PromptSession(
        _PROMPT,
        multiline=True,
        history=InMemoryHistory() if history is None else FileHistory(str(history)),
        completer=StatementCompleter(tables),
        complete_while_typing=False,
        key_bindings=bindings,
        prompt_continuation=lambda width, _line, _soft: " " * (width - 2) + "> ",
        **terminal,
    )
