"""Convert the lines of a query log to the data of the page's charts."""

# Facts (StreamingQueryProgress.json of Spark 4.3): `durationMs` has the parts of a batch beside
# `triggerExecution`, which is the total; `eventTime.watermark` is ISO 8601; `stateOperators` has numRowsTotal
# and memoryUsedBytes; offsets of a source are objects or JSON texts, as the source wrote them.

from __future__ import annotations

import heapq
import json
import math
import os
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.offsets.stream_offset import SourceOffset, offset_of_rocketmq

__all__ = ["BatchPoint", "QueryHistory", "QueryLogReader"]

_KEPT: Final = 300
_RUNS: Final = 50
_QUEUES: Final = 16
"""How many queues of a batch are kept and shown by name: the page shows fewer, and all batches each time."""
_WHOLE: Final = "triggerExecution"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPoint:
    """A finished micro-batch.

    Parameters
    ----------
    batch_id, rows : int, optional
        None if unknown.
    at_ms : int
    input_rate, processed_rate : float
        Rows per second, as Spark reports them.
    duration_ms : Mapping[str, int]
        Per part of the batch.
    state_rows, state_bytes : int
        Totals of all stateful operators.
    watermark_ms : int, optional
    lag : Mapping[str, int]
        Messages stored but not read, per queue of the RocketMQ sources: of the queues that have most.
    other_lag : int
        Those in all other queues.
    queues : int
        The number of all queues.
    """

    batch_id: int | None
    at_ms: int
    rows: int | None
    input_rate: float
    processed_rate: float
    duration_ms: Mapping[str, int]
    state_rows: int
    state_bytes: int
    watermark_ms: int | None
    lag: Mapping[str, int]
    other_lag: int = 0
    queues: int = 0

    @classmethod
    def of(cls, progress: Mapping[str, Any], at_ms: int) -> BatchPoint:
        """Parse Spark's report of a batch."""
        state = progress.get("stateOperators") or []
        parts = dict(progress.get("durationMs") or {})
        whole = parts.pop(_WHOLE, None)
        lag = _lag(progress.get("sources") or [])
        shown = heapq.nlargest(_QUEUES, lag, key=lag.__getitem__)
        if whole is not None:
            parts["other"] = max(0, whole - sum(parts.values()))
        return cls(
            batch_id=progress["batchId"],
            at_ms=at_ms,
            rows=progress.get("numInputRows", 0),
            input_rate=_number(progress.get("inputRowsPerSecond")),
            processed_rate=_number(progress.get("processedRowsPerSecond")),
            duration_ms=parts,
            state_rows=sum(each.get("numRowsTotal", 0) for each in state),
            state_bytes=sum(each.get("memoryUsedBytes", 0) for each in state),
            watermark_ms=_moment((progress.get("eventTime") or {}).get("watermark")),
            lag={name: lag[name] for name in shown},
            other_lag=sum(lag.values()) - sum(lag[name] for name in shown),
            queues=len(lag),
        )


@dataclass(slots=True)
class QueryHistory:
    """A run of a query, and its last batches.

    Parameters
    ----------
    failed : bool
    reason, trace : str, optional
        The last cause of a failure, and the exception as Spark reports it.
    started_ms : int
        The time of its start; of its first known event, if the log's part with its start was replaced.
    restarted : bool
        A later run of the same query exists.
    groups : tuple of str
        The consumer groups for which it commits offsets.
    """

    run_id: str
    query_id: str = ""
    name: str | None = None
    started_ms: int = 0
    seen_ms: int = 0
    ended: bool = False
    failed: bool = False
    reason: str | None = None
    trace: str | None = None
    restarted: bool = False
    groups: tuple[str, ...] = ()
    batches: deque[BatchPoint] = field(default_factory=lambda: deque(maxlen=_KEPT))

    def take(self, event: Mapping[str, Any]) -> None:
        """Add a line of the log. Fields that a newer release may add are ignored."""
        self.seen_ms = int(event["at"])
        self.started_ms = self.started_ms or self.seen_ms
        match event["event"]:
            case "started":
                self.query_id, self.name = event["queryId"], event.get("name")
                self.started_ms = self.seen_ms
            case "progress":
                progress = event["progress"]
                self.query_id = self.query_id or progress["id"]
                self.name = self.name or progress.get("name")
                self.batches.append(BatchPoint.of(progress, self.seen_ms))
                self.groups = _groups(progress.get("sources") or [])
            case "terminated":
                self.ended, self.reason, self.trace = True, event.get("reason"), event.get("trace")
                self.failed = bool(event.get("failed", self.reason))


