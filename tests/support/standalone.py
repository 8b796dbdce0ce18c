"""A standalone cluster of Spark: a master and workers as processes of this machine, on loopback."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark
from tests.support.wait import eventually

ROOT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
DEPLOY = "org.apache.spark.deploy"
_OTHER_PYSPARK = () if SPARK_HOME.is_relative_to(sys.prefix) else (str(SPARK_HOME.parent),)
"""Where another PySpark is than that of the environment, as in `make test-matrix`."""


def environment(**more: str) -> dict[str, str]:
    """Return what a process of a deployment is given."""
    python = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
    java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # of many JVMs that live for seconds
    path = os.pathsep.join([*_OTHER_PYSPARK, str(ROOT / "src")])
    here = {"SPARK_LOCAL_IP": "127.0.0.1"}  # else a process listens on an address of the machine's network
    return {**os.environ, **python, **here, "PYTHONPATH": path, "JAVA_TOOL_OPTIONS": java, **more}


def is_executor(process: psutil.Process) -> bool:
    """Whether a process runs an executor."""
    try:
        return any("CoarseGrainedExecutorBackend" in argument for argument in process.cmdline())
    except psutil.NoSuchProcess:  # it ended, and nobody has asked how
        return False


@dataclass(frozen=True, slots=True)
class Program:
    """A program of Spark that runs."""

    process: subprocess.Popen[bytes]
    log: Path

    def executors(self) -> list[psutil.Process]:
        """Return the executors that a worker has started: it has other children too, for moments."""
        return [child for child in psutil.Process(self.process.pid).children() if is_executor(child)]

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(30)


Start = Callable[..., Program]


@contextmanager
def programs(folder: Path, **environ: str) -> Iterator[Start]:
    """Return a function that starts programs of Spark: ``start(name, *args, **environment)``."""
    with ExitStack() as stack:

        def start(name: str, *args: str, **more: str) -> Program:
            log_file = folder / f"{name}.log"
            with log_file.open("wb") as log:
                process = subprocess.Popen(
                    [str(SPARK_HOME / "bin" / "spark-class"), *args],
                    stdout=log,
                    stderr=log,
                    cwd=folder,
                    env=environment(**{**environ, **more}),
                )
            program = Program(process, log_file)
            stack.callback(program.stop)
            return program

        yield start


_SMALL = {"SPARK_DAEMON_MEMORY": "128m"}
_PORTS = ("--port", "0", "--webui-port", "0")


def start_master(start: Start) -> str:
    """Start a master and return its address."""
    log = start("master", f"{DEPLOY}.master.Master", "--host", "127.0.0.1", *_PORTS, **_SMALL).log
    found = eventually(
        lambda: re.search(r"Starting Spark master at (spark://\S+)", log.read_text()), 60, what="a master"
    )
    return found[1]


def start_worker(start: Start, master: str, name: str, host: str, folder: Path, *, cores: int) -> Program:
    """Start a worker.

    Two names of one address (127.0.0.1 and localhost) are two hosts to a cluster. An address of its own for
    the second one, 127.0.0.2, is not to be had on every machine.
    """
    place = ("--host", host, *_PORTS, "-d", str(folder / name), "-c", str(cores), "-m", "600M", master)
    return start(name, f"{DEPLOY}.worker.Worker", *place, **_SMALL)
