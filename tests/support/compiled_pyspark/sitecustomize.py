"""Have Spark's Python processes import PySpark from where it is installed, with its modules compiled.

Spark puts a zip of PySpark's sources first on their path, so that each of them compiles what it imports:
three quarters of the time that a process takes to start. When a stream with a Python source starts, Spark
waits 10 s for one, whatever else the machine does. This folder is on the ``PYTHONPATH`` of all that tests
start.

Spark's daemons fork a process for each worker, which then imports pandas, Arrow and the source. In tests they
import them once, before they fork; the package only if it is that of this tree. A worker imports it in half a
second, and one that failed is not used again. Programs of ``tests/spark`` show that a worker can import it.
"""

import contextlib
import importlib
import importlib.util
import os
import sys
from pathlib import Path

_ZIP = "/pyspark/python/lib/pyspark.zip"
_TREE = Path(__file__).parents[3] / "src"
_OURS = ("spark.source", "spark.read.batch", "spark.read.stream", "spark.write.writer")

sys.path[:] = [entry.removesuffix(_ZIP) for entry in sys.path]


def _is_ours() -> bool:
    found = importlib.util.find_spec("pyspark_rocketmq")
    return found is not None and found.origin is not None and Path(found.origin).is_relative_to(_TREE)


if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # or numpy starts threads, which a fork does not copy
    for _name in ("pyspark.worker", *sys.orig_argv[3:4], "pandas", "pyarrow.compute"):
        with contextlib.suppress(ImportError):
            importlib.import_module(_name)
    if _is_ours():
        for _name in _OURS:
            importlib.import_module(f"pyspark_rocketmq.{_name}")
