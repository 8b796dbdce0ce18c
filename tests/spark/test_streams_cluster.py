"""A stream job on a standalone cluster: executors come, die and go while windows close."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.standalone import Start, environment, programs, start_master, start_worker
from tests.support.topics import fill
from tests.support.wait import eventually

START = 1_900_000_000
KEYS = 3
ROWS_PER_WINDOW = 15
WINDOWS_A_PHASE = 8
PATIENCE_S = 120


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with programs(tmp_path) as starting:
        yield starting


@contextlib.contextmanager
def job(*args: str, folder: Path) -> Iterator[Path]:
    """Run the job's driver; return the file that it prints to."""
    printed, script = folder / "printed", str(Path(__file__).with_name("streams_cluster_job.py"))
    with printed.open("wb") as out, (folder / "driver.log").open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, script, *args, str(folder)],
            stdout=out,
            stderr=log,
            env=environment(PYSPARK_ROCKETMQ_STREAMS_HOME=str(folder / "home")),
            start_new_session=True,
        )
    try:
        yield printed
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait(30)


def rows(phase: int) -> tuple[list[str], Counter[tuple[str, str, int]]]:
    """Return the messages of a phase, and its windows' sums."""
    bodies, sums = [], Counter[tuple[str, str]]()
    for window in range(phase * WINDOWS_A_PHASE, (phase + 1) * WINDOWS_A_PHASE):
        begun = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(START + window * 10))
        for row in range(ROWS_PER_WINDOW):
            key, value = f"k{row % KEYS}", row + window
            moment = (START + window * 10) * 1000 + row * 10_000 // ROWS_PER_WINDOW
            bodies.append(json.dumps({"time": moment, "key": key, "value": value}))
            sums[begun, key] += value
    return bodies, Counter({(*place, total): 1 for place, total in sums.items()})


@pytest.mark.needs("programs")
@pytest.mark.timeout(400)
def test_executors_come_die_and_go(mq, client, topic, start: Start, tmp_path: Path) -> None:
    name = topic(queues=1)
    expected: Counter[tuple[str, str, int]] = Counter()
    master = start_master(start)
    one = start_worker(start, master, "one", "127.0.0.1", tmp_path, cores=1)

    def put(phase: int) -> None:
        bodies, sums = rows(phase)
        fill(client, name, bodies)
        expected.update(sums)

    def executors_of(worker: str) -> list[str]:
        return [file.read_text() for file in sorted(tmp_path.glob(f"{worker}/app-*/*/stderr"))]

    with job(master, mq.name_server, name, folder=tmp_path) as printed:

        def results(phase: int) -> bool:
            """Whether all windows of a phase are out, but the last, which is open."""
            found = printed.read_text().count("\n")
            log = (tmp_path / "driver.log").read_text(errors="replace")
            assert "Traceback" not in log, log[-4_000:]
            return found >= ((phase + 1) * WINDOWS_A_PHASE - 1) * KEYS

        put(0)
        eventually(lambda: results(0), PATIENCE_S, what="results of one executor")
        start_worker(start, master, "two", "localhost", tmp_path, cores=1)
        eventually(
            lambda: any("registered with driver" in log for log in executors_of("two")), 60, what="a second"
        )
        put(1)
        eventually(lambda: results(1), PATIENCE_S, what="results of two")
        before = printed.read_text().count("\n")
        put(2)
        eventually(lambda: printed.read_text().count("\n") > before, PATIENCE_S, what="a batch of the phase")
        (executor,) = one.executors()
        executor.kill()
        eventually(lambda: results(2), PATIENCE_S, what="results after an executor's death")
        one.stop()
        put(3)
        eventually(lambda: results(3), PATIENCE_S, what="results of the one that stayed")
        assert any("Finished task" in log for log in executors_of("two")), "the second did nothing"
        found = [json.loads(line) for line in printed.read_text().splitlines()]
    last = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(START + (4 * WINDOWS_A_PHASE - 1) * 10))
    closed = Counter({place: count for place, count in expected.items() if place[0] != last})
    assert Counter((row["start_time"], row["key"], row["total"]) for row in found) == closed
