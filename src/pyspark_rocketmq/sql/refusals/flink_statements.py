"""Statements, connectors and types of Flink SQL that have no counterpart here, and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["INSTEAD_OF_CONNECTORS", "INSTEAD_OF_TYPES", "instead_of_statement"]

_CATALOG: Final = "a job's tables are in no catalog; Spark's catalogs are settings, spark.sql.catalog.…"
_MODULE: Final = "functions of other systems are Spark's settings, or CREATE FUNCTION"
_PLAN: Final = "pyspark-rocketmq sql FILE --explain shows the plans of a job"
_JOBS: Final = "it is a command of the shell: pyspark-rocketmq sql without a file"
_JARS: Final = "jars are Spark's setting spark.jars, or USING JAR of CREATE FUNCTION"

_STATEMENTS: Final[Mapping[str, str]] = {
    "CREATE CATALOG": _CATALOG,
    "DROP CATALOG": _CATALOG,
    "USE CATALOG": _CATALOG,
    "SHOW CURRENT": "SELECT current_catalog(), current_database()",
    "LOAD MODULE": _MODULE,
    "UNLOAD MODULE": _MODULE,
    "USE MODULES": _MODULE,
    "SHOW MODULES": _MODULE,
    "SHOW FULL MODULES": _MODULE,
    "SHOW JARS": _JARS,
    "REMOVE JAR": _JARS,
    "EXPLAIN PLAN FOR": _PLAN,
    "EXPLAIN ESTIMATED_COST": _PLAN,
    "EXPLAIN CHANGELOG_MODE": _PLAN,
    "EXPLAIN JSON_EXECUTION_PLAN": _PLAN,
    "EXPLAIN PLAN_ADVICE": _PLAN,
    "COMPILE PLAN": "a query continues from its checkpoint",
    "COMPILE AND": "a query continues from its checkpoint",
    "EXECUTE PLAN": "a query continues from its checkpoint",
    "EXECUTE INSERT": "INSERT INTO",
    "CREATE MATERIALIZED TABLE": "INSERT INTO a table",
    "CREATE MODEL": "CREATE FUNCTION … LANGUAGE PYTHON",
    "SHOW JOBS": _JOBS,
    "STOP JOB": _JOBS,
}


def instead_of_statement(words: Sequence[str]) -> tuple[str, str] | None:
    """Return a statement of Flink's with these first words, and what to write instead."""
    given = " ".join(words).upper() + " "
    return next(
        ((name, instead) for name, instead in _STATEMENTS.items() if given.startswith(f"{name} ")), None
    )


_RATE: Final = "CREATE TABLE … USING rate, Spark's source of numbered rows, in a program; or files"
_CDC: Final = "write the changes to a topic, and read it with 'format' = 'debezium-json' or 'canal-json'"

INSTEAD_OF_CONNECTORS: Final[Mapping[str, str]] = {
    "datagen": _RATE,
    "mysql-cdc": _CDC,
    "postgres-cdc": _CDC,
    "oracle-cdc": _CDC,
    "sqlserver-cdc": _CDC,
    "mongodb-cdc": _CDC,
}
"""What to use in place of connectors of Flink's."""

INSTEAD_OF_TYPES: Final[Mapping[str, str]] = {
    "TIME": "declare a STRING",
    "TIMETZ": "declare a STRING",
    "MULTISET": "declare a MAP of each element to its number",
    "RAW": "declare BYTES",
}
"""What to declare in place of types of Flink's."""
