"""Child processes end when they should, and tell why when they end too early. No Java needed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.support.wait import eventually

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Deadline
from pyspark_rocketmq.devcluster.system import watchdog as watchdog_program
from pyspark_rocketmq.devcluster.system.process import (
    ChildProcess,
    Watchdog,
    command_line,
    end_processes,
    resident_bytes,
)
from pyspark_rocketmq.errors import DevClusterError, PortTakenError


@pytest.fixture
def watchdog() -> Iterator[Watchdog]:
    with Watchdog() as watchdog:
        yield watchdog


def _child(tmp_path: Path, watchdog: Watchdog, script: str) -> ChildProcess:
    return ChildProcess(
        "child", ["/bin/sh", "-c", script], log_file=tmp_path / "child.log", env={}, watchdog=watchdog
    )


def _within(seconds: float) -> Deadline:
    return Deadline(SYSTEM_CLOCK, seconds * 1000)


def test_it_is_up_when_its_log_says_so(tmp_path: Path, watchdog: Watchdog) -> None:
    child = _child(tmp_path, watchdog, "echo warming; echo ready to go; exec sleep 60")
    child.start()
    child.wait_for_log("ready", _within(60))
    assert child.is_running
    assert child.rss_bytes > 0
    child.kill()
    assert not child.is_running
    assert child.rss_bytes == 0


def test_a_death_during_the_start_carries_exit_code_and_log(tmp_path: Path, watchdog: Watchdog) -> None:
    child = _child(tmp_path, watchdog, "echo no such option; exit 3")
    child.start()
    with pytest.raises(DevClusterError, match="child ended while it started") as caught:
        child.wait_for_log("ready", _within(60))
    assert caught.value.facts["exit_code"] == 3
    assert "no such option" in str(caught.value)


def test_a_start_that_takes_too_long_carries_the_log(tmp_path: Path, watchdog: Watchdog) -> None:
    child = _child(tmp_path, watchdog, "echo still loading; exec sleep 60")
    child.start()
    eventually(lambda: "loading" in child.log_tail())
    with pytest.raises(DevClusterError, match=r"child is not up after 0\.1 s") as caught:
        child.wait_for_log("ready", _within(0.1))
    assert "still loading" in caught.value.log_tail
    child.kill()


def test_a_taken_port_is_told_apart(tmp_path: Path, watchdog: Watchdog) -> None:
    child = _child(tmp_path, watchdog, "echo java.net.BindException: Address already in use; exec sleep 60")
    child.start()
    with pytest.raises(PortTakenError, match="child cannot listen"):
        child.wait_for_log("ready", _within(60))
    child.kill()


def test_only_the_log_of_the_last_start_counts(tmp_path: Path, watchdog: Watchdog) -> None:
    child = _child(tmp_path, watchdog, "test -e again && exit 1; touch again; echo ready; exec sleep 60")
    child.start()
    child.wait_for_log("ready", _within(60))
    child.kill()
    child.start()
    with pytest.raises(DevClusterError, match="ended"):
        child.wait_for_log("ready", _within(60))


def test_one_that_ignores_sigterm_is_killed(tmp_path: Path, watchdog: Watchdog) -> None:
    child = _child(tmp_path, watchdog, "trap '' TERM; echo ready; while :; do sleep 0.1; done")
    child.start()
    child.wait_for_log("ready", _within(60))
    child.terminate(timeout_s=0.3)
    assert not child.is_running


def test_sigterm_lets_it_end_in_order_also_when_it_is_frozen(tmp_path: Path, watchdog: Watchdog) -> None:
    child = _child(
        tmp_path, watchdog, "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    )
    child.start()
    child.wait_for_log("ready", _within(60))
    assert child.pid is not None
    process = psutil.Process(child.pid)
    child.pause()
    eventually(lambda: process.status() == psutil.STATUS_STOPPED)
    child.terminate(timeout_s=60)
    assert "bye" in child.log_tail()


def test_resume_lets_it_go_on(tmp_path: Path, watchdog: Watchdog) -> None:
    child = _child(tmp_path, watchdog, "echo ready; exec sleep 60")
    child.start()
    child.wait_for_log("ready", _within(60))
    assert child.pid is not None
    process = psutil.Process(child.pid)
    child.pause()
    eventually(lambda: process.status() == psutil.STATUS_STOPPED)
    child.resume()
    eventually(lambda: process.status() != psutil.STATUS_STOPPED)
    child.kill()


def test_signals_to_one_that_is_gone_say_so(tmp_path: Path, watchdog: Watchdog) -> None:
    child = _child(tmp_path, watchdog, "exit 0")
    child.start()
    eventually(lambda: not child.is_running)
    with pytest.raises(DevClusterError, match="child does not run"):
        child.pause()
    child.kill()
    child.terminate(timeout_s=1)


def test_closing_the_watchdog_ends_what_it_watches_and_no_more(tmp_path: Path) -> None:
    with Watchdog() as watchdog:
        watched = _child(tmp_path, watchdog, "exec sleep 60")
        watched.start()
        released = ChildProcess(
            "other", ["/bin/sleep", "60"], log_file=tmp_path / "other.log", env={}, watchdog=watchdog
        )
        released.start()
        released.release()
    eventually(lambda: not watched.is_running)
    assert released.is_running
    assert released.pid is not None
    os.kill(released.pid, signal.SIGKILL)
    eventually(lambda: not released.is_running)


# The owner of two children; prints their pids, forks a copy of itself that keeps every pipe open, and waits.
OWNER = """
import os, pathlib, sys, time
from pyspark_rocketmq.devcluster.system.process import ChildProcess, Watchdog
folder = pathlib.Path(sys.argv[1])
watchdog = Watchdog()
watchdog.remove(folder / "data")
(folder / "data").mkdir()
pids = []
for name in "ab":
    log = folder / f"{name}.log"
    child = ChildProcess(name, ["/bin/sleep", "300"], log_file=log, env={}, watchdog=watchdog)
    child.start()
    pids.append(child.pid)
