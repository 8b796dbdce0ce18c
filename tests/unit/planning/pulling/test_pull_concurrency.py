from __future__ import annotations

from collections import deque

import pytest

from pyspark_rocketmq.planning.pulling.pull_concurrency import LEAST, MOST, PullDepth, Sent


def limit_after(*, way_s: float, served: float, fixed: int | None = None, pause_s: float = 0.0) -> int:
    """Read 20,000 answers of a broker that gives so many a second and is so many seconds away."""
    depth = PullDepth(fixed)
    under_way: deque[tuple[float, Sent]] = deque()
    now = idle_from = 0.0
    for _ in range(20_000):
        while len(under_way) < depth.limit:
            idle_from = max(idle_from, now + way_s / 2) + 1 / served
            under_way.append((idle_from + way_s / 2, depth.record_sent(now)))
        here, sent = under_way.popleft()
        now = max(now + pause_s, here)
        depth.record_answer(1, sent, now)
    return depth.limit


@pytest.mark.parametrize(
    ("way_s", "served", "low", "high"),
    [
        pytest.param(0.000_1, 20_000, LEAST, LEAST, id="on one machine"),
        pytest.param(0.000_5, 20_000, LEAST, LEAST, id="in one room"),
        pytest.param(0.000_5, 200, LEAST, LEAST, id="a broker that is slow, not far"),
        pytest.param(0.01, 5_000, 100, 110, id="twice what the way holds"),
        pytest.param(0.05, 20_000, MOST, MOST, id="never more than that"),
    ],
)
def test_a_long_way_is_kept_full(way_s, served, low, high):
    assert low <= limit_after(way_s=way_s, served=served) <= high


def test_a_reader_that_is_slow_itself_asks_for_no_more():
    assert limit_after(way_s=0.01, served=5_000, pause_s=0.005) == LEAST


def test_a_number_that_was_given_holds():
    assert limit_after(way_s=0.05, served=20_000, fixed=3) == 3


def test_answers_that_come_together_count_together():
    depth = PullDepth()
    sent = depth.record_sent(1.0)
    depth.record_answer(100, sent, 2.0)
    assert depth.limit == 200
    assert depth.record_sent(2.0) == (2.0, 100)


@pytest.mark.parametrize("fixed", [None, 64])
def test_a_server_bounds_the_depth_for_good(fixed: int | None) -> None:
    depth = PullDepth(fixed)
    depth.bound(8)
    assert depth.limit == 8
    depth.record_answer(100, depth.record_sent(0.0), 0.1)
    assert depth.limit == 8
