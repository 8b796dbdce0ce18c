"""An interpreter that lacks this package is named in one sentence, before Spark reports something else."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from tests.support.scratch import scratch_env
from tests.support.wait import BUSY
from tests.support.wheel import ROOT

SCRIPT = f"""
import sys
sys.path.insert(0, {str(ROOT / "src")!r})
from pyspark.sql import SparkSession
from pyspark_rocketmq.spark import register
from pyspark_rocketmq.sql import execute

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
for attempt in (lambda: register(spark), lambda: execute(spark, "SELECT 1")):
    try:
        attempt()
    except Exception as error:
        print(type(error).__name__, error, flush=True)
"""


@pytest.mark.needs("programs")
@pytest.mark.parametrize("variable", ["PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"])
def test_workers_without_the_package(tmp_path: Path, variable: str) -> None:
    venv.EnvBuilder(symlinks=True).create(tmp_path / "bare")
    bare = tmp_path / "bare" / "bin" / "python"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environ
        # PYTHONPATH would give the bare interpreter this tree.
        | {variable: str(bare), "PYTHONPATH": "", "SPARK_LOCAL_IP": "127.0.0.1"}
        | scratch_env(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200 * BUSY,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("RocketMQError")]
    assert len(lines) == 2, done.stdout
    for line in lines:
        assert f"data sources with {bare}, which lacks this package" in line
        assert "No module named 'pyspark_rocketmq'" in line
