"""Nexmark's events: people, auctions and bids, from a fixed seed.

Of 50 events, one is a person, three are auctions and 46 are bids. Half of the bids are for a hot auction,
most are from a hot bidder; ids, prices, channels and times follow the public description of Nexmark's
generator. The same arguments give the same events on every machine.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

__all__ = ["AUCTION", "BID", "DELAY", "PERSON", "Event", "events"]

PERSON, AUCTION, BID = 0, 1, 2
DELAY: Final = timedelta(seconds=4)
"""How late an event may be: the watermark of the tables."""

_START: Final = datetime(2026, 1, 31, 7, 59, 0, tzinfo=UTC)
_PEOPLE, _AUCTIONS, _ALL = 1, 3, 50
_FIRST_ID: Final = 1_000
_FIRST_CATEGORY: Final = 10
_HOT: Final = 100
_COLD_AUCTIONS, _COLD_SELLERS, _COLD_BIDDERS = 2, 4, 4
"""One of two auctions of a bid is not a hot one, and so on."""
_IN_FLIGHT: Final = 100
_ACTIVE_PEOPLE: Final = 1_000
_LEAD: Final = 10
_STATES: Final = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES: Final = ("Phoenix", "Los Angeles", "Boise", "Portland", "Bend", "Seattle", "Kent", "Cheyenne")
_FIRST_NAMES: Final = ("Peter", "Paul", "Luke", "John", "Vicky", "Kate", "Julie", "Sarah", "Walter")
_LAST_NAMES: Final = ("Shultz", "Abrams", "Spencer", "White", "Walton", "Smith", "Jones", "Noris")
_HOT_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")
_CHANNELS: Final = 10_000
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz "


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Parameters
    ----------
    kind : int
        `PERSON`, `AUCTION` or `BID`.
    at : datetime
        The event time, in UTC.
    values : dict
        Its columns except the times.
    expires : datetime, optional
        The end of an auction.
    """

    kind: int
    at: datetime
    values: dict[str, Any]
    expires: datetime | None = None

    def body(self) -> str:
        """Return the event as the JSON of a message."""
        values = {**self.values, "dateTime": _text(self.at)}
        if self.expires is not None:
            values["expires"] = _text(self.expires)
        return json.dumps({"event_type": self.kind, ("person", "auction", "bid")[self.kind]: values})


def events(count: int, *, rate: int = 100, seed: int = 1, closed: bool = True) -> Iterator[Event]:
    """Yield events.

    Parameters
    ----------
    count, rate : int
        How many, and how many of them in a second of event time.
    seed : int
    closed : bool
        Add one event of each kind an hour later, which moves the watermark past all windows.
    """
    made = _Generator(random.Random(seed), rate)
    for number in range(count):
        yield made.event(number, _START + timedelta(milliseconds=number * 1_000 // rate))
    if closed:
        late = _START + timedelta(milliseconds=count * 1_000 // rate) + timedelta(hours=1)
        for kind in (PERSON, AUCTION, BID):
            yield made.of_kind(kind, count, late)


class _Generator:
    def __init__(self, source: random.Random, rate: int) -> None:
        self._random = source
        self._rate = rate
        self._urls = [self._url() for _ in _HOT_CHANNELS]

    def event(self, number: int, at: datetime) -> Event:
        offset = number % _ALL
        kind = PERSON if offset < _PEOPLE else AUCTION if offset < _PEOPLE + _AUCTIONS else BID
        return self.of_kind(kind, number, at)

    def of_kind(self, kind: int, number: int, at: datetime) -> Event:
        return (self._person, self._auction, self._bid)[kind](number, at)

    def _person(self, number: int, at: datetime) -> Event:
        pick = self._random.choice
        values = {
            "id": _FIRST_ID + _last_person(number),
            "name": f"{pick(_FIRST_NAMES)} {pick(_LAST_NAMES)}",
            "emailAddress": f"{self._word(7).strip()}@{self._word(5).strip()}.com",
            "creditCard": " ".join(f"{self._random.randrange(10_000):04}" for _ in range(4)),
            "city": pick(_CITIES),
            "state": pick(_STATES),
            "extra": self._word(40),
        }
        return Event(PERSON, at, values)

    def _auction(self, number: int, at: datetime) -> Event:
        hot = self._random.randrange(_COLD_SELLERS) > 0
        last = _last_person(number)
        seller = last // _HOT * _HOT if hot else self._any_person(number)
        initial = self._price()
        horizon_ms = _IN_FLIGHT * _ALL // _AUCTIONS * 1_000 // self._rate
        values = {
            "id": _FIRST_ID + _last_auction(number),
            "itemName": self._word(20),
            "description": self._word(60),
            "initialBid": initial,
            "reserve": initial + self._price(),
            "seller": _FIRST_ID + seller,
            "category": _FIRST_CATEGORY + self._random.randrange(5),
            "extra": self._word(80),
        }
        length = timedelta(milliseconds=1 + self._random.randrange(2 * horizon_ms))
        return Event(AUCTION, at, values, at + length)

    def _bid(self, number: int, at: datetime) -> Event:
        last = max(_last_auction(number), 0)
        if self._random.randrange(_COLD_AUCTIONS) > 0:
            auction = last // _HOT * _HOT
        else:
            first = max(last - _IN_FLIGHT, 0)
            auction = first + self._random.randrange(last - first + 1 + _LEAD)
        hot_bidder = _last_person(number) // _HOT * _HOT + 1
        bidder = hot_bidder if self._random.randrange(_COLD_BIDDERS) > 0 else self._any_person(number)
        price = self._price()
        channel, url = self._channel()
        values = {
            "auction": _FIRST_ID + auction,
            "bidder": _FIRST_ID + bidder,
            "price": price,
            "channel": channel,
            "url": url,
            "extra": self._word(30),
        }
        return Event(BID, at, values)

    def _channel(self) -> tuple[str, str]:
        if self._random.randrange(2):
            index = self._random.randrange(len(_HOT_CHANNELS))
            return _HOT_CHANNELS[index], self._urls[index]
        number = self._random.randrange(_CHANNELS)
        known = self._random.randrange(10) > 0
        return f"channel-{number}", self._url() + (
            f"&channel_id={number * 7919 % 1_000_003}" if known else ""
        )

    def _url(self) -> str:
        folders = "/".join(self._word(5).replace(" ", "_") for _ in range(3))
        return f"https://www.nexmark.com/{folders}/item.htm?query=1"

    def _any_person(self, number: int) -> int:
        people = _last_person(number) + 1
        active = min(people, _ACTIVE_PEOPLE)
        return people - active + self._random.randrange(active + _LEAD)

    def _price(self) -> int:
        return round(10 ** (self._random.random() * 6) * 100)

    def _word(self, length: int) -> str:
        return "".join(self._random.choices(_LETTERS, k=length))


def _last_person(number: int) -> int:
    return number // _ALL * _PEOPLE + min(number % _ALL, _PEOPLE - 1)


def _last_auction(number: int) -> int:
    turn, offset = divmod(number, _ALL)
    if offset < _PEOPLE:
        return turn * _AUCTIONS - 1
    return turn * _AUCTIONS + min(offset - _PEOPLE, _AUCTIONS - 1)


def _text(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1_000:03}"
