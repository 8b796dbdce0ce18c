"""Where the source runs besides a local session: clusters of processes, Spark Connect, pipelines."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from tests.support.standalone import (
    DEPLOY,
    ROOT,
    SPARK_HOME,
    Start,
    environment,
    programs,
    start_master,
    start_worker,
)
from tests.support.wait import BUSY, eventually

from pyspark_rocketmq.devcluster.system.ports import free_port

pytestmark = [pytest.mark.needs("programs"), pytest.mark.timeout(400)]

TIMEOUT_S = 180

WITHOUT_PACKAGE = """
import sys
sys.path = [folder for folder in sys.path if not folder.rstrip("/").endswith("/src")]
sys.meta_path = [finder for finder in sys.meta_path if "ditable" not in repr(finder)]
"""
"""What every Python imports first that shall not have the package, though it is installed here."""


def run(command: list[str], folder: Path, **more: str) -> str:
    """Run a command to its end and return what it printed."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S * BUSY,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-3_000:]}\n{done.stderr[-6_000:]}"
    return done.stdout


@pytest.fixture
def zipped(tmp_path: Path) -> str:
    """The package as a zip file, which is how a cluster gets it that does not have it."""
    file = tmp_path / "pyspark_rocketmq.zip"
    with zipfile.ZipFile(file, "w") as archive:
        for source in (ROOT / "src").rglob("*.py"):
            archive.write(source, source.relative_to(ROOT / "src"))
    return str(file)


@pytest.fixture
def hidden(tmp_path: Path) -> str:
    """A folder that hides the installed package from every Python that has it in its path."""
    folder = tmp_path / "hidden"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(WITHOUT_PACKAGE)
    return str(folder)


@pytest.fixture
def start(tmp_path: Path, hidden: str) -> Iterator[Start]:
    """Start programs of Spark, by default without the package."""
    with programs(tmp_path, PYTHONPATH=hidden) as starting:
        yield starting


@pytest.fixture
def master(start: Start, tmp_path: Path) -> str:
    """A standalone cluster: a master and two workers."""
    address = start_master(start)
    for name, host in (("one", "127.0.0.1"), ("two", "localhost")):
        start_worker(start, address, name, host, tmp_path, cores=2)
    return address


@pytest.fixture
def connect(start: Start, tmp_path: Path, zipped: str, hidden: str) -> str:
    """A Connect server that has the package, over a local cluster whose executor does not."""
    home = tmp_path / "spark"  # executors of a local cluster work below Spark's own folder
    home.mkdir()
    for entry in SPARK_HOME.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    port = free_port(random.Random())
    name = Path(zipped).name
    settings = {
        "spark.master": "local-cluster[1,2,600]",
        "spark.executor.memory": "512m",
        "spark.files": zipped,
        # Tasks work in their session's folder below the one that has the file, or in that one itself.
        "spark.executorEnv.PYTHONPATH": os.pathsep.join([hidden, name, f"../{name}"]),
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    log = start(
        "connect",
        f"{DEPLOY}.SparkSubmit",
        *(word for pair in settings.items() for word in ("--conf", "=".join(pair))),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"),
        PYTHONPATH=os.pathsep.join([hidden, zipped]),
        SPARK_HOME=str(home),
    ).log
    eventually(lambda: "Spark Connect server started" in log.read_text(), 90, what="a Connect server")
    return f"sc://127.0.0.1:{port}"


def job(server: str, *args: str, folder: Path, package: str, hidden: str) -> dict[str, Any]:
    """Run the job in a deployment and return what it saw."""
    script = str(Path(__file__).with_name("deployed_job.py"))
    path = os.pathsep.join([hidden, package])
    command = [sys.executable, script, server, *args, str(folder), package, hidden]
    printed = run(command, folder, PYTHONPATH=path)
    seen = json.loads(next(line for line in printed.splitlines() if line.startswith("@seen "))[6:])
    for file in seen["files"]:  # a copy of the zip file, sent to the executor
        assert "pyspark_rocketmq.zip/" in file, file
        assert not file.startswith(package), file
    return seen


def test_a_standalone_cluster_without_the_package_whose_tasks_run_twice(
    mq, send, topic, tmp_path: Path, zipped: str, hidden: str, master: str
) -> None:
    """Tasks that fail, whose process dies, or that hang until they have run a second time, elsewhere."""
    name = topic(queues=4)
    bodies = sorted(row[3] for row in send(name, 200))
    seen = job(master, mq.name_server, name, folder=tmp_path, package=zipped, hidden=hidden)
    assert seen["batch"] == seen["stream"] == bodies
    assert seen["attempts"] == ["0:1", "1:1", "2:1", "3:0"], "a task did not run twice"


def test_spark_connect_over_a_local_cluster_without_the_package(
    mq, send, topic, tmp_path: Path, zipped: str, hidden: str, connect: str
) -> None:
    name = topic(queues=2)
    bodies = sorted(row[3] for row in send(name, 50))
    seen = job(connect, mq.name_server, name, folder=tmp_path, package=zipped, hidden=hidden)
    assert seen["batch"] == seen["stream"] == bodies


@pytest.mark.since_spark("4.1")
def test_the_example_pipeline_goes_on_where_it_ended(mq, send, topic, tmp_path: Path) -> None:
    name = topic(queues=2)
    project = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "pipeline", project)
    spec = project / "spark-pipeline.yml"
    settings = yaml.safe_load(spec.read_text())
    settings["storage"] = f"file://{tmp_path}/storage"
    settings["configuration"] |= {
        "spark.rocketmq.nameServer": mq.name_server,
        "spark.rocketmq.topic": name,
        "spark.sql.shuffle.partitions": "2",
    }
    spec.write_text(yaml.safe_dump(settings))
    command = [str(Path(sys.executable).with_name("spark-pipelines")), "run", "--spec", str(spec)]
    command += ["--conf", "spark.sql.catalogImplementation=hive", "--conf", "spark.ui.enabled=false"]
    sent = []
    for count in (30, 12):
        sent += send(name, count, tags="t")
        run(command, project)
        found = table(project / "spark-warehouse" / "messages").column("body").to_pylist()
        assert sorted(found) == sorted(row[3] for row in sent)
    by_tag = table(project / "spark-warehouse" / "messages_by_tag").to_pylist()
    assert by_tag == [{"tags": "t", "count": 42}]


def table(folder: Path) -> Any:
    """Read a table of Parquet files."""
    return pq.read_table(list(folder.glob("*.parquet")), partitioning=None)
