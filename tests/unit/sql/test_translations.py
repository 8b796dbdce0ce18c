"""Each expression whose result Spark's tests compare with Flink's keeps its translation."""

from __future__ import annotations

import pytest
from tests.support.flink_examples import calls, read_golden, translated


def test_the_golden_file_has_every_expression():
    assert list(read_golden()) == calls()


@pytest.mark.parametrize("call", calls())
def test_a_translation_is_that_of_the_golden_file(call):
    assert translated(call) == read_golden()[call]
