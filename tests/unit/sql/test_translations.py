"""Each expression whose result Spark's tests compare with Flink's keeps its translation.

``tests/golden/flink_translations.txt`` has them to read. ``REWRITE_GOLDEN=1`` writes it again: then run
``tests/spark/test_sql_functions.py``, which evaluates them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.support.flink_examples import of_rows, of_values

from pyspark_rocketmq.sql.flinksql import Relation, translate
from pyspark_rocketmq.sql.statements import Position, Query

GOLDEN = Path(__file__).parents[2] / "golden" / "flink_translations.txt"


def test_the_translations_are_those_of_the_golden_file():
    found = []
    for example in [*of_values(), *of_rows()]:
        text = f"SELECT {example.call} FROM t"
        query = Query(text, frozenset(re.findall(r"\w+", text.lower())), Position(1, 1))
        made = translate(query, {"t": Relation()}).text
        found.append(f"{example.call}\n    {made.removeprefix('SELECT ').removesuffix(' FROM t')}\n")
    if os.environ.get("REWRITE_GOLDEN"):
        GOLDEN.write_text("\n".join(found), encoding="utf-8")
    assert GOLDEN.read_text(encoding="utf-8").split("\n\n") == "\n".join(found).split("\n\n")
