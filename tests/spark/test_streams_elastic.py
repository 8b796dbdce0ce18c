"""Instances of an elastic job come, die and go; windows close once, with the right sums."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from tests.spark.streams_elastic_job import JOB
from tests.spark.test_streams_cluster import KEYS, WINDOWS_A_PHASE, rows
from tests.support.scratch import scratch_env
from tests.support.topics import fill
from tests.support.wait import eventually

SCRIPT = str(Path(__file__).with_name("streams_elastic_job.py"))
PATIENCE_S = 180


@dataclass
class Instance:
    """A process of the job, and all that it starts."""

    process: subprocess.Popen[bytes]
    home: Path
    log: Path

    def executors(self, words: str) -> int:
        """Return how many logs of this instance's executors have these words."""
        place = self.home / "elastic" / f"{JOB}-{self.process.pid}" / "work"
        return sum(words in log.read_text(errors="replace") for log in place.glob("app-*/*/stderr"))

    def tree(self) -> list[psutil.Process]:
        """Return its processes."""
        first = psutil.Process(self.process.pid)
        return [first, *first.children(recursive=True)]


@contextlib.contextmanager
def instance(name: str, *args: str, folder: Path) -> Iterator[Instance]:
    """Start an instance; nothing of it is left at the end."""
    home, log_file = folder / "home", folder / f"{name}.log"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))},
        **scratch_env(folder),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_ROCKETMQ_STREAMS_HOME": str(home),
    }
    environment["JAVA_TOOL_OPTIONS"] += " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, SCRIPT, *args, str(folder)],
            stdout=log,
            stderr=log,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
    started = Instance(process, home, log_file)
    try:
        yield started
    finally:
        process.kill()
        process.wait(30)


def results(folder: Path) -> Counter[tuple[str, str, int]]:
    """Return the windows in the files that count."""
    files = {
        json.loads(line)["path"].removeprefix("file://")
        for entry in (folder / "out" / "_spark_metadata").glob("[0-9]*")
        for line in entry.read_text().splitlines()[1:]
    }
    found = [json.loads(line) for file in files for line in Path(file).read_text().splitlines()]
    return Counter((row["start_time"], row["key"], int(row["total"])) for row in found)


def is_over(processes: list[psutil.Process]) -> bool:
    """Whether none of them runs any more."""
    return not any(map(_runs, processes))


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.needs("programs", "kills")
@pytest.mark.timeout(900)
def test_instances_come_die_and_go(mq, client, topic, tmp_path):
    name = topic(queues=1)
    expected: Counter[tuple[str, str, int]] = Counter()
    place = (mq.name_server, name)

    def put(phase: int) -> None:
        bodies, sums = rows(phase)
        fill(client, name, bodies)
        expected.update(sums)

    def until_results(phase: int, *alive: Instance) -> None:
        """Wait for all windows of a phase but the last, which is open."""
        wanted = ((phase + 1) * WINDOWS_A_PHASE - 1) * KEYS

        def there() -> bool:
            ended = any(each.process.poll() is not None for each in alive)
            return ended or results(tmp_path).total() >= wanted

        eventually(there, PATIENCE_S, what=f"results of phase {phase}")
        for each in alive:
            assert each.process.poll() is None, each.log.read_text(errors="replace")[-4_000:]

    def until_executor(of: Instance, words: str = "registered with driver", count: int = 1) -> None:
        eventually(lambda: of.executors(words) >= count, PATIENCE_S, what=f"an executor: {words}")

    with instance("one", *place, folder=tmp_path) as one:
        put(0)
        until_results(0, one)
        with instance("two", *place, folder=tmp_path) as two:
            until_executor(two)
            put(1)
            until_results(1, one, two)
            until_executor(two, "Finished task")
            dead = one.tree()
            one.process.kill()
            eventually(lambda: is_over(dead), 60, what="an end of all that the leader had started")
            put(2)
            until_results(2, two)
            with instance("three", *place, folder=tmp_path) as three:
                until_executor(three)
                put(3)
                until_results(3, two, three)
                until_executor(three, "Finished task")
                gone = three.tree()
                three.process.send_signal(signal.SIGINT)
                three.process.wait(60)
                eventually(lambda: is_over(gone), 60, what="an end of all that a helper had started")
                put(4)
                until_results(4, two)
            last = two.tree()
        eventually(lambda: is_over(last), 60, what="an end of the last one")
    found = results(tmp_path)
    newest = max(begun for begun, _, _ in expected)
    assert found == Counter({row: count for row, count in expected.items() if row[0] != newest})
    assert not list((tmp_path / "home" / "elastic").glob(f"{JOB}-*")), "folders are removed"
