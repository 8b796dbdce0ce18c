"""Processes that Spark starts for each streaming query, forked from one that has imported everything.

Spark starts a Python process for each query with a Python source, and one for each with state in Python. It
imports PySpark, Arrow and the source: a second of CPU. The shared session of the tests has these processes
from here: what Spark starts, see `compiled_pyspark/sitecustomize.py`, hands on its environment and streams,
waits for the process that is forked, and ends as that ends. A forked process ends when the one that Spark
started is killed.

With ``TEST_COMPILED``, as in `make test-all` and `make smoke`, and in separate programs, they start as usual.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Final, NoReturn

__all__ = ["stream_runners"]

VARIABLE: Final = "TEST_STREAM_RUNNERS"
"""Where processes are asked for: the path of a socket."""

_IMPORTED: Final = (
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
    "pandas",
    "pyarrow.compute",
    "pyspark_rocketmq.spark.source",
    "pyspark_rocketmq.spark.read.stream",
)
_STREAMS: Final = 3
_ENDED: Final = 1
"""The status of a forked process whose origin was killed."""


@contextlib.contextmanager
def stream_runners(environ: MutableMapping[str, str]) -> Iterator[str | None]:
    """Run the process that forks others: the value of `VARIABLE`, None where all start as usual."""
    if environ.get("TEST_COMPILED") or not hasattr(os, "pidfd_open"):
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="runners-") as folder:
        address = str(Path(folder) / "socket")
        with subprocess.Popen(
            [sys.executable, "-m", __spec__.name, address],
            env={**environ, "OMP_NUM_THREADS": "1"},  # or numpy starts threads, which a fork does not copy
            stdin=subprocess.PIPE,  # at its end the process ends
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n", "the process that forks others did not start"
            yield address
            process.communicate(timeout=60)


class _Forks:
    """Forks a process for whoever connects, and tells each how it ended."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(sys.stdin, selectors.EVENT_READ)
        self._waiting = dict[int, tuple[int, socket.socket]]()

    def run(self) -> None:
        """Serve until the end of the standard input. In a forked process, it never returns."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    origin, _ = self._listener.accept()
                    if (pid := os.fork()) == 0:
                        self._listener.close()
                        self._selector.close()
                        _be_runner(origin)
                    self._wait(pid, origin)
                elif key.fileobj is sys.stdin:
                    return
                else:
                    self._tell(key.fd)

    def _wait(self, pid: int, origin: socket.socket) -> None:
        process = os.pidfd_open(pid)
        self._waiting[process] = pid, origin
        self._selector.register(process, selectors.EVENT_READ)

    def _tell(self, process: int) -> None:
        pid, origin = self._waiting.pop(process)
        self._selector.unregister(process)
        os.close(process)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with origin, contextlib.suppress(OSError):  # it was killed
            origin.sendall(struct.pack("!i", status))


def _be_runner(origin: socket.socket) -> NoReturn:
    """Become the process that Spark started."""
    head, streams, _, _ = socket.recv_fds(origin, 4, _STREAMS)
    (length,) = struct.unpack("!i", head)
    asked = json.loads(origin.recv(length, socket.MSG_WAITALL))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(asked["environ"])
    os.chdir(asked["folder"])
    sys.path[:] = asked["path"]
    threading.Thread(target=_end_with, args=(origin,), name="end with origin", daemon=True).start()
    del sys.modules[asked["module"]]
    runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)
    sys.exit()


def _end_with(origin: socket.socket) -> None:
    with contextlib.suppress(OSError):
        origin.recv(1)
    os._exit(_ENDED)


def main(address: str) -> None:
    """Import everything, then fork whenever someone asks."""
    for name in _IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        print("ready", flush=True)
        _Forks(listener).run()


if __name__ == "__main__":
    main(sys.argv[1])
