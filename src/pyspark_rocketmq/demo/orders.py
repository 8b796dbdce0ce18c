"""An hour of an outdoor shop's orders, the same for the same seed, and their expected totals."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

from pyspark_rocketmq.model import OutgoingMessage

__all__ = ["MAX_DELAY_MS", "PRODUCTS", "SPAN_MS", "WINDOW_MS", "Order", "Total", "Totals", "Window", "orders"]

SPAN_MS: Final = 60 * 60_000
"""The time span of the orders' timestamps."""

WINDOW_MS: Final = 15 * 60_000

MAX_DELAY_MS: Final = 60_000
"""The maximum delay between placing and arrival of an order. Orders arrive slightly out of order."""

PRODUCTS: Final[Mapping[str, int]] = {
    "Tent": 24_900,
    "Sleeping bag": 12_950,
    "Backpack": 9_995,
    "Hiking boots": 15_900,
    "Rain jacket": 11_990,
    "Camping stove": 5_495,
    "Head torch": 2_999,
    "Water bottle": 1_795,
}
"""Price of each product in cents."""

_POPULARITY: Final = (3, 5, 8, 7, 9, 6, 12, 20)
_COUNTRIES: Final = ("AT", "CH", "DE", "ES", "FR", "IT", "NL", "PL")
_DISCOUNTS: Final = (0, 0, 0, 5, 10, 20)

Window: TypeAlias = tuple[int, str]
"""A window's start, in milliseconds since the epoch, and a product."""


@dataclass(frozen=True, slots=True)
class Order:
    """One order. ``time_ms`` is the time it was placed, in milliseconds since the epoch."""

    order_id: str
    time_ms: int
    product: str
    country: str
    quantity: int
    price_cents: int

    @property
    def window(self) -> Window:
        """Its window and product."""
        return self.time_ms - self.time_ms % WINDOW_MS, self.product

    @property
    def cents(self) -> int:
        """Its revenue."""
        return self.quantity * self.price_cents

    def to_message(self, topic: str) -> OutgoingMessage:
        """Return the order as a message: a JSON body, its id as key, its country as tag."""
        placed = datetime.fromtimestamp(self.time_ms / 1000, UTC)
        body = {
            "orderId": self.order_id,
            "orderTime": placed.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "product": self.product,
            "quantity": self.quantity,
            "priceCents": self.price_cents,
        }
        return OutgoingMessage(topic, json.dumps(body).encode(), tags=self.country, keys=self.order_id)


@dataclass(frozen=True, slots=True)
class Total:
    """A number of orders and their revenue."""

    orders: int = 0
    cents: int = 0

    def __add__(self, other: Total) -> Total:
        return Total(self.orders + other.orders, self.cents + other.cents)


Totals: TypeAlias = Mapping[Window, Total]
"""The totals per window and product."""


def orders(count: int, *, start_ms: int, seed: int = 7) -> Iterator[Order]:
    """Return ``count`` orders of the hour that begins at ``start_ms``, in order of arrival."""
    source = random.Random(seed)  # noqa: S311 - a shop's customers, no secret
    products = tuple(PRODUCTS)
    for number in range(count):
        arrival_ms = start_ms + number * SPAN_MS // count
        product = source.choices(products, _POPULARITY)[0]
        yield Order(
            order_id=f"order-{number:07d}",
            time_ms=max(start_ms, arrival_ms - source.randrange(MAX_DELAY_MS)),
            product=product,
            country=source.choice(_COUNTRIES),
            quantity=source.randint(1, 3),
            price_cents=PRODUCTS[product] * (100 - source.choice(_DISCOUNTS)) // 100,
        )
