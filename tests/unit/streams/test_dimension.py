"""Dimension tables in a worker: kept for their time, then read anew."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams.connectors.database import database_url
from pyspark_rocketmq.streams.connectors.dimension import DimensionTable, cached_rows


def test_a_file_is_read_anew_after_its_time(tmp_path):
    file, now = tmp_path / "t.csv", [100.0]
    file.write_text("id,city\n1,Rom\n")

    def rows():
        return cached_rows(str(file), None, 60, clock=lambda: now[0])

    assert rows() == [{"id": "1", "city": "Rom"}]
    file.write_text("id,city\n1,Roma\n2,Wien\n")
    now[0] += 59
    assert rows() == [{"id": "1", "city": "Rom"}]
    now[0] += 1
    assert rows() == [{"id": "1", "city": "Roma"}, {"id": "2", "city": "Wien"}]


def test_a_table_says_what_is_wrong_with_it(tmp_path):
    with pytest.raises(PlanError, match=r"cannot be read.*dimJoin#1"):
        DimensionTable.load(str(tmp_path / "nope.csv"), None, 1, "dimJoin#1")
    (tmp_path / "empty.json").write_text("")
    with pytest.raises(PlanError, match="a first row must be there"):
        DimensionTable.load(str(tmp_path / "empty.json"), None, 1, "dimJoin#1")


def test_urls_of_jdbc_are_those_of_sqlalchemy():
    assert database_url("jdbc:mysql://h:3306/db", "u", "p@ss") == "mysql+pymysql://u:p%40ss@h:3306/db"
    assert database_url("sqlite:////tmp/x.db", None, None) == "sqlite:////tmp/x.db"
