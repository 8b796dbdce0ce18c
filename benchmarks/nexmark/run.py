"""Run Nexmark's jobs on a broker, and compare each result with the calculation in plain Python.

Each job reads the same topic in several micro-batches, until its end. With the queries of a checkout of the
public Nexmark for Flink, their text is unchanged except for the options of tables.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from benchmarks.nexmark.events import Event
from benchmarks.nexmark.expected import EXPECTED, KEYS, Rows
from pyspark_rocketmq.client import Admin, Client, OutgoingMessage, Producer
from pyspark_rocketmq.client.read.message_search import last_messages
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.sql import execute
from pyspark_rocketmq.sql.parse import parse_statements
from pyspark_rocketmq.sql.statements import CreateTable

__all__ = ["JOBS", "TOPIC", "Result", "job_text", "public_job", "run_query", "send_events", "use_blackhole"]

JOBS: Final = Path(__file__).parent / "jobs"
TOPIC: Final = "nexmark"
_BATCH: Final = 500
_WITH: Final = re.compile(r"(PARTITIONED BY \([^)]*\)\s*)?WITH\s*\(.*\)", re.DOTALL)
_RESULT: Final = re.compile(r"WITH \([^)]*'topic' = 'nexmark_[^)]*\)")
_PATIENCE_S: Final = 1_200
_PUBLIC_OPTIONS: Final = {"q4": ", 'keyColumns' = 'id'"}
"""More options of a sink: rows that are taken back need its keys."""
_PUBLIC_BEFORE: Final = {
    "q13": """CREATE TEMPORARY VIEW side_input AS
        SELECT id AS key, CONCAT('side ', id) AS value FROM range(10000);""",
    "q14": """CREATE TEMPORARY FUNCTION count_char
        AS 'benchmarks.nexmark.functions.count_char' LANGUAGE PYTHON;""",
}


@dataclass(frozen=True, slots=True)
class Result:
    """How a query ran.

    Parameters
    ----------
    query : str
    rows : int
        How many rows the result has, the last of each key.
    seconds : float
        From the start of the job to its end, with Spark's planning.
    missing, extra : Rows
        What the calculation has and the result has not, and the reverse.
    error : str, optional
        Why it did not run.
    """

    query: str
    rows: int = 0
    seconds: float = 0
    missing: Rows = field(default_factory=Counter)
    extra: Rows = field(default_factory=Counter)
    error: str | None = None

    @property
    def right(self) -> bool:
        """Whether it ran, and gave what the calculation gives."""
        return self.error is None and not self.missing and not self.extra


def send_events(client: Client, events: Sequence[Event], topic: str = TOPIC) -> None:
    """Create the topic, with one queue, and fill it."""
    Admin(client).create_topic(topic, queues=1)
    (queue,) = client.write_queues(topic)
    producer = Producer(client)
    bodies = [OutgoingMessage(topic, event.body().encode()) for event in events]
    for start in range(0, len(bodies), _BATCH):
        producer.send_batch(bodies[start : start + _BATCH], queue)


def job_text(query: str) -> str:
    """Return the text of a job: the tables, and the query."""
    texts = ((JOBS / f"{name}.sql").read_text(encoding="utf-8") for name in ("tables", query))
    return "\n".join(texts)


def use_blackhole(text: str) -> str:
    """Return a job whose results are computed, and written nowhere."""
    return _RESULT.sub("WITH ('connector' = 'blackhole')", text)


def public_job(folder: Path, query: str) -> str:
    """Return the job of a query of the public Nexmark: its text, with other options of tables.

    Its function in Java and its table of files are ours.
    """
    more = _PUBLIC_OPTIONS.get(query, "")
    options = f"WITH ('connector' = 'rocketmq', 'topic' = 'nexmark_{query}'{more})"
    kept = []
    for statement in (folder / f"{query}.sql").read_text(encoding="utf-8").split(";"):
        words = re.sub(r"--[^\n]*", "", statement).upper().split()
        match words[:3]:
            case ["CREATE", "TABLE", name] if name == f"NEXMARK_{query.upper()}":
                kept.append(_WITH.sub(options, statement))
            case ["CREATE", "VIEW", _] | ["INSERT", "INTO", _]:
                kept.append(statement)
    tables = (JOBS / "tables.sql").read_text(encoding="utf-8")
    return "\n".join((tables, _PUBLIC_BEFORE.get(query, ""), ";".join((*kept, ""))))


def run_query(
    spark: SparkSession, client: Client, name_server: str, query: str, text: str, events: Sequence[Event]
) -> Result:
    """Run a job to the end of its topic, and compare what it has written."""
    topic = f"nexmark_{query}"
    Admin(client).create_topic(topic, queues=1)
    text = text.replace(
        "'connector' = 'rocketmq'", f"'connector' = 'rocketmq', 'nameServer' = '{name_server}'"
    )
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as checkpoint:
        try:
            settings = {"trigger": "availableNow"}
            with execute(spark, text, checkpoint_location=checkpoint, settings=settings) as job:
                if not job.await_termination(_PATIENCE_S):
                    return Result(query, error=f"it did not end in {_PATIENCE_S} s")
        except RocketMQError as error:
            return Result(query, error=str(error))
    seconds = time.perf_counter() - begin
    found = Counter(_last_rows(query, _written(client, topic, _columns(text, topic))))
    wanted = Counter({tuple(map(_as_json, row)): count for row, count in EXPECTED[query](events).items()})
    return Result(query, found.total(), seconds, wanted - found, found - wanted)


def _columns(text: str, table: str) -> list[str]:
    (declared,) = (
        each for each in parse_statements(text) if isinstance(each, CreateTable) and each.name.text == table
    )
    return [column.name.text for column in declared.columns]


def _written(client: Client, topic: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    messages = last_messages(client, client.read_queues(topic), 1_000_000)
    for message in sorted(messages, key=lambda each: each.queue_offset):
        row: Mapping[str, Any] = json.loads(message.body)
        yield tuple(row.get(column) for column in columns)


def _last_rows(query: str, rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield the last row of each key, in the form of the calculation."""
    key = KEYS.get(query)
    if key is None:
        yield from rows
        return
    last = {tuple(row[column] for column in key): row for row in rows}
    if query != "q12":
        yield from last.values()
        return
    bids: Counter[int] = Counter()
    for bidder, count, *_ in last.values():
        bids[bidder] += count
    yield from bids.items()


def _as_json(value: Any) -> Any:
    """Return a value as Spark's JSON has it."""
    match value:
        case datetime():
            return f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1_000:03}Z"
        case Decimal():
            return float(value)
    return value
