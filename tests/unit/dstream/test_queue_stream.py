"""What a batch takes of a queue, without Spark."""

from __future__ import annotations

import pickle
import queue
from datetime import UTC, datetime

import pytest

from pyspark_rocketmq.dstream import queue_stream as module
from pyspark_rocketmq.dstream.queue_stream import QueueMaker, queue_stream
from pyspark_rocketmq.errors import OptionError

TIME = datetime(2026, 1, 1, tzinfo=UTC)


class Context:
    """A SparkContext whose RDDs are lists, and an RDD of it."""

    @property
    def context(self) -> Context:
        return self

    def parallelize(self, elements: list[int]) -> list[int]:
        return elements


@pytest.fixture
def reported(monkeypatch) -> list[int]:
    counts: list[int] = []
    monkeypatch.setattr(module, "streaming_context", lambda sc: None)
    monkeypatch.setattr(module, "report_input", lambda *args, messages, about: counts.append(messages))
    return counts


@pytest.mark.parametrize("kind", [queue.Queue, queue.SimpleQueue])
def test_a_batch_takes_what_is_there_or_as_much_as_it_may(kind, reported):
    waiting = kind()
    for number in range(5):
        waiting.put(number)
    maker = QueueMaker(waiting, 3)
    assert [maker(TIME, Context()) for _ in range(3)] == [[0, 1, 2], [3, 4], []]
    assert reported == [3, 2, 0]
    waiting.put(5)
    assert QueueMaker(waiting, None)(TIME, Context()) == [5]


def test_a_queue_cannot_be_in_a_checkpoint():
    with pytest.raises(OptionError, match="cannot be in a checkpoint"):
        pickle.dumps(QueueMaker(queue.Queue(), None))


@pytest.mark.parametrize(("waiting", "most"), [([], None), (queue.Queue(), 0)])
def test_what_is_no_queue_is_said(waiting, most):
    with pytest.raises(OptionError):
        queue_stream(None, waiting, most)
