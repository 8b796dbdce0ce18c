"""The command line, run within the test's process."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from pyspark_rocketmq.cli import COMMANDS, main
from pyspark_rocketmq.cli.command_groups import load_command


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


class _Terminal(io.TextIOWrapper):
    """Says that a person types."""

    def isatty(self) -> bool:
        return True


class CommandLine:
    """Runs commands; ``NAMESRV_ADDR`` is what the test says, nothing else."""

    def __init__(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name_server: str | None
    ) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        if name_server is None:
            monkeypatch.delenv("NAMESRV_ADDR", raising=False)
        else:
            monkeypatch.setenv("NAMESRV_ADDR", name_server)

    def __call__(self, *arguments: str, given: str = "", terminal: bool = False) -> Done:
        """Run a command with this standard input, which a person types if it is a terminal."""
        stdin = _Terminal if terminal else io.TextIOWrapper
        self._monkeypatch.setattr(sys, "stdin", stdin(io.BytesIO(given.encode())))
        self._capsys.readouterr()
        code: int | str | None = 0
        try:
            main(arguments)
        except SystemExit as end:
            code = end.code
        assert isinstance(code, int | None)
        return Done(code or 0, *self._capsys.readouterr())


def every_command() -> dict[tuple[str, ...], Any]:
    """Return all commands as click's objects, with their paths."""
    found: dict[tuple[str, ...], Any] = {}
    for name, home in COMMANDS.items():
        command = load_command(name, home)
        inner = getattr(command, "commands", None)
        leaves = {(name,): command} if inner is None else {(name, sub): each for sub, each in inner.items()}
        found.update(leaves)
    return found
