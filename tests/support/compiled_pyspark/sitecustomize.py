"""Have Spark's Python processes import PySpark from where it is installed, with its modules compiled.

Spark puts a zip of PySpark's sources first on their path, so that each of them compiles what it imports:
three quarters of the time that a process takes to start. When a stream with a Python source starts, Spark
waits 10 s for one, whatever else the machine does. This folder is on the ``PYTHONPATH`` of all that tests
start.
"""

import sys

_ZIP = "/pyspark/python/lib/pyspark.zip"

sys.path[:] = [entry.removesuffix(_ZIP) for entry in sys.path]
