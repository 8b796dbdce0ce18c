"""Spark's errors as users of jobs see them."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.sql.error_positions import reason_of


@pytest.mark.parametrize("call", ["max_by", "min_by"])
def test_a_top_n_that_an_older_spark_lacks_names_the_release(call: str) -> None:
    line = (
        f"[WRONG_NUM_ARGS.WITHOUT_SUGGESTION] The `{call}` requires 2 parameters but the actual number is 3."
    )
    assert "more than one row of each key needs Spark 4.2" in reason_of(line)
