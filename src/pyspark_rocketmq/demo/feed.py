"""The shop: a thread that sends the orders and sums what it sent."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from types import TracebackType
from typing import Final, Self

from pyspark_rocketmq.client import Client, Producer, ProducerOptions
from pyspark_rocketmq.demo.orders import Order, Total, Totals, Window
from pyspark_rocketmq.errors import RocketMQError

__all__ = ["Feed"]

_BATCH: Final = 500

_PATIENT: Final = ProducerOptions(send_timeout_ms=30_000)
"""The totals are compared exactly: a batch that was sent again, because its answer was late, counts twice."""


class Feed:
    """Sends orders in batches at a steady rate. A context manager that stops the thread at the end.

    Parameters
    ----------
    client : Client
    topic : str
    orders : iterable of Order
    rate : int
        Maximum orders per second; 0 for no limit.
    """

    def __init__(self, client: Client, topic: str, orders: Iterable[Order], *, rate: int) -> None:
        self.sent = 0
        self.done = False
        self._client = client
        self._topic = topic
        self._orders = iter(orders)
        self._rate = rate
        self._expected: defaultdict[Window, Total] = defaultdict(Total)
        self._error: RocketMQError | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    @property
    def expected(self) -> Totals:
        """The totals of the orders sent so far."""
        return dict(self._expected)

    def check(self) -> None:
        """Raise the error that ended the thread, if any.

        Raises
        ------
        RocketMQError
        """
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        clock = self._client.clock
        producer = Producer(self._client, options=_PATIENT)
        start = clock.monotonic()
        try:
            for batch in self._batches():
                producer.send_batch([order.to_message(self._topic) for order in batch])
                for order in batch:
                    self._expected[order.window] += Total(1, order.cents)
                self.sent += len(batch)
                ahead_s = self.sent / self._rate - (clock.monotonic() - start) if self._rate else 0.0
                if self._stopped.wait(max(0.0, ahead_s)):
                    return
            self.done = True
        except RocketMQError as error:
            self._error = error

    def _batches(self) -> Iterator[list[Order]]:
        while batch := list(islice(self._orders, _BATCH)):
            yield batch
