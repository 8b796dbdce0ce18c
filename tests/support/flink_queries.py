"""What the queries of ``tests/golden/flink_queries.sql`` become: their translations, steps and rows.

``python -m tests.support.flink_queries`` writes ``flink_queries.txt`` again: read the difference. What such
queries give in Spark is tested in ``tests/spark``.
"""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from pyspark_rocketmq.options import JobOptions, parse_options
from pyspark_rocketmq.sql.flinksql import JobQueries, Relation, Translated
from pyspark_rocketmq.sql.parse import parse_statements
from pyspark_rocketmq.sql.statements import CreateTable, CreateView, SparkStatement

__all__ = ["GOLDEN", "descriptions"]

GOLDEN: Final = Path(__file__).parents[1] / "golden" / "flink_queries.txt"


def descriptions() -> list[str]:
    """Return the views and queries of the file, each with what it becomes."""
    queries, options, names = JobQueries(), parse_options(JobOptions, {}), list[str]()
    found = []
    for statement in parse_statements(GOLDEN.with_suffix(".sql").read_text(encoding="utf-8")):
        match statement:
            case CreateTable():
                queries.table(statement, options)
                names.append(statement.name.key)
            case CreateView():
                view = queries.view(statement, names, options)
                found.append(f"view {statement.name.text}\n{_described(view)}")
            case SparkStatement():
                made = queries.query(statement.whole, names, options)
                found.append(f"{statement.whole.text}\n{_described(made)}")
            case _:
                raise AssertionError(statement)
    return found


def _described(made: Translated) -> str:
    lines = []
    for step in made.steps:
        lines += [f"{step.name}: {'changes of ' if step.changes else ''}{step.text}", repr(step.operation)]
    plain = Relation()
    known = {
        field.name: getattr(made.rows, field.name)
        for field in fields(Relation)
        if field.repr and getattr(made.rows, field.name) != getattr(plain, field.name)
    }
    lines += [made.text.strip(), ", ".join(f"{name}={_sorted(value)}" for name, value in known.items())]
    numbers: dict[str, str] = {}  # of the steps of this query
    text = "".join(f"    {line}\n" for line in lines)
    return re.sub(r"__state\d+", lambda name: numbers.setdefault(name[0], f"__state{len(numbers)}"), text)


def _sorted(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else value


if __name__ == "__main__":
    GOLDEN.write_text("\n".join(descriptions()), encoding="utf-8")
