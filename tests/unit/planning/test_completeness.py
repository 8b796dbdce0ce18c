from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import DataLossError
from pyspark_rocketmq.model import CorruptMessage, LostRange, MessageQueue, OffsetRange, RangeReport
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
    with pytest.raises(DataLossError, match="skipped do not make up 10") as raised:
        Account([RANGE]).add(RangeReport(offsets=RANGE, rows=8, filtered=0, gaps=0, skipped=skipped))
    assert raised.value.condition == "RANGE_UNACCOUNTED"
    assert raised.value.facts["range"] == RANGE


NEXT = OffsetRange(QUEUE, 10, 15)
OTHER = OffsetRange(QUEUE, 20, 25)


@pytest.mark.parametrize(
    ("planned", "read", "strange"),
    [
        ([RANGE, NEXT], [RANGE], NEXT),
        ([RANGE], [RANGE, NEXT], NEXT),
        ([NEXT, RANGE], [RANGE, OTHER], NEXT),
        ([RANGE, NEXT], [RANGE, NEXT, NEXT], RANGE),  # one of them was read twice
        ([], [OTHER], OTHER),
    ],
)
def test_a_range_that_is_missing_or_was_not_planned_is_a_defect(planned, read, strange):
    account = Account(planned)
    for offsets in read:
        account.add(RangeReport(offsets=offsets, rows=len(offsets), filtered=0, gaps=0))
    with pytest.raises(DataLossError, match="not those that were planned") as raised:
        account.close(sum(map(len, read)))
    assert raised.value.condition == "RANGE_UNACCOUNTED"
    assert raised.value.facts["range"] == strange


@pytest.mark.parametrize("rows", [0, 9, 11])
def test_a_row_that_is_missing_or_too_many_is_a_defect(rows):
    account = Account([RANGE])
    account.add(RangeReport(offsets=RANGE, rows=10, filtered=0, gaps=0))
    with pytest.raises(DataLossError, match=f"{rows} rows were returned, but 10 read") as raised:
        account.close(rows)
    assert raised.value.facts["range"] == RANGE


def test_a_task_of_nothing_hands_out_nothing():
    Account([]).close(0)
    with pytest.raises(DataLossError, match="1 rows were returned, but 0 read"):
        Account([]).close(1)


def test_gaps_and_losses_are_part_of_the_sum_and_five_ranges_are_shown():
    ranges = [OffsetRange(QUEUE, start, start + 10) for start in range(0, 60, 10)]
    account = Account(ranges)
    for offsets in ranges:
        lost = (
            LostRange(OffsetRange(QUEUE, offsets.from_offset, offsets.from_offset + 3), "OFFSETS_EXPIRED"),
        )
        account.add(RangeReport(offsets=offsets, rows=0, filtered=0, gaps=7, lost=lost))
    account.close(0)
    shown = ", ".join(map(str, ranges[:5]))
    assert str(account) == f"60 offsets = 0 rows + 42 gaps + 18 lost of {shown} and 1 more"
    assert str(Account(ranges[:5])) == f"50 offsets = 0 rows of {shown}"
