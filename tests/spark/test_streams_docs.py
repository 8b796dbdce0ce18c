"""The code of docs/streams.md, as it stands there."""

from __future__ import annotations

import re

import pytest
from tests.spark.streams_support import FLOWS, table
from tests.support.page_code import DOCS, python_blocks


@pytest.mark.since_spark("4.1")
def test_the_page_runs(spark, capsys):
    programs = python_blocks("streams.md")
    assert len(programs) == 4
    names: dict[str, object] = {}
    for block in programs:
        exec(block, names)
    (explained,) = re.findall(
        r"```\n(job .*?)```", (DOCS / "streams.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert explained in capsys.readouterr().out
    assert table(names["traffic"].test(FLOWS), "ProjectName", "total_out", "total") == [
        ("ProjectName-0", 18, 4),
        ("ProjectName-1", 12, 3),
        ("ProjectName-2", 15, 3),
    ]
    seen = names["visits"].test([{"userId": "1", "url": "a"}, {"userId": "1", "url": "b"}])
    assert seen == [{"user": "1", "visits": 2}]
