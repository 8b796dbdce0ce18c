"""A script of ``examples`` as a process that can be killed, driver or worker."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from tests.support.scratch import scratch_env

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
                env={
                    **os.environ,
                    **scratch_env(self._log_file.parent),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "PYTHONPATH": os.pathsep.join(paths),
                },
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
        self._process.wait(timeout=60)

    def kill_worker(self, which: Callable[[psutil.Process], bool] = lambda _: True) -> bool:
        """Kill one of the processes that run tasks while it runs one; False if none does within a second."""
        assert self._process is not None
        end = time.monotonic() + 1.0
        try:
            tree = psutil.Process(self._process.pid).children(recursive=True)
            workers = [worker for daemon in tree if _is_daemon(daemon) for worker in daemon.children()]
            workers = [worker for worker in workers if which(worker)]
            # A worker without a task sleeps: only one that has a task is switched to.
            before = {worker: worker.num_ctx_switches() for worker in workers}
            while time.monotonic() < end:
                for worker, switches in before.items():
                    if worker.num_ctx_switches() != switches:
                        worker.kill()
                        return True
                time.sleep(0.001)
        except psutil.NoSuchProcess:
            pass  # it ended by itself: the caller looks again
        return False


def _is_daemon(process: psutil.Process) -> bool:
    try:
        parent = process.parent()
        return "pyspark.daemon" in process.cmdline() and (
            parent is None or "pyspark.daemon" not in parent.cmdline()
        )
    except psutil.NoSuchProcess:
        return False
