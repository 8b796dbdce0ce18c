from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

from pyspark_rocketmq.demo.orders import MAX_DELAY_MS, PRODUCTS, SPAN_MS, WINDOW_MS, Total, orders

START_MS = 1_767_225_600_000


def test_the_same_seed_gives_the_same_orders():
    assert list(orders(50, start_ms=START_MS, seed=3)) == list(orders(50, start_ms=START_MS, seed=3))
    assert list(orders(50, start_ms=START_MS, seed=3)) != list(orders(50, start_ms=START_MS, seed=4))


def test_orders_fill_the_hour_and_arrive_out_of_order_but_never_by_more_than_the_delay():
    made = list(orders(5_000, start_ms=START_MS))
    times = [order.time_ms for order in made]
    assert min(times) == START_MS
    assert max(times) < START_MS + SPAN_MS
    assert any(later < earlier for earlier, later in pairwise(times))
    newest = START_MS
    for time_ms in times:
        newest = max(newest, time_ms)
        assert newest - time_ms <= MAX_DELAY_MS
    assert {order.product for order in made} == set(PRODUCTS)
    assert len({order.order_id for order in made}) == len(made)
    assert {start for start, _ in (order.window for order in made)} == {
        START_MS + number * WINDOW_MS for number in range(4)
    }


def test_a_message_says_what_the_order_says():
    order = next(orders(1, start_ms=START_MS))
    message = order.to_message("orders")
    body = json.loads(message.body)
    assert (message.keys, message.tags) == (order.order_id, order.country)
    assert body["orderTime"] == "2026-01-01T00:00:00.000Z"
    assert body["quantity"] * body["priceCents"] == order.cents


def test_totals_add_up():
    by_product = Counter[str]()
    whole = Total()
    for order in orders(300, start_ms=START_MS):
        by_product[order.product] += order.cents
        whole += Total(1, order.cents)
    assert whole == Total(300, by_product.total())
