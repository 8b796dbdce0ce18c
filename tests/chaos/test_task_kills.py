"""kill -9 of workers and executors in the middle of reads and writes, and jobs that are canceled meanwhile.

The brokers are a mock cluster of this process, which tells when a task is in the middle and holds it there.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.support.scratch import scratch_env
from tests.support.standalone import environment, is_executor
from tests.support.wait import eventually

from pyspark_rocketmq.client import OutgoingMessage
from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.testing import Delay, MockBroker

ROWS = 2_000
PULL, SENDS = RequestCode.PULL_MESSAGE, (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10",
    "spark.python.worker.reuse": "false",  # who runs is in a task
}
_PATIENCE_S = 60


class Driver:
    """A driver with two executors, as a process that does what it is told: see `task_kills_job.py`."""

    def __init__(self, folder: Path) -> None:
        script = str(Path(__file__).with_name("task_kills_job.py"))
        settings = [f"{name}={value}" for name, value in SETTINGS.items()]
        self._answers, self._log = folder / "answers", folder / "driver.log"
        with self._answers.open("wb") as out, self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, script, "local-cluster[2,1,1024]", *settings],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=log,
                env=environment(**scratch_env(folder)),
                cwd=folder,
                start_new_session=True,
            )
        self._numbers = itertools.count(1)

    def ask(self, act: str, **given: object) -> int:
        """Have it do something; return the number of the answer."""
        number = next(self._numbers)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"number": number, "act": act, "given": given}).encode() + b"\n")
        self._process.stdin.flush()
        return number

    def answer(self, number: int) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            assert self._process.poll() is None, self._log.read_text(errors="replace")[-4_000:]
            lines = self._answers.read_text().splitlines(keepends=True)
            told = [json.loads(line) for line in lines if line.endswith("\n")]
            return next((each for each in told if each["number"] == number), None)

        return eventually(look, _PATIENCE_S, what=f"answer {number}")

    def kill(self, victim: str) -> None:
        """Kill an executor, or two Python workers."""
        for process in self.workers()[:2] if victim == "worker" else self._executors()[:1]:
            process.kill()

    def workers(self) -> list[psutil.Process]:
        """Return the Python processes of the executors that run a task."""
        found = []
        for executor in self._executors():
            for process in executor.children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if "pyspark.daemon" in process.parent().cmdline():
                        found.append(process)
        return found

    def _executors(self) -> list[psutil.Process]:
        return [each for each in self._children() if is_executor(each)]

    def close(self) -> None:
        children = self._children()
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self._process.wait(30)

    def _children(self) -> list[psutil.Process]:
        return psutil.Process(self._process.pid).children(recursive=True)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    found = Driver(tmp_path_factory.mktemp("driver"))
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
def mq() -> Iterator[MockBroker]:
    with MockBroker({"source": 4, "target": 4}) as broker:
        yield broker


def row_bodies() -> Counter[str]:
    return Counter(f"row {row}" for row in range(ROWS))


def written(mq: MockBroker) -> Counter[str]:
    return Counter(
        each.body.decode() for queue in mq.queues("target") for each in mq.messages("target", queue)
    )


pytestmark = [pytest.mark.needs("kills", "programs"), pytest.mark.timeout(300)]


@pytest.mark.parametrize("victim", ["worker", "executor"])
def test_a_read_has_every_message_once(driver: Driver, mq: MockBroker, victim: str) -> None:
    for body in row_bodies():
        mq.send(OutgoingMessage("source", body.encode()))
    held = mq.inject(Delay(0.5), on=PULL, times=None)
    options = {"nameServer": mq.name_server, "topic": "source", "partitionPerQueue": "true"}
    number = driver.ask("read", options=options)
    eventually(lambda: held.hits > 2, _PATIENCE_S, what="a task in the middle")
    driver.kill(victim)
    mq.heal()
    assert driver.answer(number)["value"] == row_bodies()


@pytest.mark.parametrize("victim", ["worker", "executor"])
@pytest.mark.parametrize("guarantee", ["at-least-once", "transactional"])
def test_a_write_has_every_row(
    driver: Driver, mq: MockBroker, victim: str, guarantee: str, tmp_path: Path
) -> None:
    held = mq.inject(Delay(0.3), on=SENDS, times=None)
    once = {"jobId": "job", "transactionLog": str(tmp_path)} if guarantee == "transactional" else {}
    options = {"nameServer": mq.name_server, "topic": "target", "deliveryGuarantee": guarantee, **once}
    number = driver.ask("write", options={**options, "batchSize": 20}, rows=ROWS)
    eventually(lambda: held.hits > 12, _PATIENCE_S, what="a task in the middle")
    driver.kill(victim)
    mq.heal()
    assert "error" not in driver.answer(number)
    assert written(mq).keys() == row_bodies().keys()
    if once:
        assert written(mq) == row_bodies()


@pytest.mark.parametrize("interrupted", [True, False])
def test_a_canceled_write_shows_no_dead_letters(
    driver: Driver, mq: MockBroker, tmp_path: Path, interrupted: bool
) -> None:
    """Its rows have ended as those of a task that is complete, between two of them."""
    options = {"nameServer": mq.name_server, "topic": "target", "deadLetterPath": str(tmp_path / "dead")}
    options |= {"maxMessageBytes": "1000", "batchBytes": "1000", "compression": "none"}
    go = tmp_path / "go"
    number = driver.ask("write_slowly", options=options, go=str(go), interrupted=interrupted)
    eventually(lambda: written(mq), _PATIENCE_S, what="a task in the middle")
    driver.answer(driver.ask("cancel"))
    assert "CANCELLED" in driver.answer(number)["error"]
    go.touch()
    eventually(lambda: not driver.workers(), _PATIENCE_S, what="the end of the task's workers")
    assert not list(tmp_path.glob("dead/*.parquet"))
