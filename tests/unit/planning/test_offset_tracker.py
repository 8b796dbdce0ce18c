from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from pyspark_rocketmq.planning.offset_tracker import InFlight


def test_the_position_is_the_lowest_that_is_not_finished():
    queue = InFlight(7)
    assert (queue.position, len(queue), queue.span) == (7, 0, 0)
    queue.add([(8, 10), (9, 20), (12, 5)], next_offset=20)
    assert (queue.position, len(queue), queue.bytes, queue.span) == (8, 3, 35, 4)
    queue.finish([9, 12])
    assert (queue.position, queue.bytes) == (8, 10)
    queue.finish([8])
    assert (queue.position, len(queue), queue.bytes) == (20, 0, 0), "filtered offsets count as read"


def test_what_is_not_in_flight_is_ignored():
    queue = InFlight(0)
    queue.add([(0, 1)], next_offset=1)
    queue.finish([5])
    assert queue.position == 0
    queue.finish([0, 0])
    assert (queue.position, queue.bytes) == (1, 0)


def test_what_is_pulled_again_while_it_is_in_flight_counts_once():
    queue = InFlight(0)
    for _ in range(2):  # an operator has reset the group meanwhile
        queue.add([(0, 7)], next_offset=1)
    assert (len(queue), queue.bytes) == (1, 7)
    queue.finish([0])
    queue.finish([0])
    assert (queue.position, queue.bytes) == (1, 0)


@examples(80)
@given(st.lists(st.integers(1, 4), max_size=6), st.randoms(use_true_random=False))
def test_nothing_unfinished_is_ever_passed(pulls, random):
    queue = InFlight(0)
    waiting, end = [], 0
    for count in pulls:
        new = list(range(end, end + count))
        end += count
        queue.add([(offset, 1) for offset in new], next_offset=end)
        waiting += new
        for offset in random.sample(waiting, random.randint(0, len(waiting))):
            waiting.remove(offset)
            queue.finish([offset])
        assert queue.position == min(waiting, default=end)
