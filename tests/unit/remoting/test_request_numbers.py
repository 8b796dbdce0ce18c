"""When a request's turn has come: after the answers to those that were sent before it."""

from __future__ import annotations

import random

import pytest

from pyspark_rocketmq.remoting.request_numbers import RequestNumbers

LAST = 0x7FFFFFFF
NEVER = -float("inf")


def test_numbers_begin_again_after_the_greatest() -> None:
    numbers = RequestNumbers(first=LAST - 1)
    assert [numbers.take() for _ in range(4)] == [LAST - 1, LAST, 0, 1]
    assert RequestNumbers().take() == 1


def test_only_answers_to_earlier_requests_count() -> None:
    numbers = RequestNumbers()
    assert numbers.answered_before(1) == NEVER
    numbers.record_answer(3, 10.0)
    assert numbers.answered_before(3) == NEVER
    assert numbers.answered_before(4) == 10.0
    numbers.record_answer(9, 20.0)
    assert numbers.answered_before(4) == 10.0, "a later answer does not hide the one that counts"
    assert numbers.answered_before(10) == 20.0
    numbers.record_answer(2, 30.0)
    assert numbers.answered_before(4) == numbers.answered_before(10) == 30.0
    assert numbers.answered_before(2) == NEVER


def test_a_request_without_an_answer_does_not_become_a_late_one_when_numbers_begin_again() -> None:
    numbers = RequestNumbers()
    numbers.record_answer(LAST - 1, 10.0)
    for number in range(100):
        numbers.record_answer(number, 20.0 + number)
    assert numbers.answered_before(LAST) == 10.0
    assert numbers.answered_before(50) == 69.0
    numbers.record_answer(LAST, 200.0)
    assert numbers.answered_before(50) == 200.0


@pytest.mark.parametrize("first", [1, LAST - 500])
def test_as_if_every_answer_were_kept(first: int) -> None:
    chance, numbers, now_s = random.Random(first), RequestNumbers(first), 0.0
    in_flight: list[int] = []
    answered: list[tuple[int, float]] = []  # positions, which do not begin again
    sent = [numbers.take() for _ in range(1_000)]
    for position in range(1_000):
        in_flight.append(position)
        now_s += chance.choice((0.001, 0.02, 0.3))
        if chance.random() < 0.9:
            over = in_flight.pop(chance.randrange(len(in_flight)) if chance.random() < 0.3 else 0)
            numbers.record_answer(sent[over], now_s)
            answered.append((over, now_s))
        for waiting in in_flight[:3]:
            exact = max((at_s for other, at_s in answered if other < waiting), default=NEVER)
            told = numbers.answered_before(sent[waiting])
            assert told == exact or exact - 0.05 < told <= exact


def test_an_answer_is_recorded_anew_after_50_ms() -> None:
    numbers = RequestNumbers()
    numbers.record_answer(1, 10.0)
    numbers.record_answer(2, 10.02)
    assert numbers.answered_before(3) == 10.0
    numbers = RequestNumbers()
    numbers.record_answer(1, 0.0)
    numbers.record_answer(2, 0.05)
    assert numbers.answered_before(3) == 0.05


def test_half_of_all_numbers_are_later() -> None:
    numbers = RequestNumbers()
    numbers.record_answer(1, 10.0)
    assert numbers.answered_before(2**30) == 10.0
    assert numbers.answered_before(2**30 + 1) == NEVER


def test_a_request_is_due_after_the_answer_to_an_earlier_one() -> None:
    numbers = RequestNumbers()
    assert numbers.is_due(1)
    numbers.record_answer(2, 10.0)
    assert [numbers.is_due(number) for number in (1, 2, 3)] == [False, False, True]
    numbers.record_answer(1, 20.0)
    assert [numbers.is_due(number) for number in (1, 2, 3)] == [False, True, True]


def test_what_is_kept_has_a_bound() -> None:
    numbers = RequestNumbers()
    for number in range(1, 2_000):
        numbers.record_answer(number, float(number))
    assert numbers.answered_before(2_000) == 1_999.0
    assert numbers.answered_before(2) == NEVER
