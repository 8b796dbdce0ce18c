"""One contender of a comparison: one or more warm processes that start each round on request."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parent.parent


class WorkerError(RuntimeError):
    """A measured program ended, or did not respond in time."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A contender's definition.

    Parameters
    ----------
    name : str
    commands : sequence of command lines
        One process each. All of them run their round at the same time.
    about : str
        One line for the report.
    warm_ups : int
        Uncounted rounds at the start.
    env : mapping
        Added to the environment.
    keeps : float
        The approximate share of messages that pass a filter. Rates and costs refer to all messages read.
    """

    name: str
    commands: Sequence[Sequence[str]]
    about: str
    warm_ups: int = 1
    env: Mapping[str, str] = field(default_factory=dict)
    keeps: float = 1.0


def python_command(module: str, *args: str) -> tuple[str, ...]:
    """Return the command line of a worker of this package."""
    return (sys.executable, "-m", f"benchmarks.workers.{module}", *args)


def call(command: Sequence[str], *, timeout_s: float = 600) -> None:
    """Run a worker that does its work once and ends.

    Raises
    ------
    WorkerError
        The error has the end of its output.
    """
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": _python_path()},
        timeout=timeout_s,
        check=False,
    )
    if done.returncode:
        raise WorkerError("\n".join(done.stdout.splitlines()[-30:]))


def _python_path() -> str:
    return os.pathsep.join(filter(None, [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH")]))


class Worker:
    """A running process that speaks the protocol of ``workers.rounds``."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], log_file: Path) -> None:
        self._log_file = log_file
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONPATH": _python_path(), **env},
            )
        self.pid = self._process.pid
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def tell(self) -> None:
        """Start a round."""
        assert self._process.stdin is not None
        self._process.stdin.write("round\n")
        self._process.stdin.flush()

    def answer(self, timeout_s: float) -> dict[str, Any]:
        """Wait for its next response.

        Raises
        ------
        WorkerError
            The error has the end of its log.
        """
        try:
            answer = self._answers.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            raise WorkerError(f"no answer within {timeout_s:.0f} s\n{self._log_tail()}") from None
        if answer is None:
            raise WorkerError(f"the program ended\n{self._log_tail()}")
        return answer

    def close(self) -> None:
        """End the process by closing its input, or kill it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        for end in (lambda: None, self._process.terminate, self._process.kill):
            end()
            try:
                self._process.wait(timeout=15)
                break
            except subprocess.TimeoutExpired:
                continue
        self._reader.join(timeout=5)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("@"):
                self._answers.put(json.loads(line[1:]))
        self._answers.put(None)

    def _log_tail(self) -> str:
        return "\n".join(self._log_file.read_text(encoding="utf-8", errors="replace").splitlines()[-30:])


class Team:
    """The started processes of one contender. A context manager."""

    def __init__(self, contender: Contender, log_dir: Path, *, start_timeout_s: float) -> None:
        self.contender = contender
        self._workers: list[Worker] = []
        deadline = time.monotonic() + start_timeout_s
        try:
            for command in contender.commands:
                log_file = log_dir / f"{contender.name.replace(' ', '-')}-{len(self._workers)}.log"
                self._workers.append(Worker(command, contender.env, log_file))
            for worker in self._workers:
                worker.answer(deadline - time.monotonic())
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """The process ids."""
        return [worker.pid for worker in self._workers]

    def round(self, timeout_s: float) -> list[dict[str, Any]]:
        """Run one round and return each process's response."""
        deadline = time.monotonic() + timeout_s
        for worker in self._workers:
            worker.tell()
        return [worker.answer(deadline - time.monotonic()) for worker in self._workers]

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
