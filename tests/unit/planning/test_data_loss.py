from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import DataLossError
from pyspark_rocketmq.model import LostRange, MessageQueue, OffsetRange
from pyspark_rocketmq.planning.data_loss import (
    LossDecision,
    PullVerdict,
    decide_hidden,
    decide_loss,
    decide_moved_back,
    decide_replaced,
)

QUEUE = MessageQueue("orders", "broker-a", 3)
WANTED = OffsetRange(QUEUE, 100, 200)


@pytest.mark.parametrize(
    ("verdict", "bound", "resume", "condition"),
    [
        (PullVerdict.BELOW_MIN, 150, 150, "OFFSETS_EXPIRED"),
        (PullVerdict.BELOW_MIN, 101, 101, "OFFSETS_EXPIRED"),
        (PullVerdict.BELOW_MIN, 200, 200, "OFFSETS_EXPIRED"),
        (PullVerdict.BELOW_MIN, 5_000, 200, "OFFSETS_EXPIRED"),
        (PullVerdict.BELOW_MIN, 99, 100, "OFFSETS_EXPIRED"),
        (PullVerdict.REMOVED, 150, 150, "OFFSETS_EXPIRED"),
        (PullVerdict.REMOVED, 5_000, 200, "OFFSETS_EXPIRED"),
        (PullVerdict.REMOVED, 99, 100, "OFFSETS_EXPIRED"),
        (PullVerdict.BEYOND_MAX, 0, 200, "OFFSET_WENT_BACK"),
        (PullVerdict.BEYOND_MAX, 100, 200, "OFFSET_WENT_BACK"),
        (PullVerdict.QUEUE_GONE, 0, 200, "QUEUE_LOST"),
    ],
)
def test_loss_is_skipped_and_counted_or_raised(
    verdict: PullVerdict, bound: int, resume: int, condition: str
) -> None:
    lost = LostRange(OffsetRange(QUEUE, 100, resume), condition)
    assert decide_loss(WANTED, verdict, bound, fail_on_data_loss=False) == LossDecision(resume, lost)
    with pytest.raises(DataLossError) as caught:
        decide_loss(WANTED, verdict, bound, fail_on_data_loss=True)
    error = caught.value
    assert error.condition == condition
    assert error.facts == {
        "condition": condition,
        "queue": "orders@broker-a:3",
        "from_offset": 100,
        "until_offset": resume,
    }
    assert "failOnDataLoss=false" in str(error)
    assert f"continues at {resume}" in str(error)
    assert CAUSES[verdict] in str(error)


CAUSES = {
    PullVerdict.BELOW_MIN: "the queue now begins at",
    PullVerdict.REMOVED: "deleted the files",
    PullVerdict.BEYOND_MAX: "the queue now ends at",
    PullVerdict.QUEUE_GONE: "does not exist any more",
}


@pytest.mark.parametrize(("lowest", "highest"), [(0, 0), (0, 60), (40, 60)])
def test_a_stream_whose_queue_went_back_goes_on_at_its_end_and_repeats_nothing(
    lowest: int, highest: int
) -> None:
    found = decide_moved_back(QUEUE, 90, min_offset=lowest, max_offset=highest, fail_on_data_loss=False)
    assert found == highest


def test_a_queue_that_went_back_fails_by_name() -> None:
    with pytest.raises(DataLossError, match=r"holds \[10, 60\).*up to 90.*continues at 60") as caught:
        decide_moved_back(QUEUE, 90, min_offset=10, max_offset=60, fail_on_data_loss=True)
    assert caught.value.condition == "OFFSET_WENT_BACK"
    assert not caught.value.retriable


def test_a_message_in_the_place_of_another_fails_by_name_or_passes() -> None:
    decide_replaced(QUEUE, 89, stored_at_ms=1_000, found_ms=2_000, fail_on_data_loss=False)
    with pytest.raises(DataLossError, match=r"message at 89 was stored at 2000, .* there at 1000") as caught:
        decide_replaced(QUEUE, 89, stored_at_ms=1_000, found_ms=2_000, fail_on_data_loss=True)
    assert caught.value.condition == "OFFSET_WENT_BACK"


@pytest.mark.parametrize(("position", "unread"), [(7, 3), (10, 0), (12, 0)])
def test_a_hidden_queue_is_a_loss_only_with_unread_messages(position: int, unread: int) -> None:
    assert decide_hidden(QUEUE, position, max_offset=10, fail_on_data_loss=False) == unread
    if not unread:
        assert decide_hidden(QUEUE, position, max_offset=10, fail_on_data_loss=True) == 0
        return
    with pytest.raises(DataLossError, match=r"3 unread .* to 3 or less: raise it to 4 or more") as caught:
        decide_hidden(QUEUE, position, max_offset=10, fail_on_data_loss=True)
    assert caught.value.condition == "QUEUE_LOST"
