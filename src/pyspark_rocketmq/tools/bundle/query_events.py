"""The recent events of a query log, without what users' data can be in."""

# Facts (StreamingQueryProgress.json of Spark 4.3)
# - Descriptions of sources and sinks contain their options, `observedMetrics` values of the user's rows, and
#   an exception's text may quote a row. A Python traceback quotes lines of the user's program.
# - What remains is numbers, RocketMQ's offsets (which contain no secrets), and the frames of a trace.

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.offsets.stream_offset import offset_of_rocketmq

__all__ = ["recent_events"]

_TEXTS: Final = ("id", "runId", "name", "timestamp")
_NUMBERS: Final = (
    "batchId",
    "batchDuration",
    "numInputRows",
    "inputRowsPerSecond",
    "processedRowsPerSecond",
    "durationMs",
    "stateOperators",
)
_OFFSETS: Final = ("startOffset", "endOffset", "latestOffset")
_FRAME: Final = re.compile(r'\s*(?:at [\w.$<>/]+\([^)"]*\)|File "[^"]+", line \d+, in [\w<>]+)')
_OURS: Final = re.compile(r"pyspark_rocketmq\.errors\.\w+: .+")
_CLASS: Final = re.compile(r"(?:Caused by: )?([A-Za-z_][\w.$]*(?:Error|Exception|Exit|Interrupt))\b")


def recent_events(file: Path, since_ms: int) -> Iterator[dict[str, Any]]:
    """Yield the events of one run since a time, with the numbers of each progress report and the offsets.

    Of a failure, the error of this package or the class of another's, and the trace's frames without texts.

    Raises
    ------
    OSError
        The file cannot be read.
    """
    with file.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:  # the last line of a log that is being written
                continue
            if isinstance(event, dict) and _number(event.get("at")) >= since_ms:
                yield _harmless(event)


def _harmless(event: Mapping[str, Any]) -> dict[str, Any]:
    kept = {
        name: event[name] for name in ("event", "at", "runId", "queryId", "name", "failed") if name in event
    }
    if isinstance(report := event.get("progress"), dict):
        kept["progress"] = _progress(report)
    if isinstance(trace := event.get("trace"), str):
        named = _OURS.findall(trace) or _CLASS.findall(trace)
        kept["reason"] = named[-1] if named else None
        kept["frames"] = [line.strip() for line in trace.splitlines() if _FRAME.fullmatch(line)]
    return kept


def _progress(report: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {name: report[name] for name in _TEXTS if isinstance(report.get(name), str)}
    kept |= {name: _numbers(report[name]) for name in _NUMBERS if name in report}
    times = report.get("eventTime")
    if isinstance(times, dict):  # times as texts
        kept["eventTime"] = {name: at for name, at in times.items() if re.fullmatch(r"[\dT:.Z+-]+", str(at))}
    sources = report.get("sources")
    kept["sources"] = [_source(each) for each in sources if isinstance(each, dict)] if sources else []
    if isinstance(sink := report.get("sink"), dict):
        kept["sink"] = _numbers(sink)
    return kept


def _source(source: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = _numbers({name: value for name, value in source.items() if name not in _OFFSETS})
    return kept | {name: _offset(source[name]) for name in _OFFSETS if name in source}


def _offset(value: Any) -> Any:
    """Return an offset of ours. Those of other sources may contain anything."""
    text = value if isinstance(value, str) or value is None else json.dumps(value)
    try:
        offset = offset_of_rocketmq(text)
    except OptionError:
        return "of another release"
    return "of another source" if offset is None else offset.to_dict()


def _numbers(value: Any) -> Any:
    """Return only the numbers in a value."""
    match value:
        case dict():
            return {
                k: _numbers(each) for k, each in value.items() if isinstance(each, int | float | dict | list)
            }
        case list():
            return [_numbers(each) for each in value if isinstance(each, int | float | dict | list)]
    return value


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) else 0
