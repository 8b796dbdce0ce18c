"""Query logs as `QueryLog` writes them, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.offsets.stream_offset import SourceIdentity, SourceOffset

RUN = "6c9ac6ab-7f6c-4f0e-8a39-0d5c8c2b1f10"
QUERY = "0b7f6d3e-1f64-4a0c-9d3b-6f2f0a9a7c55"


def offset(topic: str, ends: dict[int, int], group: str | None = None) -> dict[str, Any]:
    """Return a position in queues of broker-a, as a source reports it."""
    offsets = {MessageQueue(topic, "broker-a", queue): end for queue, end in ends.items()}
    return SourceOffset(
        source=SourceIdentity(topics=(topic,), group=group), offsets=offsets, started_at_ms=1
    ).to_dict()


def progress(
    batch: int, *, read: int, newest: int, queues: int = 4, group: str | None = None, **more: Any
) -> dict[str, Any]:
    """Return Spark's report of a batch that ends at ``read`` of ``newest`` in each queue."""
    return {
        "id": QUERY,
        "runId": RUN,
        "name": "revenue",
        "batchId": batch,
        "numInputRows": 1_000,
        "inputRowsPerSecond": 900.0 + 40 * (batch % 5),
        "processedRowsPerSecond": 1_400.0 + 100 * (batch % 3),
        "durationMs": {
            "addBatch": 300 + 20 * (batch % 4),
            "latestOffset": 40,
            "queryPlanning": 25,
            "walCommit": 60,
            "commitOffsets": 45,
            "triggerExecution": 520 + 20 * (batch % 4),
        },
        "eventTime": {"watermark": "2026-01-31T08:00:00.000Z"},
        "stateOperators": [{"numRowsTotal": 1_200 + batch, "memoryUsedBytes": 900_000 + 1_000 * batch}],
        "sources": [
            {
                "endOffset": offset("orders", dict.fromkeys(range(queues), read), group),
                "latestOffset": offset("orders", {queue: newest + 25 * queue for queue in range(queues)}),
            }
        ],
        **more,
    }


class LogFile:
    """A run's file, line by line."""

    def __init__(self, folder: Path, run_id: str = RUN) -> None:
        self.path = folder / f"{run_id}.jsonl"
        self._run_id = run_id

    def write(self, event: str, at_ms: int, **facts: Any) -> None:
        """Append an event."""
        line = json.dumps({"event": event, "at": at_ms, "runId": self._run_id, **facts})
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
