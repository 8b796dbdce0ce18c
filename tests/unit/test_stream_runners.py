"""Processes of streams' sources that are forked are what Spark would start, and leave nothing behind."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest
from tests.support.lean_jvm import lean_workers
from tests.support.stream_runners import VARIABLE, stream_runners

RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
SECRET: Final = "a secret"
PATIENCE_S: Final = 120


@pytest.fixture(scope="module")
def environ() -> Iterator[dict[str, str]]:
    """The environment of a session whose sources are forked."""
    environ = {name: value for name, value in os.environ.items() if name != "TEST_COMPILED"}
    lean_workers(environ)
    with stream_runners(environ) as place:
        if place is None:
            pytest.skip("this system has no pidfd_open")
        yield environ | {VARIABLE: place}


class Spark:
    """What Spark does with such a process: it starts it, waits for its connection and talks to it."""

    def __init__(self, environ: dict[str, str], folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            given = {
                "PYTHON_WORKER_FACTORY_PORT": str(listener.getsockname()[1]),
                "PYTHON_WORKER_FACTORY_SECRET": SECRET,
            }
            self.process = subprocess.Popen(
                [sys.executable, "-m", RUNNER],
                env=environ | given,
                cwd=folder,
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            listener.settimeout(PATIENCE_S)
            self.worker, _ = listener.accept()
        self.worker.settimeout(PATIENCE_S)
        (length,) = struct.unpack("!i", self.worker.recv(4, socket.MSG_WAITALL))
        assert self.worker.recv(length, socket.MSG_WAITALL) == SECRET.encode()
        self.worker.sendall(struct.pack("!i2s", 2, b"ok"))
        (self.pid,) = struct.unpack("!i", self.worker.recv(4, socket.MSG_WAITALL))

    def close(self) -> None:
        self.worker.close()
        self.process.kill()
        self.process.communicate(timeout=PATIENCE_S)


@pytest.fixture
def spark(environ: dict[str, str], tmp_path: Path) -> Iterator[Spark]:
    spark = Spark(environ, tmp_path)
    yield spark
    spark.close()


def test_a_forked_process_has_the_place_and_environment_of_the_one_that_spark_started(
    spark: Spark, tmp_path: Path
) -> None:
    assert spark.pid != spark.process.pid
    forked = psutil.Process(spark.pid)
    assert forked.ppid() not in (spark.process.pid, os.getpid()), "it was started, not forked"
    assert forked.cwd() == str(tmp_path)


def test_it_says_what_it_says_and_ends_as_it_ends(spark: Spark) -> None:
    spark.worker.sendall(struct.pack("!i3s", 3, b"0.0"))  # no version of Python that it has
    with spark.worker.makefile("rb") as answer:
        assert b"PYTHON_VERSION_MISMATCH" in answer.read()
    assert spark.process.wait(timeout=PATIENCE_S) == 255  # sys.exit(-1)
    assert not psutil.pid_exists(spark.pid), "nobody has asked how it ended"


def test_it_ends_when_spark_kills_the_one_that_it_started(spark: Spark) -> None:
    spark.process.kill()
    assert spark.worker.recv(1) == b"", "the other end is closed"


def test_none_is_forked_where_programs_run_as_for_users() -> None:
    with stream_runners({"TEST_COMPILED": "1"}) as place:
        assert place is None
