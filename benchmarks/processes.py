"""CPU seconds and peak memory by kind of process, and the CPU of the machine's other processes.

Reads ``/proc``: Linux only. The CPU of processes that ended during a round is in their parents' counters of
waited-for children. PySpark's daemon does not wait for its workers (it ignores SIGCHLD), so theirs is what
was seen last, at most 0.2 s before their end.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

Kind = Literal["client", "jvm", "python", "broker"]
KINDS: tuple[Kind, ...] = ("client", "jvm", "python", "broker")
"""The process that runs the contender (with Spark: the driver's Python), Spark's JVM, Spark's Python
processes (planner, daemon, workers), and the broker."""


_LOOK_S = 0.2
_SIGCHLD_BIT = 1 << (signal.SIGCHLD - 1)


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds and peak resident bytes by kind, and CPU seconds of all other processes."""

    cpu_s: Mapping[Kind, float]
    peak_rss: Mapping[Kind, int]
    other_cpu_s: float
    stolen_s: float


class Meter:
    """Measures processes over a period.

    Parameters
    ----------
    roots : Mapping[int, Kind]
        Process ids. Their descendants are included.
    """

    def __init__(self, roots: Mapping[int, Kind]) -> None:
        self._roots = dict(roots)
        reset_peak_rss(pid for pid, _ in self._tree())
        self._unwaited: dict[int, tuple[Kind, float]] = {}
        self._lost: dict[Kind, float] = dict.fromkeys(KINDS, 0.0)
        self._cpu = self._cpu_by_kind()
        self._machine = psutil.cpu_times()
        self._own = time.process_time()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="meter", daemon=True)
        self._thread.start()

    def stop(self) -> Usage:
        """Return the usage since the start."""
        self._ended.set()
        self._thread.join()
        now = self._cpu_by_kind()
        cpu = {kind: now[kind] - self._cpu[kind] for kind in KINDS if now[kind]}
        machine = psutil.cpu_times()
        busy = sum(
            getattr(machine, name) - getattr(self._machine, name) for name in ("user", "nice", "system")
        )
        other = busy - sum(cpu.values()) - (time.process_time() - self._own)
        peak: Counter[Kind] = Counter()
        for pid, kind in self._tree():
            peak[kind] += peak_rss(pid)
        stolen = getattr(machine, "steal", 0.0) - getattr(self._machine, "steal", 0.0)
        return Usage(cpu, dict(peak), max(0.0, other), stolen)

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self._cpu_by_kind()

    def _tree(self) -> Iterator[tuple[int, Kind]]:
        for root, kind in self._roots.items():
            with contextlib.suppress(psutil.NoSuchProcess):
                yield from _with_descendants(psutil.Process(root), kind)

    def _cpu_by_kind(self) -> dict[Kind, float]:
        cpu: dict[Kind, float] = dict.fromkeys(KINDS, 0.0)
        unwaited: dict[int, tuple[Kind, float]] = {}
        for pid, kind in self._tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                times = process.cpu_times()
                own, children = times.user + times.system, times.children_user + times.children_system
                cpu[kind] += own
                # The children that a JVM or a Python daemon waited for are Python processes.
                heirs: Kind = kind if kind == "broker" else "python"
                cpu[heirs] += children
                if pid in self._unwaited or _ignores_children(process.ppid()):
                    unwaited[pid] = kind, own + children
        for pid in self._unwaited.keys() - unwaited.keys():
            kind, seen = self._unwaited[pid]
            self._lost[kind] += seen
        self._unwaited = unwaited
        return {kind: cpu[kind] + self._lost[kind] for kind in KINDS}


def _ignores_children(pid: int) -> bool:
    """Return whether the children of a process end without being waited for."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("SigIgn:"):
                return bool(int(line.split()[1], 16) & _SIGCHLD_BIT)
    return False


def _with_descendants(process: psutil.Process, kind: Kind) -> Iterator[tuple[int, Kind]]:
    yield process.pid, kind
    for child in process.children():
        with contextlib.suppress(psutil.NoSuchProcess):
            yield from _with_descendants(child, "jvm" if child.name() == "java" else "python")


def reset_peak_rss(pids: Iterable[int]) -> None:
    """Reset the peak memory of these processes."""
    for pid in pids:
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def peak_rss(pid: int) -> int:
    """Return a process's peak resident set since `reset_peak_rss`, in bytes, or 0 if it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def machine_facts() -> dict[str, object]:
    """Return the facts of the machine for the report."""
    model = ""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=30, check=False)
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": (java.stderr or java.stdout).partition("\n")[0],
    }