copy = os.fork() if "fork" in sys.argv else 0
if copy or "fork" not in sys.argv:
    print(*pids, copy, flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("how", ["plain", "fork"])
def test_nothing_is_left_when_the_owner_is_killed(tmp_path: Path, how: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path), how], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        *pids, copy = map(int, owner.stdout.readline().split())
        assert len(pids) == 2
        assert all(map(psutil.pid_exists, pids))
        owner.kill()
        try:
            eventually(lambda: not any(map(psutil.pid_exists, pids)), 10, what="the end of the children")
            eventually(lambda: not (tmp_path / "data").exists(), what="the removal of the folder")
        finally:
            if copy:
                os.kill(copy, signal.SIGKILL)


def test_what_is_known_of_a_process_by_its_pid() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()", "two words"], stdin=subprocess.PIPE) as running:
        # Linux sets it a moment after the call that started the program has returned.
        eventually(lambda: command_line(running.pid)[1:] == ("-c", "input()", "two words"))
        running.kill()
    assert resident_bytes(os.getpid()) > 10_000_000
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        eventually(lambda: psutil.Process(ended.pid).status() == psutil.STATUS_ZOMBIE)
        assert command_line(ended.pid) == ()
        ended.wait()
        assert (command_line(ended.pid), resident_bytes(ended.pid)) == ((), 0)


# As on Windows, where it can neither fork nor wait for a pipe.
WITHOUT_FORK = """
import os, runpy, select, sys
del os.fork, select.select
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_watchdog_that_cannot_wait_for_its_pipe_kills_when_the_pipe_ends(tmp_path: Path) -> None:
    with (
        subprocess.Popen(["/bin/sleep", "60"]) as watched,
        subprocess.Popen(["/bin/sleep", "60"]) as forgotten,
        subprocess.Popen(
            [sys.executable, "-c", WITHOUT_FORK, watchdog_program.__file__, str(os.getpid())],
            stdin=subprocess.PIPE,
        ) as watchdog,
    ):
        (tmp_path / "data").mkdir()
        assert watchdog.stdin is not None
        watchdog.stdin.write(f"+{watched.pid}\n+{forgotten.pid}\n".encode())
        watchdog.stdin.flush()
        watchdog.stdin.write(f"-{forgotten.pid}\n{tmp_path / 'data'}\n".encode())
        watchdog.stdin.close()
        assert watchdog.wait(timeout=60) == 0
        assert watched.wait(timeout=60) == -signal.SIGKILL
        assert not (tmp_path / "data").exists()
        assert forgotten.poll() is None
        forgotten.kill()


def test_ending_processes_spares_those_that_are_not_ours() -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as ours, subprocess.Popen(["/bin/sleep", "60"]) as other:
        end_processes(
            [ours.pid, other.pid],
            is_ours=lambda pid: pid == ours.pid and ours.poll() is None,
            deadline=_within(60),
            clock=SYSTEM_CLOCK,
        )
        assert ours.wait(timeout=60) == -signal.SIGTERM
        assert other.poll() is None
        other.kill()
