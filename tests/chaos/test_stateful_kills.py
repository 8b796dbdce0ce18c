"""kill -9 of stream jobs at chosen moments of a batch: their tables have the results of plain Python."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path

import pytest
from tests.chaos.stateful_job import BATCH_ROWS, GAP_S, TABLES
from tests.support.lean_jvm import COMPILED

from pyspark_rocketmq.client import OutgoingMessage
from pyspark_rocketmq.testing import MockBroker

ROWS = 3 * BATCH_ROWS
STEP_MS = 250
START_MS = 1_900_000_000_000
LIFE_S = 240
MOMENTS = (
    ("pairs", "offsets/1"),
    ("sessions", "before", "1"),
    ("reduced", "after", "1"),
    ("top", "state/0/0/3.changelog"),
)
"""After a batch's offsets, in its transaction, after that, and when its state is written."""

Row = dict[str, int | str]


def bids() -> list[Row]:
    chance = random.Random(7)
    return [
        {
            "id": chance.randrange(90),
            "key": f"k{chance.randrange(4)}",
            "price": chance.randrange(100_000),
            "time": START_MS + number * STEP_MS,
            "n": number,
        }
        for number in range(ROWS)
    ]


def expected(rows: list[Row], auctions: list[Row]) -> dict[str, Counter[tuple[object, ...]]]:
    """Return the rows of the tables, of windows and sessions that end before the last row."""
    last = int(rows[-1]["time"])
    sums: dict[int, Counter[str]] = defaultdict(Counter)
    sessions: dict[str, list[list[Row]]] = defaultdict(list)
    for row in rows:
        key, moment = str(row["key"]), int(row["time"])
        sums[moment // 10_000 * 10_000][key] += int(row["price"])
        found = sessions[key]
        if not found or moment - int(found[-1][-1]["time"]) > GAP_S * 1000:
            found.append([])
        found[-1].append(row)
    closed = {start: each for start, each in sums.items() if start + 10_000 <= last}
    partners = {each["id"]: each["m"] for each in auctions}
    return {
        "pairs": Counter((str(row["id"]), str(row["n"]), str(partners[row["id"]])) for row in rows),
        "top": Counter(
            (time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(start / 1000)), key, float(total), rank)
            for start, each in closed.items()
            for rank, (key, total) in enumerate(each.most_common(2), 1)
        ),
        "sessions": Counter(
            (key, float(sum(int(row["price"]) for row in each)), len(each))
            for key, found in sessions.items()
            for each in found
            if int(each[-1]["time"]) + GAP_S * 1000 <= last
        ),
        "reduced": Counter((key, total) for each in closed.values() for key, total in each.items()),
    }


def live(folder: Path, name_server: str, *moment: str) -> int:
    """Run the jobs until they die or end; return how. Nothing of them is left."""
    with (folder / "jobs.log").open("a") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).with_name("stateful_job.py")),
                name_server,
                str(folder),
                *moment,
            ],
            stdout=log,
            stderr=log,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(map(str, (COMPILED, Path(__file__).parents[2] / "src"))),
            },
            start_new_session=True,
        )
    try:
        return process.wait(LIFE_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


@pytest.mark.needs("kills", "programs")
@pytest.mark.timeout((len(MOMENTS) + 1) * LIFE_S)
def test_state_and_results_of_killed_jobs_are_those_of_plain_python(tmp_path: Path) -> None:
    rows = bids()
    auctions: list[Row] = [{"id": each, "m": each * 3} for each in range(90)]
    for table, columns in TABLES.items():
        with closing(sqlite3.connect(tmp_path / f"{table}.db")) as connection, connection:
            connection.execute(f"CREATE TABLE {table} ({columns})")
    with MockBroker({"bids": 1, "auctions": 1}) as mq:
        for topic, messages in (("bids", rows), ("auctions", auctions)):
            for message in messages:
                mq.send(OutgoingMessage(topic, json.dumps(message).encode()))
        for moment in MOMENTS:
            ended = live(tmp_path, mq.name_server, *moment)
            assert ended == -signal.SIGKILL, (moment, (tmp_path / "jobs.log").read_text()[-4_000:])
        assert live(tmp_path, mq.name_server) == 0, (tmp_path / "jobs.log").read_text()[-4_000:]
    for table, wanted in expected(rows, auctions).items():
        with closing(sqlite3.connect(tmp_path / f"{table}.db")) as connection:
            assert Counter(connection.execute(f"SELECT * FROM {table}").fetchall()) == wanted, table
