from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import DataLossError
from pyspark_rocketmq.model import CorruptMessage, MessageQueue, OffsetRange, RangeReport
from pyspark_rocketmq.planning.completeness import Account

QUEUE = MessageQueue("orders", "broker-a", 0)
RANGE = OffsetRange(QUEUE, 0, 10)


def test_skipped_messages_are_part_of_the_sum():
    account = Account([RANGE])
    corrupt = (CorruptMessage(QUEUE, 3, "the body does not decompress"),)
    account.add(RangeReport(offsets=RANGE, rows=7, filtered=1, gaps=0, skipped=2, corrupt=corrupt))
    account.close(7)
    assert account.count("skipped") == 2
    assert (
        str(account) == "10 offsets = 7 rows + 1 filtered + 2 skipped as corrupt of orders@broker-a:0[0, 10)"
    )


def test_rows_with_nulls_are_rows():
    account = Account([RANGE])
    account.add(RangeReport(offsets=RANGE, rows=10, filtered=0, gaps=0, nulled=4))
    account.close(10)
    assert str(account).endswith(", 4 rows with nulls for what does not decode")


@pytest.mark.parametrize("skipped", [-1, 1, 3])
def test_a_sum_that_does_not_add_up_is_a_defect(skipped: int):
    with pytest.raises(DataLossError, match="skipped do not make up 10"):
        Account([RANGE]).add(RangeReport(offsets=RANGE, rows=8, filtered=0, gaps=0, skipped=skipped))
