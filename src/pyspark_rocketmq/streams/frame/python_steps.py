"""Python functions on records that could not be lifted, combined to one function on Arrow batches.

A step of `mapInArrow` gets the record as text in one column and passes all other columns through. If a
record's function raises, the record continues with the error's text in a separate column. A later Spark
expression decides how to handle it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, assert_never

import pyarrow as pa

from pyspark_rocketmq.streams.plan.choices import FunctionKind

__all__ = [
    "ADVICE",
    "BEAT",
    "BODY",
    "ERROR",
    "FIRST_MS",
    "LAST_MS",
    "TAG",
    "TIME",
    "VALUE",
    "WINDOW",
    "PythonSteps",
    "Step",
    "describe_error",
    "to_json",
    "to_plain",
    "to_text",
]

VALUE: Final = "__value"
TIME: Final = "__time"
BEAT: Final = "__beat"
TAG: Final = "__tag"
ERROR: Final = "__error"
WINDOW: Final = "__window"
BODY: Final = "__body"

ADVICE: Final = (
    "onError('skip') leaves such records out and counts them, onError('dead-letters', topic=...) keeps them"
)
"""The message of a query that fails at a record."""

_BYTES: Final = (bytes, bytearray, memoryview)
_MAX_ERROR: Final = 500
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH_SCALE: Final = 1000
FIRST_MS: Final = -62_135_596_800_000
LAST_MS: Final = 253_402_300_799_999
"""The years 1 to 9999. Another time is a mistake: Python has no such dates, and windows of it overflow."""


def to_json(value: Any) -> str:
    """Return a value as JSON text, with dates, decimals and bytes in Spark's format."""
    text = json.dumps(value, ensure_ascii=False, default=to_plain)
    # Half of a surrogate pair is no UTF-8. JSON can have it as an escape, as the record that it came from.
    return text if _is_utf8(text) else json.dumps(value, default=to_plain)


def to_plain(value: Any) -> str:
    """Return what JSON does not have as a text: bytes in Base64, other values as Python shows them."""
    return base64.b64encode(value).decode() if isinstance(value, _BYTES) else str(value)


def describe_error(error: Exception) -> str:
    """Return what a user's function has raised, as a text that Spark can hold."""
    text = f"{type(error).__name__}: {error}"
    return text.encode("utf-8", "backslashreplace").decode()


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def to_text(value: Any) -> str:
    """Return a value as a message's body: texts unchanged, others as JSON."""
    if isinstance(value, bytes):
        return value.decode()
    return value if isinstance(value, str) else to_json(value)


@dataclass(frozen=True, slots=True)
class Step:
    """One function."""

    name: str
    how: FunctionKind
    function: Callable[[Any], Any]


@dataclass(slots=True)
class _Row:
    """A record between steps: its origin and its current value."""

    index: int
    value: Any
    text: str | None = None
    time_us: int | None = None
    tag: str | None = None
    error: str | None = None
    body: bytes | None = None


class PythonSteps:
    """The function for ``mapInArrow``.

    Parameters
    ----------
    steps : tuple of Step
    text : bool
        Whether the first step gets text. Otherwise it gets the JSON value.
    keeps_value : bool
        No step changes the record: its text stays unchanged.
    strict : bool
        An exception fails the task instead of marking the record.
    """

    def __init__(self, steps: tuple[Step, ...], *, text: bool, keeps_value: bool, strict: bool) -> None:
        self._steps = steps
        self._text = text
        self._keeps_value = keeps_value
        self._strict = strict

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the batches after the steps."""
        for batch in batches:
            yield self.apply(batch)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch after the steps, with the columns for tag, body and error at its end."""
        texts = batch.column(VALUE).to_pylist()
        beats = batch.column(BEAT).to_pylist() if BEAT in batch.schema.names else [False] * len(texts)
        rows: list[_Row] = []
        for index, (text, beat) in enumerate(zip(texts, beats, strict=True)):
            rows += [_Row(index, None)] if beat else self._run_steps(index, text)
        kept = batch.take(pa.array([row.index for row in rows], pa.int64()))
        columns = {name: kept.column(at) for at, name in enumerate(kept.schema.names)}
        if not self._keeps_value:
            columns[VALUE] = pa.array([row.text for row in rows], pa.string())
        if any(step.how == "time" for step in self._steps):
            columns[TIME] = _replace_times(rows, columns[TIME])
        if TAG not in columns or any(step.how in {"label", "key"} for step in self._steps):
            columns[TAG] = pa.array([row.tag for row in rows], pa.string())
        if any(step.how == "serialize" for step in self._steps):
            columns[BODY] = pa.array([row.body for row in rows], pa.binary())
        columns[ERROR] = pa.array([row.error for row in rows], pa.string())
        return pa.RecordBatch.from_pydict(columns)

    def _run_steps(self, index: int, text: str | None) -> list[_Row]:
        """Return the results of the steps for one record."""
        name = "parse"
        try:
            rows = [_Row(index, _load(text, as_text=self._text))]
            for step in self._steps:
                name = step.name
                rows = [after for row in rows for after in _apply(step, row)]
            if not self._keeps_value:
                for row in rows:
                    row.text = to_json(row.value)
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            return [self._mark_failed(index, text, name, error)]
        return rows

    def _mark_failed(self, index: int, text: str | None, step: str, error: Exception) -> _Row:
        if self._strict:
            error.add_note(f"at a record, in {step}: {ADVICE}")
            raise error
        return _Row(index, None, text, error=f"{step}: {describe_error(error)}"[:_MAX_ERROR])


def _load(text: str | None, *, as_text: bool) -> Any:
    if text is None:
        raise ValueError("the record has no body")
    return text if as_text else json.loads(text)


def _apply(step: Step, row: _Row) -> Iterable[_Row]:
    match step.how:
        case "map":
            row.value = step.function(row.value)
            return [] if row.value is None else [row]
        case "flatMap":
            return [
                _Row(row.index, item, time_us=row.time_us, tag=row.tag)
                for item in step.function(row.value)
                if item is not None
            ]
        case "filter":
            return [row] if step.function(row.value) else []
        case "forEach":
            step.function(row.value)
        case "time":
            row.time_us = _to_microseconds(step.function(row.value))
        case "serialize":
            row.body = _as_bytes(step.function(row.value))
        case "label" | "key":
            tag = step.function(row.value)
            row.tag = tag if isinstance(tag, str) and _is_utf8(tag) else to_json(tag)
        case other:
            assert_never(other)
    return [row]


def _as_bytes(body: Any) -> bytes:
    if isinstance(body, str):
        return body.encode()
    if not isinstance(body, bytes | bytearray):
        raise TypeError(f"a serializer returns bytes or a text, not {type(body).__name__}")
    return bytes(body)


def _to_microseconds(moment: Any) -> int:
    """Convert milliseconds since the epoch, or a datetime, to microseconds."""
    if isinstance(moment, datetime):
        if moment.utcoffset() is None:  # workers may be in several zones
            raise ValueError(f"the time {moment} has no time zone: use replace(tzinfo=...)")
        return (moment - _EPOCH) // _MICROSECOND
    milliseconds = int(moment)
    if not FIRST_MS <= milliseconds <= LAST_MS:
        raise ValueError(f"no time: {milliseconds} ms since the epoch")
    return milliseconds * _EPOCH_SCALE


def _replace_times(rows: list[_Row], before: pa.Array) -> pa.Array:
    old = before.cast(pa.int64()).to_pylist()  # Spark's timestamps are microseconds
    new = [was if row.time_us is None else row.time_us for row, was in zip(rows, old, strict=True)]
    return pa.array(new, before.type)
