"""One server as a child process: started, awaited, stopped, paused, and never left running."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psutil

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock, Deadline
from pyspark_rocketmq.errors import DevClusterError, PortTakenError

__all__ = ["ChildProcess", "Watchdog", "command_line", "end_processes", "resident_bytes"]

_POLL_S = 0.02
_TAIL_BYTES = 16 * 1024
_TAIL_LINES = 40
_PORT_TAKEN = re.compile(r"BindException: .*")

_HAS_SHELL: Final = sys.platform != "win32"
# The child waits for a line before it becomes the server. By then the watchdog knows its pid, so the
# owner's death cannot leave it running at any moment. On Windows, where no program becomes another one, an
# owner that is killed in the milliseconds between the start and the watchdog's note leaves the server.
_GATE: Final = ("/bin/sh", "-c", 'read -r go && exec "$@" </dev/null', "sh") if _HAS_SHELL else ()


def _own_session() -> dict[str, Any]:
    """Return the arguments of `subprocess.Popen` that keep Ctrl-C from a child process.

    Ctrl-C reaches only the owner, which then stops its servers in order.
    """
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    else:  # noqa: RET505 - mypy checks each branch for its own system
        return {"start_new_session": True}


class Watchdog:
    """A small process that ends the servers when this process ends, even by SIGKILL.

    A context manager. Before it is closed, the caller stops the servers. Processes still watched are killed.
    """

    def __init__(self) -> None:
        script = Path(__file__).with_name("watchdog.py")
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", script, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            bufsize=0,
            **_own_session(),
        )

    def watch(self, pid: int) -> None:
        """Kill this process when the owner has ended."""
        self._tell(f"+{pid}")

    def forget(self, pid: int) -> None:
        """Stop watching this process: it has ended and its pid may be reused."""
        assert self._process.stdin is not None
        if not self._process.stdin.closed:
            with contextlib.suppress(DevClusterError):
                self._tell(f"-{pid}")

    def remove(self, folder: Path) -> None:
        """Remove this folder when the owner has ended."""
        self._tell(str(folder.absolute()))

    def close(self) -> None:
        """Let the watchdog finish its work and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def _tell(self, instruction: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(os.fsencode(instruction + "\n"))
        except BrokenPipeError as error:
            raise DevClusterError(
                "the watchdog process is gone; stop the cluster and start it again"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ChildProcess:
    """A server process with its own log file.

    Parameters
    ----------
    name : str
        Its name in errors.
    command : sequence of str
        The program and its arguments.
    log_file : Path
        Receives both output streams. A restart appends to it.
    env : mapping of str to str
        Added to this process's environment.
    watchdog : Watchdog
    clock : Clock
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log_file: Path,
        env: Mapping[str, str],
        watchdog: Watchdog,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.name = name
        self.log_file = log_file
        self._command = tuple(command)
        self._env = dict(env)
        self._watchdog = watchdog
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._watched = False
        self._log_start = 0

    @property
    def pid(self) -> int | None:
        """The process id while it runs, else None."""
        return self._process.pid if self._process is not None and self.is_running else None

    @property
    def is_running(self) -> bool:
        """Whether the process exists, running or paused."""
        if self._process is None:
            return False
        if self._process.poll() is None:
            return True
        self.release()
        return False

    def start(self) -> None:
        """Start the process and return immediately. To wait for it, use `wait_for_log`.

        Raises
        ------
        DevClusterError
            The process already runs.
        """
        if self.is_running:
            raise DevClusterError(f"{self.name} runs already", pid=self.pid)
        self._log_start = self.log_file.stat().st_size if self.log_file.exists() else 0
        with self.log_file.open("ab") as log:
            process = subprocess.Popen(
                [*_GATE, *self._command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.log_file.parent,
                env={**os.environ, **self._env},
                **_own_session(),
            )
        self._process = process
        self._watchdog.watch(process.pid)
        self._watched = True
        assert process.stdin is not None
        with process.stdin as gate:
            if _GATE:
                gate.write(b"go\n")

    def wait_for_log(self, pattern: str, deadline: Deadline) -> None:
        """Wait until a line logged since this start matches, such as the one servers print after their start.

        Parameters
        ----------
        pattern : str
            A regular expression.
        deadline : Deadline

        Raises
        ------
        PortTakenError
            The log says that another process uses the port.
        DevClusterError
            The process ended first, or the deadline passed. The error has the log's tail.
        """
        wanted = re.compile(pattern)

        def is_up() -> bool:
            log = self._log_since_start()
            if (taken := _PORT_TAKEN.search(log)) is not None:
                # A broker continues, and logs, for many seconds before it ends.
                raise PortTakenError(f"{self.name} cannot listen", log_tail=_tail(log[: taken.end()]))
            return wanted.search(log) is not None

        self.wait_until(is_up, deadline, "is not up")

    def wait_until(self, condition: Callable[[], bool], deadline: Deadline, otherwise: str) -> None:
        """Wait for a condition while the process runs.

        Raises
        ------
        DevClusterError
            As `wait_for_log`; ``otherwise`` says what did not happen in time.
        """
        while not condition():
            if not self.is_running:
                code = self._process.returncode if self._process is not None else None
                raise DevClusterError(
                    f"{self.name} ended while it started", log_tail=self.log_tail(), exit_code=code
                )
            if deadline.expired:
                raise DevClusterError(
                    f"{self.name} {otherwise} after {deadline.timeout_ms / 1000:g} s",
                    log_tail=self.log_tail(),
                    pid=self.pid,
                )
            self._clock.sleep(_POLL_S)

    def terminate(self, timeout_s: float) -> None:
        """Ask the process to end (SIGTERM), and kill it if it has not ended after ``timeout_s``.

        On Windows the process ends immediately, as by `kill`.
        """
        if not self.is_running:
            return
        self.resume()
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
        else:
            self.release()

    def kill(self) -> None:
        """Kill the process (SIGKILL), as a crash does."""
        if self.is_running:
            assert self._process is not None
            self._process.kill()
            self._process.wait(timeout=30)
            self.release()

    def release(self) -> None:
        """Remove the process from the watchdog: it has ended, or is to outlive this process."""
        if self._watched and self._process is not None:
            self._watchdog.forget(self._process.pid)
            self._watched = False

    def pause(self) -> None:
        """Pause the process (SIGSTOP): its connections stay open, but it does not answer."""
        with self._running("pause") as process:
            process.suspend()

    def resume(self) -> None:
        """Resume a paused process (SIGCONT)."""
        with self._running("resume") as process:
            process.resume()

    @property
    def rss_bytes(self) -> int:
        """Resident memory of the process in bytes, 0 if it does not run."""
        return resident_bytes(self.pid) if self.pid is not None else 0

    def log_tail(self, lines: int = _TAIL_LINES) -> str:
        """Return the last lines logged since this start."""
        return _tail(self._log_since_start(_TAIL_BYTES), lines)

    def _log_since_start(self, limit: int | None = None) -> str:
        if not self.log_file.exists():
            return ""
        with self.log_file.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - limit) if limit else self._log_start)
            return log.read().decode(errors="replace")

    @contextlib.contextmanager
    def _running(self, action: str) -> Iterator[psutil.Process]:
        """Give the running process. A child's pid is not reused before its owner has seen its end."""
        pid = self.pid
        if pid is None:
            raise DevClusterError(f"{self.name} does not run", action=action)
        try:
            yield psutil.Process(pid)
        except psutil.NoSuchProcess as error:
            raise DevClusterError(f"{self.name} does not run", action=action) from error


def _tail(log: str, lines: int = _TAIL_LINES) -> str:
    return "\n".join(log.splitlines()[-lines:])


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process in bytes, 0 if it has ended."""
    try:
        return psutil.Process(pid).memory_info().rss
    except psutil.NoSuchProcess:
        return 0


def command_line(pid: int) -> tuple[str, ...]:
    """Return a process's program and arguments; nothing if it has ended, is a zombie or another user's."""
    try:
        return tuple(psutil.Process(pid).cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ()


def end_processes(
    pids: Sequence[int], *, is_ours: Callable[[int], bool], deadline: Deadline, clock: Clock
) -> None:
    """End processes that are not our children: SIGTERM, then SIGKILL at the deadline.

    ``is_ours`` is called before every signal, because a pid may have been reused. After it, psutil sends
    nothing to a process that has taken the pid in the meantime.
    """
    for pid in pids:
        _tell(pid, is_ours, psutil.Process.resume, psutil.Process.terminate)
    while any(map(is_ours, pids)) and not deadline.expired:
        clock.sleep(_POLL_S)
    for pid in pids:
        _tell(pid, is_ours, psutil.Process.kill)


def _tell(pid: int, is_ours: Callable[[int], bool], *actions: Callable[[psutil.Process], None]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if is_ours(pid):
            for action in actions:
                action(process)
