"""A script of ``examples`` as a process that can be killed, driver or worker."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import psutil

_ROOT = Path(__file__).parents[2]


class ExampleProcess:
    """``examples/<name>.py`` in a session of processes of its own."""

    def __init__(self, name: str, args: list[str], log_file: Path) -> None:
        self._command = [sys.executable, str(_ROOT / "examples" / f"{name}.py"), *args]
        self._log_file = log_file
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        paths = filter(None, [str(_ROOT / "src"), os.environ.get("PYTHONPATH")])
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,
            )

    def check(self) -> None:
        """Fail if it ended by itself: nothing but a kill ends it."""
        assert self._process is not None
        assert self._process.poll() is None, self.printed()[-4_000:]

    def printed(self) -> str:
        """What it, and Spark, printed."""
        return self._log_file.read_text(errors="replace")

    def kill_driver(self) -> None:
        """Kill Python and the JVM; the workers see that by themselves."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(timeout=10)

    def kill_worker(self, chance: random.Random) -> bool:
        """Kill one of the processes that run tasks, if there is one."""
        assert self._process is not None
        daemons = [p for p in psutil.Process(self._process.pid).children(recursive=True) if _is_daemon(p)]
        workers = [worker for daemon in daemons for worker in daemon.children()]
        if not workers:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            chance.choice(workers).kill()
        return True


def _is_daemon(process: psutil.Process) -> bool:
    try:
        parent = process.parent()
        return "pyspark.daemon" in process.cmdline() and (
            parent is None or "pyspark.daemon" not in parent.cmdline()
        )
    except psutil.NoSuchProcess:
        return False
