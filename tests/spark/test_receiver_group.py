"""Two receivers on executors of their own and a Java consumer share the queues of one group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Self

import psutil
import pytest
from tests.support.java_member import JavaMember
from tests.support.lean_jvm import COMPILED
from tests.support.scratch import scratch_env
from tests.support.standalone import is_executor, programs, start_master, start_worker
from tests.support.wait import eventually

ROOT = Path(__file__).parents[2]
QUEUES = 6
LONG_S = 3
"""How long tasks may take before Spark runs them once more."""

SHARE_S = 60
"""Members compare their queues every 20 s; a Java client may pull its share only after its next heartbeat."""


class ReceiversJob:
    """``receivers_job.py`` until it is told to end; ``got`` holds (queue id, queue offset, body)."""

    def __init__(self, folder: Path, *args: str) -> None:
        self._folder = folder
        self._args = args
        self.lines: list[str] = []

    def __enter__(self) -> Self:
        python = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
        path = os.pathsep.join(map(str, (COMPILED, ROOT, ROOT / "src")))
        self._errors = (self._folder / "errors.log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("receivers_job.py")), *self._args],
            env={
                **os.environ,
                **python,
                **scratch_env(self._folder),
                "PYTHONPATH": path,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_WORKER_DIR": str(self._folder / "workers"),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        eventually(lambda: "|started" in self.lines or self._process.poll() is not None, 120, what="the job")
        assert "|started" in self.lines, (self._folder / "errors.log").read_text()[-4_000:]
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(60)
        self._reader.join(60)
        self._errors.close()
        for pipe in (self._process.stdin, self._process.stdout):
            pipe.close()

    @property
    def got(self) -> list[tuple[int, int, str]]:
        rows = [line[1:].split("\t") for line in self.lines if line.startswith("|") and "\t" in line]
        return [(int(queue_id), int(offset), body) for queue_id, offset, body in rows]

    def kill_executor(self) -> None:
        """Kill one that has a receiver: each has one."""
        processes = psutil.Process(self._process.pid).children(recursive=True)
        executors = [process for process in processes if is_executor(process)]
        assert len(executors) == 2
        executors[0].kill()

    def end(self) -> None:
        self._process.stdin.close()
        self._process.wait(60)

    def _read(self) -> None:
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))


@pytest.fixture(scope="module")
def classes(mq) -> Path:
    return mq.compile_java(ROOT / "tests" / "contract" / "java" / "GroupMember.java")


@pytest.mark.needs("programs", "java")
@pytest.mark.timeout(360)
def test_each_message_once_and_a_copy_of_each_block_on_another_executor(
    mq, classes, send, topic, client, group, tmp_path
):
    name = topic(queues=QUEUES)
    queues = client.read_queues(name)

    def all_committed() -> bool:
        return client.committed_offsets(group, queues) == send.ends(name)

    with ReceiversJob(tmp_path, mq.name_server, name, group) as job:
        send(name, 30)
        # What is under way when a queue changes hands may come twice, with Java's members too.
        eventually(lambda: len(set(job.got)) == 30, SHARE_S, what="thirty messages")
        eventually(all_committed, 30, what="the commits")
        with JavaMember(mq, classes, group, name) as java:

            def shared() -> bool:
                send(name, QUEUES)
                return len({queue_id for queue_id, _, _ in java.got}) == QUEUES // 3

            eventually(shared, SHARE_S, what="a third of the queues for each")
            sent = len(send.sent[name])
            eventually(lambda: len({*job.got, *java.got}) == sent, SHARE_S, what="all messages")
            eventually(all_committed, SHARE_S, what="the commits of both")
            more = sorted(body for _, _, _, body in send(name, 60))
            eventually(
                lambda: set(more) <= {body for _, _, body in [*job.got, *java.got]},
                SHARE_S,
                what="sixty more",
            )
            settled = [body for _, _, body in [*job.got, *java.got] if body in set(more)]
            assert sorted(settled) == more, "each once"
            assert len([1 for _, _, body in java.got if body in set(more)]) == 60 // 3
            java.leave()
        more = [body for _, _, _, body in send(name, 30)]
        eventually(
            lambda: set(more) <= {body for _, _, body in job.got}, SHARE_S, what="the queues of Java's"
        )
        job.kill_executor()
        more = [body for _, _, _, body in send(name, 30)]
        eventually(
            lambda: set(more) <= {body for _, _, body in job.got}, SHARE_S, what="both receivers again"
        )
        job.end()
        assert "|stopped" in job.lines
    executors: dict[str, set[str]] = {}
    for line in job.lines:
        if line.startswith("@"):
            block, executor = line[1:].split("\t")
            executors.setdefault(block, set()).add(executor)
    copied = [places for places in executors.values() if len(places) == 2]
    assert copied, "no block was copied"
    assert all("driver" in places for places in copied), executors


@pytest.mark.needs("programs")
@pytest.mark.timeout(360)
def test_receivers_are_not_run_twice_because_they_take_long(mq, send, topic, group, tmp_path):
    """Spark runs a task once more on another host only: two names of this machine."""
    name = topic(queues=QUEUES)
    with programs(tmp_path) as start:
        master = start_master(start)
        for host in ("127.0.0.1", "localhost"):
            start_worker(start, master, f"worker-{host}", host, tmp_path, cores=2)
        long = f"spark.speculation.task.duration.threshold={LONG_S}s"
        settings = [f"spark.master={master}", "spark.speculation=true", long]
        with ReceiversJob(tmp_path, mq.name_server, name, group, *settings) as job:
            began = time.monotonic()

            def long_enough() -> bool:
                send(name, QUEUES)
                return time.monotonic() - began > 5 * LONG_S

            eventually(long_enough, SHARE_S, what="tasks that take long")
            sent = len(send.sent[name])
            eventually(lambda: len(set(job.got)) == sent, SHARE_S, what="all messages")
            job.end()
    assert "|failures: 0" in job.lines
