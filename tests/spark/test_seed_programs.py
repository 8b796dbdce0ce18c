"""The programs of ``examples/seeds`` as their readers start them: new processes, with nothing configured."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil
import pytest
from tests.support.patient import patient_producer
from tests.support.scratch import scratch_env
from tests.support.wait import eventually

from pyspark_rocketmq.client import OutgoingMessage
from pyspark_rocketmq.client.read.message_search import last_messages

SEEDS = Path(__file__).parents[2] / "examples" / "seeds"
PATIENCE_S = 180
"""On a machine that is busy; one that is not takes a sixth of it."""
CPU_S = 80
"""Load hardly changes it: about 45 for the article's program, and over 120 with Spark's own settings."""


def nothing_configured(folder: Path) -> dict[str, str]:
    """Return an environment without settings of Spark, but for where a test's processes leave files."""
    own = {
        **scratch_env(folder),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_ROCKETMQ_STREAMS_HOME": str(folder / "home"),
    }
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))},
        **own,
    }


@dataclass(frozen=True, slots=True)
class Running:
    """A program that runs: what it has printed, and what it has taken."""

    process: subprocess.Popen[str]
    log: Path
    lines: list[str] = field(default_factory=list)

    def collect(self, stdout: IO[str]) -> None:
        """Keep what the program prints, until it ends: the outermost frame of a thread."""
        self.lines.extend(stdout)

    def check(self) -> None:
        """Fail if the program has ended: nothing but a kill ends it."""
        assert self.process.poll() is None, self.log.read_text(errors="replace")[-4_000:]

    def cpu_s(self) -> float:
        """Return the processor time of all its processes, those that are gone included."""
        first = psutil.Process(self.process.pid)
        return sum(_cpu_s(process) for process in [first, *first.children(recursive=True)])


def _cpu_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:  # it ended; its parent has its time
        return 0.0
    return times.user + times.system + times.children_user + times.children_system


@contextlib.contextmanager
def program(name: str, *args: str, folder: Path) -> Iterator[Running]:
    """Run a program of the seeds; all its processes are gone at the end."""
    log_file = folder / "program.log"
    with log_file.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(SEEDS / name), *args],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=nothing_configured(folder),
            cwd=folder,
            start_new_session=True,
        )
    assert process.stdout is not None
    running = Running(process, log_file)
    with process.stdout:
        reader = threading.Thread(
            target=running.collect, args=(process.stdout,), name=f"prints of {name}", daemon=True
        )
        reader.start()
        try:
            yield running
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
            reader.join(30)


def rows_of(lines: Sequence[str]) -> list[dict[str, object]]:
    """Return what was printed whole."""
    return [json.loads(line) for line in list(lines) if line.endswith("}\n")]


def test_every_program_stands_alone() -> None:
    """They are read as what a user writes: no setting of Spark, no part of the tests."""
    programs = sorted(SEEDS.glob("*.py"))
    assert programs
    for file in programs:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert not {module for module in modules if module.startswith("tests")}, file
        assert not names & {"config", "environ"}, file


@pytest.mark.needs("programs")
@pytest.mark.timeout(300)
def test_the_articles_windows_are_out_in_time(mq, client, topic, tmp_path):
    name = topic(queues=4)
    queues = client.write_queues(name)
    bodies = [json.dumps({"groupByKey": "a", "OutFlow": n}).encode() for n in range(20)]
    for queue, share in zip(queues, (bodies[at::4] for at in range(4)), strict=True):
        patient_producer(client).send_batch([OutgoingMessage(name, body) for body in share], queue)
    with program("001_windows.py", mq.name_server, name, folder=tmp_path) as running:

        def over() -> bool:
            counted = sum(int(str(row["total"])) for row in rows_of(running.lines))
            return counted >= len(bodies) or running.process.poll() is not None

        eventually(over, PATIENCE_S, what="the first window")
        running.check()
        taken, rows = running.cpu_s(), rows_of(running.lines)
    assert {row["groupByKey"] for row in rows} == {"a"}
    assert sum(float(str(row["outFlow"])) for row in rows) == sum(range(20))
    assert sum(int(str(row["total"])) for row in rows) == 20, "each message once; two windows at a boundary"
    assert taken < CPU_S
    assert "UserWarning" not in running.log.read_text(errors="replace")


def sent_until(send: Callable[[], None], seen: Callable[[], bool], running: Running) -> None:
    """Send a message a second until one is seen: a new group starts at the latest offsets."""
    due = 0.0

    def over() -> bool:
        nonlocal due
        if time.monotonic() >= due:
            send()
            due = time.monotonic() + 1.0
        return seen() or running.process.poll() is not None

    eventually(over, PATIENCE_S, what="the first result")
    running.check()


@pytest.mark.needs("programs")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("004_receiver.py", "Got order: Order{orderNo='A1', cost=20}"),
        ("004_receiver_wal.py", "Got order (with WAL): Order{orderNo='A1', cost=20}"),
        ("004_direct.py", "Got Order: Order{orderNo='A1', cost=20}"),
        ("004_queue.py", '{"orderNo": "A1", "cost": 20}'),
    ],
)
def test_the_articles_dstreams_print_their_orders(mq, client, topic, tmp_path, monkeypatch, name, printed):
    own = str(Path(sys.executable).parent)  # python3 on the path is another Python then
    folders = os.environ["PATH"].split(os.pathsep)
    monkeypatch.setenv("PATH", os.pathsep.join(each for each in folders if each != own))
    orders, producer = topic(queues=2), patient_producer(client)
    args = [mq.name_server, orders, *([str(tmp_path / "checkpoint")] if "wal" in name else [])]

    def send() -> None:
        producer.send(OutgoingMessage(orders, b'{"orderNo": "A1", "cost": 20}'))
        producer.send(OutgoingMessage(orders, b"no order"))

    with program(name, *args, folder=tmp_path) as running:

        def seen() -> bool:
            return printed in "".join(running.lines) + running.log.read_text(errors="replace")

        sent_until(send, seen, running)


@pytest.mark.timeout(300)
@pytest.mark.needs("programs")
@pytest.mark.parametrize(
    ("name", "keys", "body", "result"),
    [
        ("003_rocketmq_flink.py", "7", "Road 1 Zhejiang", '{"id":"7","province":"Zhejiang"}'),
        ("004_structured.py", "k", "an order", "an order"),
    ],
)
def test_what_goes_from_topic_to_topic_arrives(
    mq, client, topic, tmp_path, monkeypatch, name, keys, body, result
):
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    source, target, producer = topic(queues=2), topic(queues=1), patient_producer(client)
    queues = client.read_queues(target)

    def send() -> None:
        producer.send(OutgoingMessage(source, body.encode(), keys=keys))

    with program(name, mq.name_server, source, target, str(tmp_path / "checkpoint"), folder=tmp_path) as job:
        sent_until(send, lambda: sum(client.max_offsets(queues).values()) > 0, job)
    (message,) = last_messages(client, queues, 1)
    assert message.body.decode() == result
