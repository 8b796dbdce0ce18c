"""Spark's Python processes in tests start in the time that Spark gives them."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import psutil
import pyspark
import pytest
from tests.support.lean_jvm import lean_workers

ROOT = Path(__file__).parents[2]


def test_spark_s_python_processes_do_not_compile_pyspark() -> None:
    home = Path(pyspark.__file__).parent
    environ = dict(os.environ)
    lean_workers(environ)
    # As PythonUtils.sparkPythonPath does.
    environ["PYTHONPATH"] = os.pathsep.join([str(home / "python/lib/pyspark.zip"), environ["PYTHONPATH"]])
    code = "import pyspark; print(pyspark.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert Path(done.stdout.strip()).resolve() == Path(pyspark.__file__).resolve()


def test_make_setup_archives_the_classes_of_spark() -> None:
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", "setup"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "-m tests.support.class_archive" in done.stdout


def test_a_worker_has_pandas_and_arrow_from_its_daemon() -> None:
    environ = os.environ | {"PYTHON_WORKER_FACTORY_SECRET": "none"}
    lean_workers(environ)
    with subprocess.Popen(
        [sys.executable, "-m", "pyspark.daemon", "pyspark.worker"],
        env=environ,
        stdin=subprocess.PIPE,  # at its end the daemon ends
        stdout=subprocess.PIPE,
    ) as daemon:
        assert daemon.stdout is not None
        (port,) = struct.unpack("!i", daemon.stdout.read(4))
        with socket.create_connection(("127.0.0.1", port), timeout=60) as worker:
            (pid,) = struct.unpack("!i", worker.recv(4, socket.MSG_WAITALL))
            # It waits for the secret: it has not imported anything itself.
            libraries = {Path(each.path).name.partition(".")[0] for each in psutil.Process(pid).memory_maps()}
        daemon.communicate(timeout=60)
    assert {"libarrow", "_multiarray_umath", "lib"} <= libraries


SLOW_NUMPY = """
import importlib, pathlib, sys, time

folder = pathlib.Path(__file__).parent
while not (folder / "connected").exists():
    time.sleep(0.01)
sys.path.remove(str(folder))
del sys.modules["numpy"]
importlib.import_module("numpy")
"""


def test_a_process_connects_before_it_imports_pyspark(tmp_path: Path) -> None:
    """Spark waits 10 s for the connection, and for nothing else."""
    secret, runner = "a secret", "pyspark.sql.streaming.python_streaming_source_runner"
    with socket.create_server(("127.0.0.1", 0)) as spark:
        environ = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]),
            "PYTHON_WORKER_FACTORY_PORT": str(spark.getsockname()[1]),
            "PYTHON_WORKER_FACTORY_SECRET": secret,
        }
        lean_workers(environ)
        (tmp_path / "numpy.py").write_text(SLOW_NUMPY)  # PySpark imports it
        with subprocess.Popen([sys.executable, "-m", runner], env=environ) as process:
            spark.settimeout(120)
            worker, _ = spark.accept()
            spark.close()  # it does not connect again
            worker.settimeout(120)
            with worker, worker.makefile("rwb") as stream:
                (length,) = struct.unpack("!i", stream.read(4))
                assert stream.read(length) == secret.encode()
                (tmp_path / "connected").touch()
                stream.write(struct.pack("!i2s", 2, b"ok"))
                stream.flush()
                (pid,) = struct.unpack("!i", stream.read(4))
            assert pid == process.pid


PROBE = """
import sys

def main(infile, outfile):
    outfile.write(" ".join(name for name in sys.modules if name.startswith("pyspark_rocketmq")).encode())
    outfile.flush()
    sys.exit(1)
"""


def modules_of_a_worker(environ: dict[str, str]) -> set[str]:
    """Return what of the package a worker has before it imports anything itself."""
    environ = environ | {"PYTHON_WORKER_FACTORY_SECRET": "none"}
    with subprocess.Popen(
        [sys.executable, "-m", "pyspark.daemon", "pyspark_probe"],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as daemon:
        assert daemon.stdout is not None
        (port,) = struct.unpack("!i", daemon.stdout.read(4))
        with socket.create_connection(("127.0.0.1", port), timeout=60) as worker:
            worker.sendall(struct.pack("!i4s", 4, b"none"))
            worker.shutdown(socket.SHUT_WR)
            with worker.makefile("rb") as answer:
                _pid, length = struct.unpack("!ii", answer.read(8))
                assert answer.read(length) == b"ok"
                found = answer.read().decode()
        daemon.communicate(timeout=60)
    return set(found.split())


@pytest.mark.parametrize("ours", [True, False])
def test_a_worker_has_the_package_of_this_tree_and_no_other(tmp_path: Path, ours: bool) -> None:
    (tmp_path / "pyspark_probe.py").write_text(PROBE)
    (tmp_path / "other" / "pyspark_rocketmq").mkdir(parents=True)
    (tmp_path / "other" / "pyspark_rocketmq" / "__init__.py").write_text("")
    tree = ROOT / "src" if ours else tmp_path / "other"
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (tmp_path, tree)))}
    lean_workers(environ)
    found = modules_of_a_worker(environ)
    if ours:
        assert {"pyspark_rocketmq.spark.read.stream", "pyspark_rocketmq.client.read.queue_reader"} <= found
    else:
        assert found == set()
