"""How errors leave the command line: the message first, in one line, or as JSON for programs."""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from pyspark_rocketmq.errors import NameServerError, OptionError, RocketMQError, SqlError

__all__ = ["USAGE_EXIT_CODE", "report_error", "report_usage_error"]

USAGE_EXIT_CODE: Final = 2

_JSON_NAMES: Final = {"addr": "address"}
"""Facts whose names in JSON differ from those in the text: every command prints an address as ``address``."""


def report_error(error: RocketMQError, *, as_json: bool) -> int:
    """Print an error of the package to standard error, and return the exit code."""
    code = USAGE_EXIT_CODE if isinstance(error, OptionError | SqlError) else 1
    if as_json:
        _print_json(error.message, type(error).__name__, code, error.facts)
    else:
        _print(str(error))
        if isinstance(error, NameServerError):
            print("  see: pyspark-rocketmq doctor; cluster start starts a RocketMQ here", file=sys.stderr)
    return code


def report_usage_error(error: Any, *, as_json: bool) -> int:
    """Print an error of click to standard error, and return the exit code."""
    message = error.format_message().replace("Value error, ", "")  # pydantic's words
    if not message or type(error).__name__ == "NoArgsIsHelpError":  # a group alone shows its help
        error.show()
        return USAGE_EXIT_CODE
    context = getattr(error, "ctx", None)
    if as_json:
        _print_json(message, "UsageError", error.exit_code, {})
    else:
        _print(message)
        if context is not None:
            print(f"  see: {context.command_path} --help", file=sys.stderr)
    return int(error.exit_code)


def _print(text: str) -> None:
    from rich.console import Console
    from rich.markup import escape

    Console(stderr=True, highlight=False).print(f"[red]error:[/red] {escape(text)}", soft_wrap=True)


def _print_json(message: str, kind: str, code: int, facts: dict[str, Any]) -> None:
    from pyspark_rocketmq.cli.printing import to_plain

    values = {_JSON_NAMES.get(name, name): _plain_fact(value) for name, value in facts.items()}
    told = {"error": message, "type": kind, "exitCode": code, "facts": to_plain(values, names=True)}
    print(json.dumps(told, ensure_ascii=False), file=sys.stderr)


def _plain_fact(value: object) -> object:
    """Return numbers and lists as they are, and everything else (queues, paths) as in the error's text."""
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain_fact(each) for each in value]
    return value if isinstance(value, bool | int | float) else str(value)
