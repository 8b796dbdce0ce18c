"""What many lives exercised, and the story of one that went wrong."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from tests.simulation.edge_answers import EDGE_KINDS
from tests.simulation.faults import KINDS
from tests.simulation.life import Verdict
from tests.simulation.scenarios import to_json
from tests.simulation.servers import Answering

__all__ = ["ENOUGH_LIVES", "missing", "story", "summary"]

ENOUGH_LIVES: Final = 500
"""In so many lives everything happens that can happen."""

_FIRST: Final = 40
_LAST: Final = 10
"""So many events of a life are shown, from its begin and from its end."""

_ANSWERS: Final = tuple(how.value for how in Answering)
_EDGES: Final = (
    *(f"{kind}: answered" for kind in sorted(EDGE_KINDS)),
    "answer: INVALID_PARAMETER",
    "answer: NOT_LEADER_FOR_QUEUE",
    "answer: PULL_NOT_FOUND, NO_MESSAGE_IN_QUEUE",
    "answer: PULL_NOT_FOUND, OFFSET_FOUND_NULL",
    "answer: PULL_NOT_FOUND, OFFSET_OVERFLOW_ONE",
    "answer: PULL_OFFSET_MOVED, OFFSET_OVERFLOW_BADLY",
    "answer: PULL_OFFSET_MOVED, OFFSET_TOO_SMALL",
    "answer: PULL_RETRY_IMMEDIATELY, MESSAGE_WAS_REMOVING",
    "answer: PULL_RETRY_IMMEDIATELY, NO_MATCHED_MESSAGE",
    "answer: PULL_RETRY_IMMEDIATELY, OFFSET_OVERFLOW_BADLY",
    "answer: TOPIC_NOT_EXIST",
)
"""Answers at the edge of the protocol, those of a slave that lags among them."""

_DEATHS: Final = tuple(
    f"{name} killed: {step}"
    for name, steps in {
        "query": ("planned", "logged", "committed", "partitioned", "read", "written", "finished"),
        "sink": ("started", "tasks done", "committed"),
    }.items()
    for step in steps
)
_STATES: Final = (
    "a block is stored",
    "a broker asks about a half message",
    "a member joins",
    "a queue that was read is removed",
    "a reader with little memory",
    "a resolver rolls a half message back",
    "a write fails: stored, but not durably",
    "batch jobs",
    "batch run again after a restart",
    "batches",
    "dead letter",
    "executor killed",
    "life over TLS",
    "message stored twice",
    "message that does not decode: null",
    "message that does not decode: skip",
    "messages before the start are left out",
    "messages with other tags are left out",
    "offset committed",
    "pull answered by a slave",
    "query ended by lost messages",
    "query ended with an error",
    "query started again with other options",
    "query went on without lost messages",
    "rows of commits are read by a direct stream",
    "rows of commits are read by a query",
    "sink: batch written again",
    "sink: started again with other options",
    "speculative attempt",
    "staged rows are read",
    "stream recovered from its checkpoint",
    "task attempt failed",
)
_SECTIONS: Final[dict[str, tuple[str, ...]]] = {
    "faults": KINDS,
    "answers": _ANSWERS,
    "answers at the edge of the protocol": _EDGES,
    "deaths": _DEATHS,
    "states": _STATES,
}


def missing(did: Mapping[str, int], lives: int) -> list[str]:
    """Return what has to happen in this number of lives, and did not: the world does too little."""
    if lives < ENOUGH_LIVES:
        return []
    return [kind for kinds in _SECTIONS.values() for kind in kinds if not did.get(kind)]


def summary(did: Counter[str]) -> Iterator[str]:
    """Yield lines with how often everything happened."""
    listed = {kind for kinds in _SECTIONS.values() for kind in kinds}
    sections = _SECTIONS | {"others": tuple(sorted(did.keys() - listed))}
    for title, kinds in sections.items():
        if kinds:
            yield f"{title}:"
            yield from (f"{did[kind]:>9,}  {kind}" for kind in kinds)


def story(verdict: Verdict) -> Iterator[str]:
    """Yield lines that tell a life: what differs from the plainest, its timeline, and who objected."""
    plan = to_json(verdict.plan)
    plan.pop("faults", None), plan.pop("accidents", None)
    yield f"a life with {json.dumps(plan, ensure_ascii=False)}"
    yield from verdict.events[:_FIRST]
    if len(verdict.events) > _FIRST + _LAST:
        yield f"           ... {len(verdict.events) - _FIRST - _LAST:,} more"
    yield from verdict.events[_FIRST:][-_LAST:]
    for name, found in verdict.wrong.items():
        yield f"{name}: {len(found)}"
        yield from (f"  {each}" for each in found[:5])
    yield f"{verdict.rows} rows, {verdict.took_s:.0f} virtual seconds; history {verdict.digest}"
