"""Files and tables in which jobs keep their progress, with fixed content, and a program that captures them.

Run it by hand for a release: ``python -m tests.golden.stored_files 0.1.0``.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from pyspark_rocketmq.client.groups.push_progress import FileProgress
from pyspark_rocketmq.client.send.half_messages import HALF_SCHEMA
from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.offsets.direct_log import encode_ends, encode_ranges
from pyspark_rocketmq.planning.batch_replay import BatchId, StoredProgress
from pyspark_rocketmq.spark.stores.offset_store import encode_progress
from pyspark_rocketmq.spark.stores.sql_store import SqlOffsetStore
from pyspark_rocketmq.spark.write.transaction_log import Decision, TransactionLog, TransactionName
from pyspark_rocketmq.streams.run.job_registry import JobRecord, jobs_home

CHECKPOINTS = Path(__file__).parent / "checkpoints"

A0, A1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
P0 = MessageQueue("payments", "broker-b", 0)
OFFSETS = {A0: 150, A1: 98, P0: 7}
OWNER = "1f9d2c5e-7a64-4c6f-9d34-8a2f0f6b1c11"

PROGRESS = StoredProgress(OFFSETS, BatchId(OWNER, 41))
"""Of a store in a database, and of one in a file."""

DECISION = Decision(
    name=TransactionName(OWNER, 42),
    group="billing",
    ordered=True,
    since={A0: 150, P0: 7},
    halves=pa.table(
        [
            ["orders", "payments"],
            ["broker-a", "broker-b"],
            [0, 0],
            [3, 4],
            [5_000, 6_000],
            ["7F000001000118B4AAC2086BE1C20000", "7F000001000118B4AAC2086BE1C20001"],
        ],
        schema=HALF_SCHEMA,
    ),
)

PLANNED = {1_000: [OffsetRange(A0, 0, 100)], 2_000: [OffsetRange(A0, 100, 150), OffsetRange(P0, 3, 7)]}
"""The batches of a direct stream by their times; the first is finished."""
FINISHED = {A0: 100}

JOB = JobRecord(
    job="shop.totals",
    checkpoint="/data/totals",
    pid=4711,
    started_ms=1_767_225_600_000,
    explanation="fromRocketmq#1 -> toPrint#2",
    sources=["orders,payments"],
    stateful=["Windowed"],
    state=["tumbling windows of 10 s by k: count()"],
)


def write_transactions(folder: Path) -> None:
    """Write the log of a query whose driver died after the decision about a batch."""
    log = TransactionLog(str(folder / "transactions"))
    claim = log.claim(OWNER)
    log.finish(TransactionName(OWNER, 41))
    log.decide(DECISION, claim)


def write_direct(folder: Path) -> None:
    """Write the files of a direct stream."""
    (place := folder / "direct" / "rocketmq-0").mkdir(parents=True)
    for time_ms, ranges in PLANNED.items():
        (place / str(time_ms)).write_text(encode_ranges(ranges))
    (place / "ends-1000").write_text(encode_ends(FINISHED))


def write_stores(folder: Path) -> None:
    """Write a store in a database, as SQL, and one in a file."""
    (folder / "stores").mkdir()
    (folder / "stores" / "offsets.json").write_text(encode_progress(PROGRESS))
    database = folder / "store.db"
    store = SqlOffsetStore(f"sqlite:///{database}", job="totals")
    with store.transaction() as transaction:
        before = transaction.progress()
        assert PROGRESS.batch is not None
        transaction.advance(before, PROGRESS.batch, [OffsetRange(q, 0, end) for q, end in OFFSETS.items()])
    store.close()
    with closing(sqlite3.connect(database)) as connection:
        lines = [f"{line}\n" for line in connection.iterdump()]
    (folder / "stores" / "offsets.sql").write_text("".join(lines))
    database.unlink()


def write_job(folder: Path) -> None:
    """Write a job's entry in the registry of jobs."""
    os.environ["PYSPARK_ROCKETMQ_STREAMS_HOME"] = str(folder)
    JOB.write()
    assert jobs_home() == folder


def write_member(folder: Path) -> None:
    """Write the offsets of a broadcasting consumer."""
    FileProgress(folder / "member.json").write(OFFSETS)


WRITERS: tuple[Callable[[Path], None], ...] = (
    write_transactions,
    write_direct,
    write_stores,
    write_job,
    write_member,
)

if __name__ == "__main__":
    for writer in WRITERS:
        writer(CHECKPOINTS / sys.argv[1])
