"""Kills the servers of an owner process that has ended for any reason. Run as a script, not imported.

It reads one instruction per line from standard input, a pipe whose other end only the owner holds:
``+PID`` watch this process, ``-PID`` stop watching it, ``/FOLDER`` remove this folder too. When the pipe
ends, or the owner is no longer its parent (a fork of the owner may keep the pipe open), it kills all
watched processes and removes the folders.

``PR_SET_PDEATHSIG`` would need no process, but it is Linux only and fires when the *thread* that started
the child ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys

_PARENT_CHECK_S = 1.0
_HAS_FORK = hasattr(os, "fork")


def main() -> None:
    """Run until the owner has ended, then clean up."""
    owner = int(sys.argv[1])
    pids: set[int] = set()
    folders: set[str] = set()
    pending = b""
    while True:
        # The order matters: instructions written before the owner's death must still be read after it.
        orphaned = _HAS_FORK and os.getppid() != owner
        if _can_read(0 if orphaned else _PARENT_CHECK_S):
            data = os.read(0, 65536)
            if not data:
                break
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                _obey(os.fsdecode(line), pids, folders)
        elif orphaned:
            break
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))  # on Windows, SIGTERM kills
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _can_read(timeout_s: float) -> bool:
    """Wait for input. Windows cannot wait for a pipe, and need not: without forks only the owner holds it."""
    return not _HAS_FORK or bool(select.select([0], [], [], timeout_s)[0])


def _obey(line: str, pids: set[int], folders: set[str]) -> None:
    if line.startswith("+"):
        pids.add(int(line[1:]))
    elif line.startswith("-"):
        pids.discard(int(line[1:]))
    else:
        folders.add(line)


if __name__ == "__main__":
    main()
