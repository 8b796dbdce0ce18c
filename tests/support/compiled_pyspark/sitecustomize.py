"""Have Spark's Python processes import PySpark from where it is installed, with its modules compiled.

Spark puts a zip of PySpark's sources first on their path, so that each of them compiles what it imports:
three quarters of the time that a process takes to start. When a stream with a Python source starts, Spark
waits 10 s for one, whatever else the machine does. This folder is on the ``PYTHONPATH`` of all that tests
start.

Spark's daemons fork a process for each worker, which then imports pandas and Arrow. In tests they import them
once, before they fork. The package under test is imported by each worker, as always.
"""

import contextlib
import importlib
import os
import sys

_ZIP = "/pyspark/python/lib/pyspark.zip"

sys.path[:] = [entry.removesuffix(_ZIP) for entry in sys.path]

if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # or numpy starts threads, which a fork does not copy
    for _name in ("pyspark.worker", *sys.orig_argv[3:4], "pandas", "pyarrow.compute"):
        with contextlib.suppress(ImportError):
            importlib.import_module(_name)
