"""Statements of Spark's, or of Flink's, that would change or describe a table of the job, and cannot."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pyspark_rocketmq.sql.statements import CreateTable, SparkStatement

__all__ = ["refuse_on_tables"]

_ROWS: Final = "its rows are messages, which are not changed: INSERT INTO it a row with the same PRIMARY KEY"
_DEFINITION: Final = "its definition is in the job: DROP TABLE {0}, then CREATE TABLE {0}"
_FIRST_WORDS: Final[tuple[tuple[str, str], ...]] = (
    (r"ALTER (?:TABLE|VIEW)", _DEFINITION),
    (r"(?:CREATE OR )?REPLACE TABLE", _DEFINITION),
    (r"DELETE FROM", _ROWS),
    (r"UPDATE", _ROWS),
    (r"MERGE (?:WITH SCHEMA EVOLUTION )?INTO", _ROWS),
    (r"TRUNCATE TABLE", "messages stay in a topic until its retention time is over"),
    (r"ANALYZE TABLE", "a topic has no statistics"),
    (r"SHOW CREATE TABLE", "its definition is in the job, in line {1}"),
    (r"SHOW PARTITIONS", "it has no partitions"),
    (r"(?:MSCK )?REPAIR TABLE", "it has no partitions"),
    (
        r"(?:UN)?CACHE (?:LAZY )?TABLE",
        "it is read again by each query: a query of it may be cached as a view",
    ),
)
_NAME: Final = r" (?:IF EXISTS )?((?:`(?:[^`]|``)+`|[\w.])+)"
_STATEMENTS: Final = tuple(
    (re.compile((words + _NAME).replace(" ", r"\s+"), re.IGNORECASE), instead)
    for words, instead in _FIRST_WORDS
)
_AS: Final = re.compile(
    r"(?:CREATE|REPLACE)\b(?:\s+OR\s+REPLACE)?\s+TABLE\b.*?\bAS\b", re.IGNORECASE | re.DOTALL
)
_EXPLAIN_INSERT: Final = re.compile(r"EXPLAIN\b.*?\bINSERT\s+(?:INTO|OVERWRITE)\s", re.IGNORECASE | re.DOTALL)


def refuse_on_tables(
    statement: SparkStatement, tables: Mapping[str, CreateTable], *, streaming: bool
) -> None:
    """Refuse a statement of Spark's that names a table of the job.

    Parameters
    ----------
    statement : SparkStatement
    tables : mapping of str to CreateTable
        The job's, by name in lower case.
    streaming : bool
        Whether the tables are read as streams.

    Raises
    ------
    SqlError
    """
    text = statement.whole.text
    named = sorted(statement.whole.names & tables.keys())
    if not named:
        return
    if _EXPLAIN_INSERT.match(text):
        statement.position.fail(
            "EXPLAIN of an INSERT into a table of the job is not supported: EXPLAIN its query, or "
            "pyspark-rocketmq sql FILE --explain, which shows the plans of all"
        )
    for pattern, instead in _STATEMENTS:
        found = pattern.match(text)
        if found and (table := tables.get(_key(found[1]))):
            verb = " ".join(text[: found.start(1)].split()).upper()
            line = table.position.line
            statement.position.fail(f"{verb} {table.name.text}: {instead.format(table.name.text, line)}")
    if streaming and _AS.match(text):
        name = tables[named[0]].name.text
        statement.position.fail(
            f"CREATE TABLE … AS reads {name} as a stream: create the table, then INSERT INTO it SELECT …; or "
            "SET 'execution.runtime-mode' = 'batch'"
        )


def _key(name: str) -> str:
    plain = name.replace("`", "").lower()
    return plain.removeprefix("default_catalog.").removeprefix("default_database.")
