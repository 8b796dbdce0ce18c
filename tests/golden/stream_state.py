"""What streams keep in Spark's state store.

``checkpoints/<release>/streams`` has it as each release wrote it. Run it by hand for a new release:
``python -m tests.golden.stream_state 0.2.0``.
"""

from __future__ import annotations

import base64
import json
import pickle
import sys
import zlib
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import DecimalType, DoubleType, LongType, StringType, StructField

from pyspark_rocketmq.streams import StreamBuilder
from pyspark_rocketmq.streams.compile import aggregators as folds
from pyspark_rocketmq.streams.compile.aggregator_columns import Folded
from pyspark_rocketmq.streams.compile.stateful import GrowingGroups, LatestPairs
from pyspark_rocketmq.streams.compile.window_state import FiredWindows
from pyspark_rocketmq.streams.plan.emission import Schedule
from pyspark_rocketmq.streams.plan.nodes import LatestJoin

CHECKPOINTS = Path(__file__).with_name("checkpoints")


class Spark:
    """What a stateful processor asks of Spark, for one key. ``values`` and ``schemas`` are the checkpoint."""

    def __init__(self, values: dict[str, Any] | None = None) -> None:
        self.values = values or {}
        self.schemas: dict[str, Any] = {}

    def getValueState(self, name: str, schema: Any) -> Any:
        self.schemas[name] = schema.jsonValue()
        return SimpleNamespace(
            get=lambda: self.values.get(name),
            update=lambda value: self.values.__setitem__(name, tuple(value)),
            clear=lambda: self.values.pop(name, None),
        )

    def registerTimer(self, expiryTimestampMs: int) -> None:  # noqa: N803
        """Nothing is due: the watermark stays at 0."""

    def run(self, processor: StatefulProcessor, key: Any, rows: Iterable[Any]) -> list[Any]:
        processor.init(self)  # type: ignore[arg-type]
        now: Any = SimpleNamespace(getCurrentWatermarkInMs=lambda: 0)
        return list(processor.handleInputRows(key, iter(rows), now))


class Longest:
    """A user's accumulator of the newer API."""

    def __init__(self) -> None:
        self.found = ""

    def addValue(self, value: Any) -> None:
        self.found = max(self.found, value, key=len)

    def result(self, context: Any) -> str:  # noqa: ARG002
        return self.found

    def clone(self) -> Longest:
        return Longest()


class Listed:
    """A user's accumulator of the older API."""

    def createAccumulator(self) -> list[str]:
        return []

    def accumulate(self, accumulator: list[str], value: str) -> list[str]:
        return [*accumulator[-2:], value]

    def getValue(self, accumulator: list[str]) -> str:
        return "".join(accumulator)


# Columns of a row: two keys, the time, then these.
_TEXT, _MANY, _NUMBER, _DECIMAL, _JSON = range(3, 8)
_FOLDS: dict[str, tuple[folds.Fold, Any]] = {
    "rows": (folds.Count(None), LongType()),
    "values": (folds.Count(_TEXT), LongType()),
    "sum": (folds.Sum(_NUMBER), DoubleType()),
    "exact_sum": (folds.Sum(_DECIMAL, 2), DecimalType(38, 2)),
    "avg": (folds.Average(_NUMBER), DoubleType()),
    "exact_avg": (folds.Average(_DECIMAL, 6), DecimalType(38, 6)),
    "least": (folds.Extreme(_NUMBER, least=True), DoubleType()),
    "greatest": (folds.NumberOrText(_TEXT, _NUMBER, least=False), StringType()),
    "first": (folds.ByTime(_TEXT, 2, earliest=True), StringType()),
    "last": (folds.ByTime(_DECIMAL, 2, earliest=False), DecimalType(38, 2)),
    "concat": (folds.Concat(_TEXT, 2, "|"), StringType()),
    "different": (folds.Different(_TEXT, counted=True), LongType()),
    "few": (folds.NearlyDifferent(_TEXT), LongType()),
    "many": (folds.NearlyDifferent(_MANY), LongType()),
    "reduce": (folds.Reduce(lambda left, right: left + right, _JSON), StringType()),
    "newer": (folds.User(Longest(), _JSON), StringType()),
    "older": (folds.ClassicUser(Listed(), _JSON), StringType()),
}


def _folded() -> Folded:
    user = {"reduce", "newer", "older"}
    return Folded(
        2,
        outputs=[StructField(name, kind) for name, (_, kind) in _FOLDS.items()],
        folds=[fold for fold, _ in _FOLDS.values()],
        aliases=list(_FOLDS),
        user=[name in user for name in _FOLDS],
        _places={("time", None): 2, ("text", None): _JSON},
    )


def _row(key: tuple[Any, ...], number: int) -> tuple[Any, ...]:
    text = None if number % 5 == 0 else str(number % 7)
    cents = Decimal(number * 37).scaleb(-2)
    return (*key, number, text, f"v{number}", number / 8, cents, json.dumps(f"{number},"))


_WINDOW, _GROUP = (1_000_010_000_000, "{}"), (5, '{"user":"a"}')
_FIRST, _THEN = range(600), range(600, 640)


def _pairs() -> LatestPairs:
    left, right = StreamBuilder("l").source("t"), StreamBuilder("r").source("t")
    node = LatestJoin(
        name="join#1", left=left._node, right=right._node, outer=False, function=lambda *pair: pair
    )
    return LatestPairs(node, strict=True)


def _value(at: int, side: int, value: object) -> tuple[Any, ...]:
    return "key", at, side, json.dumps(value)


Steps = tuple[Callable[[], StatefulProcessor], Any, list[Any], list[Any]]
STATE: dict[str, Steps] = {
    "windows.json": (
        lambda: FiredWindows(Schedule(10_000, 5_000, before_ms=3_000), _folded()),
        _WINDOW,
        [_row(_WINDOW, number) for number in _FIRST],
        [_row(_WINDOW, number) for number in _THEN],
    ),
    "groups.json": (
        lambda: GrowingGroups(_folded()),
        _GROUP[1:],
        [_row(_GROUP, number) for number in _FIRST],
        [_row(_GROUP, number) for number in _THEN],
    ),
    "latest.json": (
        _pairs,
        ("key",),
        [_value(1, 0, {"a": "é"}), _value(2, 1, [1, None])],
        [_value(3, 1, "new"), _value(4, 0, 5)],
    ),
}
"""By file: a processor, its key, the rows of a query's first batches, and those of its later ones."""


def to_document(spark: Spark) -> dict[str, Any]:
    values = {
        name: [_pack(field) if isinstance(field, bytes) else field for field in value]
        for name, value in spark.values.items()
    }
    return {"schemas": spark.schemas, "values": values}


def from_document(document: dict[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(_unpack(field) if isinstance(field, dict) else field for field in value)
        for name, value in document["values"].items()
    }


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return values with what is pickled in them: equal pickles may have different bytes."""
    return {
        name: tuple(pickle.loads(field) if isinstance(field, bytes) else field for field in value)
        for name, value in values.items()
    }


def _pack(pickled: bytes) -> dict[str, str]:
    return {"pickled": base64.b64encode(zlib.compress(pickled, 9)).decode()}


def _unpack(field: dict[str, str]) -> bytes:
    return zlib.decompress(base64.b64decode(field["pickled"]))


def main(release: str) -> None:
    """Write this release's files."""
    folder = CHECKPOINTS / release / "streams"
    folder.mkdir(parents=True, exist_ok=True)
    for name, (make, key, rows, _) in STATE.items():
        spark = Spark()
        spark.run(make(), key, rows)
        (folder / name).write_text(json.dumps(to_document(spark), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
