"""Which messages of transactional writes are rows."""

from __future__ import annotations

import numpy as np
import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.record.decode.commit_marks import Decided


@pytest.mark.parametrize("ranges", [(), ((3, 5),), ((0, 1), (3, 5), (5, 6), (8, 8), (9, 12))])
def test_offsets_of_committed_ranges_are_rows(ranges: tuple[tuple[int, int], ...]) -> None:
    decided = Decided("orders", "orders-commits", ranges)
    expected = [any(begin <= offset < end for begin, end in ranges) for offset in range(14)]
    assert [decided.has(offset) for offset in range(14)] == expected
    listed = decided.lists(np.arange(14))
    assert (listed.dtype, listed.tolist()) == (np.dtype(np.bool_), expected)


@pytest.mark.parametrize(
    ("by", "read"),
    [
        ("orders-commits", "and orders-commits was read"),
        ("", "and it was not found: its broker may be down. No commit topic was read"),
    ],
)
def test_messages_of_another_commit_topic_are_an_error_that_names_it(by: str, read: str) -> None:
    decided = Decided("orders", by)
    decided.check([None, by or None])
    with pytest.raises(OptionError, match="payments-commits decides which") as caught:
        decided.check([None, "payments-commits"])
    assert read in str(caught.value)
