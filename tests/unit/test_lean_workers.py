"""Spark's Python processes in tests start in the time that Spark gives them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
from tests.support.lean_jvm import lean_workers


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
