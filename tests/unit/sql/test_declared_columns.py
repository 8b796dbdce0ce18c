"""The declared columns of a table: names with signs are names for Spark, too."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_rocketmq.sql import declared_columns
from pyspark_rocketmq.sql.declared_columns import add_computed, mark_watermark
from pyspark_rocketmq.sql.parse import parse_statements
from pyspark_rocketmq.sql.statements import CreateTable


class Rows:
    """Rows whose columns are selected, and that are given a watermark."""

    def __init__(self, *columns: str) -> None:
        self.columns = columns
        self.given: tuple[Any, ...] = ()

    def withWatermark(self, *given: str) -> Rows:
        self.given = given
        return self

    select = withWatermark


def declared(name: str) -> CreateTable:
    (table,) = parse_statements(
        f"CREATE TABLE t ({name} TIMESTAMP(3), WATERMARK FOR {name} AS {name} - INTERVAL '5' SECOND) "
        "WITH ('connector' = 'rocketmq', 'topic' = 't')"
    )
    assert isinstance(table, CreateTable)
    return table


@pytest.mark.parametrize("name", ["`a.b`", "`a b`", "`a-b`", "`a``b`", "`1`"])
def test_the_column_of_a_watermark_may_have_any_name(name: str) -> None:
    rows: Any = Rows()
    mark_watermark(declared(name), rows)
    assert rows.given == (name, "5 SECOND")


def test_columns_that_are_not_declared_are_selected_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declared_columns.F, "col", str)
    rows: Any = Rows("a.b", "c.d")
    add_computed(declared("`a.b`"), rows)
    assert rows.given == ("`a.b`", "`c.d`")
