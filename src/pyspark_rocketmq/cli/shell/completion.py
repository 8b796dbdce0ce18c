"""What a person may type next: keywords, settings, tables, and the columns of the tables in the statement."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from pyspark_rocketmq.options import JobOptions, option_reference

__all__ = ["StatementCompleter", "candidates"]

KEYWORDS: Final = (
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP BY",
    "ORDER BY",
    "LIMIT",
    "JOIN",
    "CREATE TABLE",
    "CREATE VIEW",
    "CREATE FUNCTION",
    "INSERT INTO",
    "VALUES",
    "DESCRIBE",
    "DROP TABLE",
    "SET",
    "RESET",
    "SHOW JOBS",
    "STOP JOB",
    "HELP",
    "QUIT",
)
_WORD: Final = re.compile(r"[\w.`-]*$")
_SETTING: Final = re.compile(r"^\s*(?:RE)?SET\s+'?[\w.-]*$", re.IGNORECASE)


def candidates(text: str, tables: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, str]]:
    """Yield what may replace the word at the end of a text, and that word.

    Parameters
    ----------
    text : str
        The statement up to the cursor.
    tables : mapping of str to iterable of str
        The columns of the tables and views.
    """
    word = _WORD.search(text)
    assert word is not None
    before = word.group()
    if _SETTING.match(text):
        names: Iterable[str] = sorted(row.name for row in option_reference(JobOptions))
        yield from ((name, before) for name in names if name.lower().startswith(before.lower()))
        return
    table, dot, start = before.rpartition(".")
    if dot:
        columns = {name.lower(): columns for name, columns in tables.items()}.get(
            table.strip("`").lower(), ()
        )
        yield from ((name, start) for name in columns if name.lower().startswith(start.lower()))
        return
    used = {used.lower() for used in re.findall(r"\w+", text)}
    columns_of_used = [
        column for name, columns in tables.items() if name.lower() in used for column in columns
    ]
    for name in dict.fromkeys((*sorted(tables), *columns_of_used, *KEYWORDS)):
        if before and name.lower().startswith(before.lower()):
            yield name, before


class StatementCompleter(Completer):
    """Completes statements.

    Parameters
    ----------
    tables : callable
        Returns the columns of the tables and views, by their names.
    """

    def __init__(self, tables: Callable[[], Mapping[str, Iterable[str]]]) -> None:
        self._tables = tables

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Yield the completions at the cursor."""
        del complete_event
        for name, word in candidates(document.text_before_cursor, self._tables()):
            yield Completion(name, start_position=-len(word))
