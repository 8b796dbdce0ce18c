"""The wheel in new environments: with PySpark, for workers that have only the core, and packed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.standalone import SPARK_HOME, programs, start_master, start_worker
from tests.support.wheel import ROOT, Installation, build

from pyspark_rocketmq.testing import MockCluster

pytestmark = [pytest.mark.needs("programs"), pytest.mark.timeout(1_200)]

TOPIC = "environments"
JOB = """
import json, sys
from pyspark.sql import SparkSession
place, folder = sys.argv[1:]
builder = SparkSession.builder.master(place).config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
spark = builder.getOrCreate()
source = {"topic": "environments"}  # NAMESRV_ADDR is the driver's only: tasks get the rest
sent = spark.createDataFrame([(bytearray(b"one"),), (bytearray(b"two"),)], "body binary")
sent.write.format("rocketmq").mode("append").options(**source).save()
batch = spark.read.format("rocketmq").options(**source).load()
stream = spark.readStream.format("rocketmq").options(**source, startingOffsets="earliest").load()
writer = stream.selectExpr("CAST(body AS STRING) body").writeStream.format("json").trigger(availableNow=True)
query = writer.start(folder + "/out", checkpointLocation=folder + "/checkpoint")
assert query.awaitTermination(300)
print("@seen " + json.dumps({
    "batch": sorted(bytes(row.body).decode() for row in batch.select("body").collect()),
    "stream": sorted(row.body for row in spark.read.schema("body string").json(folder + "/out").collect()),
}))
"""
BARE = {
    "PYTHONPATH": "",
    "PYSPARK_PYTHON": "/no/python",
    "PYSPARK_DRIVER_PYTHON": "/no/python",
    "NAMESRV_ADDR": "",
}
"""What the hosts of a cluster have: nothing."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (wheel,) = build(ROOT, tmp_path_factory.mktemp("dist"), "wheel")
    return wheel


@pytest.fixture
def core(wheel: Path, tmp_path: Path) -> Installation:
    return Installation(tmp_path / "core", wheel)


@pytest.fixture
def messages() -> Iterator[MockCluster]:
    with MockCluster({TOPIC: 2}) as mq:
        yield mq


def check(done: subprocess.CompletedProcess[str]) -> None:
    line = next((line for line in done.stdout.splitlines() if line.startswith("@seen ")), None)
    assert line is not None, done.stderr[-4_000:]
    assert json.loads(line[6:]) == {"batch": ["one", "two"], "stream": ["one", "two"]}


def test_the_spark_extra_is_all_that_a_job_needs(wheel: Path, messages: MockCluster, tmp_path: Path) -> None:
    environment = Installation(tmp_path / "venv", wheel, "spark")
    done = environment.run(
        *("python", "-c", JOB, "local[1]", str(tmp_path)),
        cwd=tmp_path,
        timeout_s=600,
        NAMESRV_ADDR=messages.name_server,
        PYSPARK_PYTHON=str(environment.bin / "python"),
    )
    check(done)


def test_workers_need_no_more_than_the_core(
    wheel: Path, core: Installation, messages: MockCluster, tmp_path: Path
) -> None:
    """Spark gives its workers PySpark; their interpreter has neither PySpark nor pandas."""
    driver = Installation(tmp_path / "venv", wheel, "spark")
    python = str(core.bin / "python")
    done = driver.run(
        *("python", "-c", JOB, "local[1]", str(tmp_path)),
        cwd=tmp_path,
        timeout_s=600,
        NAMESRV_ADDR=messages.name_server,
        PYSPARK_PYTHON=python,
        PYSPARK_DRIVER_PYTHON=python,
        SPARK_HOME=str(SPARK_HOME),
    )
    check(done)


def test_a_packed_environment_goes_to_the_executors_of_a_cluster(
    core: Installation, messages: MockCluster, tmp_path: Path
) -> None:
    """Executors, which have neither the package nor Arrow, unpack an archive; so does the driver's host."""
    packed = tmp_path / "env.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(core.bin.parent, arcname=".")
    job = tmp_path / "driver"
    with tarfile.open(packed) as archive:
        archive.extractall(job / "env", filter="fully_trusted")
    (job / "job.py").write_text(JOB)
    with programs(tmp_path, **BARE) as start:
        master = start_master(start)
        start_worker(start, master, "worker", "127.0.0.1", tmp_path, cores=1)
        done = subprocess.run(
            [
                *(str(SPARK_HOME / "bin" / "spark-submit"), "--master", master),
                *("--archives", f"{packed}#env", "--conf", "spark.executor.memory=512m"),
                *("--conf", "spark.driver.host=127.0.0.1", "job.py", master, str(job)),
            ],
            cwd=job,
            env={
                **core.environ(SPARK_LOCAL_IP="127.0.0.1", NAMESRV_ADDR=messages.name_server),
                **dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), "env/bin/python"),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    check(done)


def test_the_hosts_of_a_cluster_have_the_environment(
    core: Installation, messages: MockCluster, tmp_path: Path
) -> None:
    """As deployment.md shows: the environment is neither on the path nor Spark's."""
    page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    java = shutil.which("java")
    assert java is not None
    programs_of_system = [str(Path(java).parent), *os.defpath.split(os.pathsep)]
    (command,) = re.findall(r"^## Standalone\n\n```\n(.*?)```", page, re.DOTALL | re.MULTILINE)
    with programs(tmp_path, **BARE) as start:
        master = start_master(start)
        start_worker(start, master, "worker", "127.0.0.1", tmp_path, cores=1)
        settings = ' --conf spark.executor.memory=512m --conf spark.driver.host=127.0.0.1 job.py "$@"'
        shown = {"spark://host:7077": master, "/opt/env/bin": str(core.bin), " job.py": settings}
        for words, ours in shown.items():
            assert words in command
            command = command.replace(words, ours)
        (tmp_path / "job.py").write_text(JOB)
        done = subprocess.run(
            ["bash", "-c", command, "bash", master, str(tmp_path)],
            cwd=tmp_path,
            env={
                **core.environ(SPARK_LOCAL_IP="127.0.0.1", NAMESRV_ADDR=messages.name_server),
                "PATH": os.pathsep.join([str(SPARK_HOME / "bin"), *programs_of_system]),
                "SPARK_HOME": str(SPARK_HOME),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    check(done)
