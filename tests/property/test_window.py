"""Whatever a broker answers, and in whatever order, the window lets the range pass exactly once, in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.planning.pulling.pull_window import Ask, PullWindow

QUEUE = MessageQueue("orders", "broker-a", 0)


def drain(window: PullWindow[range], answer, order, depth: int, faults=lambda: None) -> list[int]:
    """Play a broker: ``answer(ask)`` gives (next offset, offsets), ``order(n)`` picks whose turn it is."""
    seen: list[int] = []
    in_flight: list[Ask] = []
    for _ in range(20_000):
        if window.done:
            assert window.held_bytes == 0
            return seen
        while len(in_flight) < depth and (ask := window.ask()) is not None:
            assert window.expected <= ask.offset < window.until
            assert 0 < ask.max_messages <= max(window.batch_size, 1)
            assert ask.offset + ask.max_messages <= window.until
            in_flight.append(ask)
        assert in_flight, "nothing is in flight, nothing is asked for, and the range is not done: a stall"
        ask = in_flight.pop(order(len(in_flight)))
        match faults():
            case "lost":
                window.restart()
                in_flight.clear()
                continue
            case "busy":
                window.record_refusal(ask.offset)
                continue
            case "nothing there":
                window.postpone(ask.offset)
                continue
        next_offset, messages = answer(ask)
        window.record_answer(
            ask.offset, next_offset, messages=len(messages), payload=messages, payload_bytes=7
        )
        for taken in window.take():
            seen.extend(o for o in taken.payload if taken.from_offset <= o < taken.until_offset)
        assert window.held_bytes % 7 == 0
        assert window.held_bytes >= 0
    raise AssertionError("the window makes no progress")


@examples(150)
@given(st.data())
def test_unfiltered_range_passes_exactly_once_in_order(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, 1000))
    length = data.draw(st.integers(0, 400))
    limit = data.draw(st.sampled_from([1, 3, 8, 32, 1000]))
    depth = data.draw(st.integers(1, 20))
    rng = data.draw(st.randoms(use_true_random=False))
    window: PullWindow[range] = PullWindow(
        OffsetRange(QUEUE, start, start + length), batch_size=data.draw(st.sampled_from([1, 16, 32, 1024]))
    )

    def answer(ask: Ask) -> tuple[int, range]:
        count = max(1, min(ask.max_messages, limit, rng.randint(1, 1 + limit)))
        return ask.offset + count, range(ask.offset, ask.offset + count)

    kinds = data.draw(st.lists(st.sampled_from(["lost", "busy", "nothing there"]), max_size=3))
    seen = drain(
        window,
        answer,
        rng.randrange,
        depth,
        lambda: rng.choice(kinds) if kinds and rng.random() < 0.1 else None,
    )
    assert seen == list(range(start, start + length))


@examples(100)
@given(st.data())
def test_filtered_range_gives_each_match_once_in_order(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 5000))
    keep = data.draw(st.integers(1, 200))
    depth = data.draw(st.integers(1, 8))
    rng = data.draw(st.randoms(use_true_random=False))
    window: PullWindow[list[int]] = PullWindow(OffsetRange(QUEUE, 0, length), batch_size=4096, filtered=True)

    def answer(ask: Ask) -> tuple[int, list[int]]:
        end = ask.offset + max(800, ask.max_messages)
        matches = [o for o in range(ask.offset, min(end, 6000)) if o % keep == 0]
        if len(matches) > 32:
            return matches[31] + 1, matches[:32]
        return min(end, 6000), matches

    assert drain(window, answer, rng.randrange, depth) == [o for o in range(length) if o % keep == 0]


def test_stride_follows_the_broker() -> None:
    def answer_up_to(limit: int):
        def answer(ask: Ask) -> tuple[int, range]:
            count = min(ask.max_messages, limit)
            return ask.offset + count, range(ask.offset, ask.offset + count)

        return answer

    for limit in (8, 32, 500):
        window: PullWindow[range] = PullWindow(OffsetRange(QUEUE, 0, 20_000), batch_size=1024)
        drain(window, answer_up_to(limit), lambda n: 0, depth=4)
        assert window.stride == limit


def test_expired_messages_are_skipped() -> None:
    window: PullWindow[range] = PullWindow(OffsetRange(QUEUE, 0, 100), batch_size=32)
    ask = window.ask()
    assert ask is not None
    window.record_refusal(ask.offset)
    window.skip_to(64)
    seen = drain(window, lambda a: (a.offset + 8, range(a.offset, a.offset + 8)), lambda n: 0, depth=2)
    assert seen == list(range(64, 100))
