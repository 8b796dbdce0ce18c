"""What expressions, whose results Spark's tests compare with Flink's, and queries of every form become."""

from __future__ import annotations

import pytest
from tests.support.flink_examples import calls, read_golden, translated
from tests.support.flink_queries import GOLDEN, descriptions


def test_the_golden_file_has_every_expression():
    assert list(read_golden()) == calls()


@pytest.mark.parametrize("call", calls())
def test_a_translation_is_that_of_the_golden_file(call):
    assert translated(call) == read_golden()[call]


def test_queries_become_what_the_golden_file_says():
    assert descriptions() == [f"{each}\n" for each in GOLDEN.read_text(encoding="utf-8")[:-1].split("\n\n")]
