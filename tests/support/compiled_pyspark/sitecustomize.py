"""Have Spark's Python processes import PySpark from where it is installed, with its modules compiled.

Spark puts a zip of PySpark's sources first on their path, so that each of them compiles what it imports:
three quarters of the time that a process takes to start. (`make setup` compiles that of ``.venv``, but
not those of other releases that tests use.) This folder is on the ``PYTHONPATH`` of all that tests start.

When a stream with a Python source starts, Spark waits 10 s for its process to connect, whatever else the
machine does, and after that for as long as it takes. PySpark's process connects when it has imported
everything. In tests it connects first.

Spark's daemons fork a process for each worker, which then imports pandas, Arrow and the source. In tests they
import them once, before they fork; the package only if it is that of this tree. A worker imports it in half a
second, and one that failed is not used again. Programs of ``tests/spark`` show that a worker can import it.
Those that Spark starts for each streaming query are forked, too, see `stream_runners`.
"""

import contextlib
import importlib
import importlib.util
import json
import os
import socket
import struct
import sys
from pathlib import Path

_ZIP = "/pyspark/python/lib/pyspark.zip"
_TREE = Path(__file__).parents[3] / "src"
_OURS = ("spark.source", "spark.read.batch", "spark.read.stream", "spark.write.writer")

_FORKED = (
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
)

sys.path[:] = [entry.removesuffix(_ZIP) for entry in sys.path]


def _is_ours() -> bool:
    found = importlib.util.find_spec("pyspark_rocketmq")
    return found is not None and found.origin is not None and Path(found.origin).is_relative_to(_TREE)


def _connect(port: int, secret: str) -> None:
    """Connect as `pyspark.util.local_connect_and_auth` does, and have it return this connection."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    stream = connection.makefile("rwb", 65536)
    stream.write(struct.pack("!i", len(secret)) + secret.encode())
    stream.flush()
    (length,) = struct.unpack("!i", stream.read(4))
    assert stream.read(length) == b"ok"
    util = importlib.import_module("pyspark.util")
    connect = util.local_connect_and_auth
    opened = {port: (stream, connection)}
    util.local_connect_and_auth = lambda to, *args: opened.pop(to, None) or connect(to, *args)


def _have_forked(address: str) -> None:
    """Have `stream_runners` fork a process that does what this one is for, and end as it ends."""
    asked = {
        "module": sys.orig_argv[2],
        "environ": dict(os.environ),
        "folder": os.getcwd(),  # noqa: PTH109
        "path": sys.path,
    }
    body = json.dumps(asked).encode()
    with socket.socket(socket.AF_UNIX) as forks:
        forks.connect(address)
        socket.send_fds(forks, [struct.pack("!i", len(body))], [0, 1, 2])
        forks.sendall(body)
        (status,) = struct.unpack("!i", forks.recv(4, socket.MSG_WAITALL))
    os._exit(status if status >= 0 else 128 - status)


if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # or numpy starts threads, which a fork does not copy
    for _name in ("pyspark.worker", *sys.orig_argv[3:4], "pandas", "pyarrow.compute"):
        with contextlib.suppress(ImportError):
            importlib.import_module(_name)
    if _is_ours():
        for _name in _OURS:
            importlib.import_module(f"pyspark_rocketmq.{_name}")
elif sys.orig_argv[2:3] and sys.orig_argv[2] in _FORKED and "TEST_STREAM_RUNNERS" in os.environ:
    _have_forked(os.environ["TEST_STREAM_RUNNERS"])
elif "-m pyspark." in " ".join(sys.orig_argv[1:3]) and "PYTHON_WORKER_FACTORY_PORT" in os.environ:
    _connect(int(os.environ["PYTHON_WORKER_FACTORY_PORT"]), os.environ["PYTHON_WORKER_FACTORY_SECRET"])