class QueryLogReader:
    """Follows the files of a `QueryLog`. Each call reads only new lines.

    Parameters
    ----------
    folder : Path
    """

    nothing = "no query has written its log yet"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, tuple[int, int]] = {}
        self._runs: dict[str, QueryHistory] = {}
        self._lock = threading.Lock()

    def look(self) -> tuple[QueryHistory, ...]:
        """Return the runs: failures that were not restarted first, then running ones, then the newest.

        Raises
        ------
        OptionError
            The folder cannot be read.
        """
        with self._lock:
            try:
                return self._look()
            except OSError as error:
                raise OptionError(
                    f"the query log cannot be read: {error.strerror}", folder=error.filename or self._folder
                ) from error

    def _look(self) -> tuple[QueryHistory, ...]:
        files: list[tuple[Path, os.stat_result]] = []
        for file in self._folder.glob("*.jsonl"):
            with suppress(FileNotFoundError):  # deleted since the folder was listed
                files.append((file, file.stat()))
        there = {file for file, _ in files}
        self._read = {file: known for file, known in self._read.items() if file in there}
        for file, stat in sorted(files, key=lambda each: each[1].st_mtime)[-_RUNS:]:
            inode, offset = self._read.get(file, (stat.st_ino, 0))
            if inode != stat.st_ino or stat.st_size < offset:  # the file was rotated
                offset = 0
            if stat.st_size <= offset:
                continue
            with suppress(FileNotFoundError):
                self._read[file] = (stat.st_ino, offset + self._take(file, offset))
        known = sorted(self._runs.values(), key=lambda run: run.seen_ms)
        self._runs = {run.run_id: run for run in known[-_RUNS:]}
        newest: dict[str, int] = {}
        for run in self._runs.values():
            newest[run.query_id] = max(run.started_ms, newest.get(run.query_id, 0))
        for run in self._runs.values():
            run.restarted = bool(run.query_id) and run.started_ms < newest[run.query_id]
        return tuple(sorted(self._runs.values(), key=_place))

    def _take(self, file: Path, offset: int) -> int:
        """Add the complete lines from there on, and return their number of bytes."""
        with file.open("rb") as source:
            source.seek(offset)
            data = source.read()
        whole = data[: data.rfind(b"\n") + 1]
        for line in whole.splitlines():
            try:
                event = json.loads(line)
                run = self._runs.get(event["runId"]) or QueryHistory(event["runId"])
                run.take(event)
                self._runs[run.run_id] = run
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
                continue  # a line that a crash truncated, or not a line of ours
        return len(whole)


def _place(run: QueryHistory) -> tuple[bool, bool, int]:
    failed = run.failed and not run.restarted
    return (not failed, run.ended, -run.seen_ms)


def _groups(sources: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the groups for which these sources commit."""
    ends = [_offset(source.get("endOffset")) for source in sources]
    return tuple(sorted({end.source.group or "" for end in ends if end and end.source.commits} - {""}))


def _lag(sources: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    lag: dict[str, int] = {}
    for source in sources:
        end, newest = _offset(source.get("endOffset")), _offset(source.get("latestOffset"))
        if end is None or newest is None:
            continue
        for queue, offset in newest.offsets.items():
            name = f"{queue.topic} {queue.broker_name}:{queue.queue_id}"
            lag[name] = max(0, offset - end.offsets.get(queue, offset))
    return lag


def _offset(value: Any) -> SourceOffset | None:
    text = value if isinstance(value, str) or value is None else json.dumps(value)
    try:
        return offset_of_rocketmq(text)
    except OptionError:
        return None


def _moment(text: str | None) -> int | None:
    if text is None:
        return None
    moment = int(datetime.fromisoformat(text).timestamp() * 1000)
    return moment or None  # Spark reports 1970 as long as there is no watermark


def _number(value: Any) -> float:
    """Return a rate. Spark omits infinite rates."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0
