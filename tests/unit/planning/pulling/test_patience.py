"""How long a range has been in trouble, and from when that is counted."""

from __future__ import annotations

from pyspark_rocketmq.planning.pulling.patience import Patience


def test_a_stall_counts_from_its_first_failure() -> None:
    patience = Patience()
    assert patience.stalled_ms(5.0) == 0
    patience.record_failure(10.0, missed=False)
    patience.record_failure(12.0, missed=True)
    assert (patience.stalled_ms(13.0), patience.failures) == (3_000, 2)


def test_progress_ends_a_stall_and_the_next_one_counts_from_its_own_first_failure() -> None:
    patience = Patience()
    patience.record_failure(10.0, missed=False)
    patience.record_progress()
    assert (patience.stalled_ms(11.0), patience.failures) == (0, 0)
    patience.record_failure(20.0, missed=False)
    assert patience.stalled_ms(21.0) == 1_000


def test_what_is_missing_counts_from_the_first_miss() -> None:
    patience = Patience()
    assert patience.missing_ms(10.0) == 0
    patience.record_failure(10.0, missed=True)
    assert patience.missing_ms(12.0) == 2_000
    patience.record_failure(12.0, missed=True)
    assert patience.missing_ms(13.0) == 3_000


def test_progress_between_two_misses_starts_the_count_again() -> None:
    """Else two short absences an hour apart would count as one of an hour, and messages as lost."""
    patience = Patience()
    patience.missing_ms(10.0)
    patience.record_failure(10.0, missed=True)
    patience.record_progress()
    assert patience.missing_ms(3_600.0) == 0


def test_another_failure_between_two_misses_starts_the_count_again() -> None:
    patience = Patience()
    patience.missing_ms(10.0)
    patience.record_failure(10.0, missed=True)
    patience.record_failure(11.0, missed=False)
    assert patience.missing_ms(30.0) == 0


def test_an_answer_is_waited_for_while_it_grows_and_for_the_first_time_whichever_it_is() -> None:
    patience = Patience()
    assert not patience.awaits_late_answer
    assert patience.record_late_answer(10.0, (5, 100))
    assert patience.awaits_late_answer
    assert patience.record_late_answer(11.0, (5, 101))
    assert patience.stalled_ms(12.0) == 2_000, "a wait counts as no progress"
    assert not patience.record_late_answer(12.0, (5, 101)), "no byte came"
    assert not patience.awaits_late_answer
    assert patience.record_late_answer(13.0, (0, 1)), "of the next connection"
    assert not patience.record_late_answer(14.0, (1, 50)), "another answer came instead"


def test_nothing_is_waited_for_if_no_answer_is_arriving() -> None:
    patience = Patience()
    assert not patience.record_late_answer(10.0, None)
    assert not patience.record_late_answer(10.0, (5, 0))
    assert patience.failures == 0
    assert patience.record_late_answer(11.0, (5, 10))
    patience.record_progress()
    assert patience.record_late_answer(12.0, (9, 10)), "the first time-out since then"


def test_after_an_answer_what_arrives_next_is_another_one() -> None:
    """Answers come in any order: one that is not the next in order shows that the link carries."""
    patience = Patience()
    assert patience.record_late_answer(10.0, (5, 100))
    patience.record_answer()
    assert not patience.awaits_late_answer
    assert patience.record_late_answer(11.0, (6, 50))
    assert patience.stalled_ms(12.0) == 2_000, "an answer out of order is no progress of the range"
