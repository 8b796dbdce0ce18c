"""What the benchmarks measure with."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.processes import Meter

_DAEMON = """
import os, signal, sys, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as PySpark's daemon: nobody waits for its workers
sys.stdin.readline()
if os.fork() == 0:
    while time.process_time() < 1.0:
        pass
    os._exit(0)
try:
    os.wait()
except ChildProcessError:  # the worker has ended
    print("ended", flush=True)
sys.stdin.readline()
"""


def test_the_cpu_of_workers_that_ended_counts():
    command = [sys.executable, "-S", "-c", _DAEMON]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as daemon:
        meter = Meter({daemon.pid: "client"})
        daemon.stdin.write("\n")
        daemon.stdin.flush()
        assert daemon.stdout.readline() == "ended\n"
        assert meter.stop().cpu_s["python"] > 0.5
        daemon.stdin.close()
